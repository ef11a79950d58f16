"""Evolution: a population, elitism, crossover and small mutations, kept within the valid rows.

The population is 24 and the best tenth of it are the elite, which are half of all parents; another parent is the
better of two drawn from the population. A child takes each parameter from one of two parents, then moves to the
nearest untried valid row if it is not one itself or if a mutation is due. The first generation is random, so fewer
than 30 trials are no search: it is meant for long budgets, and where a proposal must cost nothing.

By default the fastest are the fittest. With a ``fitness`` a candidate's error counts too (``note_error``), its speed-up
is against the first success, and a failure has a fitness instead of being left out: where little succeeds, parents are
still drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from tracea.optimizer.fitness import Fitness
from tracea.optimizer.samplers.base import History, Sampler
from tracea.optimizer.space import SearchSpace

POPULATION: Final = 24
ELITE: Final = math.ceil(0.1 * POPULATION)
ELITE_PARENT_RATE: Final = 0.5
MUTATION_RATE: Final = 0.5
IMMIGRANT_RATE: Final = 0.05


class EvolutionSampler(Sampler):
    """Breeds rows from the fastest of the last generation and of all time."""

    name: ClassVar[str] = "evolution"
    history_use: ClassVar[str] = "the relative's fastest rows open the first generation, up to a third of it"

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int = 0,
        history: History = (),
        seeds: Iterable[Sequence[int]] = (),
        fitness: Fitness | None = None,
    ) -> None:
        super().__init__(space, seed=seed, history=history, seeds=seeds)
        self.fitness = fitness
        self._errors: dict[int, float] = {}
        self._reference_ms: float | None = None

    def note_error(self, row: Sequence[int], error: float) -> None:
        """Say the largest error of a row's result, NaN where it has one; it counts only with a fitness.

        Raises: InvalidSchedule for a row that is not valid.
        """
        self._errors[self.space.index(row)] = error

    def fitness_of(self, row: Sequence[int]) -> float | None:
        """Return the fitness of a told row, None without a fitness or before the row was told."""
        index = self.space.index(row)
        return None if self.fitness is None or index not in self._results else -self._cost(index)

    def _learn(self, index: int, latency_ms: float | None) -> None:
        if self._reference_ms is None and latency_ms is not None:
            self._reference_ms = latency_ms

    def _cost(self, index: int) -> float:
        """Return what is smaller for a fitter row."""
        latency = self._results[index]
        if self.fitness is None:
            return math.inf if latency is None else latency
        error = self._errors.get(index)
        has_nan = error is not None and math.isnan(error)
        speedup = None if latency is None or self._reference_ms is None else self._reference_ms / latency
        return -self.fitness.score(speedup, error=None if has_nan else error, has_nan=has_nan, failed=latency is None)

    def _propose(self) -> int:
        # The first generation is random, after the relative's best.
        if len(self._results) + len(self._pending) < POPULATION:
            for _, index in self._history_in_space()[: POPULATION // 3]:
                if not self._taken[index]:
                    return index
            return self._any_untried()
        population = self._population()
        if not population or self._rng.random() < IMMIGRANT_RATE:
            return self._any_untried()
        mother, father = self._parent(population), self._parent(population)
        from_mother = self._rng.random(len(self.space.parameters)) < 0.5
        pairs = zip(from_mother.tolist(), self.space.row(mother), self.space.row(father), strict=True)
        position = self.space.position([hers if is_hers else his for is_hers, hers, his in pairs])
        if position is not None and not self._taken[position] and self._rng.random() >= MUTATION_RATE:
            return position
        return self._mutated(position if position is not None else mother)

    def _population(self) -> list[int]:
        """Return the elite of all time and the most recent successes (with a fitness: and failures), fittest first."""
        known = [
            (self._cost(index), index)
            for index, latency in self._results.items()
            if latency is not None or self.fitness is not None
        ]
        elite = sorted(known)[:ELITE]
        recent = known[-(POPULATION - len(elite)) :]
        return [index for _, index in sorted(set(elite) | set(recent))]

    def _parent(self, population: list[int]) -> int:
        # The population is sorted: half of the parents are elite, the others the fitter of two.
        if self._rng.random() < ELITE_PARENT_RATE:
            return population[int(self._rng.integers(min(ELITE, len(population))))]
        first, second = self._rng.integers(len(population), size=2)
        return population[int(min(first, second))]

    def _mutated(self, origin: int) -> int:
        """Return an untried neighbour, most likely a near one."""
        row = self.space.row(origin)
        for changes in (1, 2):
            near = self.space.neighbours(row, changes=changes)
            near = near[~self._taken[near]]
            if len(near):
                step = int(self._rng.geometric(1.0 / (1.0 + len(self.space.parameters))))
                return int(near[min(step - 1, len(near) - 1)])
        return self._any_untried()
