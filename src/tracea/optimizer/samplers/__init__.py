"""Samplers: one strategy a file, named in one explicit table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Final

from tracea.errors import InvalidOption
from tracea.optimizer.samplers.base import History, Sampler
from tracea.optimizer.space import SearchSpace

__all__ = ["DEFAULT", "SAMPLERS", "History", "Sampler", "sampler"]

# The strategy that reached the largest share of the best within 30 trials on recorded spaces:
# benchmarks/replay_tuning.py.
DEFAULT: Final = "gp"

# Name -> (module, class): loaded on first use, since Optuna alone costs more to import than a search.
SAMPLERS: Final[dict[str, tuple[str, str]]] = {
    "random": ("tracea.optimizer.samplers.random", "RandomSampler"),
    "grid": ("tracea.optimizer.samplers.grid", "GridSampler"),
    "evolution": ("tracea.optimizer.samplers.evolution", "EvolutionSampler"),
    "gp": ("tracea.optimizer.samplers.gp", "GaussianProcessSampler"),
    "tpe": ("tracea.optimizer.samplers.optuna", "OptunaSampler"),
}


def sampler(
    name: str, space: SearchSpace, *, seed: int = 0, history: History = (), seeds: Iterable[Sequence[int]] = ()
) -> Sampler:
    """Make the sampler of that name; "default" is the one that won on recorded spaces.

    Raises: InvalidOption for an unknown name, InvalidSchedule for a seed or a history row that is none of the space.
    """
    known = SAMPLERS.get(DEFAULT if name == "default" else name)
    if known is None:
        raise InvalidOption(field="sampler", got=name, expected=("default", *SAMPLERS), remedy='"default"')
    module_name, class_name = known
    strategy: type[Sampler] = getattr(import_module(module_name), class_name)
    return strategy(space, seed=seed, history=history, seeds=seeds)
