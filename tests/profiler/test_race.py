"""Races and disturbed rounds, on clocks that the test moves."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from tracea.errors import InvalidOption
from tracea.profiler import Rule, Standing, Watch, capture, compare, pace, race, run_in_processes
from tracea.profiler.machine import cores_allowed
from tracea.profiler.pace import CorePacer
from tracea.profiler.watch import Occupancy, Round, occupancy

ENVIRONMENT = capture(threads=1)


class Host:
    """A machine on which functions take what they are said to, and other programs take the core when told to."""

    def __init__(self) -> None:
        self.now_ns = self.own_ns = self.switches = self.calls = 0
        self.steals: Callable[[int], int] = lambda call: 0
        self.pace: Callable[[int], float] = lambda call: 1.0

    def clock(self) -> int:
        return self.now_ns

    def meter(self) -> Occupancy:
        return Occupancy(wall_ns=self.now_ns, process_ns=self.own_ns, switches=self.switches)

    def function(self, cost_ns: Callable[[], float]) -> Callable[[], None]:
        def run() -> None:
            own, stolen = int(cost_ns()), self.steals(self.calls)
            self.calls += 1
            self.own_ns += own
            self.now_ns += own + stolen
            self.switches += stolen > 0

        return run

    def options(self) -> dict[str, object]:
        return {
            "clock": self.clock,
            "meter": self.meter,
            "pacer": lambda: self.pace(self.calls),
            "environment": ENVIRONMENT,
            "batch_us": 1_000.0,
            "warmup_us": 0.0,
        }


def noisy(host: Host, rng: np.random.Generator, mean_ns: float, spread: float = 0.03) -> Callable[[], None]:
    return host.function(lambda: mean_ns * float(np.exp(rng.normal(0.0, spread))))


def test_rounds_in_which_the_core_was_taken_away_are_measured_again() -> None:
    host = Host()
    host.steals = lambda call: 400_000 if call > 60 and (call // 20) % 5 == 0 else 0
    measured = compare({"a": host.function(lambda: 100_000)}, pairs=40, **host.options())["a"]  # type: ignore[arg-type]
    assert measured.samples_us == (100.0,) * 40
    assert measured.discarded > 0
    assert measured.disturbed == 0
    # Watched by nothing, the same machine's disturbances are among the samples.
    blind = compare({"a": host.function(lambda: 100_000)}, pairs=40, watch=Watch(load=9, noise=9), **host.options())  # type: ignore[arg-type]
    assert max(blind["a"].samples_us) > 150.0
    assert blind["a"].discarded == 0


def test_a_machine_that_never_rests_ends_the_repeats_and_is_reported() -> None:
    host = Host()
    host.steals = lambda call: 30_000
    measured = compare({"a": host.function(lambda: 100_000)}, pairs=20, **host.options())["a"]  # type: ignore[arg-type]
    assert len(measured.samples_us) == measured.disturbed == 20
    assert measured.discarded == 10


def test_a_change_of_speed_within_a_round_shows_in_the_halves() -> None:
    host = Host()
    slow = {60, 61, 62}  # of ten calls a round
    function = host.function(lambda: 400_000 if host.calls in slow else 100_000)
    measured = compare({"a": function}, pairs=12, **host.options())["a"]  # type: ignore[arg-type]
    assert measured.samples_us == (100.0,) * 12
    assert 1 <= measured.discarded <= 2  # calls 60 to 62 lie in one round or in two
    assert measured.disturbed == 0


def test_a_thread_that_rests_of_its_own_accord_is_not_disturbed() -> None:
    host = Host()

    def rests() -> None:
        host.now_ns += 1_000_000  # waits for a device: no switch against its will
        host.own_ns += 1_000

    measured = compare({"a": rests}, pairs=5, **host.options())["a"]  # type: ignore[arg-type]
    assert (measured.discarded, measured.disturbed) == (0, 0)


def test_what_a_thread_of_the_same_process_takes_is_not_taken_by_others() -> None:
    def works() -> None:
        until = time.thread_time_ns() + 50_000_000
        while time.thread_time_ns() < until:
            pass

    before = occupancy()
    helper = threading.Thread(target=works)
    helper.start()
    helper.join()
    assert occupancy().process_ns - before.process_ns >= 50_000_000


def test_rounds_in_which_a_core_was_shared_are_measured_again() -> None:
    host = Host()

    def is_shared(call: int) -> bool:
        return call > 60 and (call // 20) % 5 == 0

    host.pace = lambda call: 1.9 if is_shared(call) else 1.1
    function = host.function(lambda: 180_000 if is_shared(host.calls) else 100_000)
    measured = compare({"a": function}, pairs=40, **host.options())["a"]  # type: ignore[arg-type]
    assert measured.samples_us == (100.0,) * 40
    assert measured.discarded > 0
    assert measured.disturbed == 0


def test_a_core_that_is_never_alone_is_no_sign_and_one_that_is_shared_for_a_while_is() -> None:
    taken = iter([900, 920, 880, *([430] * 3), *([910] * 3), *([440] * 3)])
    now = [0]

    def clock() -> int:
        now.append(now[-1] + (0 if len(now) % 2 else next(taken)))
        return now[-1]

    pacer = CorePacer(clock=clock)
    assert [round(pacer(), 2) for _ in range(4)] == [1.0, 1.0, 2.12, 1.02]


def test_a_short_comparison_waits_for_quiet_rounds_as_long_as_it_may() -> None:
    host = Host()
    host.pace = lambda call: 1.9 if call < 2_000 else 1.0
    patient = Watch(repeats=1.0, seconds=1.0)
    measured = compare({"a": host.function(lambda: 100_000)}, pairs=5, watch=patient, **host.options())["a"]  # type: ignore[arg-type]
    assert measured.disturbed == 0
    assert measured.discarded > 100
    host.pace = lambda call: 1.9
    measured = compare({"a": host.function(lambda: 100_000)}, pairs=5, watch=patient, **host.options())["a"]  # type: ignore[arg-type]
    assert measured.disturbed == 5
    assert 900 < measured.discarded < 1_100  # a second of rounds of a millisecond


def test_a_process_is_told_how_fast_a_core_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_least_ns", {})
    pace.remember_least({"7": 400.0})
    pace.remember_least({"7": 500.0, "8": 300.0})
    assert pace.known_least() == {"7": 400.0, "8": 300.0}
    core = cores_allowed()[0]
    pace.remember_least({str(core): 1.0})
    (found,) = run_in_processes("tracea.profiler.pace:known_least", {}, processes=1, cores=[core])
    assert found[str(core)] == 1.0


def test_where_threads_cannot_be_moved_the_own_core_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: int, cores: set[int]) -> None:
        raise PermissionError(1, f"not to {cores}")

    monkeypatch.setattr(pace, "_least_ns", {})
    monkeypatch.setattr(pace, "cores_allowed", lambda: (0, 1))
    monkeypatch.setattr(pace.os, "sched_setaffinity", refused)
    pacer = CorePacer(threads=2)
    assert pacer() == 1.0
    assert set(pace.known_least()) == {"any"}
    assert pace.shared_time((0, 1), seconds=0.01) == {}


def test_who_moves_the_thread_meanwhile_is_not_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)
    other = {max(before)}

    def took(_: CorePacer) -> float:
        os.sched_setaffinity(0, other)
        return 430.0

    monkeypatch.setattr(CorePacer, "took", took)
    try:
        CorePacer(threads=len(before))()
        assert os.sched_getaffinity(0) == other or len(before) == 1
    finally:
        os.sched_setaffinity(0, before)


def test_the_time_that_a_core_was_shared_is_a_share_of_it_and_the_thread_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = os.sched_getaffinity(0)
    calls = iter(range(10**9))

    def took(_: CorePacer) -> float:
        time.sleep(0.0005)
        return 900.0 if next(calls) % 4 == 0 else 430.0

    monkeypatch.setattr(CorePacer, "took", took)
    found = pace.shared_time(sorted(before), seconds=0.2)
    assert set(found) == before
    assert all(0.15 < share < 0.35 for share in found.values())
    assert os.sched_getaffinity(0) == before
    monkeypatch.setattr(pace, "_can_move", lambda: False)
    assert pace.shared_time(sorted(before)) == {}


def test_a_team_that_has_all_cores_is_looked_at_on_each_and_the_thread_returns() -> None:
    before = os.sched_getaffinity(0)
    pacer = CorePacer(threads=len(before))
    assert all(pacer() >= 1.0 for _ in range(3))
    assert os.sched_getaffinity(0) == before


def test_the_quietest_rounds_are_kept_in_their_order() -> None:
    watch = Watch(load=0.1, noise=0.1)
    rounds = [
        Round(samples_us={"a": float(index)}, noise=noise, load=0.0) for index, noise in enumerate((0, 0.3, 0, 0.2))
    ]
    assert [each.samples_us["a"] for each in watch.keep(rounds, 3)] == [0.0, 2.0, 3.0]
    assert [watch.is_disturbed(each) for each in rounds] == [False, True, False, True]
    with pytest.raises(InvalidOption, match=r"watch\.noise"):
        Watch(noise=-1.0)


def test_a_faster_challenger_replaces_the_incumbent_long_before_the_rounds_are_spent(
    rng: np.random.Generator,
) -> None:
    host = Host()
    functions = {"old": noisy(host, rng, 110_000), "new": noisy(host, rng, 100_000), "slow": noisy(host, rng, 150_000)}
    found = race(functions, "old", **host.options())  # type: ignore[arg-type]
    assert found.winner == "new"
    assert found.is_certain
    assert found.rounds < 40
    assert found.standings == {"new": Standing.FASTER, "slow": Standing.SLOWER}
    assert not found.ties
    assert str(found).startswith("new replaces old after")


def test_equals_are_a_tie_and_the_incumbent_stays(rng: np.random.Generator) -> None:
    replaced = 0
    for _ in range(15):
        host = Host()
        functions = {name: noisy(host, rng, 100_000, 0.08) for name in ("a", "old", "b")}
        found = race(functions, "old", rule=Rule(most=24), **host.options())  # type: ignore[arg-type]
        replaced += found.winner != "old"
        if found.winner == "old":
            assert set(found.ties) <= {"a", "b"}
    assert replaced <= 4  # 5 % of 30 at most, and room for the chance of a run


def test_of_two_that_beat_the_incumbent_the_first_stays_unless_it_is_beaten(rng: np.random.Generator) -> None:
    host = Host()
    equals = {"old": noisy(host, rng, 130_000), "b": noisy(host, rng, 100_000), "a": noisy(host, rng, 100_000)}
    assert race(equals, "old", rule=Rule(confidence=0.9999), **host.options()).winner == "b"  # type: ignore[arg-type]
    better = {"old": noisy(host, rng, 130_000), "b": noisy(host, rng, 110_000), "a": noisy(host, rng, 100_000)}
    assert race(better, "old", **host.options()).winner == "a"  # type: ignore[arg-type]


def test_one_alone_wins_and_nobody_cannot_be_the_incumbent() -> None:
    host = Host()
    assert race({"a": host.function(lambda: 1e5)}, "a", **host.options()).rounds == 1  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="incumbent"):
        race({"a": host.function(lambda: 1e5)}, "b")


def test_latencies_of_a_race_rank_as_it_decided_and_ties_stay_behind_the_incumbent(rng: np.random.Generator) -> None:
    host = Host()
    functions = {
        "slow": noisy(host, rng, 150_000),
        "equal": noisy(host, rng, 99_900, 0.08),
        "old": noisy(host, rng, 100_000, 0.08),
    }
    found = race(functions, "old", rule=Rule(most=30), **host.options())  # type: ignore[arg-type]
    latencies = found.latencies_us()
    assert list(latencies) == sorted(latencies, key=lambda name: latencies[name])
    assert set(latencies) == set(functions)
    assert next(iter(latencies)) == found.winner
    assert list(latencies)[-1] == "slow"
    assert len(set(latencies.values())) == 3
