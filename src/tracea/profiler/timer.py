"""Interleaved timing: in every round each function runs one batch, so that the host's slow phases fall on all of them.

A host that shares its cores is fast for a while and slow for a while. Timed one after the other, two equal functions
differ by as much as those phases do; timed in turns, each round's quotient sees one phase only.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from tracea.errors import InvalidOption
from tracea.profiler.environment import Environment, capture
from tracea.profiler.measurement import MINIMUM_PAIRS, Measurement

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["BATCH_US", "Timed", "compare", "measure"]

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
) -> dict[str, Measurement]:
    """Time ``functions`` in turns and return each one's measurement; sample i of all of them belongs to round i.

    A sample is a batch of calls that lasts about ``batch_us`` (one call where that is longer), so the clock and the
    loop around the call cost every function the same and little. The order rotates from round to round and runs
    backwards in every other cycle: no function always inherits another's cache.

    Units: ``batch_us`` and ``warmup_us`` are microseconds; the warm-up is given to each function.

    Raises:
        InvalidOption: no function, or fewer than one pair.
    """
    if not functions:
        raise InvalidOption(field="functions", got=0, expected="at least 1", remedy="give what is to be timed")
    if pairs < 1:
        raise InvalidOption(
            field="pairs", got=pairs, expected="at least 1", remedy=f"use {MINIMUM_PAIRS} or more to report"
        )
    where = environment or capture(threads=threads)
    names = tuple(functions)
    samples: dict[str, list[float]] = {name: [] for name in names}
    with _no_collector():
        calls = {name: _batch_size(function, batch_us, warmup_us, clock) for name, function in functions.items()}
        for round_index in range(pairs):
            for name in _order(names, round_index):
                samples[name].append(_batch_us(functions[name], calls[name], clock) / calls[name])
    return {
        name: Measurement(name=name, samples_us=tuple(samples[name]), calls_per_sample=calls[name], environment=where)
        for name in names
    }


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
def _no_collector() -> Generator[None]:
    """Keep Python's garbage collector out of the batches."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
