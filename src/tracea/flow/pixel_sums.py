"""The gradient of a depthwise convolution with respect to its filters, as sums over pixels with columns as lanes.

``gradient[k, r, s] = sum over pixels of grad[pixel, k] · x[pixel moved by r and s, k]``, for images whose columns lie
next to each other. Each tap of a row of the filters has its own columns of the result, those whose windows have it
within the image; the result's rows fall into runs whose windows have the same rows of taps. For a run of rows and one
such tap, all its rows of taps are one reduction down the rows, over views of the images, with columns as lanes. So what
a window leaves out is never read, and no zeros lie around an image. Worked example, 3 taps, padding 1, 5 columns: tap 0
has the columns 1 to 4, tap 1 all, tap 2 columns 0 to 3.

What the reductions give, columns of each run, are parts; a last one adds those of a tap, which follow each other.
Channels are taken some at a time, so that what each column of taps reads again is near.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Final

from tracea.core.expr import Input
from tracea.core.op import ReduceKind, ReduceOp
from tracea.core.tensor_type import TensorType
from tracea.flow.filter_gradient import FilterGradient
from tracea.flow.reduction import wide_type
from tracea.flow.sections import Part, Section, Temporary, part_type
from tracea.flow.tap_runs import TapRun

__all__ = ["PixelSums"]

_FEWEST_COLUMNS: Final = 48  # lanes of a sum: with 14 and 28 columns convolutions were faster (measured)
_MOST_RUNS: Final = 32  # of rows, times columns of taps: a kernel each
_NEAR_BYTES: Final = 1 << 20  # of the channels that are taken at a time, in both images: half a second-level cache
_FEWEST_CHANNELS: Final = 8  # that are taken at a time: tasks for a team


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of the result whose windows have a tap within the image, and where the tap's parts begin."""

    tap: int
    first: int
    count: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PixelSums:
    """The gradient for depthwise filters, of inputs 0, the image, and 1, the gradient of the convolution's result.

    Shapes: those of ``whole``, which says the same gradient by convolutions. Parts are filters, rows of taps, runs of
    rows, images and columns, for one column of taps after the other.
    """

    whole: FilterGradient
    rows: tuple[TapRun, ...]
    columns: tuple[_Columns, ...]

    @classmethod
    def of(cls, whole: FilterGradient) -> PixelSums | None:
        """Return the same gradient by sums; None where filters are not depthwise, or columns are few or apart."""
        n, c, h, w = whole.x.static_shape
        k, _, r, s = whole.y.static_shape
        p, q = whole.grad.static_shape[2:]
        is_depthwise = whole.groups == c == k and whole.total is None and c >= _FEWEST_CHANNELS
        is_run = whole.x.strides[3] == whole.grad.strides[3] == 1 and whole.stride[1] == 1
        if not is_depthwise or not is_run or not whole.x.elements * whole.grad.elements:
            return None
        rows = TapRun.all(
            count=p, size=h, taps=r, stride=whole.stride[0], padding=whole.padding[0], dilation=whole.dilation[0]
        )
        met = {run.tap + tap for run in rows for tap in range(run.taps)}
        firsts = [max(0, whole.padding[1] - tap * whole.dilation[1]) for tap in range(s)]
        ends = [min(q, w + whole.padding[1] - tap * whole.dilation[1]) for tap in range(s)]
        counts = [end - first for first, end in zip(firsts, ends, strict=True)]
        if len(met) < r or min(counts) < _FEWEST_COLUMNS or len(rows) * s > _MOST_RUNS:
            return None
        starts = accumulate((k * r * len(rows) * n * count for count in counts), initial=0)
        columns = zip(range(s), firsts, counts, starts, strict=False)
        return cls(whole=whole, rows=rows, columns=tuple(_Columns(*each) for each in columns))

    @property
    def temporaries(self) -> tuple[TensorType, ...]:
        """The parts, in the type that sums are made in."""
        last = self.columns[-1]
        size = last.start + self.whole.y.static_shape[0] * self._steps(last)[0]
        return (TensorType((size,), wide_type(self.whole.x.dtype)),)

    def sections(self) -> Iterator[Section]:
        """Yield the parts, and the sum of those of each tap."""
        k = self.whole.y.static_shape[0]
        near = self._channels
        for first in range(0, k, near):
            for columns, (number, run) in product(self.columns, enumerate(self.rows)):
                yield self._parts(columns, number, run, first, near)
        for columns, tap in product(self.columns, range(self.whole.y.static_shape[2])):
            yield self._total(columns, tap)

    @property
    def _channels(self) -> int:
        """How many channels are taken at a time: equal numbers."""
        k = self.whole.y.static_shape[0]
        nbytes = self.whole.x.dtype.nbytes * (self.whole.x.elements + self.whole.grad.elements) // k
        fitting = (near for near in range(_FEWEST_CHANNELS, k + 1) if k % near == 0 and near * nbytes <= _NEAR_BYTES)
        return max(fitting, default=k)

    def _steps(self, columns: _Columns) -> tuple[int, int, int]:
        """Return the parts from one filter, one row of taps and one run of rows to the next."""
        run = self.whole.x.static_shape[0] * columns.count
        return self.whole.y.static_shape[2] * len(self.rows) * run, len(self.rows) * run, run

    def _parts(self, columns: _Columns, number: int, run: TapRun, first: int, near: int) -> Section:
        """Return the parts of some channels: down a run of rows, the sums of products with each row of taps."""
        x, grad, wide = self.whole.x, self.whole.grad, self.temporaries[0]
        n = x.static_shape[0]
        down, (step, gap) = self.whole.stride[0], self.whole.dilation
        x_image, x_channel, x_row, _ = x.strides
        g_image, g_channel, g_row, _ = grad.strides
        of_filter, of_tap, of_run = self._steps(columns)
        shape = (near, n, run.taps, run.count, columns.count)
        op = ReduceOp(
            kind=ReduceKind.SUM,
            x=(
                part_type(x, shape, (x_channel, x_image, step * x_row, down * x_row, 1)),
                part_type(grad, (near, n, 1, run.count, columns.count), (g_channel, g_image, 0, g_row, 1)),
            ),
            axes=(3,),
            prologue=Input(0) * Input(1),
            out=part_type(wide, (near, n, run.taps, columns.count), (of_filter, columns.count, of_tap, 1)),
        )
        top = run.first * down + run.tap * step - self.whole.padding[0]
        left = columns.first + columns.tap * gap - self.whole.padding[1]
        return Section(
            op=op,
            operands=(
                Part(0, first * x_channel + top * x_row + left),
                Part(1, first * g_channel + run.first * g_row + columns.first),
            ),
            offset=columns.start + first * of_filter + run.tap * of_tap + number * of_run,
            temporary=0,
        )

    def _total(self, columns: _Columns, tap: int) -> Section:
        """Return the sums of a tap's parts: those of the runs that have it, which are neighbours."""
        k, y = self.whole.y.static_shape[0], self.whole.y
        of_filter, of_tap, of_run = self._steps(columns)
        having = [number for number, run in enumerate(self.rows) if run.tap <= tap < run.tap + run.taps]
        op = ReduceOp(
            kind=ReduceKind.SUM,
            x=(part_type(self.temporaries[0], (k, len(having) * of_run), (of_filter, 1)),),
            axes=(1,),
            out=part_type(y, (k,), (y.strides[0],)),
        )
        return Section(
            op=op,
            operands=(Temporary(0, columns.start + tap * of_tap + having[0] * of_run),),
            offset=tap * y.strides[2] + columns.tap * y.strides[3],
        )
