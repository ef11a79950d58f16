"""The gradient of a convolution with respect to its filters, as convolutions whose channels are the result's columns.

``gradient[k, r, s, c] = sum over rows p, columns q of grad[k, p, q] · x[p·stride + r, q·stride + s, c]``. In an image
whose channels lie next to each other the s and c of one window are one run. Read as an image of its own, rows y by
columns (s, c), whose channel q is moved by q windows, it is convolved with filters that have a tap for each row p: the
result's rows are r, its columns (s, c). Only a band of rows p is taken at once, so that its filters stay in a cache;
a last sum adds the bands. On matrix tiles every element is split into terms once a band, where a product for each row
of the filters splits what windows share for each of them. Worked example, 3 taps, 56 columns, 64 channels: the image is
58 rows by 192 columns of 56 channels.

The columns q fall into two halves with sums of their own, so that two cores share no part of the image. With several
threads the halves are two groups of one convolution, whose filters lie behind each other in a copy of the gradient;
with one they are two convolutions without a copy. Both make the same sums in the same order.

The image is copied first, with zeros for what a window's padding is, unless it has none and its channels are next to
each other. No zeros meet the gradient but these, so what a window leaves out is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

from tracea.core.dtype import DType
from tracea.core.expr import Constant, Input
from tracea.core.op import Conv2dOp, PointwiseOp
from tracea.core.tensor_type import TensorType
from tracea.doctor import host
from tracea.flow.filter_gradient import FilterGradient
from tracea.flow.filter_order import is_ordered, sum_of_parts
from tracea.flow.filter_products import FilterProducts
from tracea.flow.sections import Part, Section, Temporary, part_type
from tracea.kernels.conv.operands import C
from tracea.kernels.cores import waits_long
from tracea.targets.target import for_threads

__all__ = ["FilterWindows"]

_FEWEST_FILTERS: Final = 32  # a tile's
_FEWEST_CHANNELS: Final = 8  # that are copied as runs
_MOST_CHANNELS: Final = 96  # from here on products of whole matrices are as fast (measured)
_FEWEST_IN_PLACE: Final = 32  # from here on so are those that pack nothing
_GRANULE: Final = 32  # channels of a tile
_NARROW: Final = 32  # elements of padding beside a row: a run of 9 took 170 ns, a part of a store each (measured)
_FILLED: Final = 0.85  # of its granules: what the columns of a row of results have to fill
_PANEL_BYTES: Final = 256 << 10  # of 32 filters of a band, six bytes an element: a tile walks them at once
_MOST_PARTS: Final = 64  # bands of all images: memory of the sums


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterWindows:
    """The gradient for the filters of a convolution, of inputs 0, its image, and 1, the gradient of its result.

    Shapes: those of ``whole``, which says the same gradient by convolutions of channels.
    """

    whole: FilterGradient
    threads: int

    @classmethod
    def of(cls, whole: FilterGradient, *, threads: int, library: bool) -> FilterWindows | None:
        """Return the same gradient by windows; None where rows fill no tiles, or products of matrices are faster."""
        k, c, r, s = whole.y.static_shape
        q = whole.grad.static_shape[3]
        is_plain = whole.groups == 1 and whole.total is None and whole.x.dtype is DType.F32
        is_run = whole.dilation[1] == 1 and r * s > 1
        if not is_plain or not is_run or k < _FEWEST_FILTERS or not _GRANULE // r < s * c <= s * _MOST_CHANNELS:
            return None
        if not whole.x.elements * whole.grad.elements or not _is_filled(q):
            return None
        made = cls(whole=whole, threads=threads)
        if q // made._halves > C.maximum:  # columns are the channels of a band's convolution
            return None
        if made._parts > _MOST_PARTS or (c >= _FEWEST_IN_PLACE and _has_products(whole, threads, library)):
            return None
        return made

    @property
    def temporaries(self) -> tuple[TensorType, ...]:
        """The sums of each band, their total if the gradient has another order, and copies of image and gradient."""
        return tuple(TensorType((size,), self.whole.x.dtype) for size in self._sizes.values())

    def sections(self) -> Iterator[Section]:
        """Yield the copy, the bands and their sum."""
        if not self._is_in_place:
            yield from self._copied()
        if self._is_grouped:
            yield self._parted()
        n, p = self.whole.x.static_shape[0], self.whole.grad.static_shape[2]
        step = self._halves if self._is_grouped else 1
        for number, band in product(range(n), range(-(-p // self._band_rows))):
            for half in range(0, self._halves, step):
                yield self._band(number, band, half)
        total = self._index("total") if "total" in self._sizes else None
        yield from sum_of_parts(self.whole.y, self._parts, source=self._index("parts"), total=total)

    # Sizes.

    @property
    def _sizes(self) -> dict[str, int]:
        """Elements of each temporary, by what it holds."""
        sizes = {"parts": self._parts * self.whole.y.elements}
        if self._parts > 1 and not is_ordered(self.whole.y):
            sizes["total"] = self.whole.y.elements
        if not self._is_in_place:
            sizes["image"] = self.whole.x.static_shape[0] * prod(self._extents) * self.whole.x.static_shape[1]
        if self._is_grouped:
            sizes["grad"] = self.whole.grad.elements
        return sizes

    def _index(self, what: str) -> int:
        return list(self._sizes).index(what)

    @property
    def _extents(self) -> tuple[int, int]:
        """Rows and columns that windows reach, padding among them."""
        whole = self.whole
        rows, columns = (
            (whole.grad.static_shape[2 + axis] - 1) * whole.stride[axis]
            + (whole.y.static_shape[2 + axis] - 1) * whole.dilation[axis]
            + 1
            for axis in (0, 1)
        )
        return rows, columns

    @property
    def _band_rows(self) -> int:
        """Rows of the result in a band: equal ones, as many as a panel of filters holds."""
        p, q = self.whole.grad.static_shape[2:]
        most = max(1, _PANEL_BYTES // (_filled_up(q // self._halves) * _GRANULE * 6))
        return -(-p // -(-p // most))

    @property
    def _halves(self) -> int:
        q = self.whole.grad.static_shape[3]
        return 2 if q % 2 == 0 and _is_filled(q // 2) else 1

    @property
    def _is_grouped(self) -> bool:
        is_small = self.whole.grad.elements <= self.whole.x.elements  # else its copy takes longer than what is shared
        return self._halves > 1 and self.threads > 1 and is_small

    @property
    def _parts(self) -> int:
        """Halves of the bands of all images."""
        return self.whole.x.static_shape[0] * -(-self.whole.grad.static_shape[2] // self._band_rows) * self._halves

    @property
    def _is_in_place(self) -> bool:
        """Whether windows are runs of the image itself."""
        x, c = self.whole.x, self.whole.x.static_shape[1]
        return self.whole.padding == (0, 0) and (x.strides[1] == 1 or c == 1) and x.strides[3] == c

    @property
    def _image_strides(self) -> tuple[int, int, int]:
        """From one image, row and column to the next, of the image or its copy."""
        n, c = self.whole.x.static_shape[:2]
        if self._is_in_place:
            return self.whole.x.strides[0] if n > 1 else 0, self.whole.x.strides[2], c
        rows, columns = self._extents
        return rows * columns * c, columns * c, c

    # Sections.

    def _copied(self) -> Iterator[Section]:
        """Yield what fills the copy: zeros around each image, and the rows and columns that windows reach."""
        n, c, h, w = self.whole.x.static_shape
        (rows, columns), (top, left) = self._extents, self.whole.padding
        image, row, column = self._image_strides
        top, left = min(top, rows), min(left, columns)
        high, wide = min(h, rows - top), min(w, columns - left)
        beside = max(left, columns - left - wide) * c
        if 0 < beside < _NARROW:  # the whole copy is sooner zero than many short runs
            yield from self._zeros((n * image,), (1,), 0)
        else:
            for shape, steps, first in (
                ((n, top * row), (image, 1), 0),
                ((n, (rows - top - high) * row), (image, 1), (top + high) * row),
                ((n, high, left * c), (image, row, 1), top * row),
                ((n, high, (columns - left - wide) * c), (image, row, 1), top * row + (left + wide) * column),
            ):
                yield from self._zeros(shape, steps, first)
        shape: tuple[int, ...] = (n, high, wide, c)
        if prod(shape):
            x_image, x_channel, x_row, x_column = self.whole.x.strides
            given, made = (x_image, x_row, x_column, x_channel), (image, row, column, 1)
            if x_channel != 1 and c < _FEWEST_CHANNELS:  # along rows: runs of 3 channels take longer
                shape, given, made = ((*each[:2], each[3], each[2]) for each in (shape, given, made))
            op = _copy(part_type(self.whole.x, shape, given), part_type(self.whole.x, shape, made))
            place = top * row + left * column
            yield Section(op=op, operands=(Part(0),), offset=place, temporary=self._index("image"))

    def _zeros(self, shape: tuple[int, ...], steps: tuple[int, ...], first: int) -> Iterator[Section]:
        """Yield what sets a part of the copy to zero, whatever x holds, if the part has elements."""
        if prod(shape):
            source, out = part_type(self.whole.x, shape, (0,) * len(shape)), part_type(self.whole.x, shape, steps)
            op = PointwiseOp(expr=Constant(0.0), inputs=(source,), out_dtype=source.dtype, out=out)
            yield Section(op=op, operands=(Part(0),), offset=first, temporary=self._index("image"))

    def _parted(self) -> Section:
        """Return the copy of the gradient in which the filters of the second half follow those of the first."""
        n, k, p, q = self.whole.grad.static_shape
        g_image, g_filter, g_row, g_column = self.whole.grad.strides
        halves, wide = self._halves, q // self._halves
        steps = self._parted_strides
        shape = (n, halves, p, wide, k) if steps[1] == 1 else (n, halves, k, p, wide)
        given, made = (
            (g_image, wide * g_column, g_row, g_column, g_filter),
            (k * p * q, k * steps[1], *steps[2:], steps[1]),
        )
        if steps[1] != 1:
            given, made = ((*each[:2], each[4], *each[2:4]) for each in (given, made))
        op = _copy(part_type(self.whole.grad, shape, given), part_type(self.whole.grad, shape, made))
        return Section(op=op, operands=(Part(1),), temporary=self._index("grad"))

    @property
    def _parted_strides(self) -> tuple[int, int, int, int]:
        """Of the gradient's copy: from one image, filter, row and column of a half to the next."""
        _, k, p, q = self.whole.grad.static_shape
        if self.whole.grad.strides[1] == 1:
            return k * p * q, 1, q * k, self._halves * k
        wide = q // self._halves
        return k * p * q, p * wide, wide, 1

    def _band(self, number: int, band: int, half: int) -> Section:
        """Return the sums of a band of an image: of one half of its columns, or of both."""
        whole = self.whole
        k, c, r, s = whole.y.static_shape
        p, q = whole.grad.static_shape[2:]
        image, row, column = self._image_strides
        groups, wide = self._halves if self._is_grouped else 1, q // self._halves
        first = band * self._band_rows
        count = min(self._band_rows, p - first)
        high = (count - 1) * whole.stride[0] + (r - 1) * whole.dilation[0] + 1
        steps = self._parted_strides if self._is_grouped else whole.grad.strides
        op = Conv2dOp(
            x=part_type(whole.x, (1, groups * wide, high, s * c), (0, whole.stride[1] * column, row, 1)),
            w=part_type(whole.grad, (groups * k, wide, count, 1), (steps[1], steps[3], steps[2], 0)),
            stride=(whole.dilation[0], 1),
            dilation=(whole.stride[0], 1),
            groups=groups,
            size=(r, s * c),
            out=part_type(whole.y, (1, groups * k, r, s * c), (0, r * s * c, s * c, 1)),
        )
        start = number * image + first * whole.stride[0] * row + half * wide * whole.stride[1] * column
        source = Part(0, start) if self._is_in_place else Temporary(self._index("image"), start)
        place = number * steps[0] + first * steps[2]
        gradient = (
            Temporary(self._index("grad"), place) if self._is_grouped else Part(1, place + half * wide * steps[3])
        )
        part = (number * -(-p // self._band_rows) + band) * self._halves + half
        return Section(
            op=op, operands=(source, gradient), offset=part * whole.y.elements, temporary=self._index("parts")
        )


def _copy(x: TensorType, y: TensorType) -> PointwiseOp:
    return PointwiseOp(expr=Input(0), inputs=(x,), out_dtype=x.dtype, out=y)


def _filled_up(columns: int) -> int:
    return -(-columns // _GRANULE) * _GRANULE


def _is_filled(columns: int) -> bool:
    """Tell whether columns fill the granules that they are multiplied in."""
    return columns >= _FILLED * _filled_up(columns)


def _has_products(whole: FilterGradient, threads: int, library: bool) -> bool:
    """Tell whether products of whole matrices pack nothing, and are faster then.

    Not so by one thread of a Xeon, 0.86 to 0.90 as fast for 64 channels 56², with its tiles 0.65 (NOTES, 2026-11-28).
    """
    if threads == 1 and waits_long(for_threads(host(), threads)):
        return False
    products = FilterProducts.of(whole, threads=threads, library=library)
    return products is not None and products.is_in_place(threads=threads, library=library)
