"""The gradients of attention on vectors: rows of keys and queries where they lie, queries as the lanes.

See :mod:`tracea.kernels.attention.gradient_block`.
"""

from __future__ import annotations

from typing import Final

from tracea.core.op import AttentionGradientOp
from tracea.kernels.attention.flash import check_register_tile
from tracea.kernels.attention.gradient_block import (
    DEPTH,
    ROWS,
    WIDTH,
    GradientBlock,
    KeyPass,
    gradient_requirements,
)
from tracea.kernels.attention.operands import CopiedRows, computed_type, copied_rows, is_apart
from tracea.kernels.gemm.blocking import MOST_UNROLLED, round_up
from tracea.kernels.operands import vector_lanes
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic, Region, as_given
from tracea.semantic.index import ceil_div, equal
from tracea.semantic.nodes import Node, Pack
from tracea.semantic.nodes_attention_gradient import AttentionGradient, AttentionPeaks
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, TileKernel
from tracea.targets.target import Target

__all__ = ["GRADIENT", "build_gradient"]


def build_gradient(op: AttentionGradientOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of an attention's gradients."""
    schedule.check_range(1, "mr", "nv", "bq", "bk")
    schedule.check_range(1, "unroll", most=MOST_UNROLLED)
    schedule.check_range(0, "copy_keys", "copy_values", most=1)
    check_register_tile(schedule, target)
    frame = _Frame(op, schedule, target)
    return frame.place.kernel(
        GRADIENT_ID,
        schedule,
        target,
        body=frame.block_of_queries(),
        scratch=frame.buffers,
        assumptions=equal(DEPTH % schedule.integer("mr"), schedule.integer("tail")),
    )


class _Frame:
    """The buffers of a kernel beside those of every one, and the nodes over them."""

    def __init__(self, op: AttentionGradientOp, schedule: Schedule, target: Target) -> None:
        get, compute = schedule.integer, computed_type(op.forward)
        self.copies = {name: bool(get(f"copy_{name}")) for name in ("keys", "values")}
        panel = get("nv") * vector_lanes(target, compute)
        bq, self.bk = round_up(get("bq"), panel), get("bk")
        self.place = GradientBlock(
            op,
            _tile(schedule),
            panel=panel,
            bq=bq,
            copy_keys=self.copies["keys"],
            copy_values=self.copies["values"],
        )
        for name, copied in self.copies.items():
            self.place.operands.check_copy(name, copied=copied)
        room = self.place.scratch
        self.queries = room("queries", bq // panel, DEPTH, panel)
        self.query_rows = room("query_rows", ceil_div(DEPTH, panel), bq, panel)
        self.grad_rows = room("grad_rows", ceil_div(WIDTH, panel), bq, panel)
        self.scores, self.slopes = (room(name, self.bk, panel) for name in ("scores", "slopes"))
        self.copied: dict[str, Buffer] = {}

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The scratch beside the state."""
        panels = (self.queries, self.query_rows, self.grad_rows)
        return (*panels, self.scores, self.slopes, *self.copied.values())

    def block_of_queries(self) -> tuple[Node, ...]:
        """Return the nodes of one block of queries of one head."""
        place, panel = self.place, self.place.panel
        sources = place.sources
        queries = place.by_queries(self.queries, sources["queries"])
        grads = place.by_queries(place.grads, sources["grads"])
        by_elements = {
            "queries": self.query_rows.region((0, 0, 0), (ceil_div(DEPTH, panel), ROWS, panel)),
            "grads": self.grad_rows.region((0, 0, 0), (ceil_div(WIDTH, panel), ROWS, panel)),
        }
        rows = (Pack(source=sources[n], target=by_elements[n], panel=panel, axis=1) for n in by_elements)
        return place.block_of_queries(
            (queries, grads, *rows),
            grads.target,
            self._peaks(queries.target),
            self._gradients(queries.target, grads.target, by_elements),
        )

    def _peaks(self, queries: Region) -> tuple[Node, ...]:
        keys, state = KeyPass(self.place, "peak", self.bk), self.place.state
        taken = self._rows(keys, "keys")
        step = AttentionPeaks(
            **keys.common,
            queries=queries,
            scores=self._scores(self.scores, keys),
            keys=taken.rows,
            peaks=state.peaks,
            totals=state.totals,
        )
        return keys.loop(taken.copies, step)

    def _gradients(self, queries: Region, grads: Region, by_elements: dict[str, Region]) -> tuple[Node, ...]:
        keys = KeyPass(self.place, "slope", self.bk)
        taken = {name: self._rows(keys, name) for name in ("keys", "values")}
        step = AttentionGradient(
            **keys.common,
            **keys.state,
            queries=queries,
            scores=self._scores(self.scores, keys),
            keys=taken["keys"].rows,
            values=taken["values"].rows,
            grads=grads,
            query_rows=by_elements["queries"],
            grad_rows=by_elements["grads"],
            slopes=self._scores(self.slopes, keys),
        )
        return keys.loop((*taken["keys"].copies, *taken["values"].copies), step)

    def _scores(self, buffer: Buffer, keys: KeyPass) -> Region:
        return buffer.region((0, 0), (keys.count, self.place.panel))

    def _rows(self, keys: KeyPass, name: str) -> CopiedRows:
        """Return the keys or values of an iteration, in place or as a copy that the loop makes."""
        label, source = f"{keys.name}_{name}", keys.source(name)
        taken = copied_rows(label, source, self.place.compute, self.bk, copied=self.copies[name])
        self.copied |= {buffer.name: buffer for buffer in taken.buffers}
        return taken


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


GRADIENT_ID = "attention.gradient"
GRADIENT = Variant(
    id=GRADIENT_ID,
    op_type=AttentionGradientOp,
    backend="cpu",
    requirements=gradient_requirements(),
    preferences=(),
    priority=50,
    build=build_gradient,
    space=_space,
    default_schedule=_default,
)
