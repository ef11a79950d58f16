"""Which pairs of an attention a block of queries takes, as tables say it: spans of keys with a band of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tracea.core.ops.attention import SPAN_FIELDS
from tracea.semantic.index import INT32_MAX, Index, Lookup, as_index
from tracea.semantic.tile_kernel import Table

__all__ = ["FAR", "SpanTables", "SpanUse", "spans_fault"]

FAR: Final = 2**30  # a band's side that hides nothing: farther than any two positions are apart
_BEGIN, _END, _KEY_BEGIN, _KEY_END, _BEHIND, _AHEAD = range(SPAN_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanTables:
    """The tables that :class:`tracea.core.ops.attention.PairSpans` describes, for blocks of ``rows`` queries."""

    rows: int
    queries: Index
    keys: Index
    lists: Index
    room: Index
    first: str = "span_first"
    spans: str = "span_fields"

    @property
    def tables(self) -> tuple[Table, Table]:
        """The tables, with the ranges that the caller's are checked against."""
        return (
            Table(name=self.first, length=self.lists + 1, minimum=0, maximum=self.room),  # pyright: ignore[reportArgumentType]
            Table(
                name=self.spans,
                length=self.room * SPAN_FIELDS,
                minimum=as_index(-INT32_MAX),
                maximum=as_index(INT32_MAX),
            ),
        )

    def number(self, which: Index) -> Index:
        """Return the number of a list's first span."""
        return Lookup(self.first, which)

    def count(self, which: Index) -> Index:
        """Return how many spans a list has."""
        return Lookup(self.first, which + 1) - Lookup(self.first, which)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanUse:
    """The span that a step of attention takes keys of, by its number: its band and its queries hide what they hide."""

    tables: SpanTables
    number: Index

    def _entry(self, field: int) -> Index:
        return Lookup(self.tables.spans, self.number * SPAN_FIELDS + field)

    @property
    def begin(self) -> Index:
        """The position of the first query."""
        return self._entry(_BEGIN)

    @property
    def end(self) -> Index:
        """The position behind the last query."""
        return self._entry(_END)

    @property
    def key_begin(self) -> Index:
        """The position of the first key."""
        return self._entry(_KEY_BEGIN)

    @property
    def key_end(self) -> Index:
        """The position behind the last key."""
        return self._entry(_KEY_END)

    @property
    def behind(self) -> Index:
        """How far before a query its first key lies; may be negative."""
        return self._entry(_BEHIND)

    @property
    def ahead(self) -> Index:
        """How far after a query its last key lies; may be negative."""
        return self._entry(_AHEAD)


def spans_fault(tables: SpanTables, env: Mapping[str, Any]) -> str:
    """Return what is wrong with the caller's tables beyond their ranges; nothing where they are what PairSpans says."""
    queries, keys = (int(size.evaluate(env)) for size in (tables.queries, tables.keys))
    first = np.asarray(env[tables.first], dtype=np.int64)
    room = np.asarray(env[tables.spans], dtype=np.int64).reshape(-1, SPAN_FIELDS)
    counts = np.diff(first)
    if first[0] != 0 or np.any(counts < 0) or first[-1] > len(room):
        return f"{tables.first} does not ascend from 0 to at most {len(room)}"
    spans = room[: first[-1]]
    which = np.repeat(np.arange(len(counts)), counts)
    block = which % max(1, -(-queries // tables.rows)) * tables.rows
    begin, end, key_begin, key_end = spans[:, :4].T
    within = (begin >= block) & (end <= np.minimum(block + tables.rows, queries)) & (key_begin >= 0) & (key_end <= keys)
    if not np.all(within & (begin <= end) & (key_begin <= key_end)):
        return f"span {int(np.argmin(within & (begin <= end) & (key_begin <= key_end)))} is not of its block's queries"
    twice = _overlap(spans, which)
    return "" if twice is None else f"spans {twice[0]} and {twice[1]} have a pair in common"


def _overlap(spans: np.ndarray[Any, Any], which: np.ndarray[Any, Any]) -> tuple[int, int] | None:
    """Return two spans of one list that share a pair: only those are compared whose keys overlap."""
    order = np.lexsort((spans[:, _KEY_BEGIN], which))
    spans, which = spans[order], which[order]
    earlier = np.arange(len(spans) - 1)
    for gap in range(1, len(spans)):
        earlier = earlier[earlier + gap < len(spans)]
        later = earlier + gap
        near = (which[earlier] == which[later]) & (spans[later, _KEY_BEGIN] < spans[earlier, _KEY_END])
        if not near.any():
            return None
        earlier, later = earlier[near], later[near]  # keys of whatever follows begin later still
        a, b = spans[earlier], spans[later]
        low, high = (
            np.maximum(a[:, [_BEGIN, _KEY_BEGIN]], b[:, [_BEGIN, _KEY_BEGIN]]),
            np.minimum(a[:, [_END, _KEY_END]], b[:, [_END, _KEY_END]]),
        )
        boxes = np.all(low < high, axis=1)
        # Of a rectangle of pairs, key less query takes every value between those of two corners.
        least = np.maximum(low[:, 1] - (high[:, 0] - 1), -np.minimum(a[:, _BEHIND], b[:, _BEHIND]))
        most = np.minimum(high[:, 1] - 1 - low[:, 0], np.minimum(a[:, _AHEAD], b[:, _AHEAD]))
        found = np.flatnonzero(boxes & (least <= most))
        if len(found):
            first, second = sorted((int(order[earlier[found[0]]]), int(order[later[found[0]]])))
            return first, second
    return None
