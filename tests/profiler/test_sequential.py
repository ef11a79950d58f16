"""The sequential test: wrong no more often than it says however often one looks, and soon done where it matters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tracea.errors import InvalidOption
from tracea.profiler import Rule, Standing, median_interval, sequential_interval


def test_eight_rounds_of_one_opinion_decide_and_seven_do_not() -> None:
    assert sequential_interval([1.1] * 7) == (0.0, math.inf)
    assert sequential_interval([1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8]) == (1.1, 1.8)
    assert sequential_interval([]) == (0.0, math.inf)


def test_the_interval_is_what_the_bet_says() -> None:
    """Recomputed from the definition with whole numbers: out is every k whose bet is worth 1 / 0.05 or more."""
    for n in range(1, 120):
        samples = [float(i) for i in range(1, n + 1)]
        low, high = sequential_interval(samples)
        out = [k for k in range(n + 1) if 20 * (n + 1) * math.comb(n, k) <= 2**n and 2 * k < n]
        assert (low, high) == ((samples[max(out)], samples[n - max(out) - 1]) if out else (0.0, math.inf)), n


def looked_at_every_round(rng: np.random.Generator, interval, runs: int, length: int) -> float:
    """The share of runs in which the interval of the median, 1, leaves it out at any of the rounds."""
    wrong = 0
    for _ in range(runs):
        samples = np.exp(rng.standard_t(2, length) * 0.05).tolist()
        wrong += any(
            not low <= 1.0 <= high for low, high in (interval(samples[:n])[:2] for n in range(6, length + 1, 2))
        )
    return wrong / runs


def test_looking_after_every_round_is_wrong_no_more_often_than_stated(rng: np.random.Generator) -> None:
    runs, stated = 300, 0.05
    chance = 3 * math.sqrt(stated * (1 - stated) / runs)  # three standard deviations of a share of so many runs
    assert looked_at_every_round(rng, sequential_interval, runs, 150) <= stated + chance < 0.10
    # The interval for a fixed number of rounds, used the same way, is wrong several times as often: the test can fail.
    assert looked_at_every_round(rng, median_interval, runs, 150) > 0.10


@pytest.mark.parametrize(
    ("quotients", "standing", "over"),
    [
        ([1.05 + 0.001 * i for i in range(8)], Standing.FASTER, True),
        ([0.90 + 0.001 * i for i in range(8)], Standing.SLOWER, True),
        ([1.0 + 0.0005 * (-1) ** i for i in range(40)], Standing.TIE, True),
        ([1.0 + 0.2 * (-1) ** i for i in range(40)], Standing.UNCLEAR, False),
        ([1.0 + 0.02 * (-1) ** i for i in range(40)], Standing.TIE, False),
        ([1.002 + 0.0001 * (i % 3) for i in range(40)], Standing.FASTER, True),
        ([1.05] * 7, Standing.UNCLEAR, False),
    ],
)
def test_a_rule_decides_beyond_the_noise_only(quotients: list[float], standing: Standing, over: bool) -> None:
    rule = Rule(margin=0.01)
    ratio = rule.ratio(quotients)
    assert rule.standing(ratio) is standing
    assert rule.is_over(ratio) is over


def test_several_comparisons_need_more_evidence() -> None:
    rule = Rule()
    assert rule.standing(rule.ratio([1.05] * 8, comparisons=6)) is Standing.UNCLEAR
    assert rule.standing(rule.ratio([1.05] * 11, comparisons=6)) is Standing.FASTER


@pytest.mark.parametrize(
    "options",
    [{"confidence": 1.0}, {"margin": -0.1}, {"most": 0}, {"resolution": -0.1}, {"extension": 0}, {"seconds": -1.0}],
)
def test_a_rule_that_cannot_be_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidOption, match="rule"):
        Rule(**options)  # type: ignore[arg-type]
