"""Race: an incumbent and its challengers in turns, until it is certain who is faster; the incumbent keeps every tie.

A choice between two that do not differ beyond the noise is a throw of dice that the next run throws again. Here it is
no choice: what is in use stays, and the race says that it was a tie.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tracea.errors import InvalidOption
from tracea.profiler.environment import Environment, capture
from tracea.profiler.load import LoadMeter
from tracea.profiler.measurement import Measurement, Ratio
from tracea.profiler.sequential import RULE, Rule, Standing
from tracea.profiler.timer import BATCH_US, Clock, Rounds, Timed, quiet_collector
from tracea.profiler.watch import WATCH, OccupancyMeter, Round, Watch, occupancy

__all__ = ["Race", "race"]

_Samples: TypeAlias = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Who won, how everyone else stands to the winner, and what it was measured by.

    ``ratios`` are winner's time over the other's (above 1: the other is faster, which no one is beyond the noise);
    ``standings`` are of the challengers to the incumbent. ``is_certain``: it ended before its rounds were spent.
    """

    incumbent: str
    winner: str
    measurements: Mapping[str, Measurement]
    ratios: Mapping[str, Ratio]
    standings: Mapping[str, Standing]
    is_certain: bool
    rule: Rule

    @property
    def ties(self) -> tuple[str, ...]:
        """Who is neither slower than the winner nor faster, beyond the noise."""
        return tuple(name for name, ratio in self.ratios.items() if ratio.low <= 1.0 <= ratio.high)

    def latencies_us(self) -> dict[str, float]:
        """Return a latency each, in the order of who won: nobody inside the noise of a better-placed one is before it.

        The winner has its median, then comes the winner of the others, and so on; a median below that of the one before
        is taken for as large as that, by the smallest step of a float.
        """
        order, left = [self.winner], list(self.measurements)
        left.remove(self.winner)
        samples = {name: measurement.samples_us for name, measurement in self.measurements.items()}
        while left:
            order.append(_winner(samples, tuple(left), self.rule, _comparisons(self.measurements)))
            left.remove(order[-1])
        latencies: dict[str, float] = {}
        floor = 0.0
        for name in order:
            floor = max(self.measurements[name].median_us, math.nextafter(floor, math.inf))
            latencies[name] = floor
        return latencies

    @property
    def rounds(self) -> int:
        """How many rounds count."""
        return len(self.measurements[self.winner].samples_us)

    def __str__(self) -> str:
        verb = "stays" if self.winner == self.incumbent else f"replaces {self.incumbent}"
        lines = [f"{self.winner} {verb} after {self.rounds} rounds"]
        lines += [
            f"  {name}: {'a tie' if name in self.ties else 'slower'}, winner / it {ratio}"
            for name, ratio in self.ratios.items()
        ]
        return "\n".join(lines)


def race(
    functions: Mapping[str, Timed],
    incumbent: str,
    *,
    rule: Rule = RULE,
    batch_us: float = BATCH_US,
    warmup_us: float = 20_000.0,
    threads: int = 1,
    environment: Environment | None = None,
    clock: Clock = time.perf_counter_ns,
    watch: Watch = WATCH,
    meter: OccupancyMeter = occupancy,
) -> Race:
    """Time all ``functions`` in turns until ``rule`` ends it, and say who wins; of equals the one that comes first.

    Disturbed rounds are left out, as many as ``watch`` allows of the most rounds; later ones count as they are.

    Raises:
        InvalidOption: there is no such incumbent.
    """
    if incumbent not in functions:
        raise InvalidOption(
            field="incumbent", got=incumbent, expected=tuple(functions), remedy="name one of the functions"
        )
    where, load = environment or capture(threads=threads), LoadMeter()
    names = (incumbent, *(name for name in functions if name != incumbent))
    comparisons = _comparisons(names)
    kept: list[Round] = []
    samples: dict[str, list[float]] = {name: [] for name in names}
    discarded = disturbed = 0
    winner, is_certain = incumbent, len(names) == 1
    with quiet_collector():
        rounds = Rounds(functions, batch_us=batch_us, warmup_us=warmup_us, threads=threads, clock=clock, meter=meter)
        while len(kept) < rule.most and not (kept and is_certain):
            taken = rounds.take()
            if watch.is_disturbed(taken):
                if discarded < watch.most(rule.most) - rule.most:
                    discarded += 1
                    continue
                disturbed += 1
            kept.append(taken)
            for name, sample in taken.samples_us.items():
                samples[name].append(sample)
            winner = _winner(samples, names, rule, comparisons)
            others = (_ratio(samples, winner, name, rule, comparisons) for name in names if name != winner)
            is_certain = all(rule.is_over(ratio) for ratio in others)
    busy = load.read()
    return Race(
        incumbent=incumbent,
        winner=winner,
        measurements=rounds.measurements(
            kept,
            environment=where,
            discarded=discarded,
            disturbed=disturbed,
            busy_cores=None if busy is None else busy.busy_cores,
        ),
        ratios={name: _ratio(samples, winner, name, rule, comparisons) for name in names if name != winner},
        standings={name: rule.standing(_ratio(samples, incumbent, name, rule, comparisons)) for name in names[1:]},
        is_certain=is_certain,
        rule=rule,
    )


def _winner(samples: _Samples, names: tuple[str, ...], rule: Rule, comparisons: int) -> str:
    """Return who is beaten by nobody: whoever beats the one before takes its place, beginning with the first."""
    winner = names[0]
    for _ in names:  # medians of quotients need not be transitive: as many passes as there are names, and no more
        before = winner
        for name in names:
            if name != winner and rule.standing(_ratio(samples, winner, name, rule, comparisons)) is Standing.FASTER:
                winner = name
        if winner == before:
            break
    return winner


def _ratio(samples: _Samples, base: str, name: str, rule: Rule, comparisons: int) -> Ratio:
    quotients = [theirs / its for theirs, its in zip(samples[base], samples[name], strict=True)]
    return rule.ratio(quotients, comparisons=comparisons)


def _comparisons(names: Collection[str]) -> int:
    """Return how many pairs there are: which of them will matter is known only afterwards."""
    return len(names) * (len(names) - 1) // 2
