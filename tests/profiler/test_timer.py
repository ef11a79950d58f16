"""The interleaved timer, on a clock that the test moves."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from tracea.errors import InvalidOption
from tracea.profiler import Ratio, Watch, capture, compare, measure

ENVIRONMENT = capture(threads=1)


class Clock:
    """A clock that only the timed functions advance."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.calls: list[str] = []

    def __call__(self) -> int:
        return self.now_ns

    def function(self, name: str, cost_ns: Callable[[], float]) -> Callable[[], None]:
        def run() -> None:
            self.calls.append(name)
            self.now_ns += int(cost_ns())

        return run


def test_a_batch_lasts_as_long_as_asked_and_a_sample_is_one_call() -> None:
    clock = Clock()
    measured = compare(
        {"a": clock.function("a", lambda: 5_000)}, pairs=7, batch_us=1_000, clock=clock, environment=ENVIRONMENT
    )["a"]
    assert measured.calls_per_sample == 200
    assert measured.samples_us == (5.0,) * 7
    assert measured.median_us == measured.minimum_us == 5.0
    assert measured.spread == 0.0


def test_a_call_longer_than_a_batch_is_timed_once_a_sample() -> None:
    clock = Clock()
    slow = clock.function("slow", lambda: 9_000_000)
    assert measure(slow, samples=3, batch_us=1_000, clock=clock).calls_per_sample == 1


def test_rounds_rotate_the_order_and_run_backwards_in_every_other_cycle() -> None:
    clock = Clock()
    functions = {name: clock.function(name, lambda: 10_000_000) for name in "abc"}
    still = Watch(repeats=0.0)  # the machine of the test may be busy
    compare(functions, pairs=6, batch_us=1, warmup_us=0, clock=clock, environment=ENVIRONMENT, watch=still)
    rounds = clock.calls[-18:]
    assert ["".join(rounds[i : i + 3]) for i in range(0, 18, 3)] == ["abc", "bca", "cab", "cba", "acb", "bac"]


def test_the_hosts_slow_phases_cancel_in_the_ratio_and_not_in_the_times() -> None:
    clock = Clock()

    def phase() -> float:  # the host is 45 % slower for stretches of 50 ms
        return 1.45 if (clock.now_ns // 50_000_000) % 2 else 1.0

    functions = {
        "peer": clock.function("peer", lambda: 110_000 * phase()),
        "ours": clock.function("ours", lambda: 100_000 * phase()),
    }
    measured = compare(functions, pairs=60, batch_us=1_000, clock=clock, environment=ENVIRONMENT)
    ratio = Ratio.of(measured["peer"], measured["ours"])
    assert measured["ours"].spread > 0.3
    assert ratio.median == pytest.approx(1.1, abs=0.005)
    assert ratio.decided
    assert ratio.sufficient


def test_a_clock_too_coarse_for_one_call_still_measures_it() -> None:
    clock = Clock()
    elapsed = 0

    def tick() -> float:
        nonlocal elapsed
        elapsed += 100
        return 0

    def coarse() -> int:  # shows whole milliseconds
        return elapsed // 1_000_000 * 1_000_000

    measured = compare(
        {"a": clock.function("a", tick)}, pairs=3, batch_us=5_000, clock=coarse, environment=ENVIRONMENT
    )["a"]
    assert measured.median_us == pytest.approx(0.1, rel=0.25)


def test_the_garbage_collector_rests_while_timing_and_works_again_after_an_error() -> None:
    seen: list[bool] = []

    def fails() -> None:
        seen.append(gc.isenabled())
        raise ValueError("the timed function's own error")

    assert gc.isenabled()
    with pytest.raises(ValueError, match="own error"):
        compare({"fails": fails}, environment=ENVIRONMENT)
    assert seen == [False]
    assert gc.isenabled()


def test_nothing_to_time_and_no_pairs_are_errors() -> None:
    with pytest.raises(InvalidOption, match="functions"):
        compare({})
    with pytest.raises(InvalidOption, match="pairs"):
        compare({"a": lambda: None}, pairs=0)
