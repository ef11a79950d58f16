"""Phases of a ring: which slot a use takes and which parity its barrier has, for every number of stages.

Worked example, three stages:

    use k             0  1  2  3  4  5  6  7
    slot  k mod 3     0  1  2  0  1  2  0  1
    round k div 3     0  0  0  1  1  1  2  2
    parity            0  0  0  1  1  1  0  0      the consumer waits for this one of ``full``
    empty parity      1  1  1  0  0  0  1  1      the producer waits for this one of ``empty``

A slot's ``full`` barrier completes its phase number u (from 0) when round u has been filled, its ``empty`` barrier
when round u has been read. A wait for parity p passes once the phase under way has the other parity, so a fresh
barrier passes parity 1: the producer's first N waits pass at once. One bit is enough because the two waits keep both
sides within one phase of each other (:func:`passes`).

The slot of use k is k's class in Z/NZ. Everything below holds for every N >= 1 and k >= 0, and takes either integers
or index expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from tracea.errors import InvalidSchedule
from tracea.semantic.index import Index

__all__ = ["Phase", "Trips", "empty_parity", "full_parity", "overwritten", "passes", "slot", "trips"]

Number = TypeVar("Number", int, Index)


def slot(use: Number, stages: Number) -> Number:
    """Return the slot that a use takes."""
    return use % stages


def full_parity(use: Number, stages: Number) -> Number:
    """Return the parity that the consumer of a use waits for on its slot's ``full`` barrier."""
    return use // stages % 2


def empty_parity(use: Number, stages: Number) -> Number:
    """Return the parity that the producer of a use waits for on its slot's ``empty`` barrier: the round before's."""
    return (use // stages + 1) % 2


def overwritten(use: Number, stages: Number) -> Number:
    """Return the use whose data a use overwrites; below 0 there was none."""
    return use - stages


def passes(completed: int, parity: int) -> bool:
    """Return whether a wait for a parity passes on a barrier with so many completed phases.

    A wait for round u has parity ``u mod 2``. It must pass only if ``completed > u``; it does pass for the right
    reason as long as ``completed`` is u or u + 1, and wrongly if a side runs ahead by two.
    """
    return completed % 2 != parity


@dataclass(frozen=True, slots=True)
class Phase:
    """The pair that a device keeps instead of a use number: a slot and a parity, advanced without a division."""

    slot: int = 0
    parity: int = 0

    def advanced(self, stages: int) -> Phase:
        """Return the phase of the next use.

        Raises:
            InvalidSchedule: there is no such slot.
        """
        if not 0 <= self.slot < stages:
            raise InvalidSchedule(
                field="slot of a phase", got=self.slot, expected=f"0 .. {stages - 1}", remedy="use one number of stages"
            )
        if self.slot + 1 == stages:
            return Phase(0, 1 - self.parity)
        return Phase(self.slot + 1, self.parity)

    @classmethod
    def of(cls, use: int, stages: int) -> Phase:
        """Return the phase of a use: what so many advances lead to."""
        return cls(slot(use, stages), full_parity(use, stages))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trips:
    """How a pipelined loop of so many steps splits.

    ``prologue`` uses are fetched before the loop; ``main`` steps fetch one more and compute; ``drain`` steps only
    compute. Fetched in all: ``prologue + main``; computed in all: ``main + drain``; both are the number of steps.
    """

    prologue: int
    main: int
    drain: int


def trips(steps: int, distance: int) -> Trips:
    """Return the split of ``steps`` steps that fetch ``distance`` uses ahead, for every count from 0 on.

    With N stages and one barrier a step, the distance is N − 1: step k computes use k and fetches use k + N − 1, into
    the slot that was read in step k − 1.

    Raises:
        InvalidSchedule: a negative number.
    """
    if steps < 0 or distance < 0:
        raise InvalidSchedule(
            field="steps and distance of a pipeline",
            got=(steps, distance),
            expected="neither negative",
            remedy="count from 0",
        )
    ahead = min(steps, distance)
    return Trips(prologue=ahead, main=steps - ahead, drain=ahead)
