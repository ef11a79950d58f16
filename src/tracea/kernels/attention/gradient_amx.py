"""The gradients of attention on matrix tiles: seven products of sums of bf16 terms, weights and slopes underneath them.

A block of queries and one of keys are packed for every product that they are a factor of: queries and the result's
gradients by rows and by columns, keys too, values by rows. The routine keeps weights and slopes of all panels of a
block of queries until a block of keys has met them all (emitters/cpu/include/tracea/attention_gradient_amx.h).

See :mod:`tracea.kernels.attention.gradient_block`; sums of terms: :mod:`tracea.kernels.gemm.matrix_tiles`.
"""

from __future__ import annotations

from typing import Final

from tracea.core.dtype import DType
from tracea.core.op import AttentionGradientOp
from tracea.kernels.attention.amx import tile_routine
from tracea.kernels.attention.gradient_block import (
    DEPTH,
    ROWS,
    WIDTH,
    GradientBlock,
    KeyPass,
    gradient_requirements,
)
from tracea.kernels.attention.operands import computed_type
from tracea.kernels.gemm.amx import MATRIX_TILES
from tracea.kernels.gemm.blocking import round_up
from tracea.kernels.gemm.matrix_tiles import GRANULE, TILE, whole_granules
from tracea.kernels.operands import scratch
from tracea.kernels.requirements import condition
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.access import Region
from tracea.semantic.index import Index, ceil_div
from tracea.semantic.nodes import Node, Pack
from tracea.semantic.nodes_attention_gradient import AttentionGradient, AttentionPeaks, GradientTerms
from tracea.semantic.schedule import MOST_OF_TILE, Schedule
from tracea.semantic.tile_kernel import Buffer, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["GRADIENT_AMX", "build_gradient_amx"]

_TERMS: Final = 3  # of a float32
_LINE: Final = TILE * _TERMS
_MOST_QUERIES: Final = 512  # of a block
_SHARE_OF_CACHE: Final = 0.4  # of the second level: a block's queries and gradients, by rows and by columns
_KEY_BLOCK: Final = 64
_FEW_QUERIES: Final = 32  # vectors take no longer


def build_gradient_amx(op: AttentionGradientOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of an attention's gradients."""
    schedule.check_range(1, "bq", "bk", most=MOST_OF_TILE)
    frame = _Frame(op, *(round_up(schedule.integer(name), TILE) for name in ("bq", "bk")))
    return frame.place.kernel(GRADIENT_AMX_ID, schedule, target, body=frame.block_of_queries(), scratch=frame.buffers)


class _Frame:
    """The buffers of a kernel beside those of every one, and the nodes over them."""

    def __init__(self, op: AttentionGradientOp, bq: int, bk: int) -> None:
        routine = tile_routine("attention_gradient_amx", op.grad, op.forward.q, op.forward.k, op.forward.v)
        self.place = GradientBlock(op, routine, panel=TILE, bq=bq, copy_keys=True, copy_values=True)
        self.bk = bk
        panels, granules = bq // TILE, bk // GRANULE
        depth, width = whole_granules(DEPTH), whole_granules(WIDTH)
        columns, value_columns = ceil_div(DEPTH, TILE), ceil_div(WIDTH, TILE)
        # By rows, for sums over their elements; by columns, for sums over queries or keys.
        self.queries, self.grads = (
            _words(name, panels, size, _LINE) for name, size in (("queries", depth), ("grad_panels", width))
        )
        self.query_columns, self.grad_columns = (
            _words(name, size, bq, _LINE) for name, size in (("query_rows", columns), ("grad_rows", value_columns))
        )
        self.peak_keys, self.keys = (_words(name, granules, depth, _LINE) for name in ("peak_keys", "key_panels"))
        self.values = _words("value_panels", granules, width, _LINE)
        self.key_columns = _words("key_columns", columns, bk, _LINE)
        self.scores, self.slopes = (self.place.scratch(name, 2, bk, TILE) for name in ("scores", "slopes"))
        self.weights, self.kept = (
            _words(name, panels, granules, GRANULE, _LINE) for name in ("weights", "kept_slopes")
        )
        self.turned = _words("turned_slopes", 2, granules, GRANULE, _LINE)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The scratch beside the state."""
        of_queries = (self.queries, self.grads, self.query_columns, self.grad_columns)
        of_keys = (self.peak_keys, self.keys, self.values, self.key_columns)
        return (*of_queries, *of_keys, self.scores, self.slopes, self.weights, self.kept, self.turned)

    def block_of_queries(self) -> tuple[Node, ...]:
        """Return the nodes of one block of queries of one head."""
        place, panels = self.place, self.place.panels
        queries, grads = (place.sources[name] for name in ("queries", "grads"))
        straight = place.by_queries(place.grads, grads)
        packs = {
            "queries": _pack(
                queries, self.queries.region((0, 0, 0), (panels, whole_granules(DEPTH), _LINE)), second=True
            ),
            "grads": _pack(grads, self.grads.region((0, 0, 0), (panels, whole_granules(WIDTH), _LINE)), second=True),
            "query_rows": _pack_columns(queries, self.query_columns, DEPTH, ROWS, second=True),
            "grad_rows": _pack_columns(grads, self.grad_columns, WIDTH, ROWS, second=True),
        }
        regions = {name: pack.target for name, pack in packs.items()}
        return place.block_of_queries(
            (*packs.values(), straight), straight.target, self._peaks(regions["queries"]), self._gradients(regions)
        )

    def _peaks(self, queries: Region) -> tuple[Node, ...]:
        keys, state = KeyPass(self.place, "peak", self.bk), self.place.state
        pack = self._by_rows(keys, "keys", self.peak_keys, DEPTH)
        step = AttentionPeaks(
            **keys.common,
            queries=queries,
            keys=pack.target,
            scores=self._scores(self.scores, keys),
            peaks=state.peaks,
            totals=state.totals,
            count=keys.count,
        )
        return keys.loop((pack,), step)

    def _gradients(self, of_queries: dict[str, Region]) -> tuple[Node, ...]:
        keys = KeyPass(self.place, "slope", self.bk)
        packs = (
            self._by_rows(keys, "keys", self.keys, DEPTH),
            self._by_rows(keys, "values", self.values, WIDTH),
            _pack_columns(keys.source("keys"), self.key_columns, DEPTH, keys.count, second=False),
        )
        granules, panels = ceil_div(keys.count, GRANULE), self.place.panels
        room = GradientTerms(
            key_columns=packs[2].target,
            weights=self.weights.region((0, 0, 0, 0), (panels, granules, GRANULE, _LINE)),
            slopes=self.kept.region((0, 0, 0, 0), (panels, granules, GRANULE, _LINE)),
            turned=self.turned.region((0, 0, 0, 0), (2, granules, GRANULE, _LINE)),
        )
        step = AttentionGradient(
            **keys.common,
            **keys.state,
            queries=of_queries["queries"],
            grads=of_queries["grads"],
            query_rows=of_queries["query_rows"],
            grad_rows=of_queries["grad_rows"],
            keys=packs[0].target,
            values=packs[1].target,
            scores=self._scores(self.scores, keys),
            slopes=self._scores(self.slopes, keys),
            count=keys.count,
            terms=room,
        )
        return keys.loop(packs, step)

    @staticmethod
    def _by_rows(keys: KeyPass, name: str, buffer: Buffer, depth: Index) -> Pack:
        target = buffer.region((0, 0, 0), (ceil_div(keys.count, TILE), whole_granules(depth), _LINE))
        return _pack(keys.source(name), target, second=False)

    @staticmethod
    def _scores(buffer: Buffer, keys: KeyPass) -> Region:
        return buffer.region((0, 0, 0), (2, whole_granules(keys.count), TILE))


def _words(name: str, *shape: Index | int) -> Buffer:
    return scratch(name, DType.BF16, MemorySpace.THREAD, *shape)


def _pack(source: Region, target: Region, *, second: bool, axis: int = 0) -> Pack:
    """Return the pack of rows, or of columns (``axis`` 1), as first or ``second`` factors of products."""
    turned = second is (axis == 0)
    return Pack(source=source, target=target, panel=TILE, axis=axis, terms=_TERMS, granule=GRANULE, turned=turned)


def _pack_columns(source: Region, buffer: Buffer, width: Index, rows: Index, *, second: bool) -> Pack:
    target = buffer.region((0, 0, 0), (ceil_div(width, TILE), whole_granules(rows), _LINE))
    return _pack(source, target, second=second, axis=1)


def _default(op: AttentionGradientOp, target: Target) -> Schedule:
    queries, depth = op.forward.q.static_shape[2:]
    keys, width = op.forward.v.static_shape[2:]
    per_query = 2 * _TERMS * DType.BF16.nbytes * (round_up(depth, TILE) + round_up(width, TILE))
    fits = int(_SHARE_OF_CACHE * target.l2_bytes) // max(1, per_query) // TILE * TILE
    bq = min(max(TILE, fits), _MOST_QUERIES, round_up(max(1, queries), TILE))
    return Schedule(bq=bq, bk=round_up(min(_KEY_BLOCK, max(1, keys)), TILE))


def _space(op: AttentionGradientOp, target: Target) -> ScheduleSpace:
    default = _default(op, target)
    rows = dict.fromkeys((default.integer("bq"), 64, 128, 256, 512))
    blocks = dict.fromkeys((default.integer("bk"), 32, 64, 128, 256))
    return ScheduleSpace.listed([{"bq": bq, "bk": bk} for bq in rows for bk in blocks])


_FLOATS = condition(
    "sums of float32",
    lambda op, _: computed_type(op.forward) is DType.F32,
    needed="q, k, v and the score's operands of f32, f16 or bf16",
    found=lambda op: f"{op.forward.q}, {op.forward.k}, {op.forward.v}",
    remedy="use attention.gradient",
)


def _by_shape(op: AttentionGradientOp, target: Target) -> float:
    if target.isa == "plain":
        return -200.0  # arrays in place of registers: there to be read by sanitizers
    return 10.0 if op.forward.q.static_shape[2] > _FEW_QUERIES else -60.0


GRADIENT_AMX_ID = "attention.gradient_amx"
GRADIENT_AMX = Variant(
    id=GRADIENT_AMX_ID,
    op_type=AttentionGradientOp,
    backend="cpu",
    requirements=(*gradient_requirements(), MATRIX_TILES, _FLOATS),
    preferences=(Preference(name="whole tiles", score=_by_shape),),
    priority=50,
    build=build_gradient_amx,
    space=_space,
    default_schedule=_default,
)
