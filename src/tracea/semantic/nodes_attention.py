"""The nodes of attention on a CPU: a block of queries starts without a key, takes blocks of keys, and is finished.

A block's state are three buffers in panels of queries, as :class:`tracea.semantic.nodes.Pack` makes them: ``peaks`` and
``totals`` (panels, panel), the largest score and the sum of weights of each query; ``sums`` (panels, dv, panel), the
weighted sums of values. Weights are relative to the peak. Leading axes, of extent 1 in a region, say whose state it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tracea.core.expr import Expr, Input
from tracea.semantic.index import Index, as_index
from tracea.semantic.nodes import Access, AccessMode, Intrinsic, Node, Region, reads, writes
from tracea.semantic.nodes_spans import SpanUse

__all__ = ["AttentionCombine", "AttentionFinish", "AttentionStart", "AttentionState", "AttentionStep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionState:
    """The state of a block of queries, in panels."""

    peaks: Region
    totals: Region
    sums: Region

    @property
    def regions(self) -> tuple[Region, Region, Region]:
        """The three of them."""
        return self.peaks, self.totals, self.sums


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionStart(Node):
    """No key was seen: peaks are -inf, totals and sums zero. ``rows`` is how many queries the block has."""

    intrinsic: Intrinsic
    state: AttentionState
    rows: Index

    def accesses(self) -> tuple[Access, ...]:
        """Return the writes of the state."""
        return writes(*self.state.regions)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionStep(Node):
    """Take one block of keys into the state of a block of queries.

    ``score`` is a function of ``Input(0)``, scale times the product of query and key, and of the operands. Query i and
    key j of the block are those at ``first_query`` + i and ``first_key`` + j; ``causal`` and ``window`` hide pairs of
    them as :class:`tracea.core.ops.attention.AttentionOp` says; so does the ``span`` that the keys are of. What the
    routine leaves in ``scores``, and in ``weights`` where it has any, is its own.

    Shapes:
        queries: (panels, d, panel), zero beyond ``rows``; keys: (1, …, n, d); values: (1, …, n, dv); scores: (n,
        panel); operands: (1, …, rows or 1, n or 1). On matrix tiles queries, keys and values are packed as sums of
        terms, whose extents are whole panels and granules, so that ``count`` says the keys; scores (2, n, panel) and
        weights (2, n / granule, granule, terms · panel) are those of two panels of queries. What follows the rows of
        ``asked`` in memory is only asked for.
    """

    intrinsic: Intrinsic
    queries: Region
    keys: Region
    values: Region
    scores: Region
    state: AttentionState
    rows: Index
    first_query: Index
    first_key: Index
    scale: float
    causal: bool = False
    window: int | None = None
    score: Expr = field(default_factory=lambda: Input(0))
    operands: tuple[Region, ...] = ()
    span: SpanUse | None = None
    weights: Region | None = None
    count: Index | None = None
    asked: tuple[Region, ...] = ()

    def __post_init__(self) -> None:
        for name in ("rows", "first_query", "first_key"):
            object.__setattr__(self, name, as_index(getattr(self, name)))

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the operands, the update of the state and the write of the scores."""
        state = tuple(Access(region, AccessMode.UPDATE) for region in self.state.regions)
        own = (self.scores,) if self.weights is None else (self.scores, self.weights)
        return reads(self.queries, self.keys, self.values, *self.operands) + state + writes(*own)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionFinish(Node):
    """target = sums / totals, zeros where a total is zero.

    Shapes:
        target: (1, …, rows, dv).
    """

    intrinsic: Intrinsic
    state: AttentionState
    target: Region

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of totals and sums and the write of the target."""
        return reads(self.state.totals, self.state.sums) + writes(self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCombine(Node):
    """target = sums of all parts over their totals, each relative to the largest peak; zeros where no part has a key.

    A part has taken its own ``part`` keys: the p-th those from p · part on. The state's axis of parts is the one before
    its panels.

    Shapes:
        state: (1, …, parts, panels, …); target: (1, …, rows, dv).
    """

    intrinsic: Intrinsic
    state: AttentionState
    part: int
    target: Region

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the state and the write of the target."""
        return reads(*self.state.regions) + writes(self.target)
