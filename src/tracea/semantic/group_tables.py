"""Tables of groups of rows: where each part of the rows begins and which group it belongs to, as the host says it."""

from __future__ import annotations

from dataclasses import dataclass

from tracea.semantic.index import Index, Lookup
from tracea.semantic.tile_kernel import Table

__all__ = ["GroupTables"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTables:
    """The tables that :class:`tracea.core.ops.grouped_gemm.GroupedGemmOp` describes.

    ``first`` ascends from 0 to ``rows``, so that the parts are all rows, each once; ``number`` is a group below
    ``groups``, or ``groups`` for rows of none.
    """

    parts: Index
    rows: Index
    groups: Index
    first: str = "part_first"
    number: str = "part_group"

    @property
    def tables(self) -> tuple[Table, Table]:
        """The tables, with the ranges that the caller's are checked against."""
        return (
            Table(name=self.first, length=self.parts + 1, minimum=0, maximum=self.rows, ascending=True),  # pyright: ignore[reportArgumentType]
            Table(name=self.number, length=self.parts, minimum=0, maximum=self.groups),  # pyright: ignore[reportArgumentType]
        )

    def begin(self, part: Index) -> Index:
        """Return a part's first row; of the part after the last, how many rows there are."""
        return Lookup(self.first, part)

    def rows_of(self, part: Index) -> Index:
        """Return how many rows a part has."""
        return Lookup(self.first, part + 1) - Lookup(self.first, part)

    def group(self, part: Index) -> Index:
        """Return a part's group."""
        return Lookup(self.number, part)
