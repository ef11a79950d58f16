"""Adaptive pooling of images: the largest or the mean of each window of a grid that covers the image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tracea.core.ops.base import Op, result_type
from tracea.core.ops.pool2d import Pool2dOp, PoolKind, check_pair
from tracea.core.plain_shape import axes_remedy, plain_shape
from tracea.core.tensor_type import Dim, TensorType, static
from tracea.errors import InvalidShape

__all__ = ["AdaptivePool2dOp", "pool_to_grid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptivePool2dOp(Op):
    """``out[n, c, p, q]`` is the largest, or the mean, of the window of x in row p and column q of a grid of ``size``.

    Window i of m along an axis of n is from ``⌊i·n/m⌋`` to ``⌈(i + 1)·n/m⌉``: those of 7 in 3 are 0..3, 2..5 and 4..7.
    Neighbours share an element where m does not divide n.

    Shapes:
        x: (n, c, h, w); result: (n, c, *size).
    """

    name: ClassVar[str] = "adaptive_pool2d"

    kind: PoolKind
    x: TensorType
    size: tuple[int, int]
    out: TensorType | None = None

    def __post_init__(self) -> None:
        check_pair("adaptive_pool2d.size", self.size, 1)
        if self.x.rank != 4 or 0 in self.x.shape[2:]:
            raise InvalidShape(
                field="adaptive_pool2d.x",
                got=plain_shape(self.x.shape),
                expected="(n, c, h, w), an image of at least 1×1",
                remedy=axes_remedy("x", self.x.rank, 4, "one image") or "pool an image that has pixels",
            )
        if result_type("adaptive_pool2d", self.shape, self.x.dtype, self.out) == TensorType(self.shape, self.x.dtype):
            object.__setattr__(self, "out", None)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        return (*self.x.shape[:2], *self.size)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The image."""
        return (self.x,)

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("adaptive_pool2d", self.shape, self.x.dtype, self.out)

    def window(self, axis: int, place: int) -> tuple[int, int, int]:
        """Return the first element of a window along rows (0) or columns (1), one past its last, and its length."""
        extent, parts = self._axis(axis)
        first, end = place * extent // parts, -(-(place + 1) * extent // parts)
        return first, end, end - first

    @property
    def longest(self) -> tuple[int, int]:
        """The rows of the window that has most, and the columns."""
        rows, columns = (
            -(-(extent + parts - math.gcd(extent, parts)) // parts) for extent, parts in map(self._axis, (0, 1))
        )
        return rows, columns

    @property
    def flops(self) -> int:
        """One for each element of each window."""
        # All windows of an axis have extent + parts - gcd(extent, parts) elements together.
        lengths = (extent + parts - math.gcd(extent, parts) for extent, parts in map(self._axis, (0, 1)))
        return math.prod((static(self.x.shape[0]), static(self.x.shape[1]), *lengths))

    def _axis(self, axis: int) -> tuple[int, int]:
        return static(self.x.shape[2 + axis]), self.size[axis]


def pool_to_grid(
    kind: PoolKind, x: TensorType, size: tuple[int, int], out: TensorType | None = None
) -> Pool2dOp | AdaptivePool2dOp:
    """Return the pooling of x to a grid: windows of one size, side by side, where the grid divides the image.

    Raises:
        InvalidOp, InvalidShape: as :class:`AdaptivePool2dOp`.
    """
    op = AdaptivePool2dOp(kind=kind, x=x, size=size, out=out)
    extents = [static(dim) for dim in x.shape[2:]]
    if any(extent % parts for extent, parts in zip(extents, size, strict=True)):
        return op
    rows, columns = (extent // parts for extent, parts in zip(extents, size, strict=True))
    return Pool2dOp(kind=kind, x=x, kernel=(rows, columns), stride=(rows, columns), out=op.out)
