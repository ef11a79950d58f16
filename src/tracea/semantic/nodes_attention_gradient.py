"""The nodes of attention's gradients: peaks and totals first, then all three from a second pass over the keys.

Panels and leading axes are as in :mod:`tracea.semantic.nodes_attention`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tracea.core.expr import Constant, Expr, Input
from tracea.semantic.index import Index, as_index
from tracea.semantic.nodes import Access, AccessMode, Intrinsic, Node, Region, reads, writes

__all__ = ["AttentionDeltas", "AttentionGradient", "AttentionPeaks", "AttentionSlopeEnd", "GradientTerms", "KeyBlock"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBlock(Node):
    """A block of keys that a block of queries takes; scale, mask and score as in an attention's step.

    Shapes:
        queries: (panels, d, panel), zero beyond ``rows``; keys: (1, …, n, d); scores: (n, panel), the routine's own;
        operands: (1, …, rows or 1, n or 1). On matrix tiles what is multiplied is packed as sums of terms, whose
        extents are whole panels and granules, so that ``count`` says the keys; scores (2, n, panel) are those of two
        panels of queries.
    """

    intrinsic: Intrinsic
    queries: Region
    keys: Region
    scores: Region
    rows: Index
    first_query: Index
    first_key: Index
    scale: float
    causal: bool = False
    window: int | None = None
    score: Expr = field(default_factory=lambda: Input(0))
    operands: tuple[Region, ...] = ()
    count: Index | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "first_query", "first_key"):
            object.__setattr__(self, name, as_index(getattr(self, name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionPeaks(KeyBlock):
    """Raise the largest score of each query, and add its weights to its total, by one block of keys.

    Shapes:
        peaks, totals: (panels, panel).
    """

    peaks: Region
    totals: Region

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the operands, the updates of peaks and totals and the write of the scores."""
        state = tuple(Access(region, AccessMode.UPDATE) for region in (self.peaks, self.totals))
        return reads(self.queries, self.keys, *self.operands) + state + writes(self.scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionDeltas(Node):
    """deltas = the sums of grads · results over a query's elements; totals = their inverses, zero where they are zero.

    Shapes:
        grads, results: (panels, dv, panel); totals, deltas: (panels, panel).
    """

    intrinsic: Intrinsic
    grads: Region
    results: Region
    totals: Region
    deltas: Region
    rows: Index

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of both, the update of the totals and the write of the deltas."""
        return (*reads(self.grads, self.results), Access(self.totals, AccessMode.UPDATE), *writes(self.deltas))


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientTerms:
    """What gradients on matrix tiles have beside: keys by their columns, and room for what they multiply with them.

    Shapes:
        key_columns: (⌈d / panel⌉, n, terms · panel); weights, slopes: (panels, n / granule, granule, terms · panel),
        those of all panels of a block of queries; turned: (2, n / granule, granule, terms · panel), slopes of two.
    """

    key_columns: Region
    weights: Region
    slopes: Region
    turned: Region


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionGradient(KeyBlock):
    """Add what one block of keys gives to the gradients of its block of queries, of itself and of its values.

    ``slope`` is the score's derivative for ``Input(0)``, a function of the same operands.

    Shapes:
        values: (1, …, n, dv); grads: (panels, dv, panel); query_rows, grad_rows: (⌈d or dv / panel⌉, rows, panel);
        sums: (panels, d, panel), of the queries' gradients; key_sums: (n, d); value_sums: (n, dv); slopes as scores.
    """

    values: Region
    grads: Region
    query_rows: Region
    grad_rows: Region
    peaks: Region
    totals: Region
    deltas: Region
    sums: Region
    slopes: Region
    key_sums: Region
    value_sums: Region
    slope: Expr = field(default_factory=lambda: Constant(1.0))
    terms: GradientTerms | None = None

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the operands, the updates of the sums and the writes of what is the routine's own."""
        read = [self.queries, self.keys, self.values, self.grads, self.query_rows, self.grad_rows]
        own = [self.scores, self.slopes]
        if self.terms is not None:
            read.append(self.terms.key_columns)
            own += [self.terms.weights, self.terms.slopes, self.terms.turned]
        state = (self.peaks, self.totals, self.deltas)
        sums = (self.sums, self.key_sums, self.value_sums)
        updates = tuple(Access(region, AccessMode.UPDATE) for region in sums)
        return reads(*read, *state, *self.operands) + updates + writes(*own)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSlopeEnd(Node):
    """target = sums, out of their panels.

    Shapes:
        sums: (panels, d, panel); target: (1, …, rows, d).
    """

    intrinsic: Intrinsic
    sums: Region
    target: Region

    def accesses(self) -> tuple[Access, ...]:
        """Return the read of the sums and the write of the target."""
        return reads(self.sums) + writes(self.target)
