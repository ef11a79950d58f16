"""Block sizes of a convolution on vectors: the values of its schedule, a good choice without tuning, and the space."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Final

from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import static
from tracea.kernels.conv.operands import ConvOperands
from tracea.kernels.conv.prefetching import (
    AHEAD_TILES,
    FAR,
    FARTHEST,
    MOST_AHEAD,
    MOST_UPCOMING,
    UPCOMING_LINES,
    results_ahead,
    upcoming_lines,
)
from tracea.kernels.cores import waits_long
from tracea.kernels.gemm.blocking import MOST_UNROLLED, check_registers, equal_blocks, fits_registers, round_up
from tracea.kernels.operands import vector_lanes
from tracea.kernels.space import ScheduleSpace, Value
from tracea.semantic.schedule import MOST_OF_TILE, Schedule
from tracea.targets.target import Target

__all__ = [
    "SHORT_RUN",
    "TILES",
    "ConvBlocking",
    "band_of",
    "conv_default",
    "conv_space",
    "even_bands",
    "pixel_cycles",
    "rows_that_fit",
    "tile_numbers",
]

_MOST_OF: Final[Mapping[str, int]] = {"unroll": MOST_UNROLLED, "prefetch": 1024, "gap": 1024}
SHORT_RUN: Final = 32  # channels: up to here the taps of a row are one run, so pixels lie without a gap
_GAP: Final = 16  # elements between pixels: a pitch that is a power of two would fall on few sets of the cache
_DEEP: Final = 512  # channels of a block where a group has more than twice as many
_SHORT_SUM: Final = 64  # products
_TASKS_PER_CORE: Final = 3
_SMALL_L2: Final = 2**19  # bytes; where halos of the whole second-level cache were measured
_WINDOWS: Final = 2  # high is a band at least where halos are copied and the second-level cache is small
_FOREIGN: Final = 8  # second-level caches: filters of so many come from beyond it in every walk
_CROWDED: Final = 1.3  # of the cycles, measured, where a tile's pixels fall on one set and are more than its ways
_MANY_TASKS: Final = 16  # a core: of so many what the last one takes longer is little
_BEGUN: Final = 0.05  # of a row's time, for each of its taps: what a band costs before its first tile
_BEGUN_TILE: Final = 1.0  # cycles of a step, what a tile costs besides its products (benchmarks/NOTES.md)
_SHARES: Final = (2, 4)  # of a task's filters, where bands are uneven
_UNEVEN: Final = 1.1  # of a core's share: what dealing tasks out as cores come free does not even out
_L2_BYTES: Final = 32  # a cycle, from the second-level cache of a core that starts one multiply-add a cycle

# Tiles of mr pixels by nv vectors of filters that fill the registers, by instruction set.
TILES: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    "avx512": ((14, 2), (7, 4), (8, 3), (7, 3), (9, 3), (10, 2), (12, 2), (28, 1), (14, 1), (6, 4)),
    "avx2": ((6, 2), (4, 3), (7, 1), (5, 2), (4, 2), (12, 1)),
    "neon": ((8, 3), (7, 4), (7, 3), (12, 2), (14, 2), (10, 2), (14, 1)),
    "plain": ((7, 2), (4, 2), (14, 1)),
}
# For short sums on one multiply-add a cycle: results are stored beneath the next tile's products. 8 by 2 takes 0.95 of
# the time of 14 by 2, 16 by 1 0.96 of 28 by 1. So does 8 by 2 on a Xeon (0.93; 4 by 4 1.01 of 6 by 4).
_SHORT_TILES: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {"avx512": ((4, 4), (6, 3), (8, 2), (16, 1))}
_SHORT_TILES_OF_TWO: Final = ((8, 2),)  # multiply-adds a cycle


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvBlocking:
    """A convolution's schedule in numbers.

    Units: ``mr`` pixels; ``nv`` vectors, ``nr`` filters; ``rows`` of results in a band; ``kb`` filters of a task, whole
    tiles; ``cb`` channels of a block, 0 for all of a group; ``gap`` elements after each pixel's channels; ``ahead``
    tiles from one to that whose results it asks for, 0 for none; ``upcoming`` lines of the next panel that a tile asks
    for in each run of steps.
    """

    mr: int
    nv: int
    nr: int
    unroll: int
    prefetch: int
    tail: int
    rows: int
    kb: int
    cb: int
    gap: int
    ahead: int
    upcoming: int

    @classmethod
    def of(cls, schedule: Schedule, op: Conv2dOp, target: Target) -> ConvBlocking:
        """Read and check a schedule.

        Raises:
            InvalidSchedule: a value is missing or out of its range, or the tile does not fit the registers.
        """
        least, most = {"cb": 0, "ahead": 0, "upcoming": 0}, {"ahead": MOST_AHEAD, "upcoming": MOST_UPCOMING}
        value = tile_numbers(schedule, target, least=least, most=most, later=("ahead", "upcoming"))
        nr = value["nv"] * vector_lanes(target, op.accumulator)
        return cls(**{**value, "nr": nr, "kb": round_up(value["kb"], nr)})

    @property
    def pixels(self) -> tuple[int, ...]:
        """Pixel counts with code of their own, descending."""
        return (self.mr, self.tail) if self.tail else (self.mr,)


def tile_numbers(
    schedule: Schedule,
    target: Target,
    *,
    least: Mapping[str, int],
    most: Mapping[str, int] | None = None,
    later: tuple[str, ...] = (),
) -> dict[str, int]:
    """Return the numbers of a schedule whose tiles are ``mr`` by ``nv``: what these have, and those of ``least``.

    Those of ``later`` are 0 in schedules that were recorded before there was a choice.

    Raises:
        InvalidSchedule: a value is missing, below its least or above its most, or the tile does not fit the registers.
    """
    schedule = schedule.with_values(**{name: 0 for name in later if name not in schedule})
    lows = {"mr": 1, "nv": 1, "unroll": 1, "rows": 1, "kb": 1, "gap": 0, "prefetch": 0, "tail": 0, **least}
    value = {name: schedule.integer(name) for name in lows}
    highs = {**_MOST_OF, **(most or {})}
    for name, low in lows.items():
        schedule.check_range(low, name, most=highs.get(name, MOST_OF_TILE))
    check_registers(schedule, target)
    schedule.check_range(0, "tail", most=value["mr"] - 1)
    return value


def conv_default(op: Conv2dOp, target: Target) -> Schedule:
    """Return the schedule that needs no tuning."""
    channels = static(op.w.shape[1])
    # Where sums are short results are most of the work: of equal tiles the one that stores the longest runs of filters,
    # if filters lie next to each other.
    short = op.taps <= _SHORT_SUM and op.infer().strides[1] == 1
    single = target.fma_per_cycle == 1
    # Lower than a window, an image is parted at the cost of reading it once more for each part.
    low = target.cores > 1 and static(op.shape[2]) < (static(op.w.shape[2]) - 1) * op.dilation[0] + 1
    more = _SHORT_TILES.get(target.isa, ()) if single else _SHORT_TILES_OF_TWO if waits_long(target) else ()
    tiles = [tile for tile in (*(more if short else ()), *TILES[target.isa]) if fits_registers(*tile, target)]

    def rank(tile: tuple[int, int]) -> tuple[float, ...]:
        # With one multiply-add a cycle, wide tiles leave the first cache what it needs to bring the next filters in:
        # 6 by 4 takes 0.92 to 0.99 of the time of 14 by 2.
        sums, cost = tile[0] * tile[1], _cost(op, tile, target)
        if low:
            cost *= _uneven(op, target, _schedule(op, target, *tile, cb=_depth(channels)))
        if short:
            return cost, -tile[1], sums if single else 0
        return cost, sum(tile) / sums if single else 0.0

    mr, nv = min(tiles, key=rank)
    return _schedule(op, target, mr, nv, cb=_depth(channels))


def conv_space(op: Conv2dOp, target: Target) -> ScheduleSpace:
    """Return the schedules worth measuring, the default among them."""
    channels = static(op.w.shape[1])
    tiles = sorted(
        (tile for tile in TILES[target.isa] if fits_registers(*tile, target)),
        key=lambda tile: _cost(op, tile, target),
    )
    default = dict(conv_default(op, target))
    chosen: list[dict[str, Value]] = [default]
    chosen += [{**default, "ahead": ahead} for ahead in AHEAD_TILES if ahead != default["ahead"]]
    chosen += [{**default, "upcoming": lines} for lines in UPCOMING_LINES if lines != default["upcoming"]]
    chosen += [{**default, "prefetch": steps} for steps in (0, FAR, FARTHEST) if steps != default["prefetch"]]
    depths = dict.fromkeys((_depth(channels), *(equal_blocks(channels, most) for most in (64, 128, 256, 512))))
    for mr, nv in tiles[:4]:
        for cb in depths:
            base = _schedule(op, target, mr, nv, cb=0 if cb == channels else cb)
            for rows in dict.fromkeys((base.integer("rows"), 1, 2, 4, 7, 14)):
                if rows <= static(op.shape[2]):
                    for unroll in (1, base.integer("unroll")):
                        chosen.append({**base, "rows": rows, "unroll": unroll})
    return ScheduleSpace.listed(chosen)


def band_of(
    op: Conv2dOp, target: Target, row_bytes: int, *, filters: int, step: int, filter_bytes: int
) -> tuple[int, int]:
    """Return the rows of a band and the filters of a task: halos that stay in a cache, and work for every core.

    ``row_bytes`` are those of one row of the halo, ``filter_bytes`` those of one filter in its panel; ``step`` is a
    panel's filters.
    """
    height = static(op.shape[2])
    images = static(op.shape[0]) * op.groups
    taps = (static(op.w.shape[2]) - 1) * op.dilation[0] + 1
    heavy = filter_bytes * filters > target.l2_bytes // 2
    most = rows_that_fit(op, target, row_bytes, filters=filters, filter_bytes=filter_bytes)
    if target.l2_bytes <= _SMALL_L2 and filter_bytes * filters >= _FOREIGN * target.l2_bytes:
        # Walking such filters once more costs more than a halo that fills the cache.
        most = max(most, (target.l2_bytes // row_bytes - taps) // op.stride[0] + 1)
    rows = equal_blocks(height, min(most, height))
    block = round_up(filters, step)
    # A band lower than its windows is mostly what the next one reads again: no more of these than cores.
    wanted = target.cores * (1 if heavy or target.cores == 1 or rows < taps // 2 else _TASKS_PER_CORE)
    while images * -(-height // rows) * -(-filters // block) < wanted:
        # Narrower bands read rows twice and all filters once more, fewer filters a task copy the halo once more:
        # filters that no cache holds are read once.
        if heavy and block > step:
            block = round_up(-(-block // 2), step)
        elif rows > 2 * taps:
            rows = equal_blocks(height, max(1, rows // 2))
        elif block > step:
            block = round_up(-(-block // 2), step)
        elif rows > 1:
            rows = equal_blocks(height, -(-rows // 2))
        else:
            break
    return rows, block


def rows_that_fit(op: Conv2dOp, target: Target, row_bytes: int, *, filters: int, filter_bytes: int) -> int:
    """Return the rows of the largest band that stays in a cache, 1 or more; sizes as in :func:`band_of`."""
    down, taps = op.stride[0], (static(op.w.shape[2]) - 1) * op.dilation[0] + 1
    # Filters that fit a cache are walked once for each band, which keeps its results there from panel to panel; heavier
    # ones are walked as seldom as the halo allows.
    result_bytes = static(op.shape[3]) * filters * op.infer().dtype.nbytes
    heavy = filter_bytes * filters > target.l2_bytes // 2
    budget, each = target.l2_bytes // 2, row_bytes
    if not heavy:  # rows that are stepped over bring no results
        budget, each = target.l2_bytes // 4, row_bytes + result_bytes // down
    if not heavy and taps * each > budget:  # no band is low enough, so that each may hold what the filters leave
        budget = target.l2_bytes - filter_bytes * filters
    most = max(1, (budget // max(1, each) - taps) // down + 1)
    if target.l2_bytes <= _SMALL_L2 and taps > 1 and most < _WINDOWS * taps:
        # A band of a row or two is mostly what its neighbours copy too: half the cache holds higher ones.
        most = max(most, min(_WINDOWS * taps, (target.l2_bytes // 2 // max(1, row_bytes) - taps) // down + 1))
    return most


def _schedule(op: Conv2dOp, target: Target, mr: int, nv: int, *, cb: int) -> Schedule:
    width, filters, channels = _extents(op)
    nr = nv * vector_lanes(target, op.accumulator)
    depth = cb or channels
    item = op.accumulator.nbytes
    # Measured on a Zen 3: short vectors leave the first cache time for what the hardware fetches, and pixels without a
    # gap make one run of a row's taps, and of its copy: 1.01 to 1.05 times as fast, with foreign filters 0.93.
    fetched = target.isa == "avx2" and op.taps * filters * item <= _FOREIGN * target.l2_bytes
    spread = _of_a_set(depth * item, mr, target) <= target.l1d_ways // 2
    gap = 0 if channels <= SHORT_RUN or (fetched and op.taps > channels and spread) else _GAP
    columns = (width - 1) * op.stride[1] + (static(op.w.shape[3]) - 1) * op.dilation[1] + 1
    row_bytes = columns * (depth + gap) * item
    if op.stride[0] > 1 and op.taps * filters * item > target.l2_bytes and ConvOperands.of(op).reads_image:
        # Tiles read the image itself, of it only every stride-th pixel of every stride-th row: what is stepped over
        # takes no room, and each band less is one walk less over filters that no cache of a core holds.
        row_bytes = width * depth * item // op.stride[0]
    rows, kb = band_of(op, target, row_bytes, filters=filters, step=nr, filter_bytes=op.taps * item)
    rows, kb = even_bands(op, target, rows, kb, step=nr)
    # A panel in the first cache is not asked for ahead, which leaves room for longer runs of steps; those of few
    # channels are often multiples of 3. Measured on a Xeon without its tiles, filters and images cold: 48 steps and
    # runs of 4 take 0.78 to 0.99 of the time of 8 and 2, 0.79 to 1.01 of none; with few channels 1.01 to 1.04.
    near, few = op.taps * nr * item <= target.l1d_bytes // 2, channels <= SHORT_RUN
    if waits_long(target) and not (near and few):
        unroll, prefetch = 4, FARTHEST
    elif near or fetched:
        unroll, prefetch = 3 if few else 4, 0
    else:
        unroll, prefetch = 2, FAR
    upcoming = 0
    if not cb or op.taps == channels:  # a block's taps do not follow each other
        tiles, weight = -(-width // mr) * min(rows, static(op.shape[2])), op.taps * filters * op.groups * item
        upcoming = upcoming_lines(target, filter_bytes=weight, steps=unroll, lines=nv, tiles=tiles)
    return Schedule(
        mr=mr,
        nv=nv,
        unroll=unroll,
        prefetch=prefetch,
        tail=width % mr,
        rows=rows,
        kb=kb,
        cb=0 if cb >= channels else cb,
        gap=gap,
        ahead=results_ahead(op, target),
        upcoming=upcoming,
    )


def _extents(op: Conv2dOp) -> tuple[int, int, int]:
    """Return the pixels of a row, and the filters and channels of a group."""
    return static(op.shape[3]), static(op.w.shape[0]) // op.groups, static(op.w.shape[1])


def _depth(channels: int) -> int:
    return 0 if channels <= 2 * _DEEP else equal_blocks(channels, _DEEP)


def pixel_cycles(op: Conv2dOp, target: Target) -> tuple[float, float]:
    """Return a pixel's cycles of a step of all filters, tiles' beginnings among them, and the busiest core's share."""
    chosen = conv_default(op, target)
    mr, nv, rows, block = (chosen.integer(name) for name in ("mr", "nv", "rows", "kb"))
    (width, filters, _), height, parts = _extents(op), static(op.shape[2]), static(op.shape[0]) * op.groups
    tiles = -(-filters // (nv * vector_lanes(target, op.accumulator))) * -(-width // mr)
    is_even = parts * -(-height // rows) * -(-filters // block) > _MANY_TASKS * target.cores
    busiest = 0.0 if is_even else _busiest(op, target, rows, block, begun=0.0)
    share = max(1.0, busiest * target.cores / (height * filters * parts))
    return (_cost(op, (mr, nv), target) + _BEGUN_TILE * tiles) / width, share


def _cost(op: Conv2dOp, tile: tuple[int, int], target: Target) -> float:
    """Return the cycles of a step of all tiles that cover a row of pixels and all filters."""
    width, filters, _ = _extents(op)
    mr, nv = tile
    whole, tail = divmod(width, mr)
    nr = nv * vector_lanes(target, op.accumulator)
    panels = -(-filters // nr)
    # A panel that the first cache does not hold comes from the second for each tile, whatever its pixels; one that is
    # much of the second comes half as fast, beside the image, and partly from beyond.
    panel = op.taps * nr * op.accumulator.nbytes
    far = panel > target.l1d_bytes // 2 and target.fma_per_cycle == 1
    rate = _L2_BYTES if panel <= target.l2_bytes // 4 else _L2_BYTES // 2
    fetch = nr * op.accumulator.nbytes / rate if far else 0.0

    def cycles(rows: int) -> float:
        products = rows * nv / target.fma_per_cycle
        return max(products, (rows + nv) / 2, target.fma_latency_cycles, fetch)

    crowded = _CROWDED if _pixels_of_a_set(op, min(mr, width), target) > target.l1d_ways else 1.0
    return crowded * panels * (whole * cycles(mr) + (cycles(tail) if tail else 0.0))


def even_bands(op: Conv2dOp, target: Target, rows: int, block: int, *, step: int) -> tuple[int, int]:
    """Return as many rows of a band and filters of a task or fewer, of which the busiest core has least.

    Of 28 rows two bands of 7 a core, not 10 and 8; of 14 in bands of 4 half of the filters a task, not 8 rows and 6.
    ``step`` is a panel's filters. Bands are no lower than half: each walks the filters once more, and copies rows that
    the next one copies again.
    """
    height, taps = static(op.shape[2]), (static(op.w.shape[2]) - 1) * op.dilation[0] + 1
    filters, parts = _extents(op)[1], static(op.shape[0]) * op.groups
    if target.cores == 1 or parts * -(-height // rows) * -(-filters // block) > _MANY_TASKS * target.cores:
        return rows, block

    def cost(choice: tuple[int, int]) -> float:
        return _busiest(op, target, *choice)

    lowest = rows if taps == 1 else (rows - 1) // 2 + 1  # with one tap lower bands cost what they even out (measured)
    blocks = dict.fromkeys(round_up(-(-min(block, filters) // share), step) for share in _SHARES)
    return min(((fewer, each) for each in (block, *blocks) for fewer in range(rows, lowest - 1, -1)), key=cost)


def _busiest(op: Conv2dOp, target: Target, rows: int, block: int, *, begun: float = _BEGUN) -> float:
    """Return the rows times filters, and what bands begin with, of the core that has most of them."""
    height, taps = static(op.shape[2]), (static(op.w.shape[2]) - 1) * op.dilation[0] + 1
    filters, parts = _extents(op)[1], static(op.shape[0]) * op.groups
    bands = [min(rows, height - top) for top in range(0, height, rows)]
    blocks = [min(block, filters - first) for first in range(0, filters, block)]
    tasks = deque([band * share + begun * taps * filters for band in bands for share in blocks] * parts)
    busy = [0.0] * target.cores
    while tasks:  # as cores come free, half of them from the back (TaskLoop)
        core = busy.index(min(busy))
        busy[core] += tasks.pop() if 2 * core >= target.cores else tasks.popleft()
    return max(busy)


def _uneven(op: Conv2dOp, target: Target, schedule: Schedule) -> float:
    """Return what the busiest core has over its share of rows and filters; 1 where that is a tenth or less."""
    filters, height, images = _extents(op)[1], static(op.shape[2]), static(op.shape[0]) * op.groups
    rows, kb = schedule.integer("rows"), min(schedule.integer("kb"), filters)
    tasks = images * -(-height // rows) * -(-filters // kb)
    share = -(-tasks // target.cores) * rows * kb * target.cores / max(1, images * height * filters)
    return share if share > _UNEVEN else 1.0


def _pixels_of_a_set(op: Conv2dOp, pixels: int, target: Target) -> int:
    """Return how many neighbours in a row share a set of the first cache, where tiles read the image itself."""
    if not ConvOperands.of(op).reads_image:
        return 1  # a halo has gaps
    return _of_a_set(op.x.strides[3] * op.stride[1] * op.x.dtype.nbytes, pixels, target)


def _of_a_set(pitch: int, pixels: int, target: Target) -> int:
    """Return how many pixels ``pitch`` bytes apart share a set of the first cache."""
    way = target.l1d_sets * target.cache_line_bytes
    return -(-pixels // (way // gcd(pitch, way)))
