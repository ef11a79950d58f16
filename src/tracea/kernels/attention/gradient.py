"""The gradients of attention: a task takes all queries of the heads that share a key head, block after block.

For each block of queries a first pass over its visible keys finds peaks and totals again, which costs one product of
six; in the second one a block of keys gives the queries' gradients, kept in panels, and adds to those of the keys and
values themselves, kept in the thread's scratch for all keys. So nothing is shared between tasks, and sums have one
order, whatever the threads.

Source: Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 2.
"""

from __future__ import annotations

from typing import Any, Final

from tracea.core.expr import Constant, Input
from tracea.core.op import AttentionGradientOp
from tracea.core.tensor_type import TensorType
from tracea.kernels.attention.flash import check_register_tile
from tracea.kernels.attention.operands import (
    HEAD,
    SIZES,
    AttentionOperands,
    Sizes,
    attention_requirements,
    attention_types,
    by_key_head,
    computed_type,
    copied_rows,
    is_apart,
)
from tracea.kernels.attention.query_block import visible_keys
from tracea.kernels.gemm.blocking import MOST_UNROLLED, round_up
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, scratch, tensor_buffer, vector_lanes
from tracea.kernels.pointwise.tile import map_tile
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Requirement, Variant
from tracea.semantic.access import Intrinsic, Region, as_given
from tracea.semantic.index import Const, Index, Param, Var, ceil_div, equal, maximum
from tracea.semantic.nodes import For, Let, Level, Node, Pack, Parallel, PointwiseTile, block
from tracea.semantic.nodes_attention import AttentionStart, AttentionState
from tracea.semantic.nodes_attention_gradient import (
    AttentionDeltas,
    AttentionGradient,
    AttentionPeaks,
    AttentionSlopeEnd,
)
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["GRADIENT", "attention_gradient_types", "build_gradient"]

# As of every attention, but keys without a query have gradients too: zeros.
_SIZES: Final[Sizes] = (
    *SIZES[:2],
    Param("sharing", maximum=2**10),
    Param("s", maximum=2**24),
    *SIZES[4:],
)
_BATCH, _KV_HEADS, _SHARING, _QUERIES, _KEYS, _DEPTH, _WIDTH = _SIZES
_FIRST, _ROWS = Var("first"), Var("rows")
_PARTS: Final = ("grad_q", "grad_k", "grad_v")


def attention_gradient_types(op: AttentionGradientOp, like: AttentionGradientOp | None = None) -> dict[str, TensorType]:
    """Return the types of the buffers; the three gradients lie one after the other, in the order of ``op.parts``.

    Raises:
        InvalidOp: scale, mask or score are others than those of ``like``, the op that the kernel is built for.
    """
    forward = op.forward
    heads, kv_heads = forward.q.static_shape[1], forward.k.static_shape[1]
    types = attention_types(forward, None if like is None else like.forward)
    del types["y"]
    given = {name: by_key_head(type_, heads, kv_heads) for name, type_ in (("grad", op.grad), ("y", op.y))}
    made = [TensorType(shape, op.infer().dtype) for shape in op.parts]
    return given | types | dict(zip(_PARTS, (by_key_head(made[0], heads, kv_heads), *made[1:]), strict=True))


def build_gradient(op: AttentionGradientOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of an attention's gradients."""
    schedule.check_range(1, "mr", "nv", "bq", "bk")
    schedule.check_range(1, "unroll", most=MOST_UNROLLED)
    schedule.check_range(0, "copy_keys", "copy_values", most=1)
    check_register_tile(schedule, target)
    frame = _Frame(op, schedule, target)
    task = Var("task")
    lets = (Let(var=HEAD[0], value=task // _KV_HEADS), Let(var=HEAD[1], value=task % _KV_HEADS))
    over_queries = For(
        var=_FIRST, extent=_QUERIES, step=Const(frame.bq), length=_ROWS, body=block(*frame.block_of_queries())
    )
    over_heads = For(var=HEAD[2], extent=_SHARING, step=Const(1), body=block(over_queries))
    body = (*lets, *frame.zeros(), over_heads, *frame.stores())
    return TileKernel(
        name=kernel_name(op.key, GRADIENT_ID, schedule, target),
        op=op,
        variant=GRADIENT_ID,
        schedule=schedule,
        target=target.name,
        params=params_of(frame.buffers),
        buffers=frame.buffers,
        body=block(Parallel(level=Level.TASK, var=task, extent=_BATCH * _KV_HEADS, body=block(*body))),
        assumptions=equal(_DEPTH % schedule.integer("mr"), schedule.integer("tail")),
    )


class _Frame:
    """The buffers of a kernel and the nodes over them."""

    def __init__(self, op: AttentionGradientOp, schedule: Schedule, target: Target) -> None:
        get = schedule.integer
        self.op, self.forward = op, op.forward
        copies = {name: bool(get(f"copy_{name}")) for name in ("keys", "values")}
        types = attention_gradient_types(op)
        self.operands = AttentionOperands.of(op.forward, _SIZES, copy_keys=copies["keys"], copy_values=copies["values"])
        for name, copied in copies.items():
            self.operands.check_copy(name, copied=copied)
        self.compute = computed_type(op.forward)
        self.panel = get("nv") * vector_lanes(target, self.compute)
        self.bq, self.bk = round_up(get("bq"), self.panel), get("bk")
        self.tile = _tile(schedule)
        batch, heads, s, d = self.forward.q.static_shape
        kv_heads, t = self.forward.k.static_shape[1:3]
        dv = self.forward.v.static_shape[3]
        lead = (batch, kv_heads, heads // max(1, kv_heads))

        def tensor(name: str, shape: tuple[Index, ...], dims: tuple[int, ...], role: BufferRole) -> Buffer:
            return tensor_buffer(name, types[name], shape, dims, role)

        of_queries, of_keys = _SIZES[:4], (_BATCH, _KV_HEADS, _KEYS)
        self.grad, self.y = (
            tensor(name, (*of_queries, _WIDTH), (*lead, s, dv), BufferRole.INPUT) for name in ("grad", "y")
        )
        out = BufferRole.OUTPUT
        self.grad_q = tensor("grad_q", (*of_queries, _DEPTH), (*lead, s, d), out)
        self.grad_k = tensor("grad_k", (*of_keys, _DEPTH), (batch, kv_heads, t, d), out)
        self.grad_v = tensor("grad_v", (*of_keys, _WIDTH), (batch, kv_heads, t, dv), out)
        panels = self.bq // self.panel
        self.queries, self.sums = (self._scratch(name, panels, _DEPTH, self.panel) for name in ("queries", "sums"))
        self.grads, self.results = (self._scratch(name, panels, _WIDTH, self.panel) for name in ("grads", "results"))
        self.query_rows = self._scratch("query_rows", ceil_div(_DEPTH, self.panel), self.bq, self.panel)
        self.grad_rows = self._scratch("grad_rows", ceil_div(_WIDTH, self.panel), self.bq, self.panel)
        self.peaks, self.totals, self.deltas = (
            self._scratch(name, panels, self.panel) for name in ("peaks", "totals", "deltas")
        )
        self.scores, self.slopes = (self._scratch(name, self.bk, self.panel) for name in ("scores", "slopes"))
        self.key_sums = self._scratch("key_sums", _KEYS, _DEPTH)
        self.value_sums = self._scratch("value_sums", _KEYS, _WIDTH)
        self.copied: dict[str, Buffer] = {}
        self.copies = copies

    def _scratch(self, name: str, *shape: Index | int) -> Buffer:
        return scratch(name, self.compute, MemorySpace.THREAD, *shape)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All buffers, in the order of the op's operands, its results and the scratch."""
        own = self.operands
        panels = (self.queries, self.grads, self.results, self.query_rows, self.grad_rows)
        state = (self.peaks, self.totals, self.deltas, self.sums, self.scores, self.slopes)
        given = (self.grad, self.y, own.q, own.k, own.v, *own.extras)
        sums = (self.key_sums, self.value_sums, *self.copied.values())
        return (*given, self.grad_q, self.grad_k, self.grad_v, *panels, *state, *sums)

    def zeros(self) -> tuple[Node, ...]:
        """Return the beginning of the sums over all queries."""
        return tuple(
            PointwiseTile(
                intrinsic=map_tile(self.compute, streaming=False), expr=Constant(0.0), inputs=(), target=region
            )
            for region in self._all_sums()
        )

    def stores(self) -> tuple[Node, ...]:
        """Return the stores of the sums over all queries."""
        head, zero = HEAD[:2], Const(0)
        targets = (
            self.operands.window(self.grad_k, head, (zero, zero), (_KEYS, _DEPTH)),
            self.operands.window(self.grad_v, head, (zero, zero), (_KEYS, _WIDTH)),
        )
        return tuple(
            PointwiseTile(
                intrinsic=map_tile(self.compute, streaming=False), expr=Input(0), inputs=(source,), target=target
            )
            for source, target in zip(self._all_sums(), targets, strict=True)
        )

    def _all_sums(self) -> tuple[Region, Region]:
        zeros = (Const(0), Const(0))
        return self.key_sums.region(zeros, (_KEYS, _DEPTH)), self.value_sums.region(zeros, (_KEYS, _WIDTH))

    def block_of_queries(self) -> tuple[Node, ...]:
        """Return the nodes of one block of queries of one head."""
        panels, zero = ceil_div(_ROWS, self.panel), Const(0)
        state = AttentionState(
            peaks=self.peaks.region((0, 0), (panels, self.panel)),
            totals=self.totals.region((0, 0), (panels, self.panel)),
            sums=self.sums.region((0, 0, 0), (panels, _DEPTH, self.panel)),
        )
        own = self.operands
        sources = {
            "queries": own.window(own.q, HEAD, (_FIRST, zero), (_ROWS, _DEPTH)),
            "grads": own.window(self.grad, HEAD, (_FIRST, zero), (_ROWS, _WIDTH)),
            "results": own.window(self.y, HEAD, (_FIRST, zero), (_ROWS, _WIDTH)),
        }
        by_queries = {
            "queries": self.queries.region((0, 0, 0), (panels, _DEPTH, self.panel)),
            "grads": self.grads.region((0, 0, 0), (panels, _WIDTH, self.panel)),
            "results": self.results.region((0, 0, 0), (panels, _WIDTH, self.panel)),
        }
        by_elements = {
            "queries": self.query_rows.region((0, 0, 0), (ceil_div(_DEPTH, self.panel), _ROWS, self.panel)),
            "grads": self.grad_rows.region((0, 0, 0), (ceil_div(_WIDTH, self.panel), _ROWS, self.panel)),
        }
        packs = (
            *(Pack(source=sources[n], target=by_queries[n], panel=self.panel, axis=0) for n in by_queries),
            *(Pack(source=sources[n], target=by_elements[n], panel=self.panel, axis=1) for n in by_elements),
        )
        deltas = self.deltas.region((0, 0), (panels, self.panel))
        target = own.window(self.grad_q, HEAD, (_FIRST, zero), (_ROWS, _DEPTH))
        return (
            *packs,
            AttentionStart(intrinsic=self.tile, state=state, rows=_ROWS),
            *self._peaks(state, by_queries["queries"]),
            AttentionDeltas(
                intrinsic=self.tile,
                grads=by_queries["grads"],
                results=by_queries["results"],
                totals=state.totals,
                deltas=deltas,
                rows=_ROWS,
            ),
            *self._gradients(state, deltas, by_queries, by_elements),
            AttentionSlopeEnd(intrinsic=self.tile, sums=state.sums, target=target),
        )

    def _peaks(self, state: AttentionState, queries: Region) -> tuple[Node, ...]:
        keys = _Keys(self, "peak")
        step = AttentionPeaks(**keys.common(queries), keys=keys.rows("keys"), peaks=state.peaks, totals=state.totals)
        return keys.loop(step)

    def _gradients(
        self, state: AttentionState, deltas: Region, by_queries: dict[str, Region], by_elements: dict[str, Region]
    ) -> tuple[Node, ...]:
        keys = _Keys(self, "slope")
        zero = Const(0)
        step = AttentionGradient(
            **keys.common(by_queries["queries"]),
            keys=keys.rows("keys"),
            values=keys.rows("values"),
            grads=by_queries["grads"],
            query_rows=by_elements["queries"],
            grad_rows=by_elements["grads"],
            peaks=state.peaks,
            totals=state.totals,
            deltas=deltas,
            sums=state.sums,
            slopes=self.slopes.region((0, 0), (keys.count, self.panel)),
            key_sums=self.key_sums.region((keys.first, zero), (keys.count, _DEPTH)),
            value_sums=self.value_sums.region((keys.first, zero), (keys.count, _WIDTH)),
            slope=self.op.slope,
        )
        return keys.loop(step)


class _Keys:
    """One pass over the keys that a block of queries sees."""

    def __init__(self, frame: _Frame, name: str) -> None:
        self.frame, self.name = frame, name
        self.begin, self.end, self.offset, self.count = (
            Var(f"{name}_{part}") for part in ("begin", "end", "offset", "count")
        )
        self.first = self.begin + self.offset
        self.nodes: list[Node] = []

    def common(self, queries: Region) -> dict[str, Any]:
        """Return the fields that both passes' nodes share."""
        frame, op = self.frame, self.frame.forward
        return {
            "intrinsic": frame.tile,
            "queries": queries,
            "scores": frame.scores.region((0, 0), (self.count, frame.panel)),
            "rows": _ROWS,
            "first_query": _FIRST,
            "first_key": self.first,
            "scale": op.softmax_scale,
            "causal": op.causal,
            "window": op.window,
            "score": op.score.expr,
            "operands": tuple(
                frame.operands.window(extra, HEAD, (_FIRST, self.first), (_ROWS, self.count))
                for extra in frame.operands.extras
            ),
        }

    def rows(self, name: str) -> Region:
        """Return the keys or values of an iteration, in place or as a copy that the loop makes."""
        frame = self.frame
        buffer, width = (frame.operands.k, _DEPTH) if name == "keys" else (frame.operands.v, _WIDTH)
        source = frame.operands.window(buffer, HEAD[:2], (self.first, Const(0)), (self.count, width))
        label = f"{self.name}_{name}"
        taken = copied_rows(label, source, frame.compute, frame.bk, copied=frame.copies[name])
        self.nodes += taken.copies
        frame.copied |= {buffer.name: buffer for buffer in taken.buffers}
        return taken.rows

    def loop(self, step: Node) -> tuple[Node, ...]:
        """Return the loop around a step."""
        begin, end = visible_keys(self.frame.forward, _FIRST, _ROWS)
        over = For(
            var=self.offset,
            extent=maximum(0, self.end - self.begin),
            step=Const(self.frame.bk),
            length=self.count,
            body=block(*self.nodes, step),
        )
        return Let(var=self.begin, value=begin), Let(var=self.end, value=end), over


def _tile(schedule: Schedule) -> Intrinsic:
    return Intrinsic(
        name="attention_gradient",
        meaning=as_given,
        source="emitters/cpu/include/tracea/attention_gradient.h",
        attributes=tuple((name, schedule.integer(name)) for name in ("mr", "nv", "tail", "unroll")),
    )


# Rows of keys by vectors of queries and of elements, and what a product takes where the panels are full, of the first's
# time (measured on a Xeon; benchmarks/NOTES.md, 2026-11-28).
_TILES: Final = {
    "avx512": {(6, 4): 1.0, (8, 2): 1.07, (14, 2): 1.08, (8, 3): 1.05, (16, 1): 1.25},
    "avx2": {(6, 2): 1.0, (4, 3): 1.0},
    "neon": {(6, 4): 1.0, (8, 3): 1.0},
    "plain": {(4, 2): 1.0, (8, 1): 1.0},
}
_QUERY_BLOCK: Final = 256
_KEY_BLOCK: Final = 192


def _schedule(op: AttentionGradientOp, target: Target, tile: tuple[int, int], *, bq: int, bk: int) -> Schedule:
    mr, nv = tile
    panel = nv * vector_lanes(target, computed_type(op.forward))
    return Schedule(
        mr=mr,
        nv=nv,
        unroll=2,
        tail=op.forward.q.static_shape[3] % mr,
        bq=round_up(min(bq, max(1, op.forward.q.static_shape[2])), panel),
        bk=round_up(bk, mr),
        copy_keys=int(is_apart(op.forward, "keys")),
        copy_values=int(is_apart(op.forward, "values")),
    )


def _tiles(op: AttentionGradientOp, target: Target) -> list[tuple[int, int]]:
    """Return the register tiles, those first whose panels the queries and the elements of their rows fill best."""
    lanes, times = vector_lanes(target, computed_type(op.forward)), _TILES[target.isa]
    queries, depth, width = *op.forward.q.static_shape[2:], op.forward.v.static_shape[3]

    def cost(tile: tuple[int, int]) -> float:
        padded, by_key, by_value = (round_up(size, tile[1] * lanes) for size in (queries, depth, width))
        return times[tile] * (padded * (3 * depth + width) + queries * (by_key + by_value))

    return sorted(times, key=cost)


def _default(op: AttentionGradientOp, target: Target) -> Schedule:
    return _schedule(op, target, _tiles(op, target)[0], bq=_QUERY_BLOCK, bk=_KEY_BLOCK)


def _space(op: AttentionGradientOp, target: Target) -> ScheduleSpace:
    chosen: list[dict[str, Value]] = [dict(_default(op, target))]
    for tile in _tiles(op, target):
        for bq in (_QUERY_BLOCK, 128, 512):
            for bk in (96, _KEY_BLOCK, 384):
                chosen.append(dict(_schedule(op, target, tile, bq=bq, bk=bk)))
    return ScheduleSpace.listed(chosen)


def _of_forward(requirement: Requirement) -> Requirement:
    return Requirement(name=requirement.name, check=lambda op, target: requirement.check(op.forward, target))


GRADIENT_ID = "attention.gradient"
GRADIENT = Variant(
    id=GRADIENT_ID,
    op_type=AttentionGradientOp,
    backend="cpu",
    requirements=tuple(map(_of_forward, attention_requirements(_SIZES))),
    preferences=(),
    priority=50,
    build=build_gradient,
    space=_space,
    default_schedule=_default,
)
