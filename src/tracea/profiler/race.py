"""Race: an incumbent and its challengers in turns, until it is certain who is faster; the incumbent keeps every tie.

A choice between two that do not differ beyond the noise is a throw of dice that the next run throws again. Here it is
no choice: what is in use stays, and the race says that it was a tie.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from tracea.errors import InvalidOption
from tracea.profiler.environment import Environment, capture
from tracea.profiler.load import LoadMeter
from tracea.profiler.measurement import Measurement, Ratio
from tracea.profiler.sequential import RULE, Rule, Standing
from tracea.profiler.timer import BATCH_US, Clock, Rounds, Timed, quiet_collector
from tracea.profiler.watch import WATCH, OccupancyMeter, Round, Watch, occupancy

__all__ = ["Race", "race"]


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

    @property
    def ties(self) -> tuple[str, ...]:
        """Who is neither slower than the winner nor faster, beyond the noise."""
        return tuple(name for name, ratio in self.ratios.items() if ratio.low <= 1.0 <= ratio.high)

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
    comparisons = len(names) * (len(names) - 1) // 2
    kept: list[Round] = []
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
            winner = _winner(kept, names, rule, comparisons)
            others = (_ratio(kept, winner, name, rule, comparisons) for name in names if name != winner)
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
        ratios={name: _ratio(kept, winner, name, rule, comparisons) for name in names if name != winner},
        standings={name: rule.standing(_ratio(kept, incumbent, name, rule, comparisons)) for name in names[1:]},
        is_certain=is_certain,
    )


def _winner(rounds: list[Round], names: tuple[str, ...], rule: Rule, comparisons: int) -> str:
    """Return who is beaten by nobody: whoever beats the one before takes its place, beginning with the incumbent."""
    winner = names[0]
    for _ in pairwise(names):  # medians of quotients need not be transitive: no more passes than challengers
        before = winner
        for name in names:
            if name != winner and rule.standing(_ratio(rounds, winner, name, rule, comparisons)) is Standing.FASTER:
                winner = name
        if winner == before:
            break
    return winner


def _ratio(rounds: list[Round], base: str, name: str, rule: Rule, comparisons: int) -> Ratio:
    return rule.ratio([each.samples_us[base] / each.samples_us[name] for each in rounds], comparisons=comparisons)
