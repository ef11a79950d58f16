"""Interleaved timing: in every round each function runs one batch, so that the host's slow phases fall on all of them.

A host that shares its cores is fast for a while and slow for a while. Timed one after the other, two equal functions
differ by as much as those phases do; timed in turns, each round's quotient sees one phase only. A batch of calls
is cut in slices (see ``profiler.batch``): half of them run forwards through the functions and then half backwards, so
that what drifts within a round cancels, and slices that disagree say that it was disturbed (see ``profiler.watch``).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tracea.errors import InvalidOption
from tracea.profiler.batch import Clock, Sized, Slice, Timed, grown, parts_of, require_time, run, sized, summary
from tracea.profiler.environment import Environment, capture
from tracea.profiler.load import LoadMeter
from tracea.profiler.measurement import MINIMUM_PAIRS, Measurement
from tracea.profiler.pace import CorePacer, Pacer
from tracea.profiler.watch import WATCH, Occupancy, OccupancyMeter, Round, Watch, occupancy

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["BATCH_US", "Clock", "Rounds", "Timed", "compare", "measure", "quiet_collector"]

BATCH_US: Final = 2_000.0
_PATIENCE: Final = 10.0  # a slice, or a function's part of a round, that takes so many times as long waits for others
_MOST_ROUNDS: Final = 10_000  # of a comparison that waits for quiet ones by a clock that may stand still
_RESIZED: Final = 3  # how often a round is taken again since its batches turned out too short
# A batch of one call has nothing to compare within itself. So many times its least, while others of the round are not
# beside theirs, it was interrupted: no kernel's own times differ like that.
_STALL: Final = 4.0
_MOSTLY: Final = 0.5  # of a team's slices, more than these must be quiet


def compare(
    functions: Mapping[str, Timed],
    *,
    pairs: int = MINIMUM_PAIRS,
    batch_us: float = BATCH_US,
    warmup_us: float = 20_000.0,
    threads: int = 1,
    environment: Environment | None = None,
    clock: Clock = time.perf_counter_ns,
    watch: Watch = WATCH,
    meter: OccupancyMeter = occupancy,
    pacer: Pacer | None = None,
) -> dict[str, Measurement]:
    """Time ``functions`` in turns and return each one's measurement; sample i of all of them belongs to round i.

    A sample is a batch of calls that lasts about ``batch_us`` (one call where that is longer), so the clock and the
    loop around the call cost every function the same and little. The order rotates from round to round and runs
    backwards in every other cycle: no function always inherits another's cache. Rounds that are beyond a limit of
    ``watch`` are measured again, a bounded number of times; the measurements say how many were left out and how many
    disturbed ones had to stay.

    Units: ``batch_us`` and ``warmup_us`` are microseconds; the warm-up is given to each function. Without a ``pacer``
    the cores of this process are looked at, but not by a clock of the caller's, which measures something else.

    Raises:
        InvalidOption: no function, fewer than one pair, or a clock that stands still or is too coarse for a batch.
    """
    if pairs < 1:
        raise InvalidOption(
            field="pairs", got=pairs, expected="at least 1", remedy=f"use {MINIMUM_PAIRS} or more to report"
        )
    where = environment or capture(threads=threads)
    load = LoadMeter()
    taken: list[Round] = []
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
        quiet, began = 0, meter().wall_ns
        while quiet < pairs and (
            len(taken) < watch.most(pairs)
            or (meter().wall_ns - began < 1e9 * watch.seconds and len(taken) < _MOST_ROUNDS)
        ):
            taken.append(rounds.take())
            quiet += not watch.is_disturbed(taken[-1])
    busy = load.read()
    return rounds.measurements(
        watch.keep(taken, pairs),
        environment=where,
        discarded=len(taken) - pairs,
        disturbed=max(0, pairs - quiet),
        busy_cores=None if busy is None else busy.busy_cores,
    )


class Rounds:
    """Functions that are warm and timed in turns, a round at a time."""

    def __init__(
        self,
        functions: Mapping[str, Timed],
        *,
        batch_us: float = BATCH_US,
        warmup_us: float = 20_000.0,
        threads: int = 1,
        clock: Clock = time.perf_counter_ns,
        meter: OccupancyMeter = occupancy,
        pacer: Pacer | None = None,
    ) -> None:
        if not functions:
            raise InvalidOption(field="functions", got=0, expected="at least 1", remedy="give what is to be timed")
        self._functions = dict(functions)
        self._threads = threads
        self._clock = clock
        self._meter = meter
        self._pacer = pacer or (CorePacer(threads=threads) if clock is time.perf_counter_ns else _unpaced)
        self._batch_us = batch_us
        self._index = 0
        found: dict[str, Sized] = {}
        for name, function in self._functions.items():
            found[name] = sized(function, batch_us, warmup_us, clock)
            self._pacer()  # so that it has seen the cores at rest before it judges the first round
        self.calls = {name: each.calls for name, each in found.items()}
        self._least_us = {name: each.least_us for name, each in found.items()}

    def take(self) -> Round:
        """Time one round: of each function one batch; with more calls, again, where a batch was far too short.

        So is a round in which the clock went back or stood still: a few times at most.

        Raises: InvalidOption: it still does.
        """
        taken = self._taken()
        for _ in range(_RESIZED):
            calls = {name: grown(count, taken.samples_us[name], self._batch_us) for name, count in self.calls.items()}
            if calls == self.calls and min(taken.samples_us.values()) > 0.0:
                break
            self.calls = calls
            taken = self._taken()
        for name, sample in taken.samples_us.items():
            require_time(f"a sample of {name}", self.calls[name], sample)
        return taken

    def _taken(self) -> Round:
        order = _order(tuple(self._functions), self._index)
        self._index += 1
        parts = {name: parts_of(calls, self._threads, self._batch_us) for name, calls in self.calls.items()}
        paces = [self._pacer()]
        before = self._meter()
        first = {name: self._timed(name, half) for name in order if (half := parts[name][: len(parts[name]) // 2])}
        paces.append(self._pacer())
        second = {name: self._timed(name, parts[name][len(parts[name]) // 2 :]) for name in _back(order, first)}
        after = self._meter()
        paces.append(self._pacer())
        samples: dict[str, float] = {}
        left_out: dict[str, float] = {}
        noise = 0.0
        for name in self._functions:
            slices = (*first.get(name, ()), *second[name])
            samples[name], disagreement, left_out[name] = summary(slices, self._threads)
            noise = max(noise, disagreement)
        if self._threads == 1:
            load = _load(before, after)
        else:  # what the samples leave out did not disturb them
            load = max((share for share in left_out.values() if share >= _MOSTLY), default=0.0)
        noise = max(noise, self._stall(samples))
        return Round(samples_us=samples, noise=noise, load=load, left_out=left_out, pace=max(paces))

    def _stall(self, samples: Mapping[str, float]) -> float:
        """Return by how much a batch of one call was interrupted; 0 where none was: see ``_STALL``."""
        excess: dict[str, float] = {}
        for name, sample in samples.items():
            self._least_us[name] = min(self._least_us[name] or sample, sample)
            excess[name] = sample / self._least_us[name] if self._least_us[name] > 0.0 else 1.0
        found = 0.0
        for name, times in excess.items():
            beside = min((other for theirs, other in excess.items() if theirs != name), default=1.0)
            if self.calls[name] == 1 and times > _STALL * beside:
                found = max(found, times / beside - 1.0)
        return found

    def measurements(
        self,
        rounds: Sequence[Round],
        *,
        environment: Environment,
        discarded: int = 0,
        disturbed: int = 0,
        busy_cores: float | None = None,
    ) -> dict[str, Measurement]:
        """Return the measurement of each function over some of the rounds."""
        return {
            name: Measurement(
                name=name,
                samples_us=tuple(each.samples_us[name] for each in rounds),
                calls_per_sample=calls,
                environment=environment,
                discarded=discarded,
                disturbed=disturbed,
                busy_cores=busy_cores,
                left_out=sum(each.left_out.get(name, 0.0) for each in rounds) / len(rounds),
            )
            for name, calls in self.calls.items()
        }

    def _timed(self, name: str, parts: Sequence[int]) -> list[Slice]:
        function, clock = self._functions[name], self._clock
        if self._threads == 1:
            return [run(function, calls, clock) for calls in parts]
        found: list[Slice] = []
        limit_us, spent = _PATIENCE * max(self._batch_us, 1.0), 0.0
        for calls in parts:
            switches = self._meter().switches
            taken = run(function, calls, clock, limit_us=limit_us / len(parts))
            found.append(replace(taken, is_stalled=self._meter().switches > switches))
            spent += taken.took_us
            if spent > limit_us:  # everybody's turn has come by then, and so has this one's next round
                break
        return found


def _unpaced() -> float:
    return 1.0


def _back(order: tuple[str, ...], first: Mapping[str, Sequence[Slice]]) -> tuple[str, ...]:
    """Return the order of the second halves: backwards, so that drift within a round cancels; forwards without any."""
    return order[::-1] if first else order


def _load(before: Occupancy, after: Occupancy) -> float:
    """Return the share of a round in which others had the one thread's core: it was switched out against its will.

    A thread that waits for a device rests of its own accord, and one that waits for another of its process is switched
    out for that: only time in which none of them ran is others'.
    """
    wall, switches = after.wall_ns - before.wall_ns, after.switches - before.switches
    if wall <= 0 or switches <= 0:
        return 0.0
    return max(0.0, 1.0 - (after.process_ns - before.process_ns) / wall)


def measure(
    function: Timed,
    *,
    name: str = "function",
    samples: int = MINIMUM_PAIRS,
    batch_us: float = BATCH_US,
    threads: int = 1,
    clock: Clock = time.perf_counter_ns,
) -> Measurement:
    """Time one function alone: for its own time, not for a comparison."""
    return compare({name: function}, pairs=samples, batch_us=batch_us, threads=threads, clock=clock)[name]


def _order(names: tuple[str, ...], round_index: int) -> tuple[str, ...]:
    """Return the order of a round: rotated by its index, backwards in every other cycle."""
    shift = round_index % len(names)
    rotated = names[shift:] + names[:shift]
    return rotated[::-1] if (round_index // len(names)) % 2 else rotated


@contextmanager
def quiet_collector() -> Generator[None]:
    """Keep Python's garbage collector out of the batches."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
