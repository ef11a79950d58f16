"""The gradient of a convolution with respect to an image of few channels: planes for its taps, then sums of planes.

``gradient[c, y, x] = sum over taps and k of grad[k, pixel that meets (y, x) with the tap] · w[k, c, tap]``. As a
convolution it has c filters, which fill few lanes of a vector. Here taps and channels together are the filters of one
1x1 convolution, ``plane[tap, c] = sum over k of w[k, c, tap] · grad[k]``, and each phase of the gradient (see
:mod:`tracea.flow.transposed`) is the sum of its taps' planes, moved. Worked example, stride 1, taps (a, b), no padding:
the gradient of (g0, g1) is ``a·g0, a·g1 + b·g0, b·g1``, the sum of the planes ``a·g, 0`` and ``0, b·g``. Around each
plane lie zeros, which stand for pixels that no window has: they are added, and multiply nothing.
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
from tracea.core.op import Conv2dOp, PointwiseOp
from tracea.core.tensor_type import TensorType
from tracea.flow.sections import Part, Section, Temporary, part_type
from tracea.flow.transposed import Phase, Transposed, plane_steps

__all__ = ["ImagePlanes"]

_FEWEST: Final = 8  # channels: from here on a convolution's tiles are half full
_LEAST_PLANES: Final = 16  # a vector of filters
_MOST_SUMMED: Final = 16  # planes of one sum
_MOST_COPIES: Final = 4  # of the gradient that is given, by planes: memory


@dataclass(frozen=True, slots=True)
class _Axis:
    """Rows or columns: their phases, and the zeros before and after those of a plane."""

    phases: tuple[Phase, ...]
    before: int
    after: int

    @classmethod
    def of(cls, whole: Transposed, axis: int) -> _Axis:
        image = whole.x.static_shape[2 + axis]
        phases = tuple(
            Phase.all(
                image=image,
                result=whole.y.static_shape[2 + axis],
                taps=whole.w.static_shape[2 + axis],
                stride=whole.stride[axis],
                padding=whole.padding[axis],
                dilation=whole.dilation[axis],
            )
        )
        met = [phase for phase in phases if phase.taps]
        before = max((phase.before for phase in met), default=0)
        after = max((_first_row(phase, 0) + phase.count - image for phase in met), default=0)
        return cls(phases, before, max(0, after))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePlanes:
    """The gradient for the image of a convolution, of inputs 0, the gradient of its result, and 1, its filters.

    Shapes: those of ``whole``, which says the same gradient by convolutions.
    """

    whole: Transposed
    rows: _Axis
    columns: _Axis

    @classmethod
    def of(cls, whole: Transposed) -> ImagePlanes | None:
        """Return the same gradient by planes; None where a convolution fills its lanes, or memory would be much."""
        k, c, r, s = whole.w.static_shape
        is_bare = whole.bias is None and whole.total is None and whole.activation is None
        is_exact = whole.x.dtype in (DType.F32, DType.F64)  # planes in a narrow type would round the sums' parts
        if whole.groups != 1 or not is_bare or not is_exact or not whole.x.elements * whole.y.elements:
            return None
        if c >= _FEWEST or r * s == 1 or r * s * c < _LEAST_PLANES or r * s * c > _MOST_COPIES * k or k < _FEWEST:
            return None
        made = cls(whole=whole, rows=_Axis.of(whole, 0), columns=_Axis.of(whole, 1))
        most = prod(max(phase.taps for phase in axis.phases) for axis in (made.rows, made.columns))
        is_small = made.temporaries[0].elements <= 2 * _MOST_COPIES * whole.x.elements
        return made if most <= _MOST_SUMMED and is_small and plane_steps(whole.w) is not None else None

    @property
    def temporaries(self) -> tuple[TensorType, ...]:
        """The planes, of each image."""
        _, c, r, s = self.whole.w.static_shape
        return (TensorType((self.whole.x.static_shape[0], r * s * c, self._pitch * self._height), self.whole.x.dtype),)

    def sections(self) -> Iterator[Section]:
        """Yield zeros around the planes, the planes, and the sums of each phase."""
        n, k, p, q = self.whole.x.static_shape
        _, c, r, s = self.whole.w.static_shape
        count, size, pitch = n * r * s * c, self._pitch * self._height, self._pitch
        top, left = self.rows.before, self.columns.before
        yield from self._zeros((count, 1, top * pitch), 0)
        yield from self._zeros((count, 1, self.rows.after * pitch), (top + p) * pitch)
        yield from self._zeros((count, p, left), top * pitch)
        yield from self._zeros((count, p, self.columns.after), top * pitch + left + q)
        planes = Conv2dOp(
            x=self.whole.x,
            w=part_type(self.whole.w, (r * s * c, k, 1, 1), (1, self.whole.w.strides[0], 0, 0)),
            out=part_type(self.whole.x, (n, r * s * c, p, q), (r * s * c * size, size, pitch, 1)),
        )
        yield Section(op=planes, operands=(Part(0), Part(1)), offset=top * pitch + left, temporary=0)
        for row, column in product(self.rows.phases, self.columns.phases):
            yield self._sum(row, column)

    @property
    def _height(self) -> int:
        return self.rows.before + self.whole.x.static_shape[2] + self.rows.after

    @property
    def _pitch(self) -> int:
        """Elements of a plane's row, zeros among them."""
        return self.columns.before + self.whole.x.static_shape[3] + self.columns.after

    def _zeros(self, shape: tuple[int, int, int], offset: int) -> Iterator[Section]:
        """Yield what sets a part of each plane to zero, if the part has elements."""
        if prod(shape):
            source = part_type(self.whole.x, shape, (0, 0, 0))
            out = part_type(self.whole.x, shape, (self._pitch * self._height, self._pitch, 1))
            op = PointwiseOp(expr=Constant(0.0), inputs=(source,), out_dtype=source.dtype, out=out)
            yield Section(op=op, operands=(Part(0),), offset=offset, temporary=0)

    def _sum(self, row: Phase, column: Phase) -> Section:
        """Return the sum of the planes of a phase's taps, or zeros where nothing reaches the phase."""
        whole, pitch = self.whole, self._pitch
        n, c = whole.y.static_shape[:2]
        shape, size = (n, c, row.count, column.count), pitch * self._height
        image, channel, y_row, y_column = whole.y.strides
        out = part_type(whole.y, shape, (image, channel, whole.stride[0] * y_row, whole.stride[1] * y_column))
        first = row.first * y_row + column.first * y_column
        if not row.taps or not column.taps:
            source = part_type(whole.x, shape, (0, 0, 0, 0))
            op = PointwiseOp(expr=Constant(0.0), inputs=(source,), out_dtype=source.dtype, out=out)
            return Section(op=op, operands=(Part(0),), offset=first)
        steps = plane_steps(whole.w)
        assert steps is not None  # checked by of
        of_channel, of_row, of_column = steps
        parts: list[Temporary] = []
        for down, right in product(range(row.taps), range(column.taps)):
            plane = (row.tap + down * row.tap_step) * of_row + (column.tap + right * column.tap_step) * of_column
            top = self.rows.before + _first_row(row, down)
            left = self.columns.before + _first_row(column, right)
            parts.append(Temporary(0, plane * size + top * pitch + left))
        planes = prod(whole.w.static_shape[1:])
        source = part_type(whole.x, shape, (planes * size, of_channel * size, pitch, 1))
        added: list[Expr] = [Input(index) for index in range(len(parts))]
        total = reduce(lambda left, right: left + right, added)
        op = PointwiseOp(expr=total, inputs=(source,) * len(parts), out_dtype=source.dtype, out=out)
        return Section(op=op, operands=tuple(parts), offset=first)


def _first_row(phase: Phase, tap: int) -> int:
    """Return the row of the image that the phase's first row meets with one of its taps."""
    return phase.start - phase.before + (phase.taps - 1 - tap) * phase.dilation
