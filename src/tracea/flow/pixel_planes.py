"""The gradient of a convolution with respect to a small image of many channels: one product, then sums of its columns.

``gradient[c, y, x] = sum over taps and k of grad[k, pixel that meets (y, x) with the tap] · w[k, c, tap]``. The filters
are far more memory than both images, so what counts is how often they are walked, and in which order: as a convolution
their elements are gathered tap after tap. Here they are the second factor of one product as they lie,
``part[pixel, (c, tap)] = sum over k of grad[k, pixel] · w[k, (c, tap)]``, and each element of the gradient is the sum
of its taps' parts. Rows of the gradient fall into runs that meet the same taps, and so do columns: no zeros lie around
an image, and what no window has is not read. Worked example, stride 1, taps (a, b), no padding: the gradient of
(g0, g1) is ``a·g0``, a run of its own, ``a·g1 + b·g0`` and ``b·g1``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from typing import Final

from tracea.core.dtype import DType
from tracea.core.expr import Constant, Expr, Input
from tracea.core.op import GemmOp, PointwiseOp
from tracea.core.tensor_type import TensorType
from tracea.flow.filter_products import pixels_step
from tracea.flow.planes import Run, transposed_runs
from tracea.flow.sections import Part, Section, Temporary, part_type
from tracea.flow.transposed import Transposed, plane_steps

__all__ = ["PixelPlanes"]

_SMALL_IMAGE: Final = 4  # channels and filters are this many times as many as the pixels, or more
_MOST_SUMMED: Final = 16  # parts of one sum
_MOST_RUNS: Final = 32  # of rows with columns, a kernel each


@dataclass(frozen=True, slots=True, kw_only=True)
class PixelPlanes:
    """The gradient for the image of a convolution, of inputs 0, the gradient of its result, and 1, its filters.

    Shapes: those of ``whole``, which says the same gradient by convolutions. ``pixel_step`` is the stride of all
    pixels that are given as one axis, ``steps`` are the parts from one channel, row and column of taps to the next.
    """

    whole: Transposed
    pixel_step: int
    steps: tuple[int, int, int]
    rows: tuple[Run, ...]
    columns: tuple[Run, ...]

    @classmethod
    def of(cls, whole: Transposed) -> PixelPlanes | None:
        """Return the same gradient by a product; None where images are not small, or the filters' taps no axis."""
        k, c, r, s = whole.w.static_shape
        is_bare = whole.bias is None and whole.total is None and whole.activation is None
        is_exact = whole.x.dtype in (DType.F32, DType.F64)  # parts in a narrow type would round what is summed
        pixels = prod((whole.x.static_shape[0], *whole.x.static_shape[2:]))
        is_small = 0 < pixels * _SMALL_IMAGE <= min(k, c) and whole.y.elements > 0
        if whole.groups != 1 or not is_bare or not is_exact or not is_small or not 1 < r * s <= _MOST_SUMMED:
            return None
        pixel_step, steps = pixels_step(whole.x), plane_steps(whole.w)
        if pixel_step is None or steps is None:
            return None
        rows, columns = (
            transposed_runs(
                depth=whole.x.static_shape[2 + axis],
                taps=whole.w.static_shape[2 + axis],
                stride=whole.stride[axis],
                padding=whole.padding[axis],
                dilation=whole.dilation[axis],
                planes=whole.y.static_shape[2 + axis],
            )
            for axis in (0, 1)
        )
        if len(rows) * len(columns) > _MOST_RUNS:
            return None
        return cls(whole=whole, pixel_step=pixel_step, steps=steps, rows=rows, columns=columns)

    @property
    def temporaries(self) -> tuple[TensorType, ...]:
        """The parts, pixels first: at most a quarter of what the filters take."""
        return (TensorType((self._pixels, self._parts), self.whole.x.dtype),)

    def sections(self) -> Iterator[Section]:
        """Yield the product, then the sums of each run."""
        k, pixels, parts = self.whole.w.static_shape[0], self._pixels, self._parts
        x, w = self.whole.x, self.whole.w
        op = GemmOp(
            m=pixels,
            n=parts,
            k=k,
            a=part_type(x, (pixels, k), (self.pixel_step, x.strides[1])),
            b=part_type(w, (k, parts), (w.strides[0], 1)),
            out=part_type(x, (pixels, parts), (parts, 1)),
        )
        yield Section(op=op, operands=(Part(0), Part(1)), temporary=0)
        for row, column in product(self.rows, self.columns):
            yield self._sum(row, column)

    @property
    def _pixels(self) -> int:
        n, _, p, q = self.whole.x.static_shape
        return n * p * q

    @property
    def _parts(self) -> int:
        """Of a pixel: channels with taps."""
        return prod(self.whole.w.static_shape[1:])

    def _sum(self, row: Run, column: Run) -> Section:
        """Return the sum of the parts of a run's taps, or zeros where nothing reaches the run."""
        whole, parts = self.whole, self._parts
        n, c = whole.y.static_shape[:2]
        _, _, p, q = whole.x.static_shape
        shape = (n, row.count, column.count, c)
        image, channel, y_row, y_column = whole.y.strides
        out = part_type(whole.y, shape, (image, row.step * y_row, column.step * y_column, channel))
        first = row.first * y_row + column.first * y_column
        of_channel, of_row, of_column = self.steps
        places = [
            (top * q + left) * parts + down * of_row + right * of_column
            for (down, top), (right, left) in product(row.taps, column.taps)
        ]
        if not places:
            zero = PointwiseOp(
                expr=Constant(0.0),
                inputs=(part_type(whole.x, shape, (0, 0, 0, 0)),),
                out_dtype=whole.y.dtype,
                out=out,
            )
            return Section(op=zero, operands=(Part(0),), offset=first)
        source = part_type(whole.x, shape, (p * q * parts, row.advance * q * parts, column.advance * parts, of_channel))
        added: list[Expr] = [Input(index) for index in range(len(places))]
        total = reduce(lambda left, right: left + right, added)
        op = PointwiseOp(expr=total, inputs=(source,) * len(places), out_dtype=source.dtype, out=out)
        return Section(op=op, operands=tuple(Temporary(0, place) for place in places), offset=first)
