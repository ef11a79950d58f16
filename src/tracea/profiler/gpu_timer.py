"""Interleaved timing on a GPU: events around a batch of launches, the last-level cache flushed before, inputs rotated.

A batch is one graph of ``calls`` launches, so that a kernel of a few microseconds is not timed by how fast Python
launches it. Each sample begins with a fill of memory larger than the cache; call i of a batch takes the i-th set of
inputs, so that operands are as cold as the caller made sets of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tracea.errors import InvalidOption
from tracea.profiler.measurement import MINIMUM_PAIRS, Measurement

if TYPE_CHECKING:
    from tracea.profiler.environment import Environment
    from tracea.runtime.cuda.driver import Driver

__all__ = ["DRIFT_LIMIT", "DeviceTimed", "Flush", "clock_drift", "compare_on_device"]

DeviceTimed: TypeAlias = Callable[[int], object]  # starts the work of input set i on the stream; must be capturable

DRIFT_LIMIT: Final = 0.03
_BATCH_US: Final = 2_000.0
_MAX_CALLS: Final = 64


@dataclass(frozen=True, slots=True)
class Flush:
    """Device memory larger than the last-level cache, filled before each sample."""

    address: int
    nbytes: int


def compare_on_device(
    driver: Driver,
    functions: Mapping[str, DeviceTimed],
    *,
    stream: int,
    environment: Environment,
    input_sets: int = 1,
    flush: Flush | None = None,
    pairs: int = MINIMUM_PAIRS,
    warmup: int = 3,
    batch_us: float = _BATCH_US,
) -> dict[str, Measurement]:
    """Time ``functions`` in turns and return each one's measurement; sample i of all of them belongs to round i.

    Units: ``batch_us`` is how long a batch of calls should last, in microseconds; a call that lasts longer is a batch.

    Raises:
        InvalidOption: no function, no input set, or fewer than one pair.
        RunError: the device refused or failed a launch.
    """
    if not functions or input_sets < 1 or pairs < 1:
        raise InvalidOption(
            field="functions, input_sets, pairs",
            got=(len(functions), input_sets, pairs),
            expected="at least 1 of each",
            remedy=f"time something, {MINIMUM_PAIRS} pairs or more to report",
        )
    names = tuple(functions)
    calls = {
        name: _batch_size(driver, function, stream, input_sets, warmup=warmup, batch_us=batch_us)
        for name, function in functions.items()
    }
    graphs = {name: _graph(driver, function, stream, input_sets, calls[name]) for name, function in functions.items()}
    samples: dict[str, list[float]] = {name: [] for name in names}
    for name in names:  # a graph's first run uploads it
        driver.replay(graphs[name], stream=stream)
    for round_index in range(pairs):
        shift = round_index % len(names)
        for name in (*names[shift:], *names[:shift]):
            if flush is not None:
                driver.fill(flush.address, flush.nbytes, round_index % 256, stream=stream)
            first = driver.record(stream)
            driver.replay(graphs[name], stream=stream)
            samples[name].append(driver.elapsed_us(first, driver.record(stream)) / calls[name])
    return {
        name: Measurement(
            name=name, samples_us=tuple(samples[name]), calls_per_sample=calls[name], environment=environment
        )
        for name in names
    }


def clock_drift(measurements: Mapping[str, Measurement]) -> float:
    """Return how much slower the last third of the rounds was than the first, over all functions: 0.02 is 2 %.

    Interleaving keeps a drifting clock out of ratios, not out of TFLOP/s: beyond ``DRIFT_LIMIT`` a run is repeated, or
    reported with its drift.
    """
    quotients: list[float] = []
    for measurement in measurements.values():
        third = len(measurement.samples_us) // 3
        if third:
            first, last = measurement.samples_us[:third], measurement.samples_us[-third:]
            quotients.append(statistics.median(last) / statistics.median(first))
    return statistics.median(quotients) - 1.0 if quotients else 0.0


def _batch_size(
    driver: Driver, function: DeviceTimed, stream: int, input_sets: int, *, warmup: int, batch_us: float
) -> int:
    for index in range(warmup):
        function(index % input_sets)
    first = driver.record(stream)
    function(0)
    once = driver.elapsed_us(first, driver.record(stream))
    return max(1, min(_MAX_CALLS, round(batch_us / max(once, 1e-3))))


def _graph(driver: Driver, function: DeviceTimed, stream: int, input_sets: int, calls: int) -> Any:
    with driver.capture(stream) as graphs:
        for index in range(calls):
            function(index % input_sets)
    return graphs[0]
