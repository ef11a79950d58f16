"""What kernels of attention's gradients share: a task takes all queries of the heads that share a key head.

For each block of queries a first pass over its visible keys finds peaks and totals again, which costs one product of
six; in the second one a block of keys gives the queries' gradients, kept in panels, and adds to those of the keys and
values themselves, kept in the thread's scratch for all keys. So nothing is shared between tasks, and sums have one
order, whatever the threads.

Source: Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tracea.core.expr import Constant, Input
from tracea.core.op import AttentionGradientOp
from tracea.core.tensor_type import TensorType
from tracea.kernels.attention.operands import (
    HEAD,
    SIZES,
    AttentionOperands,
    Sizes,
    attention_requirements,
    attention_types,
    by_key_head,
    computed_type,
)
from tracea.kernels.attention.query_block import visible_keys
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, scratch, tensor_buffer
from tracea.kernels.pointwise.tile import map_tile
from tracea.kernels.variant import Requirement
from tracea.semantic.access import Intrinsic, Region
from tracea.semantic.index import Const, Index, Param, Var, ceil_div, maximum
from tracea.semantic.nodes import For, Let, Level, Node, Pack, Parallel, PointwiseTile, block
from tracea.semantic.nodes_attention import AttentionStart, AttentionState
from tracea.semantic.nodes_attention_gradient import AttentionDeltas, AttentionSlopeEnd
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = [
    "DEPTH",
    "FIRST",
    "GRADIENT_SIZES",
    "ROWS",
    "WIDTH",
    "GradientBlock",
    "KeyPass",
    "attention_gradient_types",
    "gradient_requirements",
]

# As of every attention, but keys without a query have gradients too: zeros.
GRADIENT_SIZES: Final[Sizes] = (
    *SIZES[:2],
    Param("sharing", maximum=2**10),
    Param("s", maximum=2**24),
    *SIZES[4:],
)
_BATCH, _KV_HEADS, _SHARING, _QUERIES, _KEYS, DEPTH, WIDTH = GRADIENT_SIZES
FIRST, ROWS = Var("first"), Var("rows")
_PARTS: Final = ("grad_q", "grad_k", "grad_v")
_ZERO: Final = Const(0)


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


def gradient_requirements() -> tuple[Requirement, ...]:
    """Return what a kernel of gradients requires of an op: what an attention's requires of the forward op."""
    return tuple(map(_of_forward, attention_requirements(GRADIENT_SIZES)))


def _of_forward(requirement: Requirement) -> Requirement:
    return Requirement(name=requirement.name, check=lambda op, target: requirement.check(op.forward, target))


class GradientBlock:
    """The buffers that every kernel of gradients has, and the nodes around its two passes."""

    def __init__(
        self, op: AttentionGradientOp, tile: Intrinsic, *, panel: int, bq: int, copy_keys: bool, copy_values: bool
    ) -> None:
        self.op, self.forward, self.tile, self.panel, self.bq = op, op.forward, tile, panel, bq
        self.compute = computed_type(op.forward)
        self.operands = AttentionOperands.of(op.forward, GRADIENT_SIZES, copy_keys=copy_keys, copy_values=copy_values)
        types = attention_gradient_types(op)
        batch, heads, s, d = self.forward.q.static_shape
        kv_heads, t = self.forward.k.static_shape[1:3]
        dv = self.forward.v.static_shape[3]
        lead = (batch, kv_heads, heads // max(1, kv_heads))

        def tensor(name: str, shape: tuple[Index, ...], dims: tuple[int, ...], role: BufferRole) -> Buffer:
            return tensor_buffer(name, types[name], shape, dims, role)

        of_queries, of_keys = GRADIENT_SIZES[:4], (_BATCH, _KV_HEADS, _KEYS)
        self.grad, self.y = (
            tensor(name, (*of_queries, WIDTH), (*lead, s, dv), BufferRole.INPUT) for name in ("grad", "y")
        )
        out = BufferRole.OUTPUT
        self.grad_q = tensor("grad_q", (*of_queries, DEPTH), (*lead, s, d), out)
        self.grad_k = tensor("grad_k", (*of_keys, DEPTH), (batch, kv_heads, t, d), out)
        self.grad_v = tensor("grad_v", (*of_keys, WIDTH), (batch, kv_heads, t, dv), out)
        panels = bq // panel
        self.sums = self.scratch("sums", panels, DEPTH, panel)
        self.grads, self.results = (self.scratch(name, panels, WIDTH, panel) for name in ("grads", "results"))
        self.peaks, self.totals, self.deltas = (
            self.scratch(name, panels, panel) for name in ("peaks", "totals", "deltas")
        )
        self.key_sums = self.scratch("key_sums", _KEYS, DEPTH)
        self.value_sums = self.scratch("value_sums", _KEYS, WIDTH)

    def scratch(self, name: str, *shape: Index | int) -> Buffer:
        """Return a thread's scratch in the type of the sums."""
        return scratch(name, self.compute, MemorySpace.THREAD, *shape)

    @property
    def panels(self) -> Index:
        """The panels that a block's queries fill."""
        return ceil_div(ROWS, self.panel)

    @property
    def state(self) -> AttentionState:
        """The state of a block of queries; its sums are those of the queries' gradients."""
        return AttentionState(
            peaks=self.peaks.region((0, 0), (self.panels, self.panel)),
            totals=self.totals.region((0, 0), (self.panels, self.panel)),
            sums=self.sums.region((0, 0, 0), (self.panels, DEPTH, self.panel)),
        )

    @property
    def sources(self) -> Mapping[str, Region]:
        """The rows of a block of queries, where they lie."""
        of = {"queries": (self.operands.q, DEPTH), "grads": (self.grad, WIDTH), "results": (self.y, WIDTH)}
        return {
            name: self.operands.window(buffer, HEAD, (FIRST, _ZERO), (ROWS, width))
            for name, (buffer, width) in of.items()
        }

    def by_queries(self, buffer: Buffer, source: Region) -> Pack:
        """Return what brings rows into panels of queries."""
        width = DEPTH if source.buffer == self.operands.q.name else WIDTH
        target = buffer.region((0, 0, 0), (self.panels, width, self.panel))
        return Pack(source=source, target=target, panel=self.panel, axis=0)

    def block_of_queries(
        self, packs: tuple[Node, ...], grads: Region, peaks: tuple[Node, ...], gradients: tuple[Node, ...]
    ) -> tuple[Node, ...]:
        """Return the nodes of one block of queries; ``grads`` are the result's gradients in panels of queries."""
        results = self.by_queries(self.results, self.sources["results"])
        return (
            *packs,
            results,
            AttentionStart(intrinsic=self.tile, state=self.state, rows=ROWS),
            *peaks,
            AttentionDeltas(
                intrinsic=self.tile,
                grads=grads,
                results=results.target,
                totals=self.state.totals,
                deltas=self.seen_deltas,
                rows=ROWS,
            ),
            *gradients,
            AttentionSlopeEnd(
                intrinsic=self.tile,
                sums=self.state.sums,
                target=self.operands.window(self.grad_q, HEAD, (FIRST, _ZERO), (ROWS, DEPTH)),
            ),
        )

    @property
    def seen_deltas(self) -> Region:
        """The deltas of a block's queries."""
        return self.deltas.region((0, 0), (self.panels, self.panel))

    def kernel(
        self,
        variant: str,
        schedule: Schedule,
        target: Target,
        *,
        body: tuple[Node, ...],
        scratch: tuple[Buffer, ...],
        **more: Any,
    ) -> TileKernel:
        """Return the kernel whose blocks of queries are ``body``; ``scratch`` is what it has beside the state."""
        task, own = Var("task"), self.operands
        lets = (Let(var=HEAD[0], value=task // _KV_HEADS), Let(var=HEAD[1], value=task % _KV_HEADS))
        over_queries = For(var=FIRST, extent=_QUERIES, step=Const(self.bq), length=ROWS, body=block(*body))
        over_heads = For(var=HEAD[2], extent=_SHARING, step=Const(1), body=block(over_queries))
        tasks = block(*lets, *self._zeros(), over_heads, *self._stores())
        given = (self.grad, self.y, own.q, own.k, own.v, *own.extras)
        state = (self.peaks, self.totals, self.deltas, self.sums, self.grads, self.results)
        made = (self.grad_q, self.grad_k, self.grad_v)
        buffers = (*given, *made, *state, *scratch, self.key_sums, self.value_sums)
        return TileKernel(
            name=kernel_name(self.op.key, variant, schedule, target),
            op=self.op,
            variant=variant,
            schedule=schedule,
            target=target.name,
            params=params_of(buffers),
            buffers=buffers,
            body=block(Parallel(level=Level.TASK, var=task, extent=_BATCH * _KV_HEADS, body=tasks)),
            **more,
        )

    def _zeros(self) -> tuple[Node, ...]:
        """Return the beginning of the sums over all queries."""
        intrinsic = map_tile(self.compute, streaming=False)
        return tuple(
            PointwiseTile(intrinsic=intrinsic, expr=Constant(0.0), inputs=(), target=region)
            for region in self._all_sums()
        )

    def _stores(self) -> tuple[Node, ...]:
        """Return the stores of the sums over all queries."""
        head, intrinsic = HEAD[:2], map_tile(self.compute, streaming=False)
        targets = (
            self.operands.window(self.grad_k, head, (_ZERO, _ZERO), (_KEYS, DEPTH)),
            self.operands.window(self.grad_v, head, (_ZERO, _ZERO), (_KEYS, WIDTH)),
        )
        return tuple(
            PointwiseTile(intrinsic=intrinsic, expr=Input(0), inputs=(source,), target=target)
            for source, target in zip(self._all_sums(), targets, strict=True)
        )

    def _all_sums(self) -> tuple[Region, Region]:
        zeros = (_ZERO, _ZERO)
        return self.key_sums.region(zeros, (_KEYS, DEPTH)), self.value_sums.region(zeros, (_KEYS, WIDTH))


class KeyPass:
    """One pass over the keys that a block of queries sees, ``bk`` at a time."""

    def __init__(self, frame: GradientBlock, name: str, bk: int) -> None:
        self.frame, self.name, self.bk = frame, name, bk
        self.begin, self.end, self.offset, self.count = (
            Var(f"{name}_{part}") for part in ("begin", "end", "offset", "count")
        )
        self.first = self.begin + self.offset

    @property
    def common(self) -> dict[str, Any]:
        """What both passes' nodes say of positions, masks and scores."""
        frame, op = self.frame, self.frame.forward
        return {
            "intrinsic": frame.tile,
            "rows": ROWS,
            "first_query": FIRST,
            "first_key": self.first,
            "scale": op.softmax_scale,
            "causal": op.causal,
            "window": op.window,
            "score": op.score.expr,
            "operands": tuple(
                frame.operands.window(extra, HEAD, (FIRST, self.first), (ROWS, self.count))
                for extra in frame.operands.extras
            ),
        }

    @property
    def state(self) -> dict[str, Any]:
        """What the second pass reads of a block of queries, and the sums that it adds to."""
        frame = self.frame
        return {
            "peaks": frame.state.peaks,
            "totals": frame.state.totals,
            "deltas": frame.seen_deltas,
            "sums": frame.state.sums,
            "key_sums": frame.key_sums.region((self.first, _ZERO), (self.count, DEPTH)),
            "value_sums": frame.value_sums.region((self.first, _ZERO), (self.count, WIDTH)),
            "slope": frame.op.slope,
        }

    def source(self, name: str) -> Region:
        """Return the "keys" or "values" of an iteration, where they lie."""
        operands = self.frame.operands
        buffer, width = (operands.k, DEPTH) if name == "keys" else (operands.v, WIDTH)
        return operands.window(buffer, HEAD[:2], (self.first, _ZERO), (self.count, width))

    def loop(self, made: tuple[Node, ...], step: Node) -> tuple[Node, ...]:
        """Return the loop around a step, with what makes its operands."""
        begin, end = visible_keys(self.frame.forward, FIRST, ROWS)
        over = For(
            var=self.offset,
            extent=maximum(0, self.end - self.begin),
            step=Const(self.bk),
            length=self.count,
            body=block(*made, step),
        )
        return Let(var=self.begin, value=begin), Let(var=self.end, value=end), over
