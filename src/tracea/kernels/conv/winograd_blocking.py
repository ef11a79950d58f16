"""Block sizes of a convolution by Winograd's F(m, r): its schedule's values, a choice without tuning, the space."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import static
from tracea.errors import InvalidSchedule
from tracea.kernels.conv.blocking import TILES, tile_numbers
from tracea.kernels.conv.prefetching import (
    FAR,
    FARTHEST,
    MOST_UPCOMING,
    UPCOMING_LINES,
    come_from_afar,
    upcoming_lines,
)
from tracea.kernels.cores import waits_long
from tracea.kernels.gemm.blocking import equal_blocks, fits_registers, round_up
from tracea.kernels.operands import vector_lanes
from tracea.kernels.space import ScheduleSpace, Value
from tracea.semantic.index import Index
from tracea.semantic.schedule import Schedule
from tracea.semantic.winograd import results_of
from tracea.targets.target import Target

__all__ = ["WinogradBlocking", "brings_more", "winograd_default", "winograd_space"]

Extent = TypeVar("Extent", int, Index)

_MOST_OF: Final = {
    "rows": 1024,
    "columns": 2**16,
    "upcoming": MOST_UPCOMING,
}  # rows of tiles are computed whether there are any
_GAP: Final = 16  # elements after a tile's channels: a pitch that is a power of two would fall on few sets of the cache
_BANDS: Final = (1, 2, 3, 4, 7, 14)  # rows of tiles
_PRODUCTS: Final = (8, 4, 2, 1)  # whole ones of a block of columns, of one row of tiles
_RANKED: Final = 16  # schedules of each algorithm, by what they should take
_VARIED: Final = 3  # the first of them, with other choices that were measured to matter
# Measured on a Zen 4 core; docs/adr/0006.
_L2_BYTES: Final = 32  # a cycle
_L3_BYTES: Final = 10
_MEMORY_BYTES: Final = 4
_LATE_BYTES: Final = 4  # on a Xeon, whatever cache of others has it, asked for beside the products
_CROWDED: Final = 0.055  # more cycles for each doubling of what is held beyond an eighth of the second-level cache
_CALLED: Final = 120.0  # cycles of a product beside its multiply-adds: sums begun and stored
_MOVED: Final = 4.0  # cycles for a vector of one place of a tile, through both transforms


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradBlocking:
    """A schedule in numbers.

    Units: ``m`` results of a tile and ``taps`` of a filter, along each axis; ``mr`` tiles by ``nv`` vectors, ``nr``
    filters, of a product; ``rows`` of tiles in a band, ``columns`` of them in a block; ``kb`` filters of a task, whole
    panels; ``gap`` elements after each tile's channels; ``upcoming`` lines of the next place that a product asks for in
    each run of steps.
    """

    m: int
    taps: int
    mr: int
    nv: int
    nr: int
    unroll: int
    prefetch: int
    tail: int
    rows: int
    columns: int
    kb: int
    gap: int
    upcoming: int

    @classmethod
    def of(cls, schedule: Schedule, op: Conv2dOp, target: Target) -> WinogradBlocking:
        """Read and check a schedule.

        Raises:
            InvalidSchedule: a value is missing or out of its range, or the tile does not fit the registers.
        """
        least = {"m": 2, "columns": 1, "upcoming": 0}
        value = tile_numbers(schedule, target, least=least, most=_MOST_OF, later=("upcoming",))
        taps = _taps(op)
        if value["m"] not in results_of(taps):
            raise InvalidSchedule(
                field="m", got=value["m"], expected=list(results_of(taps)), remedy="choose one of them"
            )
        nr = value["nv"] * vector_lanes(target, op.accumulator)
        return cls(**{**value, "taps": taps, "nr": nr, "kb": round_up(value["kb"], nr)})

    @property
    def places(self) -> int:
        """Products of a tile: n by n."""
        return (self.m + self.taps - 1) ** 2

    def window(self, rows: Extent, columns: Extent) -> tuple[Extent, Extent]:
        """Return the rows and columns of pixels that so many tiles are computed from."""
        return rows * self.m + (self.taps - 1), columns * self.m + (self.taps - 1)

    @property
    def counts(self) -> tuple[int, ...]:
        """Tile counts with code of their own, descending."""
        return (self.mr, self.tail) if self.tail else (self.mr,)


def winograd_default(op: Conv2dOp, target: Target) -> Schedule:
    """Return the schedule that needs no tuning."""
    return min(_likely(op, target), key=lambda pair: pair[0])[1]


def winograd_space(op: Conv2dOp, target: Target) -> ScheduleSpace:
    """Return the schedules worth measuring, the default among them."""
    ranked = [schedule for _, schedule in sorted(_likely(op, target), key=lambda pair: pair[0])]
    each = [[schedule for schedule in ranked if schedule.integer("m") == m][:_RANKED] for m in results_of(_taps(op))]
    chosen: list[dict[str, Value]] = [dict(ranked[0]), *(dict(schedule) for some in each for schedule in some)]
    for base in ranked[:_VARIED]:
        chosen += [{**base, "unroll": unroll} for unroll in (1, 2, 4) if unroll != base.integer("unroll")]
        chosen += [
            {**base, "prefetch": steps} for steps in (0, FAR, 2 * FAR, FARTHEST) if steps != base.integer("prefetch")
        ]
        chosen += [{**base, "upcoming": lines} for lines in UPCOMING_LINES if lines != base.integer("upcoming")]
        wide = round_up(_extents(op)[0], base.integer("nv") * vector_lanes(target, op.accumulator))
        if wide != base.integer("kb"):
            chosen.append({**base, "kb": wide})
    return ScheduleSpace.listed(chosen)


def brings_more(op: Conv2dOp, target: Target, pixels: int) -> bool:
    """Tell whether a transformed filter takes longer to come from afar than all of its own products with ``pixels``.

    Measured on a Xeon without its tiles, 512 channels 7²: 1.53 ms by fewer products, 1.32 by all; of
    eight images 9.4 and 9.9.
    """
    filter_bytes = _places(op, min(results_of(_taps(op)))) * op.accumulator.nbytes
    lanes = vector_lanes(target, op.accumulator) * target.fma_per_cycle
    later = filter_bytes / _LATE_BYTES > _taps(op) ** 2 * pixels / lanes
    return later and come_from_afar(filter_bytes * math.prod(_extents(op)), target)


def _likely(op: Conv2dOp, target: Target) -> Iterator[tuple[float, Schedule]]:
    """Yield schedules with the cycles that they should take: each algorithm, register tile and band."""
    for m in results_of(_taps(op)):
        for tile in TILES[target.isa]:
            if fits_registers(*tile, target):
                for rows, columns in _bands(op, target, m, *tile):
                    schedule = _schedule(op, target, m, tile, (rows, columns))
                    yield _cycles(op, target, schedule), schedule


def _bands(op: Conv2dOp, target: Target, m: int, mr: int, nv: int) -> Iterator[tuple[int, int]]:
    """Yield rows and columns of tiles that the second-level cache holds: whole rows, parts of one, and the least."""
    height, width = -(-static(op.shape[2]) // m), _across(op, m)
    most = target.l2_bytes // _tile_bytes(op, target, m, nv)
    for rows in dict.fromkeys(equal_blocks(height, min(band, height)) for band in _BANDS):
        if rows * width <= max(most, min(width, mr)):
            yield rows, width
    for columns in (mr * count for count in _PRODUCTS):
        if columns < width and columns <= max(most, mr):
            yield 1, columns


def _tile_bytes(op: Conv2dOp, target: Target, m: int, nv: int) -> int:
    """Return what a task holds for a tile: its places, their products with a panel, and the pixels that it copies."""
    (_, channels), nr, copied = _extents(op), nv * vector_lanes(target, op.accumulator), 0
    if op.x.strides[1] != 1:
        channels += _GAP
        copied = (m + _taps(op) - 1) * m * channels
    return (_places(op, m) * (channels + nr) + copied) * op.accumulator.nbytes


def _places(op: Conv2dOp, m: int) -> int:
    return (m + _taps(op) - 1) ** 2


def _taps(op: Conv2dOp) -> int:
    return static(op.w.shape[2])


def _schedule(op: Conv2dOp, target: Target, m: int, tile: tuple[int, int], band: tuple[int, int]) -> Schedule:
    (mr, nv), (rows, columns) = tile, band
    filters, channels = _extents(op)
    item, nr = op.accumulator.nbytes, nv * vector_lanes(target, op.accumulator)
    bands = static(op.shape[0]) * op.groups * -(-static(op.shape[2]) // (m * rows))
    kb = round_up(filters, nr)
    while bands * -(-filters // kb) < target.cores and kb > nr:
        kb = round_up(-(-kb // 2), nr)
    near = channels * nr * item <= target.l1d_bytes // 2
    # Measured on a Xeon without its tiles, as of direct ones: 0.86 to 0.99 of the time, filters warm 0.89 to 1.01.
    late = waits_long(target)
    unroll = 4 if near or late else 2
    weight, tiles = _places(op, m) * channels * filters * op.groups * item, -(-rows * columns // mr)
    return Schedule(
        m=m,
        mr=mr,
        nv=nv,
        unroll=unroll,
        prefetch=FARTHEST if late else 0 if near else 2 * FAR,
        tail=rows * columns % mr or rows * (_across(op, m) % columns) % mr,
        rows=rows,
        columns=columns,
        kb=kb,
        gap=0 if channels % _GAP else _GAP,
        upcoming=upcoming_lines(target, filter_bytes=weight, steps=unroll, lines=nv, tiles=tiles),
    )


def _extents(op: Conv2dOp) -> tuple[int, int]:
    """Return the filters and channels of a group."""
    return static(op.w.shape[0]) // op.groups, static(op.w.shape[1])


def _across(op: Conv2dOp, m: int) -> int:
    return -(-static(op.shape[3]) // m)


def _cycles(op: Conv2dOp, target: Target, schedule: Schedule) -> float:
    """Return about how many cycles the busiest thread takes: products, with what they wait for, and transforms."""
    (filters, channels), item = _extents(op), op.accumulator.nbytes
    m, mr, nv, rows, kb = (schedule.integer(name) for name in ("m", "mr", "nv", "rows", "kb"))
    lanes, columns = vector_lanes(target, op.accumulator), schedule.integer("columns")
    places, nr, (blocks, rest) = _places(op, m), nv * lanes, divmod(_across(op, m), columns)
    tasks = static(op.shape[0]) * op.groups * -(-static(op.shape[2]) // (m * rows)) * -(-filters // kb)
    panel, weight = channels * nr * item, places * channels * filters * item
    # Of a place, the first tile brings the filters from where they are, the others find them in a cache.
    near = math.inf if panel <= target.l1d_bytes // 2 else _L2_BYTES
    far = _L2_BYTES if weight <= target.l2_bytes // 2 else _L3_BYTES
    if target.l3_bytes and weight > target.l3_bytes * 3 // 4:
        far = _MEMORY_BYTES
    late = schedule.integer("upcoming") > 0

    def step(tiles: int, speed: float) -> float:
        products = tiles * nv / target.fma_per_cycle
        return max(products, (tiles + nv) / 2, target.fma_latency_cycles, nr * item / speed)

    def block(count: int) -> float:
        whole, tail = divmod(count, mr)
        steps = [mr] * whole + [tail] * (tail > 0)
        if late:  # a place's tiles ask for the next one's filters
            sums = max(sum(step(tiles, near) for tiles in steps), nr * item / _LATE_BYTES)
        else:
            sums = sum(step(tiles, near if place else far) for place, tiles in enumerate(steps))
        return sums + _CALLED / channels * len(steps)

    each = blocks * block(rows * columns) + (block(rows * rest) if rest else 0.0)
    # Filters that stream through the second-level cache take the image's places with them, the more of it these fill.
    held = rows * columns * _tile_bytes(op, target, m, nv)
    crowded = 1 + _CROWDED * max(0.0, math.log2(held * 8 / target.l2_bytes))
    panels = -(-min(kb, filters) // nr)
    moved = places * rows * _across(op, m) * (-(-channels // lanes) + panels * nv) * _MOVED
    reads = 1 + sum((mr, nv)) / (mr * nv) / 16  # of equal ones the tile that reads least
    return -(-tasks // target.cores) * (places * panels * channels * each * crowded * reads + moved)
