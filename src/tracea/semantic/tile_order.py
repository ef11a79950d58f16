"""Which block computes which tile: orders that keep neighbours in time near in the matrix, over any rectangular grid.

Worked example, 4×4 tiles, the first eight blocks (row, column):

    row        (0,0) (0,1) (0,2) (0,3) (1,0) (1,1) (1,2) (1,3)
    wavefront  (0,0) (1,0) (0,1) (1,1) (0,2) (1,2) (0,3) (1,3)     groups of two rows, column by column
    morton     (0,0) (0,1) (1,0) (1,1) (0,2) (0,3) (1,2) (1,3)     squares within squares
    hilbert    (0,0) (1,0) (1,1) (0,1) (0,2) (0,3) (1,3) (1,2)     the same, each tile beside the last

The first four blocks read one row of A and four columns of B in row order, five panels; in the others two and two.
Blocks that run at the same time read the panels of their rows and columns; the fewer different ones, the more of them
are found in the second-level cache. A wave of W blocks touches at least 2·√W panels, in a square.

*row* and *wavefront* are expressions that a device evaluates. *morton* and *hilbert* are tables that the host makes:
the codes of a square of a power of two around the grid, sorted; sorting distinct codes is a bijection on any grid.
Split-K deals each tile to several blocks, stream-K deals the flat space of tiles and steps to a fixed number of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from tracea.errors import InvalidSchedule
from tracea.semantic.index import Index, as_index, minimum

__all__ = [
    "Segment",
    "TileOrder",
    "order_index",
    "order_table",
    "panels_touched",
    "segments",
    "split_interval",
    "split_place",
]

Array = np.ndarray[Any, Any]
Number = TypeVar("Number", int, Index)


class TileOrder(Enum):
    """An order of the tiles of a matrix; its value is what schedules say."""

    ROW = "row"
    MORTON = "morton"
    HILBERT = "hilbert"
    WAVEFRONT = "wavefront"  # groups of rows, column by column

    @property
    def on_device(self) -> bool:
        """Whether the device computes it from the block's number; otherwise the host makes a table."""
        return self in (TileOrder.ROW, TileOrder.WAVEFRONT)


def order_index(
    order: TileOrder, block: Index, rows: Index | int, columns: Index | int, *, group: Index | int = 8
) -> tuple[Index, Index]:
    """Return row and column of a block's tile as expressions, for ``0 <= block < rows · columns``.

    Wavefront is a bijection since it is a mixed radix: blocks are split by groups of ``group · columns``, and those of
    one group by the ``min(group, rows − first)`` rows that it has.

    Raises:
        InvalidSchedule: the order is made by a table (:func:`order_table`).
    """
    rows, columns, group = as_index(rows), as_index(columns), as_index(group)
    if order is TileOrder.ROW:
        return block // columns, block % columns
    if order is not TileOrder.WAVEFRONT:
        raise InvalidSchedule(
            field="tile order on the device",
            got=order.value,
            expected="row or wavefront",
            remedy="look the tile up in order_table",
        )
    size = group * columns
    first = block // size * group
    height = minimum(group, rows - first)
    return first + block % size % height, block % size // height


def order_table(order: TileOrder, rows: int, columns: int, *, group: int = 8) -> Array:
    """Return the tile of each block, ``row · columns + column`` as int32: a permutation of ``rows · columns`` numbers.

    Raises:
        InvalidSchedule: an empty grid, an empty group, or more tiles than int32 counts.
    """
    if min(rows, columns, group) < 1 or rows * columns >= 1 << 31:
        raise InvalidSchedule(
            field="grid of tiles (rows, columns, group)",
            got=(rows, columns, group),
            expected="each at least 1, fewer than 2^31 tiles",
            remedy="use larger tiles, or launch nothing for an empty matrix",
        )
    tile = np.arange(rows * columns, dtype=np.int64)
    match order:
        case TileOrder.ROW:
            return tile.astype(np.int32)
        case TileOrder.WAVEFRONT:
            size = group * columns
            first = tile // size * group
            height = np.minimum(group, rows - first)
            return ((first + tile % size % height) * columns + tile % size // height).astype(np.int32)
        case TileOrder.MORTON | TileOrder.HILBERT:
            bits = max(rows - 1, columns - 1, 1).bit_length()
            code = (_morton if order is TileOrder.MORTON else _hilbert)(tile // columns, tile % columns, bits)
            return np.argsort(code).astype(np.int32)


def panels_touched(tiles: Array, columns: int, wave: int) -> float:
    """Return how many different panels, of A and of B together, a full wave of consecutive blocks touches on average.

    Raises:
        InvalidSchedule: not even one full wave.
    """
    waves = len(tiles) // wave if wave > 0 else 0
    if not waves:
        raise InvalidSchedule(
            field="blocks of a wave", got=wave, expected=f"1 .. {len(tiles)}", remedy="take a smaller wave"
        )
    counts = [
        len(np.unique(part // columns)) + len(np.unique(part % columns))
        for part in np.split(tiles[: waves * wave], waves)
    ]
    return float(np.mean(counts))


def split_place(block: Number, splits: Number) -> tuple[Number, Number]:
    """Return tile number and part of a split-K block, for ``0 <= block < tiles · splits``: parts of a tile together."""
    return block // splits, block % splits


def split_interval(part: Number, splits: Number, steps: Number) -> tuple[Number, Number]:
    """Return the first step of a part and the one after its last: the parts tile ``[0, steps)`` and differ by one."""
    return part * steps // splits, (part + 1) * steps // splits


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of steps of one tile that a worker owns: what one turn of ``SegmentLoop`` binds, with the same meaning."""

    tile: int
    first: int
    count: int
    last: int  # the worker that does the tile's last step


def segments(worker: int, *, workers: int, tiles: int, steps: int) -> Iterator[Segment]:
    """Yield the segments of a stream-K worker: its share ``[w·T div W, (w+1)·T div W)`` of ``T = tiles · steps``.

    The theorems are those of :class:`tracea.semantic.nodes_async.SegmentLoop`.

    Raises:
        InvalidSchedule: no such worker, or a negative size.
    """
    if not 0 <= worker < workers or tiles < 0 or steps < 0:
        raise InvalidSchedule(
            field="stream-K (worker, workers, tiles, steps)",
            got=(worker, workers, tiles, steps),
            expected="0 <= worker < workers, nothing negative",
            remedy="number the workers from 0",
        )
    everything = tiles * steps
    at, end = split_interval(worker, workers, everything)
    while at < end:
        tile, first = divmod(at, steps)
        count = min(steps - first, end - at)
        yield Segment(tile=tile, first=first, count=count, last=((tile + 1) * steps * workers - 1) // everything)
        at += count


def _morton(row: Array, column: Array, bits: int) -> Array:
    code = np.zeros_like(row)
    for bit in range(bits):
        code |= (column >> bit & 1) << (2 * bit) | (row >> bit & 1) << (2 * bit + 1)
    return code


def _hilbert(row: Array, column: Array, bits: int) -> Array:
    # From the largest square down: which quadrant, in the curve's own order; then turn so that the next smaller
    # square is entered where this one's predecessor was left.
    x, y, code = row.copy(), column.copy(), np.zeros_like(row)
    for bit in reversed(range(bits)):
        right, upper = x >> bit & 1, y >> bit & 1
        code = code << 2 | (3 * right ^ upper)
        side = (1 << bit) - 1
        x, y = x & side, y & side
        flipped = (upper == 0) & (right == 1)
        x, y = np.where(flipped, side - x, x), np.where(flipped, side - y, y)
        swapped = upper == 0
        x, y = np.where(swapped, y, x), np.where(swapped, x, y)
    return code
