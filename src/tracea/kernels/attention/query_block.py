"""What every kernel shares whose task takes a block of queries through its visible keys: names, state, loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tracea.core.op import AttentionOp
from tracea.kernels.attention.operands import HEAD, SIZES, AttentionOperands
from tracea.kernels.attention.spans import SPAN_ROOM, Spans
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, scratch
from tracea.semantic.index import Const, Index, Var, ceil_div, maximum, minimum
from tracea.semantic.nodes import For, Let, Level, Node, Pack, Parallel, Region, block
from tracea.semantic.nodes_attention import AttentionFinish, AttentionStart, AttentionState, AttentionStep
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["COUNT", "FIRST", "ROWS", "QueryBlock", "visible_keys"]

_BATCH, _KV_HEADS, _SHARING, _QUERIES, _KEYS, _DEPTH, _WIDTH = SIZES
FIRST, ROWS = Var("first"), Var("rows")  # of a task's queries
COUNT: Final = Var("count")  # of a step's keys
_BEGIN, _END, _OFFSET = Var("key_begin"), Var("key_end"), Var("offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryBlock:
    """The queries of a task in panels, ``per_task`` of them with room for ``room``; they take ``bk`` keys at a time."""

    operands: AttentionOperands
    per_task: int
    room: int
    panel: int
    bk: int
    state_buffers: tuple[Buffer, Buffer, Buffer] = field(init=False)

    def __post_init__(self) -> None:
        compute, panels = self.operands.compute, self.room // self.panel
        peaks, totals = (scratch(name, compute, MemorySpace.THREAD, panels, self.panel) for name in ("peaks", "totals"))
        sums = scratch("sums", compute, MemorySpace.THREAD, panels, _WIDTH, self.panel)
        object.__setattr__(self, "state_buffers", (peaks, totals, sums))

    @property
    def panels(self) -> Index:
        """The panels that a task's queries fill."""
        return ceil_div(ROWS, self.panel)

    @property
    def state(self) -> AttentionState:
        """The state of a task's queries."""
        peaks, totals, sums = self.state_buffers
        return AttentionState(
            peaks=peaks.region((0, 0), (self.panels, self.panel)),
            totals=totals.region((0, 0), (self.panels, self.panel)),
            sums=sums.region((0, 0, 0), (self.panels, _WIDTH, self.panel)),
        )

    @property
    def queries(self) -> Region:
        """A task's queries, where they lie."""
        return self.operands.window(self.operands.q, HEAD, (FIRST, Const(0)), (ROWS, _DEPTH))

    @property
    def result(self) -> Region:
        """Where a task's results go."""
        return self.operands.window(self.operands.y, HEAD, (FIRST, Const(0)), (ROWS, _WIDTH))

    @property
    def sources(self) -> Mapping[str, Region]:
        """A step's keys and values, where they lie."""
        return {
            name: self.operands.window(buffer, HEAD[:2], (_BEGIN + _OFFSET, Const(0)), (COUNT, width))
            for name, buffer, width in (("keys", self.operands.k, _DEPTH), ("values", self.operands.v, _WIDTH))
        }

    @property
    def step(self) -> dict[str, Any]:
        """What a step says of positions, masks and scores, whatever its routine reads."""
        op, key = self.operands.op, _BEGIN + _OFFSET
        extras = (self.operands.window(extra, HEAD, (FIRST, key), (ROWS, COUNT)) for extra in self.operands.extras)
        return {
            "state": self.state,
            "rows": ROWS,
            "first_query": FIRST,
            "first_key": key,
            "scale": op.softmax_scale,
            "causal": op.causal,
            "window": op.window,
            "score": op.score.expr,
            "operands": tuple(extras),
        }

    def tasks(self, pack: Pack, made: tuple[Node, ...], step: AttentionStep, spans: Spans | None) -> Parallel:
        """Return the tasks: ``pack`` brings the queries, ``made`` a step's keys and values into the step's order."""
        over_keys = For(
            var=_OFFSET,
            extent=maximum(0, _END - _BEGIN),
            step=Const(self.bk),
            length=COUNT,
            body=block(*made, step),
        )
        begin, end = visible_keys(self.operands.op, FIRST, ROWS)
        over_all = (
            (Let(var=_BEGIN, value=begin), Let(var=_END, value=end), over_keys)
            if spans is None
            else spans.loop(_BEGIN, _END, over_keys)
        )
        task, blocks = Var("task"), ceil_div(_QUERIES, self.per_task)
        lets = (
            Let(var=HEAD[0], value=task // (_KV_HEADS * _SHARING * blocks)),
            Let(var=HEAD[1], value=task // (_SHARING * blocks) % _KV_HEADS),
            Let(var=HEAD[2], value=task // blocks % _SHARING),
            Let(var=FIRST, value=task % blocks * self.per_task),
            Let(var=ROWS, value=minimum(self.per_task, _QUERIES - FIRST)),
        )
        body = block(
            *lets,
            pack,
            AttentionStart(intrinsic=step.intrinsic, state=self.state, rows=ROWS),
            *over_all,
            AttentionFinish(intrinsic=step.intrinsic, state=self.state, target=self.result),
        )
        return Parallel(level=Level.TASK, var=task, extent=_BATCH * _KV_HEADS * _SHARING * blocks, body=body)

    def kernel(
        self,
        variant: str,
        schedule: Schedule,
        target: Target,
        *,
        body: Parallel,
        scratch: tuple[Buffer, ...],
        spans: Spans | None = None,
        **more: Any,
    ) -> TileKernel:
        """Return the kernel of these tasks."""
        of = self.operands
        buffers = (of.q, of.k, of.v, *of.extras, of.y, *scratch)
        return TileKernel(
            name=kernel_name(of.op.key, variant, schedule, target),
            op=of.op,
            variant=variant,
            schedule=schedule,
            target=target.name,
            params=params_of(buffers) if spans is None else (*params_of(buffers), SPAN_ROOM),
            buffers=buffers,
            body=block(body),
            tables=() if spans is None else spans.tables.tables,
            **more,
        )


def visible_keys(op: AttentionOp, first: Index, rows: Index) -> tuple[Index, Index]:
    """Return the first key that one of ``rows`` queries from ``first`` on may see, and the one after the last."""
    begin: Index = Const(0)
    end: Index = _KEYS
    if op.window is not None:
        begin = maximum(0, first - (op.window - 1))
        end = minimum(_KEYS, first + rows + (op.window - 1))
    if op.causal:
        end = minimum(_KEYS, first + rows)
    return begin, end
