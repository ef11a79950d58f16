"""The nodes of columns' moments: what a part of the rows adds up to, and what the parts are together."""

from __future__ import annotations

from dataclasses import dataclass

from tracea.semantic.index import Index
from tracea.semantic.nodes import Access, Intrinsic, Node, Region, coerce, reads, writes

__all__ = ["MomentsFold", "MomentsTile", "state_rows"]


def state_rows(*, graded: bool) -> int:
    """Return how many numbers a part keeps of a column.

    They are a pivot, the sums of what elements are beyond it and of its squares, and, of a gradient, its sum and that
    of its products with what elements are beyond the pivot.
    """
    return 5 if graded else 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentsTile(Node):
    """target = the sums of some rows about a pivot, which is their mean as it is stored.

    Shapes:
        source, grads: (1, rows, columns); target: (1, 1, 3 or 5, columns).
    """

    intrinsic: Intrinsic
    source: Region
    grads: Region | None
    target: Region

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the operands and the writes of the sums."""
        return reads(self.source, self.grads) + writes(self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentsFold(Node):
    """target = the moments of all rows from the sums of parts of ``step`` of them; the last part has what is left.

    The operands are read again where sums are not finite, of which a difference could have no meaning.

    Shapes:
        states: (1, parts, 3 or 5, columns); source, grads: (1, rows, columns); about: (1, 1, columns); target:
        (1, 2 or 4, columns).
    """

    intrinsic: Intrinsic
    states: Region
    source: Region
    about: Region
    grads: Region | None
    target: Region
    step: Index

    def __post_init__(self) -> None:
        coerce(self, "step")

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the sums and the operands, and the writes of the moments."""
        return reads(self.states, self.source, self.about, self.grads) + writes(self.target)
