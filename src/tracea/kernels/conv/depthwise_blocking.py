"""Block sizes of a depthwise convolution on vectors: its schedule's values, a good choice without tuning, the space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import static
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.blocking import equal_blocks, round_up
from tracea.kernels.operands import vector_lanes
from tracea.kernels.space import ScheduleSpace, Value
from tracea.semantic.schedule import MOST_OF_TILE, Schedule
from tracea.targets.target import Target

__all__ = ["DepthwiseBlocking", "depthwise_default", "depthwise_space"]

_HALO_SHARE: Final = 6  # a halo is this part of the second-level cache
_TASKS_PER_CORE: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthwiseBlocking:
    """Units: ``mr`` pixels, ``nv`` vectors of channels, ``rows`` of results in a band, ``cb`` channels of a task.

    ``inner``: of an image that is read itself, all of a task's channels of some pixels come before the next pixels.
    """

    mr: int
    nv: int
    nr: int
    tail: int
    rows: int
    cb: int
    inner: bool

    @classmethod
    def of(cls, schedule: Schedule, op: Conv2dOp, target: Target) -> DepthwiseBlocking:
        """Read and check a schedule; one recorded without ``inner`` takes panel after panel.

        Raises:
            InvalidSchedule: a value is missing or out of its range, or the tile does not fit the registers.
        """
        least = {"mr": 1, "nv": 1, "tail": 0, "rows": 1, "cb": 1}
        value = {name: schedule.integer(name) for name in least}
        for name, low in least.items():
            schedule.check_range(low, name, most=MOST_OF_TILE)
        needed = (value["mr"] + 1) * value["nv"]
        if target.isa != "plain" and needed > target.vector_registers:
            raise InvalidSchedule(
                field="mr, nv",
                got=f"{needed} registers",
                expected=f"(mr + 1) * nv <= {target.vector_registers}",
                remedy="choose a smaller tile",
            )
        if value["tail"] >= value["mr"]:
            raise InvalidSchedule(
                field="tail", got=value["tail"], expected=f"below mr = {value['mr']}", remedy="see the space"
            )
        nr = value["nv"] * vector_lanes(target, op.accumulator)
        inner = schedule.integer("inner") if "inner" in schedule else 0
        if inner not in (0, 1):
            raise InvalidSchedule(field="inner", got=inner, expected="0 or 1", remedy="see the variant's space")
        return cls(**{**value, "nr": nr, "cb": round_up(value["cb"], nr)}, inner=bool(inner))

    @property
    def pixels(self) -> tuple[int, ...]:
        """Pixel counts with code of their own, descending."""
        return (self.mr, self.tail) if self.tail else (self.mr,)


# Tiles of mr pixels by nv vectors of channels: (mr + 1) * nv registers, and sums enough to hide the latency. Of equal
# ones the first: long runs of a pixel's channels are read faster than short ones (benchmarks/NOTES.md).
_TILES: Final = {
    "avx512": ((14, 2), (8, 3), (7, 3), (7, 2), (8, 2), (14, 1), (7, 4), (28, 1)),
    "avx2": ((7, 2), (6, 2), (7, 1), (14, 1), (4, 2)),
    "neon": ((14, 2), (7, 2), (8, 2), (14, 1), (28, 1)),
    "plain": ((7, 1), (4, 2)),
}


def _is_copied_by_lines(op: Conv2dOp, target: Target) -> bool:
    """Tell whether tasks copy many rows of few channels: of an image whose channels lie apart, to turn them.

    Of more channels fewer rows fit the cache, and a band reads its neighbours' rows again. Measured with vectors of
    half a line, 144 channels of 56²: 16 channels by 19 rows take 0.6 of the time of all channels by 2 rows.
    """
    return op.x.strides[1] != 1 and target.vector_bytes < target.cache_line_bytes


def depthwise_default(op: Conv2dOp, target: Target) -> Schedule:
    """Return the schedule that needs no tuning."""
    width, lanes = static(op.shape[3]), vector_lanes(target, op.accumulator)

    def cost(tile: tuple[int, int]) -> float:
        mr, nv = tile
        vectors = -(-op.groups // (nv * lanes)) * nv  # whole panels: 144 channels are 10 vectors in pairs, 9 in threes
        return vectors * -(-width // mr) * max(mr, 8 / nv)

    tiles, channels = _TILES[target.isa], op.groups
    if _is_copied_by_lines(op, target):
        tiles = sorted(tiles, key=lambda tile: tile[1])  # of equal ones that whose panels are fewest channels
        channels = min(channels, target.cache_line_bytes // op.accumulator.nbytes)
    mr, nv = min(tiles, key=cost)
    return _schedule(op, target, mr, nv, channels=channels)


def depthwise_space(op: Conv2dOp, target: Target) -> ScheduleSpace:
    """Return the schedules worth measuring, the default among them."""
    chosen: list[dict[str, Value]] = [dict(depthwise_default(op, target))]
    for mr, nv in _TILES[target.isa]:
        for channels in dict.fromkeys((op.groups, 32, 64, 128)):
            base = _schedule(op, target, mr, nv, channels=min(channels, op.groups))
            for rows in dict.fromkeys((base.integer("rows"), 2, 4, 8, static(op.shape[2]))):
                if rows <= static(op.shape[2]):
                    chosen.append({**base, "rows": rows})
                    if "inner" in base:
                        chosen.append({**base, "rows": rows, "inner": 0})
    return ScheduleSpace.listed(chosen)


def _schedule(op: Conv2dOp, target: Target, mr: int, nv: int, *, channels: int) -> Schedule:
    nr = nv * vector_lanes(target, op.accumulator)
    height, width = (static(dim) for dim in op.shape[2:])
    taps = (static(op.w.shape[2]) - 1) * op.dilation[0] + 1
    columns = (width - 1) * op.stride[1] + (static(op.w.shape[3]) - 1) * op.dilation[1] + 1
    cb, item = round_up(channels, nr), op.accumulator.nbytes

    def rows_of(cb: int, budget: int) -> int:
        return (budget // (columns * cb * item) - taps) // op.stride[0] + 1

    # All channels of a pixel are one long run: they are parted only where not even two rows of results would fit.
    # Windows higher than the result, those of a gradient of filters, are read again by each band: one has all rows.
    least = height if taps > height else min(height, 2)
    while rows_of(cb, target.l2_bytes // 2) < least and cb > nr:
        cb = round_up(cb // 2, nr)
    rows = equal_blocks(height, max(least, min(height, rows_of(cb, target.l2_bytes // _HALO_SHARE))))
    wanted = 1 if target.cores == 1 else _TASKS_PER_CORE * target.cores
    while static(op.shape[0]) * -(-height // rows) * -(-op.groups // cb) < wanted and (cb > nr or rows > 1):
        cb, rows = (round_up(cb // 2, nr), rows) if cb > nr else (cb, equal_blocks(height, max(1, rows // 2)))
    chosen = Schedule(mr=mr, nv=nv, tail=width % mr, rows=rows, cb=cb)
    # A panel that is a line or less of each pixel leaves, pixel after pixel, strides that no prefetcher follows: all
    # channels of a few pixels are one run. Vectors of a line, whose panels are two, were measured the other way only.
    short = target.vector_bytes < target.cache_line_bytes and nr * item <= target.cache_line_bytes
    return chosen.with_values(inner=1) if short and op.x.strides[1] == 1 else chosen
