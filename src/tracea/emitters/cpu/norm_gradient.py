"""The lines of the nodes of a norm's gradients: calls of norm_gradient.h and plane_gradient.h."""

from __future__ import annotations

from tracea.core.dtype import DType
from tracea.core.expr import Constant, Input
from tracea.core.ops.rows import RowKind
from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.functors import load_functor, store_functor
from tracea.emitters.cpu.printer import Printer
from tracea.errors import EmitError
from tracea.semantic.index import Const
from tracea.semantic.nodes_norm_gradient import NormGradientTile, PlaneGradientTile

__all__ = ["norm_gradient", "plane_gradient"]

_X = Input(0)


def norm_gradient(printer: Printer, node: NormGradientTile) -> None:
    """Print the gradients of a block of rows."""
    printer.use("rows.h", "norm_gradient.h")
    get, compute = node.intrinsic.attribute, _compute(printer, node)
    is_centred = "true" if node.kind is RowKind.LAYER_NORM else "false"
    types = f"{C_TYPES[compute]}, {is_centred}, {get('together')}, {get('prefetch')}"
    rows, columns = (printer.text(extent) for extent in node.target.extent)
    sums = f"{printer.address(node.sums)}, {printer.strides(node.sums)[0]}"
    printer.body.comment(f"NormGradientTile {node.kind.value} {node.target}")
    printer.body.line(
        f"norm_gradient_rows<{types}>({rows}, {columns}, {node.eps!r}, {sums}, {_functors(printer, node, compute)});"
    )
    if get("streaming"):
        printer.body.line("streaming_fence();")


def plane_gradient(printer: Printer, node: PlaneGradientTile) -> None:
    """Print the gradients of a group of planes."""
    printer.use("rows.h", "plane_gradient.h")
    compute = _compute(printer, node)
    planes, length = (printer.text(extent) for extent in node.target.extent[-2:])
    each = "true" if node.sums.extent[-1] == node.target.extent[-2] else "false"
    sums = f"{printer.address(node.sums)}, {printer.strides(node.sums)[0]}"
    printer.body.comment(f"PlaneGradientTile {node.target}")
    printer.body.line(
        f"plane_gradient<{C_TYPES[compute]}, {each}>({planes}, {length}, {node.eps!r}, {sums}, "
        f"{_functors(printer, node, compute)});"
    )
    if node.intrinsic.attribute("streaming"):
        printer.body.line("streaming_fence();")


def _compute(printer: Printer, node: NormGradientTile | PlaneGradientTile) -> DType:
    """Return the type that sums are made in, and are."""
    compute = DType.parse(str(node.intrinsic.attribute("compute")))
    if printer.buffer(node.sums).dtype is not compute or printer.step(node.sums, -1) != Const(1):
        raise EmitError(node=node.sums.buffer, detail=f"sums lie side by side in {compute.value}")
    return compute


def _functors(printer: Printer, node: NormGradientTile | PlaneGradientTile, compute: DType) -> str:
    """Return what reads the gradient, the source and the weight, and what writes the result."""
    grads, source = (load_functor(printer, _X, (part,), compute) for part in (node.grads, node.source))
    ones = node.weight is None
    weight = load_functor(printer, Constant(1.0) if ones else _X, () if ones else (node.weight,), compute)  # pyright: ignore[reportArgumentType]
    streaming = bool(node.intrinsic.attribute("streaming"))
    store = store_functor(printer, _X, (), compute, target=node.target, streaming=streaming)
    return f"{grads}, {source}, {weight}, {store}"
