"""Block sizes of a convolution by Winograd's F(m, 3): its schedule's values, a good choice without tuning, the space."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import static
from tracea.errors import InvalidSchedule
from tracea.kernels.conv.blocking import TILES
from tracea.kernels.gemm.blocking import equal_blocks, fits_registers, round_up
from tracea.kernels.operands import vector_lanes
from tracea.kernels.space import ScheduleSpace, Value
from tracea.semantic.schedule import Schedule
from tracea.semantic.winograd import ALGORITHMS, TAPS
from tracea.targets.target import Target

__all__ = ["WinogradBlocking", "winograd_default", "winograd_space"]

_MOST: Final = 2**24
_GAP: Final = 16  # elements after a tile's channels: a pitch that is a power of two would fall on few sets of the cache
_FAR: Final = 8  # steps of a panel that is asked for ahead
_STEEP: Final = 64  # channels from which on F(4, 3) keeps the bound by norm: docs/adr/0006


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradBlocking:
    """A schedule in numbers.

    Units: ``m`` results of a tile along each axis; ``mr`` tiles by ``nv`` vectors, ``nr`` filters, of a product;
    ``rows`` of tiles in a band; ``kb`` filters of a task, whole panels; ``gap`` elements after each tile's channels.
    """

    m: int
    mr: int
    nv: int
    nr: int
    unroll: int
    prefetch: int
    tail: int
    rows: int
    kb: int
    gap: int

    @classmethod
    def of(cls, schedule: Schedule, op: Conv2dOp, target: Target) -> WinogradBlocking:
        """Read and check a schedule.

        Raises:
            InvalidSchedule: a value is missing or out of its range, or the tile does not fit the registers.
        """
        least = {"m": 2, "mr": 1, "nv": 1, "unroll": 1, "rows": 1, "kb": 1, "gap": 0, "prefetch": 0, "tail": 0}
        value = {name: schedule.integer(name) for name in least}
        for name, low in least.items():
            if not low <= value[name] <= _MOST:
                raise InvalidSchedule(
                    field=name, got=value[name], expected=f"{low} to {_MOST}", remedy="see the variant's space"
                )
        if value["m"] not in ALGORITHMS:
            raise InvalidSchedule(field="m", got=value["m"], expected=list(ALGORITHMS), remedy="choose one of them")
        if not fits_registers(value["mr"], value["nv"], target):
            raise InvalidSchedule(
                field="mr, nv",
                got=f"{value['mr']}x{value['nv']}: {value['mr'] * value['nv'] + value['nv'] + 1} registers",
                expected=f"mr*nv + nv + 1 <= {target.vector_registers}",
                remedy="choose a smaller tile",
            )
        if value["tail"] >= value["mr"]:
            raise InvalidSchedule(
                field="tail", got=value["tail"], expected=f"below mr = {value['mr']}", remedy="see the space"
            )
        nr = value["nv"] * vector_lanes(target, op.accumulator)
        return cls(**{**value, "nr": nr, "kb": round_up(value["kb"], nr)})

    @property
    def places(self) -> int:
        """Products of a tile: n by n."""
        return (self.m + TAPS - 1) ** 2

    @property
    def counts(self) -> tuple[int, ...]:
        """Tile counts with code of their own, descending."""
        return (self.mr, self.tail) if self.tail else (self.mr,)


def winograd_default(op: Conv2dOp, target: Target) -> Schedule:
    """Return the schedule that needs no tuning."""
    return min(_likely(op, target), key=lambda pair: pair[0])[1]


def winograd_space(op: Conv2dOp, target: Target) -> ScheduleSpace:
    """Return the schedules worth measuring, the default among them."""
    ranked = sorted(_likely(op, target), key=lambda pair: pair[0])
    chosen: list[dict[str, Value]] = []
    for _, base in ranked[:8]:
        chosen.append(dict(base))
        for rows in dict.fromkeys((1, 2, 4, 7, 14)):
            tile_rows = -(-static(op.shape[2]) // base.integer("m"))
            if rows <= tile_rows and rows != base.integer("rows"):
                tail = rows * _across(op, base.integer("m")) % base.integer("mr")
                chosen.append({**base, "rows": rows, "tail": tail})
        wide = round_up(static(op.w.shape[0]) // op.groups, base.integer("nv") * vector_lanes(target, op.accumulator))
        if wide != base.integer("kb"):
            chosen.append({**base, "kb": wide})
    return ScheduleSpace.listed(chosen)


def _likely(op: Conv2dOp, target: Target) -> Iterator[tuple[float, Schedule]]:
    """Yield schedules with the cycles that they should take: one for each algorithm and register tile."""
    channels = static(op.w.shape[1])
    for m in ALGORITHMS:
        if m > 2 and channels < _STEEP:
            continue
        for mr, nv in TILES[target.isa]:
            if fits_registers(mr, nv, target):
                schedule = _schedule(op, target, m, mr, nv)
                yield _cycles(op, target, schedule), schedule


def _schedule(op: Conv2dOp, target: Target, m: int, mr: int, nv: int) -> Schedule:
    filters, channels = static(op.w.shape[0]) // op.groups, static(op.w.shape[1])
    item, nr = op.accumulator.nbytes, nv * vector_lanes(target, op.accumulator)
    places, across = (m + TAPS - 1) ** 2, _across(op, m)
    height = -(-static(op.shape[2]) // m)
    gap = 0 if channels % 16 else _GAP
    row_bytes = places * across * (channels + gap + nr) * item
    rows = equal_blocks(height, max(1, min(height, target.l2_bytes * 3 // 4 // row_bytes)))
    kb, images = round_up(filters, nr), static(op.shape[0]) * op.groups
    while images * -(-height // rows) * -(-filters // kb) < target.cores:
        if kb > nr and (rows == 1 or places * channels * kb * item > target.l2_bytes):
            kb = round_up(-(-kb // 2), nr)
        elif rows > 1:
            rows = equal_blocks(height, -(-rows // 2))
        elif kb > nr:
            kb = round_up(-(-kb // 2), nr)
        else:
            break
    near = channels * nr * item <= target.l1d_bytes // 2
    return Schedule(
        m=m,
        mr=mr,
        nv=nv,
        unroll=4 if near else 2,
        prefetch=0 if near else _FAR,
        tail=rows * across % mr,
        rows=rows,
        kb=kb,
        gap=gap,
    )


def _across(op: Conv2dOp, m: int) -> int:
    return -(-static(op.shape[3]) // m)


def _cycles(op: Conv2dOp, target: Target, schedule: Schedule) -> float:
    """Return about how many cycles a thread takes for one image: products, transforms, filters from far away."""
    filters, channels = static(op.w.shape[0]) // op.groups, static(op.w.shape[1])
    lanes, item = vector_lanes(target, op.accumulator), op.accumulator.nbytes
    m, mr, nv, rows = (schedule.integer(name) for name in ("m", "mr", "nv", "rows"))
    places, across, height = (m + TAPS - 1) ** 2, _across(op, m), -(-static(op.shape[2]) // m)
    panels, bands = -(-filters // (nv * lanes)), -(-height // rows)
    near = channels * nv * lanes * item <= target.l1d_bytes // 2

    def step(count: int) -> float:
        fetch = 0.0 if near else nv * lanes * item / 32
        return max(count * nv / target.fma_per_cycle, (count + nv) / 2, target.fma_latency_cycles, fetch)

    whole, tail = divmod(rows * across, mr)
    products = bands * places * panels * channels * (whole * step(mr) + (step(tail) if tail else 0.0))
    tiles = height * across
    moved = tiles * (math.ceil(channels / lanes) + panels * nv) * places * 4.0
    weight = places * channels * filters * item
    far = bands * weight / (8.0 if weight > target.l2_bytes // 2 else 64.0)
    return products + moved + far
