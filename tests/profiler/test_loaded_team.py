"""A team of two threads on a machine under load: what a stall may do to a batch, a round, a race and its choice."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pytest

from tracea.profiler import Measurement, Race, Rule, capture, compare, race
from tracea.profiler.batch import Slice, parts_of, run, sized, summary
from tracea.profiler.watch import Occupancy

ENVIRONMENT = capture(threads=2)
STALL_NS = 36_000_000  # a time slice of others, for which the whole team waits


class Host:
    """Two cores: functions take what they are said to, and a call may wait a time slice for others."""

    def __init__(self, stalls: Callable[[int], bool] = lambda call: False, *, counts: bool = True) -> None:
        self.now_ns = self.switches = self.calls = 0
        self.stalls = stalls
        self.counts = counts

    def clock(self) -> int:
        return self.now_ns

    def meter(self) -> Occupancy:
        return Occupancy(wall_ns=self.now_ns, process_ns=self.now_ns, switches=self.switches)

    def function(self, cost_ns: Callable[[], float]) -> Callable[[], None]:
        def call() -> None:
            self.now_ns += int(cost_ns())
            if self.stalls(self.calls):
                self.now_ns += STALL_NS
                self.switches += self.counts
            self.calls += 1

        return call

    def race(self, functions: dict[str, Callable[[], None]], incumbent: str, **options: object) -> Race:
        given = {"clock": self.clock, "meter": self.meter, "environment": ENVIRONMENT, "warmup_us": 0.0, "threads": 2}
        return race(functions, incumbent, **{"batch_us": 4_000.0, **given, **options})  # type: ignore[arg-type]

    def compare(self, functions: dict[str, Callable[[], None]], **options: object) -> dict[str, Measurement]:
        given = {"clock": self.clock, "meter": self.meter, "environment": ENVIRONMENT, "warmup_us": 0.0, "threads": 2}
        return compare(functions, **{"batch_us": 4_000.0, **given, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("stalled", [{1}, {1, 2}, {1, 3}, {2}])
def test_a_stall_in_the_warm_up_does_not_make_a_batch_of_one_call(stalled: set[int]) -> None:
    host = Host(lambda call: call in stalled)
    found = sized(host.function(lambda: 10_000), 4_000.0, 0.0, host.clock)
    assert (found.calls, found.least_us) == (400, 10.0)


def test_a_batch_that_proves_too_short_is_made_larger() -> None:
    host = Host(lambda call: call < 12)  # the whole warm-up
    measured = host.compare({"a": host.function(lambda: 10_000)}, pairs=20)["a"]
    assert measured.calls_per_sample == 400
    assert measured.median_us == 10.0


def test_long_calls_and_long_batches_are_not_repeated_for_nothing() -> None:
    host = Host()
    assert sized(host.function(lambda: 2e9), 4_000.0, 20_000.0, host.clock).calls == 1
    assert host.calls == 2  # the first, which does not count, and one
    assert run(host.function(lambda: 1_000), 100, host.clock) == Slice(calls=100, took_us=100.0)
    waiting = run(host.function(lambda: 1e7), 100, host.clock, limit_us=1_000.0)
    assert waiting == Slice(calls=25, took_us=250_000.0)  # broken off at the first look


def test_a_batch_of_a_team_has_many_slices_and_its_sample_is_of_the_quiet_ones() -> None:
    assert parts_of(400, 2, 4_000.0) == (25,) * 16
    assert parts_of(3, 2, 4_000.0) == (1, 1, 1)
    assert parts_of(11, 1, 4_000.0) == (5, 6)
    quiet = [Slice(calls=10, took_us=100.0) for _ in range(5)]
    waiting = [Slice(calls=10, took_us=36_100.0, is_stalled=True) for _ in range(7)]
    assert summary([*waiting, *quiet], 2) == pytest.approx((10.0, 0.0, 7 / 12))
    assert summary(waiting[:2], 2)[0] == 3_610.0  # nothing else is there


@pytest.mark.parametrize("counts", [True, False], ids=["switches counted", "no system's word"])
def test_samples_of_a_loaded_team_are_those_of_a_quiet_one(counts: bool, rng: np.random.Generator) -> None:
    host = Host(lambda call: rng.random() < 0.002, counts=counts)
    functions = {"ours": host.function(lambda: 10_000), "library": host.function(lambda: 25_000)}
    measured = host.compare(functions, pairs=30)
    for name, us in (("ours", 10.0), ("library", 25.0)):
        assert statistics.quantiles(measured[name].samples_us, n=10)[-1] == us
        assert (measured[name].left_out > 0.0) is counts
    # What a mean of the batches would be:
    assert STALL_NS / 1e3 * 0.002 > 50.0


def test_a_stall_in_a_batch_of_one_call_is_seen_with_and_without_the_systems_word() -> None:
    for counts in (True, False):
        calls = iter(range(10**9))
        host = Host(lambda call, calls=calls: call > 40 and next(calls) % 9 == 0, counts=counts)  # type: ignore[misc]
        functions = {name: host.function(lambda: 5_000_000) for name in ("a", "b")}
        measured = host.compare(functions, pairs=30)["a"]
        assert measured.calls_per_sample == 1
        assert measured.discarded > 0
        assert measured.median_us == 5_000.0


def test_the_newcomers_final_no_longer_keeps_a_library_that_is_slower() -> None:
    """53 us against 21.5 us, stalls of 36 ms in the warm-up and in a quarter of the time: called a tie before."""
    rng = np.random.default_rng(0)
    host = Host()
    host.stalls = lambda call: call < 9 or (host.now_ns // 80_000_000) % 4 == 0
    functions = {
        "library": host.function(lambda: 53_000 * float(np.exp(rng.normal(0.0, 0.1)))),
        "ours": host.function(lambda: 21_500 * float(np.exp(rng.normal(0.0, 0.1)))),
    }
    found = host.race(functions, "library", yielding=["library"])
    assert found.winner == "ours"
    assert found.is_certain
    assert not found.ties
    for name, us in (("library", 53.0), ("ours", 21.5)):
        measured = found.measurements[name]
        assert measured.calls_per_sample > 50
        assert measured.median_us == pytest.approx(us, rel=0.05)
        assert measured.left_out > 0.0 or measured.discarded > 0


def hopeless(host: Host, rng: np.random.Generator, mean_ns: float) -> Callable[[], None]:
    """A kernel whose every time is noise, without a word of the system: from a third to three times as long."""
    return host.function(lambda: mean_ns * float(np.exp(rng.normal(0.0, 1.1))))


def test_a_race_without_evidence_goes_on_takes_the_lower_median_and_says_that_it_is_in_doubt() -> None:
    rng = np.random.default_rng(3)
    host = Host()
    functions = {"library": hopeless(host, rng, 5_600_000), "ours": hopeless(host, rng, 5_000_000)}
    found = host.race(functions, "library", rule=Rule(most=20))
    medians = {name: measured.median_us for name, measured in found.measurements.items()}
    assert found.rounds == 80  # four times as many as usual
    assert found.winner == min(medians, key=lambda name: medians[name])
    assert found.unclear
    assert not found.ties
    assert "too noisy to tell" in str(found)
    short = host.race(functions, "library", rule=Rule(most=20, seconds=0.0))
    assert short.rounds == 20


def samples_of(rows: Sequence[tuple[float, float]]) -> dict[str, list[float]]:
    return {"library": [row[0] for row in rows], "ours": [row[1] for row in rows]}


def scripted(rows: Sequence[tuple[float, float]], **options: object) -> Race:
    """Race on samples that are given, one call a batch."""
    host = Host()
    left = {name: iter([samples[0]] * 4 + samples) for name, samples in samples_of(rows).items()}
    functions = {name: host.function(lambda name=name: 1e3 * next(left[name])) for name in left}  # type: ignore[misc]
    rule = Rule(most=len(rows), extension=1)
    return host.race(functions, "library", batch_us=0.0, rule=rule, **options)


def test_nobody_keeps_a_place_against_a_median_that_is_lower_beyond_the_resolution() -> None:
    # In 7 of 12 rounds ours takes 0.8 of the library's time, else 1.2: the interval holds 1 and is wide.
    rows = [(100.0 + i, (100.0 + i) * (0.8 if i % 12 < 7 else 1.2)) for i in range(24)]
    found = scripted(rows)
    assert found.unclear == ("library",)
    assert found.winner == "ours"
    assert found.measurements["ours"].median_us < found.measurements["library"].median_us / 1.03
    # The other way round the lower median is the incumbent's, and it stays.
    other = scripted([(mine, theirs) for theirs, mine in rows])
    assert (other.winner, other.unclear) == ("library", ("ours",))


def test_a_tie_is_kept_by_an_incumbent_and_not_by_one_that_yields() -> None:
    rows = [(100.0, 99.5 if i % 12 < 7 else 100.4) for i in range(24)]
    kept = scripted(rows)
    assert (kept.winner, kept.ties, kept.unclear) == ("library", ("ours",), ())
    yielded = scripted(rows, yielding=["library"])
    assert (yielded.winner, yielded.ties) == ("ours", ("library",))
    latencies = yielded.latencies_us()
    assert list(latencies) == ["ours", "library"]
    # With the higher median ours takes no tie, and a library that is faster for certain runs.
    assert scripted([(b, a) for a, b in rows], yielding=["library"]).winner == "library"
    assert scripted([(100.0, 110.0)] * 24, yielding=["library"]).winner == "library"


def test_what_was_left_out_is_in_the_record_and_old_records_read_without_it() -> None:
    measured = Measurement(name="a", samples_us=(1.0,), calls_per_sample=2, environment=ENVIRONMENT, left_out=0.25)
    data = msgspec.json.decode(msgspec.json.encode(measured))
    assert data["left_out"] == 0.25
    del data["left_out"]
    assert msgspec.json.decode(json.dumps(data), type=Measurement).left_out == 0.0
