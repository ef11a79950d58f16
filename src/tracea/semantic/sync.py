"""What synchronization a ring needs: derived from who writes, who reads and how far apart, and no more than that.

Worked example. ``cp.async`` fills a ring of four stages; every step waits, meets at one barrier, fetches three uses
ahead and computes. When step k waits, the prologue has committed 3 groups and the steps before k one each: k + 3
groups. Use k is group k, so the k + 1 oldest must be done, and ``(k + 3) − (k + 1) = 2`` may be pending:
``wait_group(2)``. With 3 pending, use k may still be on its way. With 1, the newest but one copy is waited for, which
nobody reads yet: right, but the pipeline is a stage shorter than it was paid for. Waiting tells a thread about its own
copies only; since other threads' copies are read, a barrier follows. That barrier also ends the reads of step k − 1,
so the fetch after it may overwrite them: no second barrier, as long as the distance is at most 3.

:func:`before_read` and :func:`before_overwrite` say this for each kind of producer. Each requirement knows the one
weaker and the one stronger: the proofs refuse the weaker, and report the stronger as superfluous.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from tracea.errors import InvalidSchedule
from tracea.semantic.index import Index, as_index
from tracea.semantic.nodes import Barrier, Level, Node
from tracea.semantic.nodes_async import MbarrierWait, WaitGroup
from tracea.semantic.phase import empty_parity, full_parity

__all__ = [
    "Producer",
    "RingUse",
    "SyncKind",
    "SyncRequirement",
    "before_overwrite",
    "before_read",
    "empty_arrivals",
    "wait_groups",
    "wgmma_pending",
]

Number = TypeVar("Number", int, Index)


class SyncKind(Enum):
    """What one requirement is."""

    NONE = "none"
    WAIT_GROUP = "wait_group"  # the executor's own copies, all but the latest so many groups
    BARRIER = "barrier"  # all executors of the block meet
    MBARRIER = "mbarrier"  # the phase of a parity has completed


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequirement:
    """One wait that an access needs: none, ``wait_group(pending)``, a barrier, or a phase of an mbarrier.

    ``pending`` belongs to WAIT_GROUP, ``parity`` to MBARRIER; the other is None.
    """

    kind: SyncKind
    pending: int | None = None
    parity: Index | None = None

    def __post_init__(self) -> None:
        fits = (self.pending is not None) == (self.kind is SyncKind.WAIT_GROUP) and (self.parity is not None) == (
            self.kind is SyncKind.MBARRIER
        )
        if not fits or (self.pending is not None and self.pending < 0):
            raise InvalidSchedule(
                field=f"requirement {self.kind.value}",
                got=f"pending {self.pending}, parity {self.parity}",
                expected="pending >= 0 for wait_group, parity for mbarrier, else neither",
                remedy="give each kind what it needs",
            )

    def weaker(self) -> SyncRequirement | None:
        """Return the next weaker requirement; None below ``none``."""
        match self.kind:
            case SyncKind.NONE:
                return None
            case SyncKind.WAIT_GROUP:
                return SyncRequirement(kind=self.kind, pending=(self.pending or 0) + 1)
            case SyncKind.BARRIER | SyncKind.MBARRIER:
                return NOTHING

    def stronger(self) -> SyncRequirement | None:
        """Return the next stronger requirement of the same mechanism; None where there is none.

        What is stronger than ``none`` is a barrier: right everywhere, and superfluous.
        """
        match self.kind:
            case SyncKind.NONE:
                return MEET
            case SyncKind.WAIT_GROUP:
                return SyncRequirement(kind=self.kind, pending=self.pending - 1) if self.pending else None
            case SyncKind.BARRIER | SyncKind.MBARRIER:
                return None

    def met_by(self, there: SyncRequirement) -> bool:
        """Return whether what is there is at least as strong; different mechanisms do not replace each other."""
        if self.kind is SyncKind.NONE:
            return True
        if self.kind is not there.kind or self.parity != there.parity:
            return False
        return self.pending is None or there.pending is None or there.pending <= self.pending

    def superfluous(self, there: SyncRequirement) -> str | None:
        """Return what is too much about a wait that is there; None where it is no stronger than required."""
        if not self.met_by(there) or there == self:
            return None
        if self.kind is SyncKind.WAIT_GROUP:
            return f"{there} waits for copies that nobody reads yet: {self} is enough"
        return f"{there} orders nothing that is not ordered already: {self} is enough"

    def node(self, *, barrier: str | None = None, slot: Index | None = None) -> Node | None:
        """Return the IR node; an mbarrier's needs the barrier's name and slot. None for no requirement."""
        match self.kind:
            case SyncKind.NONE:
                return None
            case SyncKind.WAIT_GROUP:
                return WaitGroup(pending=as_index(self.pending or 0))
            case SyncKind.BARRIER:
                return Barrier(level=Level.BLOCK)
            case SyncKind.MBARRIER:
                if barrier is None or slot is None or self.parity is None:
                    raise InvalidSchedule(
                        field="wait on an mbarrier",
                        got=(barrier, slot),
                        expected="its name and slot",
                        remedy="name the barrier",
                    )
                return MbarrierWait(barrier=barrier, slot=slot, parity=self.parity)

    def __str__(self) -> str:
        """Render as ``wait_group(2)``."""
        detail = self.pending if self.parity is None else self.parity
        return self.kind.value if detail is None else f"{self.kind.value}({detail})"


NOTHING = SyncRequirement(kind=SyncKind.NONE)
MEET = SyncRequirement(kind=SyncKind.BARRIER)


class Producer(Enum):
    """Who fills a stage, which decides how a reader learns that it is full."""

    STORES = "stores"  # plain stores of the threads
    CP_ASYNC = "cp_async"  # groups of copies, waited for by the thread that issued them
    TMA = "tma"  # the copy engine, which completes an mbarrier


@dataclass(frozen=True, slots=True, kw_only=True)
class RingUse:
    """How a pipelined loop uses a ring.

    Step k reads use k, or up to use ``k + lookahead`` where registers are loaded ahead, and fetches use
    ``k + distance``. ``fetch_first``: the fetch and its commit come before the step's wait; otherwise after it and
    after the barrier that follows it. What one lane fetched, others read: a wait alone is never enough.

    Raises:
        InvalidSchedule: the fetch would overwrite what the same step reads, or come after its own read.
    """

    stages: int
    distance: int
    producer: Producer
    lookahead: int = 0
    fetch_first: bool = False

    def __post_init__(self) -> None:
        least = self.lookahead + (0 if self.fetch_first else 1)
        if self.producer is Producer.TMA:
            least = 0  # another role fetches, as far ahead as there are stages
        if not least <= self.distance <= self.stages - 1:
            raise InvalidSchedule(
                field="fetch distance of a ring",
                got=f"{self.distance} with {self.stages} stages",
                expected=f"{least} .. {self.stages - 1}",
                remedy=f"use at least {max(self.distance, least) + 1} stages",
            )


def before_read(use: RingUse, number: Index | None = None) -> tuple[SyncRequirement, ...]:
    """Return what a step's reads need, in order; for TMA ``number`` is the use number whose phase is awaited."""
    match use.producer:
        case Producer.STORES:
            return (MEET,)
        case Producer.CP_ASYNC:
            pending = use.distance - 1 - use.lookahead + (1 if use.fetch_first else 0)
            return (SyncRequirement(kind=SyncKind.WAIT_GROUP, pending=pending), MEET)
        case Producer.TMA:
            return (SyncRequirement(kind=SyncKind.MBARRIER, parity=full_parity(_named(number), as_index(use.stages))),)


def before_overwrite(use: RingUse, number: Index | None = None) -> tuple[SyncRequirement, ...]:
    """Return what a step's fetch needs beyond the waits of :func:`before_read`.

    The fetch of step k overwrites use ``k + distance − stages``, last read in that step. After the step's own barrier
    all steps up to k − 1 are over. Before it only those up to k − 2 are, by the barrier of step k − 1: at full
    distance one more is needed.
    """
    if use.producer is Producer.TMA:
        return (SyncRequirement(kind=SyncKind.MBARRIER, parity=empty_parity(_named(number), as_index(use.stages))),)
    last_read_before = use.stages - use.distance  # so many steps before this one
    return (MEET,) if use.fetch_first and last_read_before == 1 else (NOTHING,)


def wait_groups(stages: Number, *, lookahead: int = 0, fetch_first: bool = False) -> Number:
    """Return the pending count of ``wait_group`` for a ring that fetches as far ahead as it can, ``stages − 1`` uses.

    For any number of stages, also symbolic; :func:`before_read` with ``distance = stages − 1`` says the same.
    """
    return stages - (1 if fetch_first else 2) - lookahead


def wgmma_pending(stages: int, in_flight: int) -> int:
    """Return the pending count of ``wgmma.wait_group`` after each step's commit, of a ring of so many stages.

    With ``in_flight`` products left running, step k frees the stage of step ``k − in_flight``; it must be another.

    Raises:
        InvalidSchedule: so many running products would hold every stage.
    """
    if not 0 <= in_flight <= stages - 1:
        raise InvalidSchedule(
            field="matrix operations in flight",
            got=f"{in_flight} with {stages} stages",
            expected=f"0 .. {stages - 1}",
            remedy=f"use {in_flight + 1} stages",
        )
    return in_flight


def empty_arrivals(consumers: int, *, arrivals_each: int = 1) -> int:
    """Return the count of an ``empty`` barrier: each consumer says ``arrivals_each`` times that it read a stage."""
    if consumers < 1 or arrivals_each < 1:
        raise InvalidSchedule(
            field="consumers of a ring", got=(consumers, arrivals_each), expected=">= 1", remedy="read what is fetched"
        )
    return consumers * arrivals_each


def _named(number: Index | None) -> Index:
    if number is None:
        raise InvalidSchedule(
            field="use number of a phase", got=None, expected="an index", remedy="name the loop's use number"
        )
    return number
