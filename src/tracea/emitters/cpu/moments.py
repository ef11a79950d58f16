"""The lines of the nodes of columns' moments: calls of moments.h."""

from __future__ import annotations

from typing import Final

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.functors import load_functor, store_functor
from tracea.emitters.cpu.printer import Printer
from tracea.errors import EmitError
from tracea.semantic.access import Region
from tracea.semantic.index import Const
from tracea.semantic.nodes_moments import MomentsFold, MomentsTile

__all__ = ["column_moments", "fold_moments"]

_X = Input(0)
# Of each tensor. Measured on a Zen 3: 25 MB of x and a gradient 12.5 GB/s without, 22.3 with; what caches hold 0.97.
_AHEAD_BYTES: Final = 4096


def column_moments(printer: Printer, node: MomentsTile) -> None:
    """Print the sums of a part of the rows."""
    compute = _compute(printer, node, node.target)
    rows, columns = (printer.text(extent) for extent in node.source.extent[-2:])
    source, grads = _read(printer, node, compute)
    sums = f"{printer.address(node.target)}, {printer.strides(node.target)[0]}"
    printer.body.comment(f"MomentsTile {node.target}")
    ahead = _AHEAD_BYTES if node.intrinsic.attribute("prefetch") else 0
    printer.body.line(
        f"column_moments<{_types(node, compute)}, {ahead}>({rows}, {columns}, {source}, {grads}, {sums});"
    )


def fold_moments(printer: Printer, node: MomentsFold) -> None:
    """Print the moments of all rows from the sums of their parts."""
    compute = _compute(printer, node, node.states)
    rows, columns = (printer.text(extent) for extent in node.source.extent[-2:])
    source, grads = _read(printer, node, compute)
    about = load_functor(printer, _X, (node.about,), compute)
    store = store_functor(printer, _X, (), compute, target=node.target, streaming=False)
    part, row = (printer.text(printer.step(node.states, axis)) for axis in (-3, -2))
    printer.body.comment(f"MomentsFold {node.target}")
    printer.body.line(
        f"fold_moments<{_types(node, compute)}>({printer.text(node.step)}, {rows}, {columns}, "
        f"{printer.address(node.states)}, {part}, {row}, {source}, {about}, {grads}, {store});"
    )


def _compute(printer: Printer, node: MomentsTile | MomentsFold, sums: Region) -> DType:
    """Return the type that sums are made in, and are."""
    printer.use("rows.h", "moments.h")
    compute = DType.parse(str(node.intrinsic.attribute("compute")))
    if printer.buffer(sums).dtype is not compute or printer.step(sums, -1) != Const(1):
        raise EmitError(node=sums.buffer, detail=f"sums lie side by side in {compute.value}")
    return compute


def _types(node: MomentsTile | MomentsFold, compute: DType) -> str:
    return f"{C_TYPES[compute]}, {'false' if node.grads is None else 'true'}"


def _read(printer: Printer, node: MomentsTile | MomentsFold, compute: DType) -> tuple[str, str]:
    """Return what reads the rows, and those of the gradient."""
    source = load_functor(printer, _X, (node.source,), compute)
    return source, "NoGradient{}" if node.grads is None else load_functor(printer, _X, (node.grads,), compute)
