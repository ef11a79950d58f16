"""The gradient of a convolution of signals for its filters, as a sum over bands of the signal, each as an image's.

Places of the result's gradient are the taps of a kernel, which has so many and no more. A band is as many of them and
the places of the signal that they meet. Worked example, bands of 2, stride 1, 3 taps, no padding, 5 places of 7: the
bands are places 0 and 1, which meet 0 to 3 of the signal, then 2 and 3, which meet 2 to 5, then 4, which meets 4 to 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tracea.core.dtype import DType
from tracea.core.ops.gemm import accumulator_of
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow.filter_gradient import FilterGradient
from tracea.flow.plane_parts import in_turns, moved
from tracea.flow.sections import Section, part_type

__all__ = ["SignalBands"]

_MOST_TAPS: Final = 256  # of the kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalBands:
    """The gradient for the filters of a convolution of images of one row, by bands of at most ``most`` places.

    Shapes: those of ``whole``, whose rows are one.
    """

    whole: FilterGradient
    most: int = _MOST_TAPS

    @classmethod
    def of(cls, whole: FilterGradient) -> SignalBands | None:
        """Return the same gradient by bands; None where one kernel takes all places, or there are rows."""
        rows, places = whole.grad.static_shape[2:]
        return cls(whole=whole) if rows == 1 == whole.x.static_shape[2] and places > _MOST_TAPS else None

    @property
    def temporaries(self) -> tuple[TensorType, ...]:
        """The sums that bands hand on: none of one band, else one or two."""
        return (self._sum_type,) * min(2, len(self._bands) - 1)

    def sections(self) -> Iterator[Section]:
        """Yield the convolutions of each band, which add what the bands before it have made."""
        if self.whole.y.elements == 0:
            return
        for number, (first, count) in enumerate(self._bands):
            is_last = number == len(self._bands) - 1
            part, starts = self._band(first, count)
            placed = replace(
                part,
                y=self.whole.y if is_last else self._sum_type,
                total=self._sum_type if number else None,
            )
            yield from in_turns(moved(placed.sections(), starts, 0), number, is_last=is_last)

    @property
    def _bands(self) -> tuple[tuple[int, int], ...]:
        """The first place of each band that meets the signal, or of the first one, and how many it has."""
        places, length = self.whole.grad.static_shape[3], self.whole.x.static_shape[3]
        bands = [(first, min(self.most, places - first)) for first in range(0, places, self.most)]
        met = [
            band for band in bands if self._begin(band[0]) < length and self._begin(band[0]) + self._reach(band[1]) > 0
        ]
        return tuple(met or bands[:1])

    def _begin(self, first: int) -> int:
        """The place of the signal that a band's first window begins at; the padding's are below 0."""
        return first * self.whole.stride[1] - self.whole.padding[1]

    def _reach(self, count: int) -> int:
        """The places of signal and padding that so many windows meet."""
        return (count - 1) * self.whole.stride[1] + (self.whole.y.static_shape[3] - 1) * self.whole.dilation[1] + 1

    def _band(self, first: int, count: int) -> tuple[FilterGradient, dict[int, int]]:
        """Return the gradient of a band, and the elements of signal and gradient that it begins with."""
        x, grad = self.whole.x, self.whole.grad
        begin = self._begin(first)
        start = max(0, begin)
        end = max(start + 1, min(x.static_shape[3], begin + self._reach(count)))
        return replace(
            self.whole,
            x=part_type(x, (*x.static_shape[:3], end - start), x.strides),
            grad=part_type(grad, (*grad.static_shape[:3], count), grad.strides),
            padding=(0, start - begin),
        ), {0: start * x.strides[3], 1: first * grad.strides[3]}

    @property
    def _sum_type(self) -> TensorType:
        y = self.whole.y
        k, c, _, s = y.static_shape
        wide = accumulator_of(DType.F32, self.whole.x.dtype, self.whole.grad.dtype)
        if y.strides[1] < y.strides[3]:
            return TensorType(y.shape, wide, StridedLayout((s * c, 1, 0, c)))
        return TensorType((k, c, 1, s), wide)
