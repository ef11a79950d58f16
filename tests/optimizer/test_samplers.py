from __future__ import annotations

import itertools
import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.drawn import drawn

from tracea.errors import BudgetExceeded, InvalidOption, InvalidSchedule
from tracea.optimizer import Sampler, SearchSpace, sampler
from tracea.optimizer.samplers import SAMPLERS
from tracea.optimizer.samplers.gp import GaussianProcessSampler

ALL = tuple(SAMPLERS)
LEARNING = ("evolution", "gp", "tpe")

# Large enough that thirty random trials are far from the best.
BOWL = SearchSpace.constrained(
    {
        "tile": (4, 8, 16, 24, 32, 48, 64, 96, 128),
        "unroll": (1, 2, 4, 8),
        "depth": (64, 128, 256, 512, 1024),
        "pack": ("none", "a", "ab"),
        "wide": (False, True),
    },
    lambda schedule: schedule["tile"] * schedule["unroll"] <= 512,  # type: ignore[operator]
)
SPACE = SearchSpace.constrained(
    {"tile": (8, 16, 24, 32, 48, 64), "unroll": (1, 2, 4, 8), "pack": ("none", "a", "ab"), "wide": (False, True)},
    lambda schedule: schedule["tile"] * schedule["unroll"] <= 256,  # type: ignore[operator]
)


def latency_of(schedule: dict[str, Any]) -> float:
    """A smooth bowl in the logarithms with its floor at tile 32, unroll 4, pack a, wide."""
    return math.exp(
        math.log2(schedule["tile"] / 32) ** 2
        + 0.5 * math.log2(schedule["unroll"] / 4) ** 2
        + 0.4 * (schedule["pack"] != "a")
        + 0.3 * (not schedule["wide"])
        + 0.2 * math.log2(schedule.get("depth", 256) / 256) ** 2
    )


LATENCIES = np.array([latency_of(SPACE.decode(row)) for row in SPACE])


def search(strategy: Sampler, trials: int) -> list[float]:
    seen = []
    for _ in range(trials):
        row = strategy.ask()
        seen.append(latency_of(strategy.space.decode(row)))
        strategy.tell(row, seen[-1])
    return seen


@st.composite
def small_spaces(draw: st.DrawFn) -> SearchSpace:
    columns = draw(
        st.lists(
            st.sampled_from([(1, 2, 4), (16, 24, 32, 48, 64), ("x", "y"), (False, True), (7,), (0, 1, 2), (None, "z")]),
            min_size=1,
            max_size=3,
        )
    )
    product = list(itertools.product(*(range(len(values)) for values in columns)))
    rows = draw(st.lists(st.sampled_from(product), min_size=1, max_size=16, unique=True))
    return SearchSpace.enumerated([f"p{index}" for index in range(len(columns))], columns, rows)


@pytest.mark.parametrize("name", ALL)
@given(space=small_spaces(), seed=st.integers(0, 2**32 - 1), data=st.data())
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
def test_every_valid_row_is_asked_once_and_then_the_space_is_exhausted(
    name: str, space: SearchSpace, seed: int, data: st.DataObject
) -> None:
    strategy = sampler(name, space, seed=seed)
    asked = []
    for _ in range(len(space)):
        row = strategy.ask()
        asked.append(row)
        answer = data.draw(st.one_of(st.none(), st.floats(1e-3, 1e3), st.just("keep waiting")))
        if answer != "keep waiting":
            strategy.tell(row, answer)
    assert sorted(asked) == sorted(space)
    assert strategy.remaining == 0
    with pytest.raises(BudgetExceeded) as caught:
        strategy.ask()
    assert (caught.value.spent, caught.value.limit) == (len(space), len(space))


@pytest.mark.parametrize("name", ALL)
def test_the_same_seed_gives_the_same_search_and_another_seed_another(name: str) -> None:
    runs = [search(sampler(name, SPACE, seed=seed), 30) for seed in (5, 5, 6)]
    assert runs[0] == runs[1]
    if name != "grid":
        assert runs[0] != runs[2]


@pytest.mark.parametrize("name", drawn(1, LEARNING, of="learning samplers"))
def test_learning_beats_random_on_a_smooth_space(name: str) -> None:
    def median_best(strategy: str) -> float:
        return float(np.mean([min(search(sampler(strategy, BOWL, seed=seed), 60)) for seed in range(7)]))

    assert median_best(name) < median_best("random")


def test_the_default_finds_the_best_of_a_smooth_space_within_thirty_trials() -> None:
    assert len(BOWL) > 500
    best = min(latency_of(BOWL.decode(row)) for row in BOWL)
    assert [min(search(sampler("default", BOWL, seed=seed), 30)) for seed in range(5)] == [best] * 5


@pytest.mark.parametrize("name", ALL)
def test_a_search_in_which_everything_fails_goes_on(name: str) -> None:
    strategy = sampler(name, SPACE, seed=1)
    rows = []
    for _ in range(40):
        rows.append(strategy.ask())
        strategy.tell(rows[-1], None)
    assert len(set(rows)) == 40
    assert strategy.best is None


@pytest.mark.parametrize("name", ALL)
def test_a_search_in_which_everything_is_equally_fast_goes_on(name: str) -> None:
    strategy = sampler(name, SPACE, seed=1)
    rows = []
    for _ in range(40):
        rows.append(strategy.ask())
        strategy.tell(rows[-1], 2.0)
    assert len(set(rows)) == 40


def test_failures_are_avoided_once_they_are_known() -> None:
    """Half of the space fails and looks inviting; once the design is through, few trials may go there."""

    def failures(name: str) -> float:
        shares = []
        for seed in range(5):
            strategy = sampler(name, SPACE, seed=seed)
            failed = []
            for _ in range(40):
                row = strategy.ask()
                schedule = SPACE.decode(row)
                failed.append(bool(schedule["wide"]))
                strategy.tell(row, None if failed[-1] else latency_of(schedule))
            shares.append(float(np.mean(failed[10:])))
        return float(np.median(shares))

    assert failures("gp") <= 0.1
    assert failures("random") > 0.35


@pytest.mark.parametrize("name", ALL)
def test_seeds_come_first_and_in_order(name: str) -> None:
    heroes = [SPACE.row(index) for index in (17, 3, 17, 40)]
    strategy = sampler(name, SPACE, seed=0, seeds=heroes)
    assert [strategy.ask() for _ in range(3)] == [SPACE.row(17), SPACE.row(3), SPACE.row(40)]
    assert strategy.ask() not in heroes


@pytest.mark.parametrize("name", ALL)
def test_what_was_told_is_never_asked(name: str) -> None:
    strategy = sampler(name, SPACE, seed=0)
    told = [SPACE.row(index) for index in range(0, len(SPACE), 2)]
    for row in told:
        strategy.tell(row, latency_of(SPACE.decode(row)))
    asked = [strategy.ask() for _ in range(strategy.remaining)]
    assert not set(told) & set(asked)
    assert strategy.best == (SPACE.row(int(np.argmin(LATENCIES[::2])) * 2), LATENCIES[::2].min())


def test_telling_a_row_again_replaces_its_latency() -> None:
    strategy = sampler("gp", SPACE, seed=0)
    row = strategy.ask()
    strategy.tell(row, 1.0)
    strategy.tell(row, 3.0)
    assert strategy.best == (row, 3.0)
    strategy.tell(row, None)
    assert strategy.best is None


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("latency", [0.0, -1.0, float("nan"), float("inf"), "fast", True])
def test_a_latency_that_is_none_is_refused(name: str, latency: Any) -> None:
    strategy = sampler(name, SPACE)
    with pytest.raises(InvalidOption):
        strategy.tell(strategy.ask(), latency)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("row", [(5, 3, 0, 0), (99, 0, 0, 0), (0, 0), (0.5, 0, 0, 0), None])
def test_telling_about_a_row_that_is_not_valid_is_refused(name: str, row: Any) -> None:
    with pytest.raises(InvalidSchedule):
        sampler(name, SPACE).tell(row, 1.0)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InvalidOption) as caught:
        sampler("annealing", SPACE)
    assert "default" in str(caught.value)
    for seed in (-1, 1.5, True):
        with pytest.raises(InvalidOption):
            sampler("random", SPACE, seed=seed)  # type: ignore[arg-type]
    with pytest.raises(InvalidSchedule):
        sampler("random", SPACE, seeds=[(5, 3, 0, 0)])
    with pytest.raises(InvalidSchedule):
        sampler("gp", SPACE, history=[((0, 0, 0, 9), 1.0)])
    with pytest.raises(InvalidOption):
        sampler("gp", SPACE, history=[((0, 0, 0, 0), -1.0)])


@pytest.mark.parametrize("name", ALL)
def test_numpy_rows_and_lists_are_accepted_where_rows_are(name: str) -> None:
    strategy = sampler(name, SPACE, history=[(np.array([0, 0, 0, 0]), 1.0), ([1, 0, 0, 0], 2.0)])
    row = strategy.ask()
    strategy.tell(np.array(row), np.float64(1.5))  # type: ignore[arg-type]
    assert strategy.best == (row, 1.5)


def relative_history() -> list[tuple[tuple[int, ...], float]]:
    """Half of the rows, seven times slower and disturbed by a tenth: what another machine may have left."""
    rng = np.random.default_rng(11)
    rows = [BOWL.row(int(index)) for index in rng.permutation(len(BOWL))[: len(BOWL) // 2]]
    return [(row, 7.0 * latency_of(BOWL.decode(row)) * math.exp(0.1 * rng.standard_normal())) for row in rows]


@pytest.mark.parametrize("name", drawn(1, ["gp", "evolution"], of="histories"))
def test_a_relative_s_history_shortens_the_search_whatever_its_scale(name: str) -> None:
    def trials_to_best(history: Any) -> float:
        counts = []
        for seed in range(5):
            seen = search(sampler(name, BOWL, seed=seed, history=history), 40)
            counts.append(next((index for index, latency in enumerate(seen) if latency <= 1.5), 40))
        return float(np.mean(counts))

    assert trials_to_best(relative_history()) < trials_to_best(())


def test_a_misleading_relative_is_corrected_by_the_measurements() -> None:
    inverted = [(row, 1.0 / latency_of(SPACE.decode(row))) for row in SPACE]
    found = [min(search(sampler("gp", SPACE, seed=seed, history=inverted), 60)) for seed in range(5)]
    assert np.median(found) <= 1.36 * LATENCIES.min()


def test_history_is_evidence_and_not_a_result() -> None:
    strategy = sampler("gp", BOWL, history=relative_history())
    assert strategy.best is None
    assert strategy.remaining == len(BOWL)


def test_history_may_hold_rows_that_are_not_valid_here_and_failures() -> None:
    history = [((5, 3, 0, 0), 1.0), ((0, 0, 0, 0), 2.0), ((0, 1, 0, 0), None), ((1, 1, 1, 1), 3.0)]
    for name in ALL:
        assert sampler(name, SPACE, history=history).ask() in SPACE


def test_a_prior_mean_leads_to_the_best_at_once_when_it_is_right() -> None:
    strategy = GaussianProcessSampler(SPACE, seed=0, prior_mean=lambda schedule: 100.0 * latency_of(schedule))
    assert min(search(strategy, 1)) == LATENCIES.min()
    as_array = GaussianProcessSampler(SPACE, seed=0, prior_mean=LATENCIES)
    assert min(search(as_array, 1)) == LATENCIES.min()


@pytest.mark.parametrize("prior", [np.ones(3), np.zeros(len(SPACE)), np.full(len(SPACE), np.nan)])
def test_a_prior_mean_that_predicts_no_latency_is_refused(prior: Any) -> None:
    with pytest.raises(InvalidOption):
        GaussianProcessSampler(SPACE, prior_mean=prior)


def test_waiting_rows_do_not_attract_the_next_ask() -> None:
    strategy = sampler("gp", SPACE, seed=0)
    search(strategy, 12)
    asked = [strategy.ask() for _ in range(6)]
    positions = SPACE.features_of(asked)
    nearest = [np.sort(np.linalg.norm(positions - position, axis=1))[1] for position in positions]
    assert len(set(asked)) == 6
    assert min(nearest) > 0.0


def test_length_scales_name_the_parameters_that_matter() -> None:
    space = SearchSpace.constrained({"tile": (1, 2, 4, 8, 16, 32, 64, 128), "idle": (1, 2, 4, 8, 16, 32)})
    strategy = GaussianProcessSampler(space, seed=0)
    for _ in range(30):
        row = strategy.ask()
        strategy.tell(row, 1.0 + math.sin(row[0]) ** 2)
    assert strategy.length_scales["tile"] < strategy.length_scales["idle"]


def test_a_proposal_among_five_thousand_takes_less_than_a_tenth_of_a_second() -> None:
    space = SearchSpace.constrained({f"p{index}": (1, 2, 4, 8) for index in range(6)} | {"q": (False, True)})
    assert len(space) > 5_000
    strategy = sampler("default", space, seed=0)
    rng = np.random.default_rng(0)
    times = []
    for _ in range(50):
        started = time.perf_counter()
        row = strategy.ask()
        times.append(time.perf_counter() - started)
        strategy.tell(row, float(np.exp(0.3 * sum(row) + 0.05 * rng.standard_normal())))
    # The median, since a busy machine may stop any one call for longer than that.
    assert float(np.median(times[8:])) < 0.1


@pytest.mark.parametrize("together", [1, 2, 4])
def test_floors_of_a_relative_and_the_model_take_turns_however_many_are_asked_for_together(together: int) -> None:
    families = SearchSpace.constrained({"a": (1, 2, 4, 8), "b": (1, 2, 4, 8), "family": ("u", "v", "w", "x", "y", "z")})
    lowest = [(0, 3), (3, 0), (1, 2), (2, 1), (3, 3), (0, 0)]  # each family has a floor of its own

    def relative(row: tuple[int, ...]) -> float:
        return 1.0 + sum((found - at) ** 2 for found, at in zip(row[:2], lowest[row[2]], strict=True)) + 0.05 * row[2]

    searched = GaussianProcessSampler(families, history=[(row, relative(row)) for row in families], seeds=[(0, 0, 0)])
    is_floor: list[bool] = []
    while searched._basins:
        rows: list[tuple[int, ...]] = []
        for _ in range(together):
            left = len(searched._basins)
            rows.append(searched.ask())
            is_floor.append(len(searched._basins) < left)
        for row in rows:
            searched.tell(row, 2.0 + math.sin(sum((place + 1) * value for place, value in enumerate(row))))
    assert sum(is_floor) >= 3
    assert not any(first and second for first, second in itertools.pairwise(is_floor))
