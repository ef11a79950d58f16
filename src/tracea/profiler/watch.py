"""Watch: which rounds of an interleaved run other programs disturbed, and how many of them are measured again.

Three signs, none of which says who is faster, so that leaving a round out favours nobody: the cores were taken away in
the middle of it (time passed in which the process did not run, and it was switched out against its will), the slices of
one function's batch, measured apart within the round, do not agree (of one call alone: it took many times its least,
and the round's others did not), and a core had to share itself (see ``profiler.pace``). Of a team's batch the slices in
which a thread lost its core are left out before, and the round is disturbed where most were.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tracea.errors import InvalidOption
from tracea.profiler.pace import SHARED

__all__ = ["PATIENT", "WATCH", "Occupancy", "OccupancyMeter", "Round", "Watch", "occupancy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """What this process had of the cores so far; differences of two of these count.

    Units: nanoseconds; ``process_ns`` is what all its threads ran, since a peer may compute in one of its own, and what
    that takes is no other program's; ``switches`` is how often any of them was taken off its core against its will.
    """

    wall_ns: int
    process_ns: int
    switches: int


OccupancyMeter: TypeAlias = Callable[[], Occupancy]


def occupancy() -> Occupancy:
    """Read the clocks of this process; about a microsecond."""
    return Occupancy(wall_ns=time.perf_counter_ns(), process_ns=time.process_time_ns(), switches=_switches())


def _switches() -> int:
    """Return the involuntary switches of this process, 0 where the system does not count them."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One sample of every function, in microseconds of a call, with what disturbed them.

    ``noise`` is the largest difference between the slices of a batch, as a share of its sample; ``load`` the share of
    the round that other programs took, as far as it counts. ``left_out`` is by function the share of its batch's slices
    that do not: a thread of the team lost its core in them. ``pace`` is how many times its least the same work took on
    the slowest core, before, amid or after the round.
    """

    samples_us: Mapping[str, float]
    noise: float
    load: float
    left_out: Mapping[str, float] = field(default_factory=dict[str, float])
    pace: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The limits beyond which a round is disturbed, and how many rounds more may be measured for that.

    ``pace`` is by what share of its least the same work may take longer on a core. ``repeats`` is a share of the rounds
    asked for: 0.5 measures at most half as many again; a comparison that is shorter than ``seconds`` may measure more
    until then. What is still disturbed then is kept and counted.

    Raises:
        InvalidOption: a limit is negative or no number.
    """

    load: float = 0.05
    noise: float = 0.20
    pace: float = SHARED
    repeats: float = 0.5
    seconds: float = 0.0

    def __post_init__(self) -> None:
        for name in ("load", "noise", "pace", "repeats", "seconds"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise InvalidOption(
                    field=f"watch.{name}", got=value, expected="a number from 0 on", remedy="use Watch() as it is"
                )

    def is_disturbed(self, measured: Round) -> bool:
        """Whether a round is beyond a limit."""
        return self._excess(measured) > 1.0

    def most(self, pairs: int) -> int:
        """Return how many rounds may be measured in all to have ``pairs``."""
        return pairs + math.ceil(self.repeats * pairs)

    def keep(self, rounds: Sequence[Round], pairs: int) -> list[Round]:
        """Return ``pairs`` of the rounds in their order: all that were quiet, then the least disturbed."""
        ranked = sorted(range(len(rounds)), key=lambda index: (max(1.0, self._excess(rounds[index])), index))
        return [rounds[index] for index in sorted(ranked[:pairs])]

    def _excess(self, measured: Round) -> float:
        return max(
            _over(measured.load, self.load), _over(measured.noise, self.noise), _over(measured.pace - 1.0, self.pace)
        )


def _over(value: float, limit: float) -> float:
    return value / limit if limit else (math.inf if value else 0.0)


WATCH: Final = Watch()
PATIENT: Final = Watch(repeats=1.0, seconds=4.0)  # for what is published: a core may be shared most of the time
