"""How results lie in memory: as those of the library whose arrays the operands are, torch or NumPy.

The sum of two channels-last tensors lies channels last, and so does that of one and a vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tracea.core.dtype import DType
from tracea.core.tensor_type import StridedLayout, TensorType, broadcast_shapes
from tracea.runtime.buffers import ArrayKind

__all__ = ["kept_layout"]


def kept_layout(operands: Sequence[TensorType], dtype: DType, kind: ArrayKind) -> TensorType:
    """Return the type of an elementwise result without gaps, its axes in the order of the operands' strides.

    Where operands disagree, torch follows the first of them and NumPy is row-major. A broadcast axis says nothing, and
    neither does one of one element, though torch asks for its stride: no program is made for what addresses nothing.

    Source: torch ``TensorIteratorBase::reorder_dimensions``; NumPy ``npyiter_find_best_axis_ordering``, order 'K'.
    """
    shape = broadcast_shapes((type_.shape for type_ in operands), field="operands")
    row_major = TensorType(shape, dtype)
    if all(type_.is_contiguous for type_ in operands) or row_major.elements == 0:
        return row_major
    steps = [(0,) * (len(shape) - type_.rank) + _steps(type_) for type_ in operands]
    steps_of = [tuple(step[axis] for step in steps) for axis in range(len(shape))]
    inner_first: list[int] = []
    for axis in reversed(range(len(shape))):
        if shape[axis] != 1:
            _insert(axis, inner_first, steps_of, kind)
    sizes = row_major.static_shape
    strides = [0] * len(shape)
    for position, axis in enumerate(inner_first):
        strides[axis] = math.prod(sizes[inner] for inner in inner_first[:position])
    return TensorType(shape, dtype, StridedLayout(tuple(strides)))


def _insert(axis: int, inner_first: list[int], steps_of: Sequence[Sequence[int]], kind: ArrayKind) -> None:
    """Put an axis among those within it. Where operands do not tell two apart, it passes one that it is then told of.

    It changes places with that one in torch, and comes before it in NumPy.
    """
    place = len(inner_first)
    inner_first.append(axis)
    for at in reversed(range(place)):
        order = _order(steps_of[inner_first[at]], steps_of[axis], kind)
        if order < 0:
            return
        if order > 0:
            if kind is ArrayKind.TORCH:
                inner_first[at], inner_first[place] = axis, inner_first[at]
            else:
                inner_first.insert(at, inner_first.pop(place))
            place = at


def _steps(type_: TensorType) -> tuple[int, ...]:
    return tuple(0 if dim == 1 else stride for dim, stride in zip(type_.shape, type_.strides, strict=True))


def _order(inner: Sequence[int], outer: Sequence[int], kind: ArrayKind) -> int:
    """Return -1 where each operand's, or the first one's, steps are in this order, 1 where they are not, 0 for neither.

    Equal steps are in order: only axes that overlap have them.
    """
    told = [-1 if near <= far else 1 for near, far in zip(inner, outer, strict=True) if near and far]
    if not told:
        return 0
    return told[0] if kind is ArrayKind.TORCH else min(told)
