"""Batches: how many calls one has, what a slice of it took, and what a sample is of them.

A batch is cut into slices. One thread has two, and its sample is their mean: its own clock leaves out what others took.
A team has many short ones, and its sample is the median of those in which no thread lost its core: where one does, all
wait for it, and one such wait of some milliseconds is as long as hundreds of calls. A slice that waits is broken off.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tracea.errors import InvalidOption

__all__ = ["Clock", "Sized", "Slice", "Timed", "grown", "parts_of", "require_time", "run", "sized", "summary"]

Timed: TypeAlias = Callable[[], object]
Clock: TypeAlias = Callable[[], int]

_MAX_CALLS: Final = 1_000_000
_SLICE_US: Final = 200.0  # far below a time slice, far above the clock's step
_MOST_SLICES: Final = 16
_LOOKS: Final = 4  # how often a slice looks whether it waits
_CONFIRMED: Final = 3  # batches that must be long enough: what interrupts one seldom interrupts three
_LONG_US: Final = 1e6  # beyond this nothing is called once more to confirm it


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of a batch: calls in a row, how long all of them took, and whether a thread lost its core meanwhile."""

    calls: int
    took_us: float
    is_stalled: bool = False

    @property
    def call_us(self) -> float:
        """The time of a call."""
        return self.took_us / self.calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """How many calls a batch has, and the least that one of them took while that was found."""

    calls: int
    least_us: float


def run(function: Timed, calls: int, clock: Clock, *, limit_us: float = math.inf) -> Slice:
    """Call ``function`` so many times; looked at a few times, it is broken off once it took more than ``limit_us``."""
    step = calls if limit_us == math.inf else -(-calls // _LOOKS)
    done, start = 0, clock()
    while True:
        for _ in range(min(step, calls - done)):
            function()
        done = min(done + step, calls)
        took = (clock() - start) / 1_000
        if done >= calls or took > limit_us:
            return Slice(calls=done, took_us=took)


def parts_of(calls: int, threads: int, batch_us: float) -> tuple[int, ...]:
    """Return how many calls each slice of a batch has: halves for one thread, up to 16 slices for a team."""
    wanted = 2 if threads == 1 else max(2, min(_MOST_SLICES, int(batch_us / _SLICE_US)))
    count = min(calls, wanted)
    return tuple((index + 1) * calls // count - index * calls // count for index in range(count))


def summary(slices: Sequence[Slice], threads: int) -> tuple[float, float, float]:
    """Return (a call's time in µs, how much the slices disagree as a share of it, the share that was left out)."""
    if threads == 1:
        sample = sum(each.took_us for each in slices) / sum(each.calls for each in slices)
        times = [each.call_us for each in slices]
        return sample, (max(times) - min(times)) / sample if sample > 0 else 0.0, 0.0
    quiet = [each.call_us for each in slices if not each.is_stalled]
    times = sorted(quiet or [each.call_us for each in slices])
    sample = statistics.median(times)
    quarter = len(times) // 4
    spread = (times[-1 - quarter] - times[quarter]) / sample if sample > 0 else 0.0
    return sample, spread, 1.0 - len(quiet) / len(slices)


def sized(function: Timed, batch_us: float, warmup_us: float, clock: Clock) -> Sized:
    """Warm the function up and return how many calls last ``batch_us``, by the least of several batches.

    The first call is not counted: it may compile, page in or allocate what later ones find ready. One batch says
    nothing: where the core is taken away in it, a single call seems to last as long as thousands do. So does none that
    is too short to be one. What is too short for the most calls gets no warm-up beyond that: it had some millions.

    Raises: InvalidOption: the clock stands still, or its step is longer than a batch.
    """
    function()
    calls, spent, confirmed, least, unseen = 1, 0.0, 0, math.inf, 0
    while True:
        taken = run(function, calls, clock, limit_us=10.0 * max(batch_us, 1.0))
        spent += max(taken.took_us, 0.0)
        if taken.took_us == 0.0:
            unseen = max(unseen, taken.calls)
        if 2.0 * taken.took_us < batch_us and calls < _MAX_CALLS:
            calls = _larger(calls, taken, batch_us)
            continue
        confirmed += 1
        if taken.took_us > 0.0:
            least = min(least, taken.call_us)
        is_warm = spent >= warmup_us or calls >= _MAX_CALLS or least == math.inf
        if taken.took_us >= _LONG_US or (confirmed >= _CONFIRMED and is_warm):
            break
    require_time("a batch", calls, 0.0 if least == math.inf else least)
    if unseen * least > batch_us > 0.0:
        raise _too_coarse(f"0 us for {unseen} calls of {least:g} us each", f"steps below a batch of {batch_us:g} us")
    return Sized(calls=_clamped(batch_us / least), least_us=least)


def require_time(name: str, calls: int, took_us: float) -> None:
    """Refuse a sample in which no time passed, or less: nothing can be said of it, nor divided by it.

    Raises: InvalidOption.
    """
    if not took_us > 0.0:
        raise _too_coarse(f"{took_us:g} us for {name} of {calls} calls", "a clock that goes on while they run")


def grown(calls: int, call_us: float, batch_us: float) -> int:
    """Return how many calls a batch must have, seeing a call's time: more where it lasts less than half as asked."""
    if call_us <= 0.0 or 2.0 * calls * call_us >= batch_us:
        return calls
    return max(calls, _clamped(batch_us / call_us))


def _larger(calls: int, taken: Slice, batch_us: float) -> int:
    # Twice as many, or straight to what the last batch suggests: a clock too coarse for one call still gets there.
    suggested = int(batch_us / taken.call_us) if taken.took_us > 0.0 else 0
    return min(_MAX_CALLS, max(2 * calls, suggested))


def _too_coarse(got: str, expected: str) -> InvalidOption:
    return InvalidOption(
        field="clock",
        got=got,
        expected=expected,
        remedy="time.perf_counter_ns, a longer batch_us, or a function that does something",
    )


def _clamped(calls: float) -> int:
    return max(1, min(_MAX_CALLS, round(calls)))
