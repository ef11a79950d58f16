"""The line of the node of a norm's gradients: a call of norm_gradient.h."""

from __future__ import annotations

from tracea.core.dtype import DType
from tracea.core.expr import Constant, Input
from tracea.core.ops.rows import RowKind
from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.functors import load_functor, store_functor
from tracea.emitters.cpu.printer import Printer
from tracea.errors import EmitError
from tracea.semantic.index import Const
from tracea.semantic.nodes_norm_gradient import NormGradientTile

__all__ = ["norm_gradient"]

_X = Input(0)


def norm_gradient(printer: Printer, node: NormGradientTile) -> None:
    """Print the gradients of a block of rows."""
    printer.use("rows.h", "norm_gradient.h")
    get = node.intrinsic.attribute
    compute = DType.parse(str(get("compute")))
    if printer.buffer(node.sums).dtype is not compute or printer.step(node.sums, -1) != Const(1):
        raise EmitError(node=node.sums.buffer, detail=f"sums lie side by side in {compute.value}")
    streaming = bool(get("streaming"))
    grads, source = (load_functor(printer, _X, (part,), compute) for part in (node.grads, node.source))
    ones = node.weight is None
    weight = load_functor(printer, Constant(1.0) if ones else _X, () if ones else (node.weight,), compute)  # pyright: ignore[reportArgumentType]
    store = store_functor(printer, _X, (), compute, target=node.target, streaming=streaming)
    is_centred = "true" if node.kind is RowKind.LAYER_NORM else "false"
    types = f"{C_TYPES[compute]}, {is_centred}, {get('together')}, {get('prefetch')}"
    rows, columns = (printer.text(extent) for extent in node.target.extent)
    sums = f"{printer.address(node.sums)}, {printer.strides(node.sums)[0]}"
    printer.body.comment(f"NormGradientTile {node.kind.value} {node.target}")
    printer.body.line(
        f"norm_gradient_rows<{types}>({rows}, {columns}, {node.eps!r}, {sums}, {grads}, {source}, {weight}, {store});"
    )
    if streaming:
        printer.body.line("streaming_fence();")
