"""Joining: one tensor made of parts, each of which is every so many of its elements along each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import gcd, prod
from typing import ClassVar

from tracea.core.ops.base import Op, result_type
from tracea.core.tensor_type import Dim, StridedLayout, TensorType, static
from tracea.errors import InvalidShape

__all__ = ["JoinOp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOp(Op):
    """A tensor of ``shape`` whose element ``starts[j] + i·steps[j]`` is element i of part j: a slice turned around.

    Concatenation is joining with steps of 1; the phases of a transposed convolution join with its stride. The parts
    hold each element once. No kernel runs: whatever makes a part writes it where it belongs, or is copied there.
    """

    name: ClassVar[str] = "join"

    parts: tuple[TensorType, ...]
    starts: tuple[tuple[int, ...], ...]
    steps: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]
    out: TensorType | None = None

    def __post_init__(self) -> None:
        self._check_parts()
        plain = TensorType(self.shape, self.parts[0].dtype)
        if result_type("join", self.shape, plain.dtype, self.out) == plain:
            object.__setattr__(self, "out", None)

    def _check_parts(self) -> None:
        count = len(self.parts)
        fits = count > 0 and len(self.starts) == len(self.steps) == count
        fits = fits and all(part.is_static and part.dtype is self.parts[0].dtype for part in self.parts)
        extents = tuple(part.shape for part in self.parts)
        if not fits or not _hold_each_once(self.shape, self.starts, self.steps, extents):
            raise InvalidShape(
                field="join.parts",
                got={"parts": tuple(map(str, self.parts)), "starts": self.starts, "steps": self.steps},
                expected=f"parts of one element type that hold each element of {self.shape} once",
                remedy="give a start and a step for each axis of each part, no two of which meet",
            )

    @classmethod
    def along(cls, parts: Sequence[TensorType], axis: int, out: TensorType | None = None) -> JoinOp:
        """Return the concatenation of ``parts`` along one axis.

        Raises:
            InvalidShape: the other extents differ, or one is symbolic or 0.
        """
        rank = parts[0].rank
        extents = [static(part.shape[axis]) for part in parts]
        starts = [
            tuple(sum(extents[:number]) if each == axis else 0 for each in range(rank)) for number in range(len(parts))
        ]
        shape = tuple(sum(extents) if each == axis else static(parts[0].shape[each]) for each in range(rank))
        return cls(parts=tuple(parts), starts=tuple(starts), steps=((1,) * rank,) * len(parts), shape=shape, out=out)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The parts."""
        return self.parts

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("join", self.shape, self.parts[0].dtype, self.out)

    def place(self, number: int) -> tuple[TensorType, int]:
        """Return the type that a part has within the result, and the element of the result that it begins with."""
        strides = self.infer().strides
        inside = tuple(stride * step for stride, step in zip(strides, self.steps[number], strict=True))
        first = sum(start * stride for start, stride in zip(self.starts[number], strides, strict=True))
        shape: tuple[Dim, ...] = self.parts[number].shape
        return TensorType(shape, self.parts[number].dtype, StridedLayout(inside)), first

    @property
    def flops(self) -> int:
        """None."""
        return 0

    @property
    def bytes(self) -> int:
        """None: who makes a part counts them."""
        return 0


@lru_cache(maxsize=256)
def _hold_each_once(
    shape: tuple[int, ...],
    starts: tuple[tuple[int, ...], ...],
    steps: tuple[tuple[int, ...], ...],
    extents: tuple[tuple[int, ...], ...],
) -> bool:
    """Tell whether parts hold each element of a shape once. Passes give the same parts other strides, one by one."""
    parts: list[tuple[range, ...]] = []
    for each in zip(starts, steps, extents, strict=True):
        if not all(len(numbers) == len(shape) for numbers in each):
            return False
        axes = list(zip(*each, strict=True))
        if any(start < 0 or step < 1 or size < 1 for start, step, size in axes):
            return False
        parts.append(tuple(range(start, start + size * step, step) for start, step, size in axes))
    if any(axis[-1] >= dim for part in parts for axis, dim in zip(part, shape, strict=True)):
        return False
    return sum(prod(map(len, part)) for part in parts) == prod(shape) and not _overlap(parts, len(shape))


def _overlap(parts: Sequence[tuple[range, ...]], rank: int) -> bool:
    """Tell whether two parts hold one element: their indices meet along every axis."""
    if len(parts) < 2 or not rank:
        return len(parts) > 1
    # Only those are compared whose extents overlap along the axis where most begin elsewhere.
    axis = max(range(rank), key=lambda each: len({part[each].start for part in parts}))
    ordered = sorted(parts, key=lambda part: part[axis].start)
    for number, part in enumerate(ordered):
        for other in islice(ordered, number + 1, None):
            if other[axis].start > part[axis][-1]:
                break
            if all(map(_meet, part, other)):
                return True
    return False


def _meet(first: range, second: range) -> bool:
    """Whether two progressions have a number in common."""
    common = gcd(first.step, second.step)
    if (first.start - second.start) % common:
        return False
    # The numbers that both would hold without ends repeat every step · step / common: one of them within both ends?
    period = first.step // common * second.step
    low, high = max(first.start, second.start), min(first[-1], second[-1])
    longer, shorter = (first, second) if first.step >= second.step else (second, first)
    begin = low + (longer.start - low) % longer.step
    for number in range(begin, min(high, begin + period) + 1, longer.step):
        if (number - shorter.start) % shorter.step == 0:
            return True
    return False
