"""Merging of axes: neighbours that every operand walks like one become one, so that kernels see few and long loops.

A (8, 12, 128, 64) softmax over contiguous tensors has one axis of 12 288 rows; with a bias of (8, 1, 1, 64) it has two,
8 and 1 536.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tracea.core.tensor_type import BlockedLayout, Dim, StridedLayout, TensorType, static
from tracea.errors import InvalidStride
from tracea.semantic.index import INT32_MAX

__all__ = ["AxisPlan"]


@dataclass(frozen=True, slots=True)
class AxisPlan:
    """Groups of axes of a shape that follow one another in its order, outermost first; each group becomes one axis.

    The plan is made once, from the op that a kernel is built for, and applied to every op that it is bound to.
    """

    rank: int
    groups: tuple[tuple[int, ...], ...]

    @classmethod
    def of(
        cls,
        dims: Sequence[Dim],
        types: Sequence[TensorType],
        *,
        keep: frozenset[int] = frozenset(),
        reduced: frozenset[int] = frozenset(),
        order: Sequence[int] = (),
    ) -> AxisPlan:
        """Return the coarsest plan for tensors that broadcast to ``dims``; an axis in ``keep`` is a group of its own.

        Axes merge where no tensor's strides tell them apart, up to 2^31 - 1 elements, which is the most of a kernel's
        axis; a reduced axis merges with reduced ones only. Other axes of extent 1 join a neighbour. ``order`` names the
        axes from the outermost on; without it, they are as they come.
        """
        groups: list[list[int]] = []
        strides = [_expanded(type_, dims) for type_ in types]
        for axis in order or range(len(dims)):
            dim = dims[axis]
            if axis in keep or not groups or groups[-1][0] in keep:
                groups.append([axis])
                continue
            spread = [other for other in groups[-1] if dims[other] != 1]
            before = spread[-1] if spread else groups[-1][-1]
            same = (axis in reduced) == any(other in reduced for other in groups[-1])
            lone = dim == 1 and axis not in reduced
            continues = (
                isinstance(dims[before], int)
                and all(_continues(steps, before, axis, dim) for steps in strides)
                and static(_product([dims[other] for other in (*groups[-1], axis)])) <= INT32_MAX
            )
            if lone or (same and (not spread or dim == 1 or continues)):
                groups[-1].append(axis)
            else:
                groups.append([axis])
        return cls(len(dims), tuple(map(tuple, groups)) or ((),))  # a scalar is one axis of one element

    def with_row_axis(self) -> AxisPlan:
        """Return this plan, or where it has one axis only the same with an axis of one element before it."""
        return self if len(self.groups) > 1 else AxisPlan(self.rank, ((), *self.groups))

    def group_of(self, axis: int) -> int:
        """Return the position of the group that holds an axis."""
        return next(position for position, group in enumerate(self.groups) if axis in group)

    def dims(self, dims: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the merged extents; a group without axes has one element."""
        return tuple(_product([dims[axis] for axis in group]) for group in self.groups)

    def apply(self, type_: TensorType, dims: Sequence[Dim]) -> TensorType:
        """Return a tensor that broadcasts to ``dims`` as one of the plan's rank, of extent 1 where it broadcasts.

        Raises:
            InvalidStride: the tensor's strides tell axes of one group apart.
        """
        steps = _expanded(type_, dims)
        shape: list[Dim] = []
        strides: list[int] = []
        for group in self.groups:
            spread = [axis for axis in group if dims[axis] != 1]
            if not group:
                shape.append(1)
                strides.append(1)
                continue
            inner = spread[-1] if spread else group[-1]
            for before, axis in pairwise(spread):
                if not _continues(steps, before, axis, dims[axis]):
                    raise InvalidStride(
                        field="strides",
                        got=str(type_),
                        expected=f"axes {before} and {axis} that are walked like one",
                        remedy="build the kernel for this layout, or copy the tensor into the one it was built for",
                    )
            step = steps[inner]
            broadcast = bool(spread) and _is_broadcast(type_, dims, inner)
            shape.append(1 if broadcast else _product([dims[axis] for axis in group]))
            strides.append(_UNKNOWN_STRIDE if step is None else step)
        return TensorType(tuple(shape), type_.dtype, StridedLayout(tuple(strides)))


_UNKNOWN_STRIDE = 2  # depends on a symbolic extent; any number but 0 and 1, which a kernel would take for a promise


def _expanded(type_: TensorType, dims: Sequence[Dim]) -> tuple[int | None, ...]:
    """Strides of the tensor along each axis of the shape that it broadcasts to: 0 where it does."""
    if isinstance(type_.layout, BlockedLayout):
        raise InvalidStride(
            field="layout", got=str(type_), expected="a strided layout", remedy="unpack the tensor first"
        )
    missing = len(dims) - type_.rank
    own = _row_major(type_) if type_.layout is None else type_.layout.strides
    return tuple(
        0 if axis < missing or _is_broadcast(type_, dims, axis) else own[axis - missing] for axis in range(len(dims))
    )


def _is_broadcast(type_: TensorType, dims: Sequence[Dim], axis: int) -> bool:
    own = axis - (len(dims) - type_.rank)
    return own < 0 or (type_.shape[own] == 1 and dims[axis] != 1)


def _row_major(type_: TensorType) -> tuple[int | None, ...]:
    if type_.is_static:
        return type_.strides
    strides: list[int | None] = []
    step: int | None = 1
    for dim in reversed(type_.shape):
        strides.append(step)
        step = step * max(dim, 1) if isinstance(dim, int) and step is not None else None
    return tuple(reversed(strides))


def _continues(steps: Sequence[int | None], before: int, axis: int, dim: Dim) -> bool:
    outer, inner = steps[before], steps[axis]
    return outer is not None and inner is not None and isinstance(dim, int) and outer == inner * dim


def _product(dims: Sequence[Dim]) -> Dim:
    spread = [dim for dim in dims if dim != 1]
    if len(spread) == 1:
        return spread[0]
    result = 1
    for dim in spread:
        result *= static(dim)
    return result
