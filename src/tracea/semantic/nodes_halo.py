"""The node of a convolution's halo: rows and columns of an image as sums of terms, which matrix tiles read."""

from __future__ import annotations

from dataclasses import dataclass

from tracea.semantic.access import Access, AccessMode, Region
from tracea.semantic.index import Index
from tracea.semantic.nodes import Node

__all__ = ["Halo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Halo(Node):
    """Copy rows and columns of an image as sums of terms, zeros standing outside of the image's buffer.

    Channels come in blocks of ``lanes``, the last one filled up with zeros; each element becomes ``terms`` elements, as
    for :class:`tracea.semantic.nodes.Pack`, and each block of a pixel one more, which is not zero where the terms
    cannot hold it. How all of them are laid out is the routine's own. Windows of ``taps``, ``gaps`` apart, will be read
    ``steps`` apart: rows and columns that no window reads may be left as they are.

    ``merged`` taps, (rows, columns), are lanes too: element (i, j) of the target is then the channels of that many
    pixels, row after row, the first of which is (i, j · steps[1]) of the source; and nothing lies outside of the
    source. ``taps`` and ``gaps`` are those that remain.

    Shapes:
        source: (1, …, rows, columns, channels), masked unless merged; target: (blocks, rows, columns, terms · lanes
        + 1).
    """

    source: Region
    target: Region
    lanes: int
    terms: int
    steps: tuple[int, int]
    taps: tuple[Index, Index]
    gaps: tuple[int, int]
    merged: tuple[int, int] | None = None

    @property
    def phases(self) -> tuple[int, int]:
        """How many rows and columns of the target lie between those of one window and of the next."""
        return self.steps if self.merged is None else (self.steps[0], 1)

    def accesses(self) -> tuple[Access, ...]:
        """Return the read, masked unless merged, and the write."""
        masked = self.merged is None
        return (Access(self.source, AccessMode.READ, masked=masked), Access(self.target, AccessMode.WRITE))
