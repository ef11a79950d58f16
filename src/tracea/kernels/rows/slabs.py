"""How the axes of statistics become slabs: reduced axes side by side, whatever lay between them.

The axes are permuted, which costs nothing, so that neighbours merge and a row of the tile lies in memory as it is read.
Where the contiguous axis is reduced, the reduced axes come last: rows of one reduced axis, or slabs of two. Where it is
kept it comes last, behind one reduced axis: vectors of slabs side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tracea.core.ops.statistics import StatisticsOp
from tracea.core.tensor_type import Dim, StridedLayout, TensorType
from tracea.kernels.axes import AxisPlan

__all__ = ["SlabPlan", "Slabs", "as_source", "slab_plan", "slab_types"]


class Slabs(Enum):
    """What a tile of the last two merged axes is."""

    ROWS = "reduce_rows"  # a block of rows, each of which is a slab
    WHOLE = "reduce_slab"  # one slab
    COLUMNS = "reduce_columns"  # a block of columns, each of which is a slab


@dataclass(frozen=True, slots=True)
class SlabPlan:
    """An order of the source's axes, their merging, and what the last two merged axes are."""

    order: tuple[int, ...]
    axes: AxisPlan
    slabs: Slabs

    @property
    def reduced(self) -> tuple[int, ...]:
        """The merged axes that are reduced."""
        rank = len(self.axes.groups)
        return {Slabs.ROWS: (rank - 1,), Slabs.WHOLE: (rank - 2, rank - 1), Slabs.COLUMNS: (rank - 2,)}[self.slabs]

    def apply(self, type_: TensorType, dims: Sequence[Dim]) -> TensorType:
        """Return a tensor that broadcasts to ``dims``, the source's, in merged axes."""
        return self.axes.apply(_ordered(type_, self.order), [dims[axis] for axis in self.order])

    def dims(self, dims: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the merged extents."""
        return self.axes.dims([dims[axis] for axis in self.order])


def as_source(type_: TensorType, rank: int, axes: Sequence[int]) -> TensorType:
    """Return a type without the reduced ``axes`` as one of the source's rank, with extent 1 there."""
    shape: list[Dim] = [1] * rank
    strides = [0] * rank
    kept = [axis for axis in range(rank) if axis not in axes]
    for axis, dim, stride in zip(reversed(kept), reversed(type_.shape), reversed(type_.strides), strict=False):
        shape[axis], strides[axis] = dim, stride
    return TensorType(tuple(shape), type_.dtype, StridedLayout(tuple(strides)))


def slab_types(op: StatisticsOp) -> tuple[TensorType, ...]:
    """Return the types of the sources and of the result, each with axes that broadcast to the source's."""
    result = op.infer()
    is_wide = not op.reduced or op.keepdims
    return (*op.x, result if is_wide else as_source(result, len(op.source_shape), op.axes))


def slab_plan(op: StatisticsOp) -> SlabPlan | None:
    """Return the plan of an op; None where its reduced axes merge into more than the tiles have."""
    dims, rank = op.source_shape, len(op.source_shape)
    steps = _strides(_pivot(op), rank)
    far_first = sorted(range(rank), key=lambda axis: (dims[axis] != 1, -steps[axis]))
    reduced = [axis for axis in far_first if axis in op.axes]
    kept = [axis for axis in far_first if axis not in op.axes]
    nearest = min((steps[axis] for axis in reduced if dims[axis] != 1), default=0)
    inner = [axis for axis in kept if dims[axis] != 1 and 0 < steps[axis] < nearest]
    for columns in (inner, inner[-1:]):
        outer = [axis for axis in kept if axis not in columns]
        order = (*outer, *reduced, *columns)
        found = _fitting(op, order, len(outer), len(reduced)) if columns else None
        if found is not None:
            return found
    return _fitting(op, (*kept, *reduced), len(kept), len(reduced))


def _fitting(op: StatisticsOp, order: tuple[int, ...], before: int, reduced: int) -> SlabPlan | None:
    """Return the plan of an order of axes, of which some stand before the reduced ones; None where it has no tile."""
    dims = [op.source_shape[axis] for axis in order]
    positions = frozenset(range(before, before + reduced))
    types = [_ordered(type_, order) for type_ in slab_types(op)]
    axes = AxisPlan.of(dims, types, reduced=positions).with_row_axis()
    kinds = [any(axis in positions for axis in group) for group in axes.groups]
    if all(kinds):  # of a slab that is everything there is one
        axes, kinds = AxisPlan(axes.rank, ((), *axes.groups)), [False, *kinds]
    last_two = kinds[-2], kinds[-1]
    slabs = {(False, True): Slabs.ROWS, (True, True): Slabs.WHOLE, (True, False): Slabs.COLUMNS}.get(last_two)
    if slabs is None or any(kinds[:-2]):
        return None
    return SlabPlan(order, axes, slabs)


def _pivot(op: StatisticsOp) -> TensorType:
    """Return the source that is walked most: the first that has every element of its own."""
    whole = [x for x in op.x if x.shape == op.source_shape]
    return whole[0] if whole else op.x[0]


def _strides(type_: TensorType, rank: int) -> tuple[int, ...]:
    return (0,) * (rank - type_.rank) + type_.strides


def _ordered(type_: TensorType, order: tuple[int, ...]) -> TensorType:
    missing = len(order) - type_.rank
    shape, strides = (1,) * missing + type_.shape, (0,) * missing + type_.strides
    layout = StridedLayout(tuple(strides[axis] for axis in order))
    return TensorType(tuple(shape[axis] for axis in order), type_.dtype, layout)
