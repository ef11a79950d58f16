"""FlashCore's fitness, and a population that is bred by it."""

from __future__ import annotations

import math

import pytest

from tracea.errors import InvalidOption
from tracea.optimizer import SearchSpace
from tracea.optimizer.fitness import Fitness
from tracea.optimizer.samplers.evolution import EvolutionSampler


@pytest.mark.parametrize(
    ("speedup", "options", "expected"),
    [
        (2.0, {}, 2.0),
        (2.0, {"error": 5e-5}, 1.8),
        (2.0, {"error": 1e-4}, 1.6),
        (2.0, {"error": 7.0}, 1.6),
        (2.0, {"error": math.inf}, 1.6),
        (2.0, {"has_nan": True}, 1.0),
        (None, {"failed": True}, -1.0),
        (9.0, {"failed": True}, -1.0),
        (None, {"failed": True, "has_nan": True, "error": 1.0}, -2.4),
    ],
)
def test_the_formula(speedup: float | None, options: dict[str, object], expected: float) -> None:
    assert Fitness().score(speedup, **options) == pytest.approx(expected)  # type: ignore[arg-type]


def test_weights_are_the_callers_and_senseless_ones_are_refused() -> None:
    assert Fitness(error_weight=1.0, error_scale=1.0).score(2.0, error=0.5) == 1.5
    assert Fitness(failure_cost=3.0).score(None, failed=True) == -3.0
    for options in ({"error_scale": 0.0}, {"nan_cost": -1.0}, {"error_weight": math.nan}):
        with pytest.raises(InvalidOption, match="fitness"):
            Fitness(**options)


SPACE = SearchSpace.enumerated(["a", "b"], [list(range(12))] * 2, [(a, b) for a in range(12) for b in range(12)])


def bred(fitness: Fitness | None, seed: int) -> EvolutionSampler:
    """A search in which the fastest half of the space is inexact."""
    strategy = EvolutionSampler(SPACE, seed=seed, fitness=fitness)
    for _ in range(80):
        row = strategy.ask()
        strategy.note_error(row, 1.0 if row[0] < 6 else 0.0)
        strategy.tell(row, 1.0 + 0.005 * row[0] + 0.02 * row[1])
    return strategy


def test_by_its_fitness_a_search_prefers_exact_candidates_to_slightly_faster_ones() -> None:
    def exact(strategy: EvolutionSampler) -> int:
        return sum(SPACE.row(index)[0] >= 6 for index in strategy._population()[:3])

    assert sum(exact(bred(Fitness(), seed)) for seed in range(5)) == 15
    assert sum(exact(bred(None, seed)) for seed in range(5)) == 0


def test_a_failure_has_a_fitness_below_every_success() -> None:
    strategy = EvolutionSampler(SPACE, fitness=Fitness())
    first, second = strategy.ask(), strategy.ask()
    assert strategy.fitness_of(first) is None
    strategy.tell(first, 2.0)
    strategy.tell(second, None)
    strategy.note_error(first, math.nan)
    assert strategy.fitness_of(first) == pytest.approx(0.0)
    assert strategy.fitness_of(second) == pytest.approx(-1.0)
    assert EvolutionSampler(SPACE).fitness_of(first) is None
