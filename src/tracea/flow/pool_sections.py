"""Pooling of images in rows by pixels: places of a window are views of the image, and the result is made of them.

Channels, the vectors of a pooling kernel, lie apart there. A place of all whole windows is the image from there on, a
stride apart, and so they are one elementwise op over as many views as a window has places; windows that the border of
an image cuts are one more for each way of being cut. Worked example, 3 places by 2 with a padding of 1 over 8: windows
begin at -1, 1, 3 and 5; the first is what views from 0 and 1 hold, the other three views from 1, 2 and 3, 2 apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Final

from tracea.core.expr import Expr, Input, maximum
from tracea.core.op import PointwiseOp
from tracea.core.ops.pool2d import Pool2dOp, PoolKind
from tracea.flow.sections import Part, Section, part_type

__all__ = ["MOST_PLACES", "MOST_SECTIONS", "WindowRun", "pooled_by_pixels", "pooled_expr", "window_runs"]

MOST_PLACES: Final = 16  # of a window: each is read by an instruction or more of its own
MOST_SECTIONS: Final = 9  # those of a padding of one on each side; each is compiled
# Whole windows of a row of the result, below which vectors of them are mostly partial; measured on a Zen 3
# (benchmarks/NOTES.md): 14 side by side took 0.25 of the time of channels, 7 of every second place 1.3, 28 1.0.
_SHORT, _SHORT_APART, _MANY_CHANNELS = 8, 24, 5
_FEW: Final = 1 << 9  # results, which a kernel for channels makes in the time that calls of sections take


@dataclass(frozen=True, slots=True)
class WindowRun:
    """Places along an axis whose windows are cut alike: the first one, and how many there are."""

    place: int
    count: int
    first: int  # element of the image that the first window begins with, inside of it
    taps: int
    counted: int  # what a mean divides by


def pooled_by_pixels(op: Pool2dOp) -> list[Section] | None:
    """Return the sections of a pooling, whose one input is the image; None where a kernel for channels is faster.

    The image and the result are those of ``op``.
    """
    x, y = op.x, op.infer()
    in_rows = all(type_.strides[3] == 1 and type_.strides[1] != 1 for type_ in (x, y))
    if not in_rows or math.prod(op.kernel) > MOST_PLACES or y.elements < _FEW:
        return None
    rows, columns = (window_runs(op, axis) for axis in (0, 1))
    side_by_side = max(run.count for run in columns)
    filled = op.stride[1] != 1 and x.static_shape[1] >= _MANY_CHANNELS  # vectors of channels, which are gathered too
    if len(rows) * len(columns) > MOST_SECTIONS or side_by_side < (_SHORT_APART if filled else _SHORT):
        return None
    return list(_sections(op, rows, columns))


def window_runs(op: Pool2dOp, axis: int) -> list[WindowRun]:
    """Return the runs along rows (0) or columns (1) of the image, in their order."""
    places, stride, padding = op.infer().static_shape[2 + axis], op.stride[axis], op.padding[axis]
    size, kernel = op.x.static_shape[2 + axis], op.kernel[axis]
    # Windows from the first one inside on, up to the last.
    whole = range(min(places, -(-padding // stride)), min(places, max(0, (size - kernel + padding) // stride + 1)))
    cut = [*range(min(places, whole.start)), *range(max(whole.start, whole.stop), places)]
    runs = [
        WindowRun(place, 1, first, end - first, counted)
        for place in cut
        for first, end, counted in [op.window(axis, place)]
    ]
    if whole:
        runs.append(WindowRun(whole.start, len(whole), whole.start * stride - padding, kernel, kernel))
    return sorted(runs, key=lambda run: run.place)


def _sections(op: Pool2dOp, rows: Sequence[WindowRun], columns: Sequence[WindowRun]) -> Iterator[Section]:
    x, y = op.x, op.infer()
    steps = (*x.strides[:2], x.strides[2] * op.stride[0], x.strides[3] * op.stride[1])
    for down in rows:
        for right in columns:
            shape = (*y.static_shape[:2], down.count, right.count)
            places = [
                (down.first + i) * x.strides[2] + (right.first + j) * x.strides[3]
                for i in range(down.taps)
                for j in range(right.taps)
            ]
            view = part_type(x, shape, steps)
            pooled = PointwiseOp(
                expr=pooled_expr(op.kind, down.taps, right.taps, down.counted * right.counted),
                inputs=(view,) * len(places),
                out_dtype=y.dtype,
                out=part_type(y, shape, y.strides),
            )
            offset = down.place * y.strides[2] + right.place * y.strides[3]
            yield Section(op=pooled, operands=tuple(Part(0, place) for place in places), offset=offset)


def pooled_expr(kind: PoolKind, rows: int, columns: int, counted: int) -> Expr:
    """Return what a window of inputs, row after row, is pooled to; each row has a part of its own."""
    lines = [[Input(i * columns + j) for j in range(columns)] for i in range(rows)]
    join = maximum if kind is PoolKind.MAX else add
    found = reduce(join, (reduce(join, line) for line in lines))
    return found if kind is PoolKind.MAX else found * (1.0 / counted)
