"""Attention that never holds all scores: a task takes a block of queries through its visible keys, block after block.

Queries are packed into panels whose width is the register tile's, so that they are the lanes of every vector: a key's
or a value's row is read where it lies, or from a copy where its elements are not side by side in the type of the sums.

Source: Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracea.core.op import AttentionOp
from tracea.errors import InvalidSchedule
from tracea.kernels.attention.operands import (
    SIZES,
    AttentionOperands,
    attention_requirements,
    computed_type,
    copied_rows,
    is_apart,
)
from tracea.kernels.attention.query_block import COUNT, FIRST, QueryBlock
from tracea.kernels.attention.spans import Spans
from tracea.kernels.gemm.blocking import MOST_UNROLLED, fits_registers, round_up
from tracea.kernels.operands import scratch, vector_lanes
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic, as_given
from tracea.semantic.index import equal
from tracea.semantic.nodes import Pack
from tracea.semantic.nodes_attention import AttentionStep
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["FLASH", "build_flash", "check_register_tile"]

_DEPTH, _WIDTH = SIZES[-2:]
_TASKS_PER_CORE: Final = 4
_KEY_BLOCK: Final = 256


def build_flash(op: AttentionOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of an attention."""
    schedule.check_range(1, "mr", "nv", "bq", "bk")
    schedule.check_range(1, "unroll", most=MOST_UNROLLED)
    schedule.check_range(0, "copy_keys", "copy_values", most=1)
    check_register_tile(schedule, target)
    copies = {name: bool(schedule.integer(f"copy_{name}")) for name in ("keys", "values")}
    operands = AttentionOperands.of(op, SIZES, copy_keys=copies["keys"], copy_values=copies["values"])
    compute, get = operands.compute, schedule.integer
    panel = get("nv") * vector_lanes(target, compute)
    bq, bk = round_up(get("bq"), panel), get("bk")
    per_task = bq if op.spans is None else op.spans.rows
    if per_task > bq:
        expected = f"at least {per_task}, the queries of a list of spans"
        raise InvalidSchedule(field="bq", got=bq, expected=expected, remedy=f"bq={per_task}")
    for name, copied in copies.items():
        operands.check_copy(name, copied=copied)
    place = QueryBlock(operands=operands, per_task=per_task, room=bq, panel=panel, bk=bk)
    queries = scratch("queries", compute, MemorySpace.THREAD, bq // panel, _DEPTH, panel)
    scores = scratch("scores", compute, MemorySpace.THREAD, bk, panel)
    tile = _tile(schedule, get("mr"))
    packed = queries.region((0, 0, 0), (place.panels, _DEPTH, panel))
    taken = {
        name: copied_rows(name, region, compute, bk, copied=copies[name]) for name, region in place.sources.items()
    }
    spans = None if op.spans is None else Spans.of(op, SIZES, FIRST)
    step = AttentionStep(
        intrinsic=tile,
        queries=packed,
        keys=taken["keys"].rows,
        values=taken["values"].rows,
        scores=scores.region((0, 0), (COUNT, panel)),
        span=None if spans is None else spans.use,
        **place.step,
    )
    pack = Pack(source=place.queries, target=packed, panel=panel, axis=0)
    made = (*taken["keys"].copies, *taken["values"].copies)
    return place.kernel(
        FLASH_ID,
        schedule,
        target,
        body=place.tasks(pack, made, step, spans),
        scratch=(queries, scores, *place.state_buffers, *taken["keys"].buffers, *taken["values"].buffers),
        spans=spans,
        assumptions=equal(_WIDTH % get("mr"), get("tail")),
    )


def check_register_tile(schedule: Schedule, target: Target) -> None:
    """Check a schedule's register tile.

    Raises:
        InvalidSchedule: it needs more registers than there are, or its tail is no rest of its rows.
    """
    mr, nv = schedule.integer("mr"), schedule.integer("nv")
    if not fits_registers(mr, nv, target):
        raise InvalidSchedule(
            field="mr, nv",
            got=f"mr={mr}, nv={nv}: {mr * nv + nv + 1} vector registers",
            expected=f"mr*nv + nv + 1 <= {target.vector_registers}, the registers of {target.isa}",
            remedy="choose a smaller tile",
        )
    schedule.check_range(0, "tail", most=mr - 1)  # the values' columns that are left of the last tile


def _tile(schedule: Schedule, mr: int) -> Intrinsic:
    return Intrinsic(
        name="attention_tile",
        meaning=as_given,
        source="emitters/cpu/include/tracea/attention.h",
        attributes=(
            ("mr", mr),
            ("nv", schedule.integer("nv")),
            ("tail", schedule.integer("tail")),
            ("unroll", schedule.integer("unroll")),
        ),
    )


# Rows of keys by vectors of queries, each with the time of a query, over that of the first (benchmarks/NOTES.md).
_TILES: Final[Mapping[str, Mapping[tuple[int, int], float]]] = {
    "avx512": {(8, 2): 1.0, (8, 3): 0.99, (6, 4): 1.01, (16, 1): 1.15, (14, 2): 1.03, (9, 3): 1.03},
    "avx2": {(6, 2): 1.0, (4, 3): 1.05, (4, 2): 1.1},
    "neon": {(8, 3): 1.0, (6, 4): 1.0, (4, 4): 1.1},
    "plain": {(4, 2): 1.0, (8, 1): 1.1},
}
# Of longer heads a panel comes from the second-level cache: it is read less often, and so are keys and values, by tiles
# of four vectors of queries, which then take so much less.
_LONG_HEAD: Final = 256
_OF_LONG_HEADS: Final = 0.9


def _default(op: AttentionOp, target: Target) -> Schedule:
    mr, nv = _tiles(op, target)[0]
    return _schedule(op, target, mr, nv, panels=2, bk=_KEY_BLOCK)


def _tiles(op: AttentionOp, target: Target) -> tuple[tuple[int, int], ...]:
    """Return the register tiles, the fastest first: a panel that queries do not fill costs what a full one does.

    Under a causal mask a panel takes the keys before its last query: on the average half of all, and half of itself.
    """
    times, lanes = _TILES[target.isa], vector_lanes(target, computed_type(op))
    rows = op.q.static_shape[2] if op.spans is None else op.spans.rows
    is_long = max(op.q.static_shape[3], op.v.static_shape[3]) > _LONG_HEAD

    def time(tile: tuple[int, int]) -> float:
        panel = tile[1] * lanes
        keys = rows + panel if op.causal else 1
        return round_up(rows, panel) * keys * times[tile] * (_OF_LONG_HEADS if is_long and tile[1] == 4 else 1.0)

    return tuple(sorted(times, key=time))


def _schedule(op: AttentionOp, target: Target, mr: int, nv: int, *, panels: int, bk: int) -> Schedule:
    batch, heads, s, _ = op.q.static_shape
    panel = nv * vector_lanes(target, computed_type(op))
    wanted = 1 if target.cores == 1 else _TASKS_PER_CORE * target.cores
    while panels > 1 and batch * heads * -(-s // (panels * panel)) < wanted:
        panels -= 1
    if op.spans is not None:
        panels = -(-op.spans.rows // panel)
    return Schedule(
        mr=mr,
        nv=nv,
        unroll=2,
        tail=op.v.static_shape[3] % mr,
        bq=panels * panel,
        bk=bk,
        copy_keys=int(is_apart(op, "keys")),
        copy_values=int(is_apart(op, "values")),
    )


def _space(op: AttentionOp, target: Target) -> ScheduleSpace:
    chosen: list[dict[str, Value]] = [dict(_default(op, target))]
    for mr, nv in _tiles(op, target):
        for panels in (2, 1, 4, 8):
            for bk in (128, 256, 512):
                base = dict(_schedule(op, target, mr, nv, panels=panels, bk=bk))
                chosen.append(base)
                if bk == _KEY_BLOCK and not (base["copy_keys"] and base["copy_values"]):
                    chosen.append({**base, "copy_keys": 1, "copy_values": 1})
    return ScheduleSpace.listed(chosen)


FLASH_ID = "attention.flash"
FLASH = Variant(
    id=FLASH_ID,
    op_type=AttentionOp,
    backend="cpu",
    requirements=attention_requirements(SIZES),
    preferences=(),
    priority=50,
    build=build_flash,
    space=_space,
    default_schedule=_default,
)
