"""Interleaved timing: in every round each function runs one batch, so that the host's slow phases fall on all of them.

A host that shares its cores is fast for a while and slow for a while. Timed one after the other, two equal functions
differ by as much as those phases do; timed in turns, each round's quotient sees one phase only. A batch of calls
is cut in halves, which run forwards and then backwards through the functions: what drifts within a round cancels, and
halves that disagree say that the round was disturbed (see ``profiler.watch``).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from tracea.errors import InvalidOption
from tracea.profiler.environment import Environment, capture
from tracea.profiler.load import LoadMeter
from tracea.profiler.measurement import MINIMUM_PAIRS, Measurement
from tracea.profiler.watch import WATCH, Occupancy, OccupancyMeter, Round, Watch, occupancy

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["BATCH_US", "Clock", "Rounds", "Timed", "compare", "measure", "quiet_collector"]

Timed: TypeAlias = Callable[[], object]
Clock: TypeAlias = Callable[[], int]

BATCH_US: Final = 2_000.0
_MAX_CALLS: Final = 1_000_000


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
) -> dict[str, Measurement]:
    """Time ``functions`` in turns and return each one's measurement; sample i of all of them belongs to round i.

    A sample is a batch of calls that lasts about ``batch_us`` (one call where that is longer), so the clock and the
    loop around the call cost every function the same and little. The order rotates from round to round and runs
    backwards in every other cycle: no function always inherits another's cache. Rounds that are beyond a limit of
    ``watch`` are measured again, a bounded number of times; the measurements say how many were left out and how many
    disturbed ones had to stay.

    Units: ``batch_us`` and ``warmup_us`` are microseconds; the warm-up is given to each function.

    Raises:
        InvalidOption: no function, or fewer than one pair.
    """
    if pairs < 1:
        raise InvalidOption(
            field="pairs", got=pairs, expected="at least 1", remedy=f"use {MINIMUM_PAIRS} or more to report"
        )
    where = environment or capture(threads=threads)
    load = LoadMeter()
    taken: list[Round] = []
    with quiet_collector():
        rounds = Rounds(functions, batch_us=batch_us, warmup_us=warmup_us, threads=threads, clock=clock, meter=meter)
        quiet = 0
        while quiet < pairs and len(taken) < watch.most(pairs):
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
    ) -> None:
        if not functions:
            raise InvalidOption(field="functions", got=0, expected="at least 1", remedy="give what is to be timed")
        self._functions = dict(functions)
        self._threads = threads
        self._clock = clock
        self._meter = meter
        self._index = 0
        self.calls = {
            name: _batch_size(function, batch_us, warmup_us, clock) for name, function in self._functions.items()
        }

    def take(self) -> Round:
        """Time one round: of each function one batch, in halves where a batch has several calls."""
        order = _order(tuple(self._functions), self._index)
        self._index += 1
        before = self._meter()
        first = {name: self._timed(name, calls) for name in order if (calls := self.calls[name] // 2)}
        second = {name: self._timed(name, self.calls[name] - self.calls[name] // 2) for name in _back(order, first)}
        after = self._meter()
        samples: dict[str, float] = {}
        noise = 0.0
        for name, calls in self.calls.items():
            samples[name] = (first.get(name, 0.0) + second[name]) / calls
            if name in first and samples[name] > 0:
                halves = first[name] / (calls // 2), second[name] / (calls - calls // 2)
                noise = max(noise, abs(halves[0] - halves[1]) / samples[name])
        return Round(samples_us=samples, noise=noise, load=_load(before, after, self._threads))

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
            )
            for name, calls in self.calls.items()
        }

    def _timed(self, name: str, calls: int) -> float:
        return _batch_us(self._functions[name], calls, self._clock)


def _back(order: tuple[str, ...], first: Mapping[str, float]) -> tuple[str, ...]:
    """Return the order of the second halves: backwards, so that drift within a round cancels; forwards without any."""
    return order[::-1] if first else order


def _load(before: Occupancy, after: Occupancy, threads: int) -> float:
    """Return the share of a round in which others had the core.

    One thread: the time that it did not run, if it was switched out against its will (a thread that waits for a device
    rests of its own accord). Several: how many switches there were for each of their milliseconds; a clock of their own
    would also count how long they wait for each other.
    """
    wall, switches = after.wall_ns - before.wall_ns, after.switches - before.switches
    if wall <= 0 or switches <= 0:
        return 0.0
    if threads == 1:
        return max(0.0, 1.0 - (after.thread_ns - before.thread_ns) / wall)
    return switches * 1e6 / (threads * wall)


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


def _batch_us(function: Timed, calls: int, clock: Clock) -> float:
    start = clock()
    for _ in range(calls):
        function()
    return (clock() - start) / 1_000


def _batch_size(function: Timed, batch_us: float, warmup_us: float, clock: Clock) -> int:
    """Warm the function up and return how many calls last ``batch_us``.

    The first call is not counted: it may compile, page in or allocate what later ones find ready.
    """
    function()
    calls, spent = 1, 0.0
    while True:
        took = _batch_us(function, calls, clock)
        spent += took
        if took >= batch_us or calls >= _MAX_CALLS:
            break
        # Twice as many, or straight to what the last batch suggests: a clock too coarse for one call still gets there.
        calls = min(_MAX_CALLS, max(2 * calls, int(calls * batch_us / took) if took > 0 else 0))
    while spent < warmup_us:
        took = _batch_us(function, calls, clock)
        spent += max(took, 1e-3)
    return max(1, min(_MAX_CALLS, round(calls * batch_us / took))) if took > 0 else calls


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
