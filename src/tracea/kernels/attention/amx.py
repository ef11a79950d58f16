"""Attention on matrix tiles: both products of sums of bf16 terms, the softmax in vectors underneath them.

A task splits its queries once, and each block of keys and values for all of its panels of 32 queries: the more panels a
task has, the less that costs. The routine has three panels on their way (emitters/cpu/include/tracea/attention_amx.h).

Source: Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 1;
sums of terms: :mod:`tracea.kernels.gemm.matrix_tiles`.
"""

from __future__ import annotations

from typing import Final

from tracea.core.dtype import DType
from tracea.core.op import AttentionOp
from tracea.core.tensor_type import TensorType
from tracea.kernels.attention.operands import (
    NO_SPANS,
    SIZES,
    AttentionOperands,
    attention_requirements,
    computed_type,
)
from tracea.kernels.attention.query_block import COUNT, QueryBlock
from tracea.kernels.gemm.amx import MATRIX_TILES
from tracea.kernels.gemm.blocking import round_up
from tracea.kernels.gemm.matrix_tiles import GRANULE, TILE, whole_granules
from tracea.kernels.operands import scratch
from tracea.kernels.requirements import condition
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.access import Intrinsic, as_given
from tracea.semantic.index import ceil_div
from tracea.semantic.intrinsics import terms_of
from tracea.semantic.nodes import Pack, Region
from tracea.semantic.nodes_attention import AttentionStep
from tracea.semantic.schedule import MOST_OF_TILE, Schedule
from tracea.semantic.tile_kernel import MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["AMX", "build_amx", "tile_routine"]

_DEPTH, _WIDTH = SIZES[-2:]
_TERMS: Final = 3  # of a float32
_KEY_BLOCK: Final = 256
_MOST_QUERIES: Final = 512  # of a task: their panels and a block of keys stay in the second-level cache
_MOST_KEYS: Final = 1024  # of a block
_SPLIT: Final = 0.83  # splitting a task's keys and values, over what a panel of 32 queries takes with them
_FEW_QUERIES: Final = 16  # half a tile of them: vectors take no longer


def build_amx(op: AttentionOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of an attention."""
    schedule.check_range(1, "bq", "bk", most=MOST_OF_TILE)
    bq, bk = (round_up(schedule.integer(name), TILE) for name in ("bq", "bk"))
    operands = AttentionOperands.of(op, SIZES, copy_keys=True, copy_values=True)
    place = QueryBlock(operands=operands, per_task=bq, room=bq, panel=TILE, bk=bk)
    thread, line, words = MemorySpace.THREAD, TILE * _TERMS, DType.BF16
    depth, columns, granules = whole_granules(_DEPTH), ceil_div(_WIDTH, TILE), ceil_div(COUNT, GRANULE)
    queries = scratch("queries", words, thread, bq // TILE, depth, line)
    keys = scratch("key_panels", words, thread, bk // TILE, depth, line)
    values = scratch("value_panels", words, thread, columns, bk, line)
    scores = scratch("scores", DType.F32, thread, 2, bk, TILE)
    weights = scratch("weights", words, thread, 2, bk // GRANULE, GRANULE, line)
    packed = queries.region((0, 0, 0), (place.panels, depth, line))
    taken = keys.region((0, 0, 0), (ceil_div(COUNT, TILE), depth, line))
    summed = values.region((0, 0, 0), (columns, whole_granules(COUNT), line))
    # Scores are keys by queries, sums columns of values by queries: the first factors are keys and turned values.
    made = (
        _pack(place.sources["keys"], taken, axis=0, turned=False),
        _pack(place.sources["values"], summed, axis=1, turned=True),
    )
    step = AttentionStep(
        intrinsic=tile_routine("attention_amx", op.q, op.k, op.v),
        queries=packed,
        keys=taken,
        values=summed,
        scores=scores.region((0, 0, 0), (2, whole_granules(COUNT), TILE)),
        weights=weights.region((0, 0, 0, 0), (2, granules, GRANULE, line)),
        count=COUNT,
        asked=(place.queries, place.result, *place.sources.values()),
        **place.step,
    )
    return place.kernel(
        AMX_ID,
        schedule,
        target,
        body=place.tasks(_pack(place.queries, packed, axis=0, turned=True), made, step, None),
        scratch=(queries, scores, *place.state_buffers, keys, values, weights),
    )


def _pack(source: Region, target: Region, *, axis: int, turned: bool) -> Pack:
    return Pack(source=source, target=target, panel=TILE, axis=axis, terms=_TERMS, granule=GRANULE, turned=turned)


def tile_routine(name: str, *types: TensorType) -> Intrinsic:
    """Return the routine of operands that are packed as sums of terms; it reads those that are not zero."""
    terms = max(terms_of(type_.dtype) for type_ in types)
    return Intrinsic(
        name=name,
        meaning=as_given,
        source=f"emitters/cpu/include/tracea/{name}.h; TDPBF16PS: Intel 64 and IA-32 SDM vol. 2",
        attributes=(("terms", _TERMS), ("tile", TILE), ("operand_terms", terms)),
    )


def _default(op: AttentionOp, target: Target) -> Schedule:
    """Return the schedule whose cores take least, by tasks and by panels with the keys that they split."""
    batch, heads, queries, _ = op.q.static_shape
    keys = op.k.static_shape[2]

    def time(panels: int) -> float:
        tasks = batch * heads * -(-queries // (panels * TILE))
        uneven = 0.5 if op.causal and target.cores > 1 else 0.0  # the last task is not the average one
        return max(-(-tasks // target.cores), tasks / target.cores + uneven) * (panels + _SPLIT)

    most = max(1, min(_MOST_QUERIES, round_up(queries, TILE)) // TILE)
    bq = TILE * min(range(most, 0, -1), key=time)
    bk = _KEY_BLOCK
    if op.window is not None:
        seen = bq + (op.window - 1) * (1 if op.causal else 2)
        bk = seen if seen <= _MOST_KEYS else bk  # a panel meets its keys in one block
    return Schedule(bq=bq, bk=round_up(min(bk, keys), TILE))


def _space(op: AttentionOp, target: Target) -> ScheduleSpace:
    default = _default(op, target)
    rows = dict.fromkeys((default.integer("bq"), 64, 128, 256, 512, 1024))
    blocks = dict.fromkeys((default.integer("bk"), 128, 256, 512))
    return ScheduleSpace.listed([{"bq": bq, "bk": bk} for bq in rows for bk in blocks])


_FLOATS = condition(
    "sums of float32",
    lambda op, _: computed_type(op) is DType.F32,
    needed="q, k, v and the score's operands of f32, f16 or bf16",
    found=lambda op: f"{op.q.dtype.value}, {op.k.dtype.value}, {op.v.dtype.value}, summed as {computed_type(op).value}",
    remedy="use attention.flash",
)


def _by_shape(op: AttentionOp, target: Target) -> float:
    if target.isa == "plain":
        return -200.0  # arrays in place of registers: there to be read by sanitizers
    return 10.0 if op.q.static_shape[2] > _FEW_QUERIES else -60.0


AMX_ID = "attention.amx"
AMX = Variant(
    id=AMX_ID,
    op_type=AttentionOp,
    backend="cpu",
    requirements=(*attention_requirements(SIZES), MATRIX_TILES, _FLOATS, NO_SPANS),
    preferences=(Preference(name="whole tiles", score=_by_shape),),
    priority=50,
    build=build_amx,
    space=_space,
    default_schedule=_default,
)
