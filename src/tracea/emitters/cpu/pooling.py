"""The line of a pooled window."""

from __future__ import annotations

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.functors import store_functor
from tracea.emitters.cpu.printer import Printer
from tracea.errors import EmitError
from tracea.semantic.nodes import ReduceTile

__all__ = ["pool_window"]


def pool_window(printer: Printer, node: ReduceTile, kind: str) -> None:
    """Print the reduction of a window of (…, rows, columns, channels) to one pixel; ``kind`` is the header's name."""
    if len(node.inputs) != 1 or node.prologue != Input(0) or node.epilogue is not None:
        raise EmitError(node="ReduceTile", detail="a window is pooled from one image, as it is")
    printer.use("pool.h", "row_tiles.h")
    compute, source = DType.parse(str(node.intrinsic.attribute("compute"))), node.inputs[0]
    dtype = printer.buffer(source).dtype
    store = store_functor(printer, Input(0), (), compute, target=node.target, streaming=False)
    extents = ", ".join(printer.text(extent) for extent in node.shape[-3:])
    steps = ", ".join(printer.text(printer.step(source, axis)) for axis in (-3, -2, -1))
    printer.body.comment(f"ReduceTile {node.kind.value} {node.target}")
    printer.body.line(
        f"pool_window<{C_TYPES[compute]}, {kind}, {C_TYPES[dtype]}>({printer.address(source)}, {{{steps}}}, "
        f"{extents}, {printer.text(node.count)}, {store});"
    )
