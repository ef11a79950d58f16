"""Attention of a few queries over many keys: parts of the keys are tasks, whose states are brought together at the end.

One query, or a handful, give each key little to do: reading keys and values once is the work. A task takes its part of
the keys in blocks, each a few long streams, and leaves what it knows of each query in the team's scratch; behind the
barrier the parts of each head are added up, relative to the largest score. Heads that share keys follow each other, so
that what one has read is near when the next one comes.
"""

from __future__ import annotations

from typing import Final

from tracea.core.op import AttentionOp
from tracea.kernels.attention.operands import (
    HEAD,
    NO_SPANS,
    AttentionOperands,
    Sizes,
    attention_requirements,
    copied_rows,
    is_apart,
)
from tracea.kernels.cores import fetches_far
from tracea.kernels.gemm.blocking import round_up
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, scratch, vector_lanes
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.access import Intrinsic, as_given
from tracea.semantic.index import Const, Index, Param, Var, ceil_div, maximum, minimum
from tracea.semantic.nodes import Barrier, For, Let, Level, Node, Pack, Parallel, block
from tracea.semantic.nodes_attention import AttentionCombine, AttentionStart, AttentionState, AttentionStep
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["DECODE", "build_decode"]

_MOST_QUERIES: Final = 16
_LEAST_PART: Final = 512  # keys: below that, adding parts up costs more than another thread saves
# As of every attention, but no larger than the states of all parts may be.
_SIZES: Final[Sizes] = (
    Param("batch", maximum=2**12),
    Param("kv_heads", minimum=1, maximum=2**10),
    Param("sharing", minimum=1, maximum=2**7),
    Param("s", minimum=1, maximum=_MOST_QUERIES),
    Param("t", maximum=2**24),
    Param("d", maximum=2**10),
    Param("dv", maximum=2**10),
)
_BATCH, _KV_HEADS, _SHARING, _QUERIES, _KEYS, _DEPTH, _WIDTH = _SIZES
_PART = Var("part")
_BEGIN, _END = Var("key_begin"), Var("key_end")
_OFFSET, _COUNT = Var("offset"), Var("count")
_FEW: Final = 8
_FEWER_THAN_LANES: Final = 11  # queries, up to which a vector of them leaves too many lanes empty
_TASKS_PER_CORE: Final = 4
# Keys of a block. They are read once, in streams that are worth beginning. More queries than registers hold read them
# again, in the second cache. Keys that are copied are written to a cache and read once more.
_STREAMED, _AGAIN, _COPIED_OF_SEVERAL, _COPIED = 2048, 256, 64, 32
# With a small first cache one query's streams are as long as a part of this many keys, and asked for less far ahead.
# Measured on 32 KiB (Zen 4), 12 heads of 32768 keys of 64: 10.1 ms in blocks of 2048 keys and 512 bytes ahead, 10.0 if
# only longer, 8.2 longer without requests, 7.9 longer and 256 bytes ahead; reading alone takes 7.4. Where the first
# cache has 48 KiB (Sapphire Rapids) 512 bytes were best, and 256 not tried.
_STREAMED_LONG, _SMALL_L1D = 32_768, 32 * 1024
_AHEAD, _AHEAD_SMALL = 512, 256  # bytes
# Of a core that fetches far ahead itself. Measured on a Zen 5, the same op, GB/s of one and two threads: blocks of 2048
# and 512 bytes ahead 37.6 and 52.8, without requests 41.9 and 56.1, and of 4096 42.5 and 55.9.
_STREAMED_FAR = 4096
_BLOCKS: Final = (_COPIED, _COPIED_OF_SEVERAL, 128, _AGAIN)


def build_decode(op: AttentionOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of an attention of few queries."""
    schedule.check_range(1, "bk")
    schedule.check_range(_LEAST_PART, "part")
    schedule.check_range(0, "copy_keys", "copy_values", most=1)
    copies = {name: bool(schedule.integer(f"copy_{name}")) for name in ("keys", "values")}
    operands = AttentionOperands.of(op, _SIZES, copy_keys=copies["keys"], copy_values=copies["values"])
    for name, copied in copies.items():
        operands.check_copy(name, copied=copied, widened=True)
    compute = operands.compute
    bk, part = round_up(schedule.integer("bk"), vector_lanes(target, compute)), schedule.integer("part")
    parts = ceil_div(_KEYS, part)
    team, thread = MemorySpace.TEAM, MemorySpace.THREAD
    lead = (_BATCH, _KV_HEADS, _SHARING)
    queries = scratch("queries", compute, thread, _QUERIES, _DEPTH, 1)
    scores = scratch("scores", compute, thread, _QUERIES, bk, 1)
    peaks, totals = (scratch(name, compute, team, *lead, parts, _QUERIES, 1) for name in ("peaks", "totals"))
    sums = scratch("sums", compute, team, *lead, parts, _QUERIES, _WIDTH, 1)

    def state(heads: tuple[Var, ...], first: Index, count: Index) -> AttentionState:
        ones = tuple(Const(1) for _ in heads)
        return AttentionState(
            peaks=peaks.region((*heads, first, 0, 0), (*ones, count, _QUERIES, 1)),
            totals=totals.region((*heads, first, 0, 0), (*ones, count, _QUERIES, 1)),
            sums=sums.region((*heads, first, 0, 0, 0), (*ones, count, _QUERIES, _WIDTH, 1)),
        )

    rows = Intrinsic(
        name="attention_rows",
        meaning=as_given,
        source="emitters/cpu/include/tracea/attention_rows.h",
        attributes=(("ahead", _ahead(schedule)),),
    )
    key, zero, one = _BEGIN + _OFFSET, Const(0), Const(1)
    own = state(HEAD, _PART, one)
    packed = queries.region((0, 0, 0), (_QUERIES, _DEPTH, 1))
    source = {
        name: operands.window(buffer, HEAD[:2], (key, zero), (_COUNT, width))
        for name, buffer, width in (("keys", operands.k, _DEPTH), ("values", operands.v, _WIDTH))
    }
    taken = {name: copied_rows(name, region, compute, bk, copied=copies[name]) for name, region in source.items()}
    step = AttentionStep(
        intrinsic=rows,
        queries=packed,
        keys=taken["keys"].rows,
        values=taken["values"].rows,
        scores=scores.region((0, 0, 0), (_QUERIES, _COUNT, 1)),
        state=own,
        rows=_QUERIES,
        first_query=zero,
        first_key=key,
        scale=op.softmax_scale,
        causal=op.causal,
        window=op.window,
        score=op.score.expr,
        operands=tuple(operands.window(extra, HEAD, (zero, key), (_QUERIES, _COUNT)) for extra in operands.extras),
    )
    begin, end = _visible(op, part)
    loop = For(
        var=_OFFSET,
        extent=maximum(0, _END - _BEGIN),
        step=Const(bk),
        length=_COUNT,
        body=block(*taken["keys"].copies, *taken["values"].copies, step),
    )
    task = Var("task")
    body: tuple[Node, ...] = (
        Let(var=HEAD[0], value=task // (_KV_HEADS * parts * _SHARING)),
        Let(var=HEAD[1], value=task // (parts * _SHARING) % _KV_HEADS),
        Let(var=_PART, value=task // _SHARING % parts),
        Let(var=HEAD[2], value=task % _SHARING),
        Pack(
            source=operands.window(operands.q, HEAD, (zero, zero), (_QUERIES, _DEPTH)), target=packed, panel=1, axis=0
        ),
        AttentionStart(intrinsic=rows, state=own, rows=_QUERIES),
        Let(var=_BEGIN, value=begin),
        Let(var=_END, value=end),
        loop,
    )
    other, sum_heads = Var("sum_task"), (Var("sum_batch"), Var("sum_kv"), Var("sum_sharing"))
    combine: tuple[Node, ...] = (
        Let(var=sum_heads[0], value=other // (_KV_HEADS * _SHARING)),
        Let(var=sum_heads[1], value=other // _SHARING % _KV_HEADS),
        Let(var=sum_heads[2], value=other % _SHARING),
        AttentionCombine(
            intrinsic=rows,
            state=state(sum_heads, zero, parts),
            part=part,
            target=operands.window(operands.y, sum_heads, (zero, zero), (_QUERIES, _WIDTH)),
        ),
    )
    buffers = (
        operands.q,
        operands.k,
        operands.v,
        *operands.extras,
        operands.y,
        *(queries, scores, peaks, totals, sums),
        *taken["keys"].buffers,
        *taken["values"].buffers,
    )
    return TileKernel(
        name=kernel_name(op.key, DECODE_ID, schedule, target),
        op=op,
        variant=DECODE_ID,
        schedule=schedule,
        target=target.name,
        params=params_of(buffers),
        buffers=buffers,
        body=block(
            Parallel(level=Level.TASK, var=task, extent=_BATCH * _KV_HEADS * parts * _SHARING, body=block(*body)),
            Barrier(),
            Parallel(level=Level.TASK, var=other, extent=_BATCH * _KV_HEADS * _SHARING, body=block(*combine)),
        ),
    )


def _visible(op: AttentionOp, part: int) -> tuple[Index, Index]:
    """Return the first key of a part that a query may see, and the one after the last."""
    begin: Index = _PART * part
    end: Index = minimum(_KEYS, _PART * part + part)
    if op.window is not None and not op.causal:
        end = minimum(end, _QUERIES + (op.window - 1))
    if op.causal:
        end = minimum(end, _QUERIES)
    return begin, end


def _ahead(schedule: Schedule) -> int:
    if "ahead" not in schedule:  # recorded before there was a choice
        return _AHEAD
    schedule.check_range(0, "ahead", most=65_536)
    return schedule.integer("ahead")


def _streams_long(op: AttentionOp, target: Target) -> bool:
    return op.q.static_shape[2] == 1 and target.l1d_bytes <= _SMALL_L1D


def _unasked(op: AttentionOp, target: Target) -> bool:
    return op.q.static_shape[2] == 1 and fetches_far(target)


def _schedule(op: AttentionOp, target: Target, *, bk: int, tasks: int) -> Schedule:
    batch, heads, _, _ = op.q.static_shape
    t = op.k.static_shape[2]
    parts = max(1, min(-(-tasks * target.cores // max(1, batch * heads)), t // _LEAST_PART))
    return Schedule(
        bk=bk,
        part=max(_LEAST_PART, t if target.cores == 1 else -(-t // parts)),
        copy_keys=int(is_apart(op, "keys", widened=True)),
        copy_values=int(is_apart(op, "values", widened=True)),
        ahead=0 if _unasked(op, target) else _AHEAD_SMALL if _streams_long(op, target) else _AHEAD,
    )


def _default(op: AttentionOp, target: Target) -> Schedule:
    queries = op.q.static_shape[2]
    several = _STREAMED if queries <= _FEW else _AGAIN
    read = _STREAMED_LONG if _streams_long(op, target) else _STREAMED_FAR if _unasked(op, target) else several
    copied = _COPIED if queries == 1 else _COPIED_OF_SEVERAL
    return _schedule(op, target, bk=copied if _copies(op) else read, tasks=_TASKS_PER_CORE)


def _copies(op: AttentionOp) -> bool:
    return is_apart(op, "keys", widened=True) or is_apart(op, "values", widened=True)


def _space(op: AttentionOp, target: Target) -> ScheduleSpace:
    chosen: list[dict[str, Value]] = [dict(_default(op, target))]
    for bk in _BLOCKS if _copies(op) else (*_BLOCKS, 1024, _STREAMED, _STREAMED_FAR):
        for tasks in (_TASKS_PER_CORE, 1, 16):
            chosen.append(dict(_schedule(op, target, bk=bk, tasks=tasks)))
    return ScheduleSpace.listed(chosen)


def _few_queries(op: AttentionOp) -> float:
    return 20.0 if op.q.static_shape[2] <= _FEWER_THAN_LANES else 0.0


DECODE_ID = "attention.decode"
DECODE = Variant(
    id=DECODE_ID,
    op_type=AttentionOp,
    backend="cpu",
    requirements=(*attention_requirements(_SIZES), NO_SPANS),
    preferences=(Preference(name="few queries", score=lambda op, _: _few_queries(op)),),
    priority=45,
    build=build_decode,
    space=_space,
    default_schedule=_default,
)
