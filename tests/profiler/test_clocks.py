"""Clocks that cannot time what they are given: a typed error after a bounded number of calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tracea.errors import InvalidOption
from tracea.profiler import capture, compare, race
from tracea.profiler.batch import sized

ENVIRONMENT = capture(threads=1)
MILLION = 1_000_000


class Host:
    """Virtual time, of which the clock shows whole ticks, shifted by ``jump`` of how often it was read."""

    def __init__(self, tick_ns: int = 1, jump: Callable[[int], int] = lambda reads: 0) -> None:
        self.now_ns, self.reads, self.calls = 0, 0, 0
        self.tick_ns, self.jump = tick_ns, jump

    def clock(self) -> int:
        self.reads += 1
        return self.now_ns // self.tick_ns * self.tick_ns + self.jump(self.reads)

    def function(self, cost_ns: int) -> Callable[[], None]:
        def run() -> None:
            self.calls += 1
            self.now_ns += cost_ns

        return run


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("tick_ms", "call_us"), [(16, 500), (100, 3000)])
def test_a_tick_beyond_the_batch_is_refused_with_a_remedy(threads: int, tick_ms: int, call_us: int) -> None:
    host = Host(tick_ns=tick_ms * MILLION)
    functions = {"a": host.function(call_us * 1000), "b": host.function(call_us * 1020)}
    with pytest.raises(InvalidOption, match=r"clock: .*Remedy: time\.perf_counter_ns"):
        race(functions, "a", threads=threads, clock=host.clock, environment=ENVIRONMENT)
    with pytest.raises(InvalidOption, match=r"clock: .*Remedy: time\.perf_counter_ns"):
        compare(functions, threads=threads, clock=host.clock, environment=ENVIRONMENT)
    assert host.calls < 10_000


@pytest.mark.parametrize("batch_us", [0.0, 2000.0])
def test_a_stopped_clock_ends_after_a_bounded_number_of_calls(batch_us: float) -> None:
    host = Host()
    with pytest.raises(InvalidOption, match="clock: got 0 us for a batch"):
        race({"a": host.function(0)}, "a", batch_us=batch_us, clock=host.clock, environment=ENVIRONMENT)
    assert host.calls <= 6 * MILLION


def test_a_function_too_fast_for_the_most_calls_is_not_warmed_for_ever() -> None:
    host = Host(tick_ns=100)  # a million calls show 100 ns: a 0.1 ps call
    calls = 0

    def free() -> None:
        nonlocal calls
        calls += 1
        host.now_ns += calls % 10_000 == 0

    assert sized(free, 2_000.0, 20_000.0, host.clock).calls == MILLION
    assert calls <= 6 * MILLION


def test_a_clock_that_goes_back_once_costs_one_round() -> None:
    host = Host(jump=lambda reads: -3 * MILLION if reads > 40 else 0)
    functions = {"a": host.function(500_000), "b": host.function(500_000)}
    measured = compare(functions, pairs=20, clock=host.clock, environment=ENVIRONMENT)
    assert {each.median_us for each in measured.values()} == {500.0}
    assert all(sample > 0 for each in measured.values() for sample in each.samples_us)
