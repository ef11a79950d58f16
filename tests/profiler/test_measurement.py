"""What paired samples say, and how sure that is."""

from __future__ import annotations

import numpy as np
import pytest

from tracea.errors import InvalidOption
from tracea.profiler import Measurement, Ratio, capture, median_interval

ENVIRONMENT = capture(threads=1)


def measurement(name: str, *samples_us: float) -> Measurement:
    return Measurement(name=name, samples_us=samples_us, calls_per_sample=1, environment=ENVIRONMENT)


def test_the_ratio_is_the_median_of_the_pairs_and_not_the_quotient_of_medians() -> None:
    ratio = Ratio.of(measurement("peer", 10.0, 20.0, 90.0), measurement("ours", 5.0, 20.0, 30.0))
    assert ratio.median == 2.0  # of 2, 1, 3; the medians' quotient is 1
    assert (ratio.pairs, ratio.processes) == (3, 1)
    assert not ratio.sufficient


def test_thirty_pairs_give_the_tenth_and_the_twenty_first_of_them() -> None:
    # Known from tables of the sign test: n = 30, P = 0.957.
    low, high, confidence = median_interval([float(i) for i in range(1, 31)])
    assert (low, high) == (10.0, 21.0)
    assert confidence == pytest.approx(0.9572, abs=1e-4)


def test_too_few_samples_give_their_extremes_and_the_confidence_that_these_reach() -> None:
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0, 0.75)
    assert median_interval([7.0]) == (7.0, 7.0, 0.0)


@pytest.mark.parametrize("size", [30, 31, 90])
def test_the_interval_covers_the_true_median_as_often_as_it_says(size: int, rng: np.random.Generator) -> None:
    # Skewed noise, as times have: the exponential's median is log 2.
    trials = 2_000
    covered = 0
    for _ in range(trials):
        low, high, confidence = median_interval(rng.exponential(size=size).tolist())
        covered += low <= np.log(2) <= high
    assert covered / trials > 0.95 - 4 * np.sqrt(0.05 * 0.95 / trials)
    assert 0.95 <= confidence < 0.98


def test_several_processes_widen_the_interval_to_their_own_medians() -> None:
    ours = measurement("ours", *[1.0] * 30)
    runs = [(measurement("peer", *[value] * 30), ours) for value in (1.1, 1.2, 1.5)]
    ratio = Ratio.merge(runs)
    assert (ratio.median, ratio.low, ratio.high) == (1.2, 1.1, 1.5)
    assert (ratio.pairs, ratio.processes) == (90, 3)


def test_equal_times_are_not_decided() -> None:
    rng = np.random.default_rng(1)
    peer, ours = (measurement("x", *rng.lognormal(sigma=0.1, size=40).tolist()) for _ in range(2))
    ratio = Ratio.of(peer, ours)
    assert ratio.low < 1.0 < ratio.high
    assert not ratio.decided


def test_samples_of_different_rounds_are_not_compared() -> None:
    with pytest.raises(InvalidOption, match="in every round"):
        Ratio.of(measurement("peer", 1.0, 2.0), measurement("ours", 1.0))
    with pytest.raises(InvalidOption, match="processes"):
        Ratio.merge([])


@pytest.mark.parametrize("samples", [(), (0.0,), (-1.0,), (float("nan"),), (float("inf"),)])
def test_a_measurement_without_a_positive_time_is_refused(samples: tuple[float, ...]) -> None:
    with pytest.raises(InvalidOption, match="samples_us"):
        measurement("x", *samples)


def test_a_measurement_prints_its_median_interval_and_count() -> None:
    assert str(measurement("gemm", *[2.0] * 30)) == "gemm: 2 µs [2, 2], 30 samples"


def test_a_measurement_prints_no_powers_of_ten_and_nothing_below_a_clock() -> None:
    assert str(measurement("gemm", *[31_912.4] * 30)) == "gemm: 31.91 ms [31.91, 31.91], 30 samples"
    assert str(measurement("gemm", *[2.3e-6] * 30)) == "gemm: less than 1 ns, 30 samples"
