"""Samplers: one strategy a file, named in one explicit table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Final

from tracea.errors import InvalidOption
from tracea.optimizer.samplers.base import History, Sampler
from tracea.optimizer.space import SearchSpace

__all__ = ["DEFAULT", "SAMPLERS", "History", "Sampler", "check_sampler", "sampler"]

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


def check_sampler(name: str) -> None:
    """Check that there is a sampler of that name.

    Raises:
        InvalidOption: there is none.
    """
    if name != "default" and name not in SAMPLERS:
        raise InvalidOption(field="sampler", got=name, expected=("default", *SAMPLERS), remedy='"default"')


def sampler(
    name: str, space: SearchSpace, *, seed: int = 0, history: History = (), seeds: Iterable[Sequence[int]] = ()
) -> Sampler:
    """Make the sampler of that name; "default" is the one that won on recorded spaces.

    Raises: InvalidOption for an unknown name, InvalidSchedule for a seed or a history row that is none of the space.
    """
    check_sampler(name)
    module_name, class_name = SAMPLERS[DEFAULT if name == "default" else name]
    strategy: type[Sampler] = getattr(import_module(module_name), class_name)
    return strategy(space, seed=seed, history=history, seeds=seeds)
