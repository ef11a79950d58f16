"""Adapter to Optuna's tree-structured Parzen estimator, repaired into the valid rows.

Optuna samples a product of categorical parameters and knows no constraint: a suggestion that is invalid or was tried
before is replaced by the nearest untried valid row, and Optuna is told about the row that was measured, never about
the suggestion.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar

import numpy as np

from tracea.errors import ToolchainMissing
from tracea.optimizer.samplers.base import History, Sampler
from tracea.optimizer.space import SearchSpace


class OptunaSampler(Sampler):
    """Proposes what Optuna's TPE suggests; the objective is the logarithm of the latency."""

    name: ClassVar[str] = "tpe"

    def __init__(self, space: SearchSpace, *, seed: int = 0, history: History = (), seeds: Any = ()) -> None:
        super().__init__(space, seed=seed, history=history, seeds=seeds)
        try:
            import optuna
        except ImportError as error:
            raise ToolchainMissing(
                tool="optuna",
                searched=("the Python environment",),
                remedy="pip install optuna scikit-learn scipy, or use the default sampler",
            ) from error
        self._optuna: Any = optuna
        self._distributions: dict[str, Any] = {
            parameter.name: optuna.distributions.IntDistribution(0, len(parameter.values) - 1)
            if parameter.is_ordered
            else optuna.distributions.CategoricalDistribution(tuple(range(len(parameter.values))))
            for parameter in space.parameters
        }
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # multivariate TPE is marked experimental
                self._study: Any = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True))
        finally:
            optuna.logging.set_verbosity(verbosity)

    def _propose(self) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self._study.ask(self._distributions)
            # A failed trial is invisible to TPE: what it learns from is added by _learn.
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        suggested = [int(trial.params[parameter.name]) for parameter in self.space.parameters]
        position = self.space.position(suggested)
        if position is not None and not self._taken[position]:
            return position
        untried = self._untried()
        distance = ((self.space.features[untried] - self.space.features_of([suggested])) ** 2).sum(axis=1)
        return int(untried[np.argmin(distance)])

    def _learn(self, index: int, latency_ms: float | None) -> None:
        row = self.space.row(index)
        params = {parameter.name: position for parameter, position in zip(self.space.parameters, row, strict=True)}
        worst = max((latency for latency in self._results.values() if latency is not None), default=1.0)
        value = math.log(latency_ms) if latency_ms is not None else math.log(worst) + 1.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study.add_trial(
                self._optuna.trial.create_trial(params=params, distributions=self._distributions, value=value)
            )
