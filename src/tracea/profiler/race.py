"""Race: an incumbent and its challengers in turns, until it is certain who is faster; the incumbent keeps a tie.

A choice between two that do not differ beyond the noise is a throw of dice that the next run throws again. Here it is
no choice: what is in use stays, and the race says that it was a tie, which is a finding: they are equal within the
resolution. Where the samples are too noisy to find anything the race goes on for a while; after that nobody keeps
anything against a median that is lower beyond the resolution, and the race says that it is in doubt.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tracea.errors import InvalidOption
from tracea.profiler.environment import Environment, capture
from tracea.profiler.load import LoadMeter
from tracea.profiler.measurement import Measurement, Ratio
from tracea.profiler.pace import Pacer
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
    ``yielding`` keep no tie against a lower median of another that does not yield.
    """

    incumbent: str
    winner: str
    measurements: Mapping[str, Measurement]
    ratios: Mapping[str, Ratio]
    standings: Mapping[str, Standing]
    is_certain: bool
    rule: Rule
    yielding: frozenset[str] = frozenset()

    @property
    def ties(self) -> tuple[str, ...]:
        """Who is as fast as the winner within the rule's resolution, and not slower for certain."""
        return tuple(name for name, ratio in self.ratios.items() if self.rule.standing(ratio) is Standing.TIE)

    @property
    def unclear(self) -> tuple[str, ...]:
        """Who cannot be told from the winner since the samples are too noisy."""
        return tuple(name for name, ratio in self.ratios.items() if self.rule.standing(ratio) is Standing.UNCLEAR)

    def latencies_us(self) -> dict[str, float]:
        """Return a latency each, in the order of who won: nobody inside the noise of a better-placed one is before it.

        The winner has its median, then comes the winner of the others, and so on; a median below that of the one before
        is taken for as large as that, by the smallest step of a float.
        """
        order, left = [self.winner], list(self.measurements)
        left.remove(self.winner)
        samples = {name: measurement.samples_us for name, measurement in self.measurements.items()}
        while left:
            order.append(_choice(samples, tuple(left), self.rule, _comparisons(self.measurements), self.yielding))
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
        said = {Standing.TIE: "a tie", Standing.UNCLEAR: "too noisy to tell"}
        lines += [
            f"  {name}: {said.get(self.rule.standing(ratio), 'slower')}, winner / it {ratio}"
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
    pacer: Pacer | None = None,
    yielding: Collection[str] = (),
) -> Race:
    """Time all ``functions`` in turns until ``rule`` ends it, and say who wins; of equals the one that comes first.

    Disturbed rounds are left out, as many as ``watch`` allows of the most rounds, or of those so far if there are more;
    later ones count as they are. Those ``yielding`` keep no tie against a lower median of another.

    Raises:
        InvalidOption: there is no such incumbent, or the clock stands still or is too coarse for a batch.
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
    winner, is_certain, is_unclear = incumbent, len(names) == 1, False
    with quiet_collector():
        rounds = Rounds(
            functions,
            batch_us=batch_us,
            warmup_us=warmup_us,
            threads=threads,
            clock=clock,
            meter=meter,
            pacer=pacer,
        )
        began = meter().wall_ns
        while not (kept and is_certain):
            if len(kept) >= rule.most:  # more than was meant, while nothing else can be said than that it is too noisy
                is_spent = len(kept) >= rule.extension * rule.most or (meter().wall_ns - began) / 1e9 > rule.seconds
                if is_spent or not is_unclear:
                    break
            taken = rounds.take()
            if watch.is_disturbed(taken):
                if discarded < watch.most(max(rule.most, len(kept))) - max(rule.most, len(kept)):
                    discarded += 1
                    continue
                disturbed += 1
            kept.append(taken)
            for name, sample in taken.samples_us.items():
                samples[name].append(sample)
            winner = _winner(samples, names, rule, comparisons)
            others = [_ratio(samples, winner, name, rule, comparisons) for name in names if name != winner]
            is_certain = all(rule.is_over(ratio) for ratio in others)
            is_unclear = any(rule.standing(ratio) is Standing.UNCLEAR for ratio in others)
    busy = load.read()
    winner = _choice(samples, names, rule, comparisons, yielding)
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
        yielding=frozenset(yielding),
    )


def _choice(samples: _Samples, names: tuple[str, ...], rule: Rule, comparisons: int, yielding: Collection[str]) -> str:
    """Return who is beaten by nobody, and holds nothing by doubt alone.

    Whoever keeps its place since nothing could be told loses it to the lowest median beyond the resolution; one that
    yields also loses a tie, to any lower median of one that does not.
    """
    winner = _winner(samples, names, rule, comparisons)
    medians = {name: statistics.median(samples[name]) for name in names}
    for name in sorted(names, key=lambda each: (medians[each], names.index(each))):
        if medians[name] >= medians[winner]:
            break
        ratios = {other: _ratio(samples, name, other, rule, comparisons) for other in names if other != name}
        if any(rule.standing(ratio) is Standing.FASTER for ratio in ratios.values()):
            continue
        is_unclear = rule.standing(ratios[winner]) is Standing.UNCLEAR
        is_lower = medians[winner] > (1.0 + rule.resolution) * medians[name]
        if (is_unclear and is_lower) or (winner in yielding and name not in yielding):
            return name
    return winner


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
