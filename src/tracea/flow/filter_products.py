"""The gradient of a convolution with respect to its filters, as matrix products: one for each row of the filters.

``gradient[k, r, s, c] = sum over pixels of grad[k, pixel] · x[pixel moved by r and s, c]``. The columns s are laid out
beside each other first: a copy of the image that has, for each pixel, the channels of all its columns. In it, the next
row of a filter is as many pixels further on, so all rows share the copy: a result's pixels are one axis of a product,
filters the second, columns with channels the third. A 1x1 filter needs no copy.

A step over rows parts the copy: rows of the image that no two rows of the filters share never meet in a product. Where
there are several images, a row of each follows before the next row, so that pixels stay one axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from tracea.core.dtype import DType
from tracea.core.expr import Constant, Input
from tracea.core.op import GemmOp, PointwiseOp
from tracea.core.tensor_type import TensorType
from tracea.flow.filter_gradient import FilterGradient
from tracea.flow.filter_order import is_ordered, sum_of_parts
from tracea.flow.in_place import is_read_in_place
from tracea.flow.sections import Part, Section, Temporary, part_type

__all__ = ["FilterProducts", "pixels_step"]

_FEWEST: Final = 8  # filters, and channels: a tile's. Measured: runs of 3 channels take longer to copy than to multiply
_MOST_COPIES: Final = 8  # of the image, by columns: memory
_LONG: Final = 4  # times the larger extent of a product's result: longer sums are made in two parts, a core each
_LEAST_SPLIT: Final = 512  # pixels
_NARROW: Final = 96  # columns of a product: fewer are its rows where filters are more, which fill vectors and tiles


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterProducts:
    """The gradient for the filters of a convolution, of inputs 0, its image, and 1, the gradient of its result.

    Shapes: x (n, c, h, w); grad (n, k, p, q); y (k, c, r, s). ``stride``, ``padding`` and ``dilation`` are those of the
    convolution, which has one group. ``is_turned`` says that products read a gradient whose filters lie next to each
    other, a copy if need be; ``copies_image`` that the product of a 1x1 filter reads a copy of an image in rows whose
    channels do.
    """

    x: TensorType
    grad: TensorType
    y: TensorType
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    is_turned: bool = False
    copies_image: bool = False

    @classmethod
    def of(cls, whole: FilterGradient, *, threads: int, library: bool) -> FilterProducts | None:
        """Return the same gradient by products; None where they fill no tile, or the copy would take much memory."""
        k, c, _, s = whole.y.static_shape
        is_wide = min(k, c) >= _FEWEST and s <= _MOST_COPIES * whole.stride[1]
        if whole.groups != 1 or whole.total is not None or not is_wide or not whole.x.elements * whole.grad.elements:
            return None
        made = cls(
            x=whole.x,
            grad=whole.grad,
            y=whole.y,
            stride=whole.stride,
            padding=whole.padding,
            dilation=whole.dilation,
        )
        turned = replace(made, is_turned=True)
        if made._is_plain:
            copied = replace(made, copies_image=True)
            in_rows = whole.x.strides[1] != 1 != whole.grad.strides[1] and c <= k and threads == 1
            # The copy is of the smaller factor; packing would take both. Measured on a Xeon, 64 to 256 56²: 0.86.
            return copied if in_rows and copied.is_in_place(threads=threads, library=library) else made
        packs = not made.is_in_place(threads=threads, library=library)
        return turned if packs and turned.is_in_place(threads=threads, library=library) else made

    def is_in_place(self, *, threads: int, library: bool) -> bool:
        """Tell whether products read image and gradient where they lie: what is not packed may be copied instead."""
        product = next(section.op for section in self.sections() if isinstance(section.op, GemmOp))
        return is_read_in_place(product, threads=threads, library=library)

    @property
    def temporaries(self) -> tuple[TensorType, ...]:
        """The image by channels, its copy, part after part, the gradient's copy and results, as far as there are."""
        return tuple(TensorType((size,), self.x.dtype) for size in self._sizes.values())

    def sections(self) -> Iterator[Section]:
        """Yield the copies, then the products, then the result's own order."""
        if self.copies_image:
            yield self._turned_image()
            yield self._product(0, Temporary(self._index("turned")), self._width)
        elif self._is_plain:
            yield self._product(0, Part(0), self._step(self.x, 1))
        else:
            yield from self._products_of_copies()
        if "result" in self._sizes:
            total = self._index("total") if "total" in self._sizes else None
            yield from sum_of_parts(self.y, self._parts, source=self._index("result"), total=total)

    def _products_of_copies(self) -> Iterator[Section]:
        if "turned" in self._sizes:
            yield self._turned_image()
        for residue in self._residues:
            yield from self._columns(residue)
        if "grad" in self._sizes:
            yield self._copied_gradient()
        row = self._row_elements
        for tap in range(self.y.static_shape[2]):
            residue, shift = self._place(tap)
            start = self._starts[residue] + shift * row
            yield self._product(tap, Temporary(self._index("image"), start), self._width)

    # Sizes.

    @property
    def _width(self) -> int:
        _, c, _, s = self.y.static_shape
        return s * c

    @property
    def _row_elements(self) -> int:
        """Elements of a row of the copy: of each image, of each pixel of the result, columns with channels."""
        n, _, _, q = self.grad.static_shape
        return n * q * self._width

    @property
    def _is_plain(self) -> bool:
        """Whether the image's own pixels are the product's axis."""
        return (
            self.y.static_shape[2:] == (1, 1)
            and self.stride == (1, 1)
            and self.padding == (0, 0)
            and all(pixels_step(type_) is not None for type_ in (self.x, self.grad))
        )

    @property
    def _sizes(self) -> dict[str, int]:
        """Elements of each temporary, by what it holds."""
        found: dict[str, int] = {}
        if self.copies_image:
            found["turned"] = self.x.elements
        if not self._is_plain:
            if self.x.strides[1] != 1 and self.y.static_shape[3] > 1:  # each pixel is copied several times, as a run
                found["turned"] = self.x.elements
            found["image"] = sum(self._rows(residue) for residue in self._residues) * self._row_elements
            if _rows_step(self.grad) is None or (self.is_turned and self.grad.strides[1] != 1):
                found["grad"] = self.grad.elements
        if self._result_step is None or self._parts > 1:
            found["result"] = self._parts * self.y.elements
            if self._parts > 1 and not is_ordered(self.y):
                found["total"] = self.y.elements
        return found

    @property
    def _parts(self) -> int:
        """How many sums each element is the sum of: two where sums are long and results few, whatever the threads."""
        n, k, p, q = self.grad.static_shape
        pixels = n * p * q
        is_long = pixels % 2 == 0 and pixels >= max(_LEAST_SPLIT, _LONG * max(k, self._width))
        return 2 if is_long and self.x.dtype in (DType.F32, DType.F64) else 1  # a narrow type would round them

    def _index(self, what: str) -> int:
        return list(self._sizes).index(what)

    def _place(self, tap: int) -> tuple[int, int]:
        """Return which part of the copy has a row of the filters' pixels, and how many rows further on."""
        shift, residue = divmod(tap * self.dilation[0], self.stride[0])
        return residue, shift

    @property
    def _residues(self) -> tuple[int, ...]:
        return tuple(sorted({self._place(tap)[0] for tap in range(self.y.static_shape[2])}))

    def _rows(self, residue: int) -> int:
        places = [self._place(tap) for tap in range(self.y.static_shape[2])]
        return self.grad.static_shape[2] + max(shift for each, shift in places if each == residue)

    @property
    def _starts(self) -> dict[int, int]:
        """The element of the copy that each of its parts begins with."""
        starts: dict[int, int] = {}
        first = 0
        for residue in self._residues:
            starts[residue] = first
            first += self._rows(residue) * self._row_elements
        return starts

    # Copies.

    @property
    def _by_channels(self) -> TensorType:
        n, c, h, w = self.x.static_shape
        return part_type(self.x, (n, c, h, w), (h * w * c, 1, w * c, c))

    def _turned_image(self) -> Section:
        """Return the copy of the image whose channels lie next to each other."""
        return Section(op=_copy(self.x, self._by_channels), operands=(Part(0),), temporary=self._index("turned"))

    def _columns(self, residue: int) -> Iterator[Section]:
        """Yield what fills a part of the copy: zeros where windows reach beyond the image, else its pixels."""
        n, c, h, w = self.x.static_shape
        q, s = self.grad.static_shape[3], self.y.static_shape[3]
        count, row, start = self._rows(residue), self._row_elements, self._starts[residue]
        top, bottom = _within(count, self.stride[0], residue - self.padding[0], h)
        for first, last in ((0, top), (bottom, count)):
            yield from self._zeros((1, 1, 1, (last - first) * row), (0, 0, 0, 1), start + first * row)
        strides = (row, q * self._width, self._width, 1)
        is_turned = "turned" in self._sizes
        image = Temporary(self._index("turned")) if is_turned else Part(0)
        x_image, x_channel, x_row, x_column = self._by_channels.strides if is_turned else self.x.strides
        for tap in range(s):
            shift = tap * self.dilation[1] - self.padding[1]
            left, right = _within(q, self.stride[1], shift, w)
            place = start + top * row + tap * c
            for first, last in ((0, left), (right, q)):
                yield from self._zeros((bottom - top, n, last - first, c), strides, place + first * self._width)
            shape = (bottom - top, n, right - left, c)
            if prod(shape):
                steps = (self.stride[0] * x_row, x_image, self.stride[1] * x_column, x_channel)
                source = (top * self.stride[0] + residue - self.padding[0]) * x_row
                source += (left * self.stride[1] + shift) * x_column
                yield Section(
                    op=_copy(part_type(self.x, shape, steps), part_type(self.x, shape, strides)),
                    operands=(replace(image, offset=source),),
                    offset=place + left * self._width,
                    temporary=self._index("image"),
                )

    def _zeros(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Iterator[Section]:
        """Yield what sets a part of the copy to zero, whatever x holds, if the part has elements."""
        if prod(shape):
            source, out = part_type(self.x, shape, (0,) * len(shape)), part_type(self.x, shape, strides)
            op = PointwiseOp(expr=Constant(0.0), inputs=(source,), out_dtype=self.x.dtype, out=out)
            yield Section(op=op, operands=(Part(0),), offset=offset, temporary=self._index("image"))

    def _copied_gradient(self) -> Section:
        """Return the copy of the gradient in the order of the image's: rows, images, columns."""
        n, k, p, q = self.grad.static_shape
        image, filters, row, column = self.grad.strides
        shape, steps = (p, n, q, k), (row, image, column, filters)
        strides = (n * q * k, q * k, k, 1) if self._has_filters_last else (n * q, q, 1, p * n * q)
        op = _copy(part_type(self.grad, shape, steps), part_type(self.grad, shape, strides))
        return Section(op=op, operands=(Part(1),), temporary=self._index("grad"))

    # Products.

    def _product(self, tap: int, image: Part | Temporary, step: int) -> Section:
        """Return the product that gives a row of the filters; ``step`` is from one pixel of the image to the next."""
        n, k, p, q = self.grad.static_shape
        _, _, r, _ = self.y.static_shape
        pixels, width = n * p * q, self._width
        across = self.x.strides[1] if isinstance(image, Part) else 1
        filters_step, pixel_step = self._gradient_steps()
        gradient: Part | Temporary = Temporary(self._index("grad")) if "grad" in self._sizes else Part(1)
        filter_step, column_step, start = self.y.strides[0], self._result_step, tap * self.y.strides[2]
        target = self._index("result") if "result" in self._sizes else None
        if target is not None or column_step is None:
            filter_step, column_step, start = r * width, 1, tap * width
        parts, depth = self._parts, pixels // self._parts

        def matrix(of: TensorType, shape: tuple[int, int], steps: tuple[int, int], between: int) -> TensorType:
            return part_type(of, (parts, *shape), (between, *steps)) if parts > 1 else part_type(of, shape, steps)

        batch = (parts,) if parts > 1 else ()
        if width < min(k, _NARROW) and not self.copies_image:
            op = GemmOp(
                m=width,
                n=k,
                k=depth,
                batch=batch,
                a=matrix(self.x, (width, depth), (across, step), depth * step),
                b=matrix(self.grad, (depth, k), (pixel_step, filters_step), depth * pixel_step),
                out=matrix(self.y, (width, k), (column_step, filter_step), self.y.elements),
            )
            return Section(op=op, operands=(image, gradient), offset=start, temporary=target)
        op = GemmOp(
            m=k,
            n=width,
            k=depth,
            batch=batch,
            a=matrix(self.grad, (k, depth), (filters_step, pixel_step), depth * pixel_step),
            b=matrix(self.x, (depth, width), (step, across), depth * step),
            out=matrix(self.y, (k, width), (filter_step, column_step), self.y.elements),
        )
        return Section(op=op, operands=(gradient, image), offset=start, temporary=target)

    def _gradient_steps(self) -> tuple[int, int]:
        """Return the strides of the gradient, or of its copy, over filters and over pixels."""
        n, k, p, q = self.grad.static_shape
        if "grad" not in self._sizes:
            step = pixels_step(self.grad) if self._is_plain else _rows_step(self.grad)
            assert step is not None  # else there is a copy
            return self.grad.strides[1], step
        return (1, k) if self._has_filters_last else (n * p * q, 1)

    @property
    def _has_filters_last(self) -> bool:
        """Whether filters lie next to each other in the gradient's copy."""
        return self.is_turned or self.grad.strides[1] == 1

    @staticmethod
    def _step(type_: TensorType, default: int) -> int:
        step = pixels_step(type_)
        return default if step is None else step

    @property
    def _result_step(self) -> int | None:
        """Return the stride of columns with channels as one axis of the result; None where they are none."""
        _, c, _, s = self.y.static_shape
        _, channel, _, column = self.y.strides
        if s == 1 or c == 1:
            step = channel if s == 1 else column
            return step if step == 1 else None
        return 1 if channel == 1 and column == c else None


def _copy(x: TensorType, y: TensorType) -> PointwiseOp:
    return PointwiseOp(expr=Input(0), inputs=(x,), out_dtype=x.dtype, out=y)


def _within(count: int, step: int, start: int, size: int) -> tuple[int, int]:
    """Return the first index whose ``start + index·step`` is at least 0, and the first one where it is not below size.

    Both are at most ``count``, the second not below the first.
    """
    first = min(count, max(0, -(start // step)))
    return first, max(first, min(count, (size - 1 - start) // step + 1))


def _rows_step(type_: TensorType) -> int | None:
    """Return the stride of one image's pixels as one axis; None where they are none, or nothing is contiguous."""
    n, channels, rows, columns = type_.static_shape
    _, channel, row, column = type_.strides
    step = column if columns > 1 else row
    is_one = rows == 1 or columns == 1 or row == columns * column
    is_contiguous = step == 1 or (channel == 1 and step >= channels)
    return step if n == 1 and is_one and is_contiguous else None


def pixels_step(type_: TensorType) -> int | None:
    """Return the stride of all images' pixels as one axis; None where they are none, or nothing is contiguous."""
    n, channels, rows, columns = type_.static_shape
    if n == 1:
        return _rows_step(type_)
    if channels == 1 or type_.strides != (rows * columns * channels, 1, columns * channels, channels):
        return None
    return channels
