"""Attention that never holds all scores: a task takes a block of queries through its visible keys, block after block.

Queries are packed into panels whose width is the register tile's, so that they are the lanes of every vector: a key's
or a value's row is read where it lies, or from a copy where its elements are not side by side in the type of the sums.

Source: Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 1.
"""

from __future__ import annotations

from typing import Any, Final

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import AttentionOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidSchedule
from tracea.kernels.attention.operands import (
    BATCH,
    DEPTH,
    KEYS,
    KV_HEADS,
    QUERIES,
    SHARING,
    WIDTH,
    AttentionOperands,
    attention_types,
)
from tracea.kernels.gemm.blocking import fits_registers, round_up
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, scratch, vector_lanes
from tracea.kernels.pointwise.tile import compute_type, map_tile
from tracea.kernels.requirements import CPU_VECTORS, condition, element_types, non_negative_strides, strided_layouts
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic, Region
from tracea.semantic.index import Const, Index, Param, Var, ceil_div, equal, maximum, minimum
from tracea.semantic.nodes import For, Let, Level, Node, Pack, Parallel, PointwiseTile, block
from tracea.semantic.nodes_attention import AttentionFinish, AttentionStart, AttentionState, AttentionStep
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["FLASH", "build_flash"]

_HEAD: Final = (Var("i_batch"), Var("i_kv"), Var("i_sharing"))
_FIRST, _ROWS = Var("first"), Var("rows")
_BEGIN, _END = Var("key_begin"), Var("key_end")
_OFFSET, _COUNT = Var("offset"), Var("count")
_FLOATS: Final = (DType.F32, DType.F64, DType.F16, DType.BF16)
_TASKS_PER_CORE: Final = 4
_KEY_BLOCK: Final = 256


def build_flash(op: AttentionOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of an attention."""
    schedule.check_range(1, "mr", "nv", "unroll", "bq", "bk")
    schedule.check_range(0, "copy_keys", "copy_values", most=1)
    _check_tile(schedule, target)
    copies = {name: bool(schedule.integer(f"copy_{name}")) for name in ("keys", "values")}
    operands = AttentionOperands.of(op, copy_keys=copies["keys"], copy_values=copies["values"])
    compute, get = operands.compute, schedule.integer
    panel = get("nv") * vector_lanes(target, compute)
    bq, bk = round_up(get("bq"), panel), get("bk")
    for name, copied in copies.items():
        if not copied and _needs_copy(op, name):
            raise InvalidSchedule(
                field=f"copy_{name}",
                got=0,
                expected=f"1: {name} are not {compute.value} with elements side by side",
                remedy=f"copy_{name}=1",
            )

    thread = MemorySpace.THREAD
    queries = scratch("queries", compute, thread, bq // panel, DEPTH, panel)
    scores = scratch("scores", compute, thread, bk, panel)
    peaks, totals = (scratch(name, compute, thread, bq // panel, panel) for name in ("peaks", "totals"))
    sums = scratch("sums", compute, thread, bq // panel, WIDTH, panel)
    panels = ceil_div(_ROWS, panel)
    state = AttentionState(
        peaks=peaks.region((0, 0), (panels, panel)),
        totals=totals.region((0, 0), (panels, panel)),
        sums=sums.region((0, 0, 0), (panels, WIDTH, panel)),
    )
    tile = _tile(schedule, get("mr"))
    packed = queries.region((0, 0, 0), (panels, DEPTH, panel))
    key = _BEGIN + _OFFSET
    keys, copy_keys, key_rows = _rows(operands, operands.k, "keys", width=DEPTH, key=key, bk=bk, copied=copies["keys"])
    values, copy_values, value_rows = _rows(
        operands, operands.v, "values", width=WIDTH, key=key, bk=bk, copied=copies["values"]
    )
    step = AttentionStep(
        intrinsic=tile,
        queries=packed,
        keys=keys,
        values=values,
        scores=scores.region((0, 0), (_COUNT, panel)),
        state=state,
        rows=_ROWS,
        first_query=_FIRST,
        first_key=key,
        scale=op.softmax_scale,
        causal=op.causal,
        window=op.window,
        score=op.score.expr,
        operands=tuple(operands.window(extra, _HEAD, (_FIRST, key), (_ROWS, _COUNT)) for extra in operands.extras),
    )
    begin, end = _visible(op)
    body: tuple[Node, ...] = (
        Pack(
            source=operands.window(operands.q, _HEAD, (_FIRST, Const(0)), (_ROWS, DEPTH)),
            target=packed,
            panel=panel,
            axis=0,
        ),
        AttentionStart(intrinsic=tile, state=state, rows=_ROWS),
        Let(var=_BEGIN, value=begin),
        Let(var=_END, value=end),
        For(
            var=_OFFSET,
            extent=maximum(0, _END - _BEGIN),
            step=Const(bk),
            length=_COUNT,
            body=block(*copy_keys, *copy_values, step),
        ),
        AttentionFinish(
            intrinsic=tile,
            state=state,
            target=operands.window(operands.y, _HEAD, (_FIRST, Const(0)), (_ROWS, WIDTH)),
        ),
    )
    task, blocks = Var("task"), ceil_div(QUERIES, bq)
    lets = (
        Let(var=_HEAD[0], value=task // (KV_HEADS * SHARING * blocks)),
        Let(var=_HEAD[1], value=task // (SHARING * blocks) % KV_HEADS),
        Let(var=_HEAD[2], value=task // blocks % SHARING),
        Let(var=_FIRST, value=task % blocks * bq),
        Let(var=_ROWS, value=minimum(bq, QUERIES - _FIRST)),
    )
    tasks = Parallel(level=Level.TASK, var=task, extent=BATCH * KV_HEADS * SHARING * blocks, body=block(*lets, *body))
    buffers = (
        operands.q,
        operands.k,
        operands.v,
        *operands.extras,
        operands.y,
        *(queries, scores, peaks, totals, sums),
        *key_rows,
        *value_rows,
    )
    return TileKernel(
        name=kernel_name(op.key, FLASH_ID, schedule, target),
        op=op,
        variant=FLASH_ID,
        schedule=schedule,
        target=target.name,
        params=params_of(buffers),
        buffers=buffers,
        body=block(tasks),
        assumptions=equal(WIDTH % get("mr"), get("tail")),
    )


def _check_tile(schedule: Schedule, target: Target) -> None:
    mr, nv = schedule.integer("mr"), schedule.integer("nv")
    if not fits_registers(mr, nv, target):
        raise InvalidSchedule(
            field="mr, nv",
            got=f"mr={mr}, nv={nv}: {mr * nv + nv + 1} vector registers",
            expected=f"mr*nv + nv + 1 <= {target.vector_registers}, the registers of {target.isa}",
            remedy="choose a smaller tile",
        )
    schedule.check_range(0, "tail", most=mr - 1)  # the values' columns that are left of the last tile


def _visible(op: AttentionOp) -> tuple[Index, Index]:
    """Return the first key that a query of the block may see, and the one after the last."""
    begin: Index = Const(0)
    end: Index = KEYS
    if op.window is not None:
        begin = maximum(0, _FIRST - (op.window - 1))
        end = minimum(KEYS, _FIRST + _ROWS + (op.window - 1))
    if op.causal:
        end = minimum(KEYS, _FIRST + _ROWS)
    return begin, end


def _rows(
    operands: AttentionOperands, source: Buffer, name: str, *, width: Index, key: Index, bk: int, copied: bool
) -> tuple[Region, tuple[Node, ...], tuple[Buffer, ...]]:
    """Return the rows of a block of keys, the nodes that copy them, and the scratch that they are copied to."""
    rows = operands.window(source, _HEAD[:2], (key, Const(0)), (_COUNT, width))
    if not copied:
        return rows, (), ()
    compute = operands.compute
    buffer = scratch(f"{name}_rows", compute, MemorySpace.THREAD, bk, width)
    target = buffer.region((0, 0), (_COUNT, width))
    copy = PointwiseTile(
        intrinsic=map_tile(compute, streaming=False),
        expr=Input(0),
        inputs=(rows,),
        target=target,
    )
    return target, (copy,), (buffer,)


def _tile(schedule: Schedule, mr: int) -> Intrinsic:
    return Intrinsic(
        name="attention_tile",
        meaning=_as_given,
        source="emitters/cpu/include/tracea/attention.h",
        attributes=(
            ("mr", mr),
            ("nv", schedule.integer("nv")),
            ("tail", schedule.integer("tail")),
            ("unroll", schedule.integer("unroll")),
        ),
    )


def _as_given(value: Any) -> Any:
    return value


def _needs_copy(op: AttentionOp, name: str) -> bool:
    """Whether rows cannot be read in place: another type than the sums', or elements apart."""
    type_: TensorType = attention_types(op)["k" if name == "keys" else "v"]
    return type_.dtype is not compute_type(*(each.dtype for each in (*op.operands, op.infer()))) or (
        type_.shape[-1] != 1 and type_.strides[-1] != 1
    )


# Rows of keys by vectors of queries: the widest tiles that the registers hold, those that many head sizes divide first.
_TILES: Final = {
    "avx512": ((8, 3), (6, 4), (14, 2), (9, 3)),
    "avx2": ((6, 2), (4, 3), (4, 2)),
    "neon": ((8, 3), (6, 4), (4, 4)),
    "plain": ((4, 2), (8, 1)),
}


def _default(op: AttentionOp, target: Target) -> Schedule:
    mr, nv = _TILES[target.isa][0]
    return _schedule(op, target, mr, nv, panels=2, bk=_KEY_BLOCK)


def _schedule(op: AttentionOp, target: Target, mr: int, nv: int, *, panels: int, bk: int) -> Schedule:
    batch, heads, s, _ = op.q.static_shape
    compute = compute_type(*(each.dtype for each in (*op.operands, op.infer())))
    panel = nv * vector_lanes(target, compute)
    wanted = 1 if target.cores == 1 else _TASKS_PER_CORE * target.cores
    while panels > 1 and batch * heads * -(-s // (panels * panel)) < wanted:
        panels -= 1
    return Schedule(
        mr=mr,
        nv=nv,
        unroll=2,
        tail=op.v.static_shape[3] % mr,
        bq=panels * panel,
        bk=bk,
        copy_keys=int(_needs_copy(op, "keys")),
        copy_values=int(_needs_copy(op, "values")),
    )


def _space(op: AttentionOp, target: Target) -> ScheduleSpace:
    chosen: list[dict[str, Value]] = [dict(_default(op, target))]
    for mr, nv in _TILES[target.isa]:
        for panels in (2, 1, 4, 8):
            for bk in (128, 256, 512):
                base = dict(_schedule(op, target, mr, nv, panels=panels, bk=bk))
                chosen.append(base)
                if bk == _KEY_BLOCK and not (base["copy_keys"] and base["copy_values"]):
                    chosen.append({**base, "copy_keys": 1, "copy_values": 1})
    return ScheduleSpace.listed(chosen)


def _sizes(op: AttentionOp) -> dict[Param, int]:
    batch, heads, s, d = op.q.static_shape
    _, kv_heads, t, dv = op.v.static_shape
    sizes = (batch, kv_heads, heads // kv_heads, s, t, d, dv)
    return dict(zip((BATCH, KV_HEADS, SHARING, QUERIES, KEYS, DEPTH, WIDTH), sizes, strict=True))


_SIZES = condition(
    "sizes within the kernel's range",
    lambda op, _: all(value <= size.maximum for size, value in _sizes(op).items()),  # an empty result needs no kernel
    needed=", ".join(f"{p.name} <= {p.maximum}" for p in (BATCH, KV_HEADS, SHARING, QUERIES, KEYS, DEPTH, WIDTH)),
    found=lambda op: ", ".join(f"{size} = {value}" for size, value in _sizes(op).items()),
    remedy="cut the op into several",
)

FLASH_ID = "attention.flash"
FLASH = Variant(
    id=FLASH_ID,
    op_type=AttentionOp,
    backend="cpu",
    requirements=(CPU_VECTORS, element_types((*_FLOATS, DType.BOOL)), strided_layouts, non_negative_strides, _SIZES),
    preferences=(),
    priority=50,
    build=build_flash,
    space=_space,
    default_schedule=_default,
)
