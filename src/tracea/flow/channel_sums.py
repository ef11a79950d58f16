"""The gradient of a depthwise convolution with respect to its filters, as sums over pixels with channels as lanes.

``gradient[k, r, s] = sum over pixels of grad[pixel, k] · x[pixel moved by r and s, k]``: for each tap a sum of products
of two images, pixel by pixel. The results' rows fall into runs whose windows have the same rows of taps within the
image, and so do columns: for a run of both, all its taps are one reduction over views of the images, windows beside
each other that overlap. So what a window leaves out is never read, and no zeros lie around an image. Worked example, 3
taps, padding 1, 5 columns: column 0 has the taps 1 and 2, columns 1 to 3 have all, column 4 has 0 and 1.

A reduction is along columns, or rows where they are more; the others are parts, which a last reduction adds. Channels
lie next to each other in both images: copies that turn them take longer than convolutions on views (measured).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

from tracea.core.expr import Constant, Input
from tracea.core.op import PointwiseOp, ReduceKind, ReduceOp
from tracea.core.tensor_type import TensorType
from tracea.flow.filter_gradient import FilterGradient
from tracea.flow.reduction import wide_type
from tracea.flow.sections import Part, Section, Temporary, part_type
from tracea.flow.tap_runs import TapRun

__all__ = ["ChannelSums"]

_FEWEST: Final = 8  # channels: half a vector
_MOST_RUNS: Final = 32  # of rows with columns, a kernel each
_VECTOR: Final = 16  # channels: of the widest vectors of f32
_NEAR_BYTES: Final = 32 << 10  # of the image's and of the gradient's pixels in one sum: a first-level cache's


@dataclass(frozen=True, slots=True)
class _Block:
    """A run of rows with a run of columns, and the first of its parts."""

    rows: TapRun
    columns: TapRun
    part: int

    @property
    def parts(self) -> int:
        """How many sums: the fewer of rows and columns."""
        return min(self.rows.count, self.columns.count)

    def is_full(self, taps: tuple[int, int]) -> bool:
        """Tell whether its windows have all taps."""
        return (self.rows.taps, self.columns.taps) == taps


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSums:
    """The gradient for depthwise filters, of inputs 0, the image, and 1, the gradient of the convolution's result.

    Shapes: those of ``whole``, which says the same gradient by convolutions.
    """

    whole: FilterGradient
    blocks: tuple[_Block, ...]

    @classmethod
    def of(cls, whole: FilterGradient) -> ChannelSums | None:
        """Return the same gradient by sums; None where filters are not depthwise, or sums would be short."""
        n, c, h, w = whole.x.static_shape
        k, _, r, s = whole.y.static_shape
        p, q = whole.grad.static_shape[2:]
        is_depthwise = whole.groups == c == k and c >= _FEWEST and whole.total is None
        is_last = whole.x.strides[1] == whole.grad.strides[1] == 1
        if not is_depthwise or not is_last or not whole.x.elements * whole.grad.elements * whole.y.elements:
            return None
        rows, columns = (
            TapRun.all(
                count=count,
                size=size,
                taps=taps,
                stride=whole.stride[axis],
                padding=whole.padding[axis],
                dilation=whole.dilation[axis],
            )
            for axis, (count, size, taps) in enumerate(((p, h, r), (q, w, s)))
        )
        if not rows or not columns or len(rows) * len(columns) > _MOST_RUNS:
            return None
        made = [_Block(row, column, 0) for row, column in product(rows, columns)]
        made.sort(key=lambda block: not block.is_full((r, s)))  # what lacks taps lies together, to be zeroed
        first, blocks = 0, list[_Block]()
        for block in made:
            blocks.append(_Block(block.rows, block.columns, first))
            first += block.parts
        # Measured: with parts half as large as an image convolutions were as fast, but images of their own are calls.
        most = p * q // 2 if n == 1 else p * q
        return cls(whole=whole, blocks=tuple(blocks)) if first * r * s <= most else None

    @property
    def temporaries(self) -> tuple[TensorType, ...]:
        """The parts, in the type that sums are made in."""
        count = self.whole.x.static_shape[0] * self._parts * self._taps_with_channels
        return (TensorType((count,), wide_type(self.whole.x.dtype)),)

    def sections(self) -> Iterator[Section]:
        """Yield zeros for taps that a part has not, the parts, and their sum."""
        yield from self._zeros()
        for block in self.blocks:
            yield self._sums(block)
        yield self._total()

    @property
    def _taps_with_channels(self) -> int:
        k, _, r, s = self.whole.y.static_shape
        return r * s * k

    @property
    def _parts(self) -> int:
        """Of each image."""
        last = self.blocks[-1]
        return last.part + last.parts

    def _zeros(self) -> Iterator[Section]:
        """Yield what sets all parts of blocks that lack taps to zero."""
        taps = self.whole.y.static_shape[2:]
        first = next((block.part for block in self.blocks if not block.is_full((taps[0], taps[1]))), None)
        if first is None:
            return
        images, size = self.whole.x.static_shape[0], self._taps_with_channels
        wide = self.temporaries[0]
        shape = (images, (self._parts - first) * size)
        out = part_type(wide, shape, (self._parts * size, 1))
        op = PointwiseOp(expr=Constant(0.0), inputs=(part_type(wide, shape, (0, 0)),), out_dtype=wide.dtype, out=out)
        yield Section(op=op, operands=(Temporary(0),), offset=first * size, temporary=0)

    def _sums(self, block: _Block) -> Section:
        """Return the parts of a block: over its rows or columns, the sum of products with the pixels of each tap."""
        x, grad = self.whole.x, self.whole.grad
        n, k, s = x.static_shape[0], x.static_shape[1], self.whole.y.static_shape[3]
        row, column = block.rows, block.columns
        (down, right), (step, gap) = self.whole.stride, self.whole.dilation
        x_image, _, x_row, x_column = x.strides
        g_image, _, g_row, g_column = grad.strides
        kept, summed = (row.count, down * x_row, g_row), (column.count, right * x_column, g_column)
        if row.count > column.count:
            kept, summed = summed, kept
        near = _channels_of(k, summed[0] * x.dtype.nbytes)
        shape = (kept[0], n, k // near, row.taps, column.taps, summed[0], near)
        size = self._taps_with_channels
        wide = self.temporaries[0]
        op = ReduceOp(
            kind=ReduceKind.SUM,
            x=(
                part_type(x, shape, (kept[1], x_image, near, step * x_row, gap * x_column, summed[1], 1)),
                part_type(grad, (*shape[:3], 1, 1, summed[0], near), (kept[2], g_image, near, 0, 0, summed[2], 1)),
            ),
            axes=(5,),
            prologue=Input(0) * Input(1),
            out=part_type(wide, (*shape[:5], near), (size, self._parts * size, near, s * k, k, 1)),
        )
        top = row.first * down + row.tap * step - self.whole.padding[0]
        left = column.first * right + column.tap * gap - self.whole.padding[1]
        return Section(
            op=op,
            operands=(
                Part(0, top * x_row + left * x_column),
                Part(1, row.first * g_row + column.first * g_column),
            ),
            offset=block.part * size + (row.tap * s + column.tap) * k,
            temporary=0,
        )

    def _total(self) -> Section:
        """Return the sum of all parts, in the gradient's order."""
        k, _, r, s = self.whole.y.static_shape
        count, wide = self.whole.x.static_shape[0] * self._parts, self.temporaries[0]
        y_filter, _, y_row, y_column = self.whole.y.strides
        op = ReduceOp(
            kind=ReduceKind.SUM,
            x=(part_type(wide, (r, s, count, k), (s * k, k, self._taps_with_channels, 1)),),
            axes=(2,),
            out=part_type(self.whole.y, (r, s, k), (y_row, y_column, y_filter)),
        )
        return Section(op=op, operands=(Temporary(0),))


def _channels_of(channels: int, nbytes: int) -> int:
    """Return how many channels a reduction takes at once: as many whole vectors, of equal parts, as stay near.

    Units: ``nbytes`` are what one channel of the pixels of one sum takes.
    """
    fitting = max(_VECTOR, _NEAR_BYTES // (2 * nbytes))
    parts = (near for near in range(_VECTOR, channels + 1, _VECTOR) if channels % near == 0 and near <= fitting)
    return max(parts, default=channels)
