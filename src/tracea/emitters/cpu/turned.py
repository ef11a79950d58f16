"""The line of a copy that turns a matrix."""

from __future__ import annotations

from tracea.core.dtype import DType
from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.printer import Printer
from tracea.errors import EmitError
from tracea.semantic.access import Region
from tracea.semantic.index import Const
from tracea.semantic.nodes import PointwiseTile

__all__ = ["transpose_copy"]


def transpose_copy(printer: Printer, node: PointwiseTile) -> None:
    """Print the call: the source's rows lie next to each other, and the target's columns."""
    (source,) = node.inputs
    if (
        not isinstance(source, Region)
        or printer.step(source, -2) != Const(1)
        or printer.step(node.target, -1) != Const(1)
    ):
        raise EmitError(node="transpose_copy", detail="rows of the source and columns of the target are neighbours")
    streaming = bool(node.intrinsic.attribute("streaming"))
    compute = DType.parse(str(node.intrinsic.attribute("compute")))
    rows, columns = (printer.text(extent) for extent in node.target.extent[-2:])
    operands = (
        f"{rows}, {columns}, {printer.address(source)}, {printer.strides(source)[1]}, "
        f"{printer.address(node.target)}, {printer.strides(node.target)[0]}"
    )
    printer.body.comment(f"PointwiseTile {node.target}")
    if compute.nbytes <= 2:
        printer.use("transpose_narrow.h")
        printer.body.line(f"transpose_narrow({operands});")
        return
    printer.use("rows.h", "transpose_copy.h")
    printer.body.line(f"transpose_copy<{C_TYPES[compute]}, {'true' if streaming else 'false'}>({operands});")
    if streaming:
        printer.body.line("streaming_fence();")
