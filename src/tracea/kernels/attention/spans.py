"""Attention over listed pairs: the loops over a block's spans, and the tables that make spans of a tile table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tracea.core.op import AttentionOp, PairSpans
from tracea.core.ops.attention import SPAN_FIELDS
from tracea.errors import InvalidSchedule
from tracea.kernels.attention.operands import HEAD, Sizes
from tracea.semantic.index import Const, Index, Param, Var, ceil_div, maximum, minimum
from tracea.semantic.nodes import For, Let, Node, block
from tracea.semantic.nodes_spans import FAR, SpanTables, SpanUse, spans_fault
from tracea.semantic.tile_table import TileRole, TileTable

__all__ = ["SPAN_ROOM", "Band", "Spans", "span_tables"]

Array = np.ndarray[Any, Any]

SPAN_ROOM: Final = Param("span_room", maximum=2**26)
_SPAN, _NUMBER, _FIRST_SPAN = Var("span"), Var("span_number"), Var("span_begin")
_LEAST_ROOM: Final = 15  # spans, less one: a few more or less than before ask for no other kernel


@dataclass(frozen=True, slots=True)
class Spans:
    """The tables of an op and where a task finds its own: ``sizes`` are the kernel's, ``block`` the task's block."""

    tables: SpanTables
    which: Index

    @classmethod
    def of(cls, op: AttentionOp, sizes: Sizes, first: Index) -> Spans:
        """Return the tables of an op with spans; ``first`` is the task's first query."""
        assert op.spans is not None  # the caller asks for an op that has them
        batch, kv_heads, sharing, queries, keys, *_ = sizes
        rows, each = op.spans.rows, op.spans.each
        blocks = ceil_div(queries, rows)
        heads: Index = batch * kv_heads * sharing * blocks
        tables = SpanTables(rows=rows, queries=queries, keys=keys, lists=heads if each else blocks, room=SPAN_ROOM)
        number: Index = first // rows
        if each:
            number = ((HEAD[0] * kv_heads + HEAD[1]) * sharing + HEAD[2]) * blocks + number
        return cls(tables, number)

    @property
    def use(self) -> SpanUse:
        """The span of an iteration."""
        return SpanUse(tables=self.tables, number=_NUMBER)

    def loop(self, begin: Var, end: Var, keys: For) -> tuple[Node, ...]:
        """Return the loop over a task's spans around one over the keys of a span, from ``begin`` to ``end``."""
        use = self.use
        inside = (
            Let(var=_NUMBER, value=_FIRST_SPAN + _SPAN),
            Let(var=begin, value=maximum(0, use.key_begin)),
            Let(var=end, value=minimum(self.tables.keys, use.key_end)),
            keys,
        )
        return (
            Let(var=_FIRST_SPAN, value=self.tables.number(self.which)),
            For(var=_SPAN, extent=maximum(0, self.tables.count(self.which)), step=Const(1), body=block(*inside)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Which keys a query sees by position, counted from the first of its group in a tile table.

    ``global_tokens``: the first so many queries see all keys, and the first so many keys are seen by all queries;
    ``causal`` holds for them too.
    """

    causal: bool = False
    window: int | None = None
    global_tokens: int = 0


def span_tables(
    tables: Sequence[TileTable], *, rows: int, band: Band, each: bool = False
) -> tuple[PairSpans, Array, Array]:
    """Return the spans of tile tables for blocks of ``rows`` queries, and the two tables that a kernel reads of them.

    What is seen is what an active tile holds and the band lets through. ``each``: there is a table for every batch and
    head; else one for all.

    Raises:
        InvalidSchedule: two tiles share a pair, or there is more than one table though not ``each``.
    """
    if not each and len(tables) != 1:
        raise InvalidSchedule(field="tile tables", got=len(tables), expected="one for all heads", remedy="each=True")
    queries, keys, _ = tables[0].extents
    found = [_spans_of(table, rows, band) for table in tables]
    blocks = -(-queries // rows)
    which = np.concatenate([spans[:, 0] // rows + number * blocks for number, spans in enumerate(found)])
    spans = np.concatenate(found)
    ordered = np.lexsort((spans[:, 2], which))
    counts = np.bincount(which, minlength=len(tables) * blocks)
    room = 1 << max(_LEAST_ROOM, len(spans) - 1).bit_length()
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    fields = np.zeros((room, SPAN_FIELDS), np.int32)
    fields[: len(spans)] = spans[ordered]
    described = SpanTables(
        rows=rows, queries=Const(queries), keys=Const(keys), lists=Const(len(counts)), room=Const(room)
    )
    fault = spans_fault(described, {described.first: first, described.spans: fields})
    if fault:
        raise InvalidSchedule(field="tile table", got=fault, expected="each pair in one tile", remedy="use a builder")
    return PairSpans(rows=rows, room=room, each=each), first, fields.reshape(-1)


def _spans_of(table: TileTable, rows: int, band: Band) -> Array:
    """Return the spans (begin, end, key_begin, key_end, behind, ahead) of one table, cut to blocks of queries."""
    active = table.field("role") != TileRole.SKIP
    names = ("m0", "m1", "n0", "n1", "group")
    columns = [table.field(name).astype(np.int64) for name in names]
    m0, m1, n0, n1, group = columns
    groups = int(group.max()) + 1 if len(group) else 0
    origin = np.full((2, groups), FAR, dtype=np.int64)
    np.minimum.at(origin[0], group, m0)
    np.minimum.at(origin[1], group, n0)
    shift = (origin[1] - origin[0])[group]
    boxes = np.stack([m0, m1, n0, n1, shift], axis=1)[active]
    boxes = _merged(boxes[np.lexsort((boxes[:, 2], boxes[:, 1], boxes[:, 0]))])
    parts = [_within(boxes, part) for part in _parts(band)]
    return np.concatenate([_cut(part, rows) for part in parts])


def _merged(boxes: Array) -> Array:
    """Return boxes of pairs, ordered by their rows and columns, with neighbours in a row as one."""
    if not len(boxes):
        return boxes
    alike = np.all(boxes[1:, [0, 1, 4]] == boxes[:-1, [0, 1, 4]], axis=1) & (boxes[1:, 2] == boxes[:-1, 3])
    begins = np.concatenate([[0], np.flatnonzero(~alike) + 1])
    ends = np.concatenate([begins[1:], [len(boxes)]]) - 1
    merged = boxes[begins].copy()
    merged[:, 3] = boxes[ends, 3]
    return merged


def _parts(band: Band) -> tuple[tuple[int, int, int, int, int, int], ...]:
    """Return disjoint rectangles of pairs that are seen: first and last row and column, behind, ahead."""
    latest = 0 if band.causal else FAR
    reach = FAR if band.window is None else min(FAR, band.window - 1)
    near = (reach, min(latest, reach))
    if band.window is None or not band.global_tokens:
        return ((0, FAR, 0, FAR, *near),)
    g = band.global_tokens
    return ((0, g, 0, FAR, FAR, latest), (g, FAR, 0, g, FAR, latest), (g, FAR, g, FAR, *near))


def _within(boxes: Array, part: tuple[int, int, int, int, int, int]) -> Array:
    """Return what of the boxes lies in a rectangle, as (begin, end, key_begin, key_end, behind, ahead)."""
    m0, m1, n0, n1, behind, ahead = part
    shift = boxes[:, 4]
    spans = np.stack(
        [
            np.maximum(boxes[:, 0], m0),
            np.minimum(boxes[:, 1], m1),
            np.maximum(boxes[:, 2], n0),
            np.minimum(boxes[:, 3], n1),
            np.full_like(shift, behind) if behind == FAR else behind - shift,
            np.full_like(shift, ahead) if ahead == FAR else ahead + shift,
        ],
        axis=1,
    )
    return spans[(spans[:, 0] < spans[:, 1]) & (spans[:, 2] < spans[:, 3])]


def _cut(spans: Array, rows: int) -> Array:
    """Return spans cut at multiples of ``rows`` queries, without the keys that none of their queries sees."""
    lowest = spans[:, 0] // rows
    counts = (spans[:, 1] - 1) // rows - lowest + 1
    numbers: Array = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    cut = np.repeat(spans, counts, axis=0)
    block: Array = (np.repeat(lowest, counts) + numbers) * rows
    cut[:, 0] = np.maximum(cut[:, 0], block)
    cut[:, 1] = np.minimum(cut[:, 1], block + rows)
    cut[:, 2] = np.maximum(cut[:, 2], cut[:, 0] - cut[:, 4])
    cut[:, 3] = np.minimum(cut[:, 3], cut[:, 1] + cut[:, 5])
    return cut[cut[:, 2] < cut[:, 3]]
