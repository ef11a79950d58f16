"""Bayesian optimization: a Gaussian process over log-latency and expected improvement over every valid candidate.

The space is finite and constrained, so nothing is relaxed: each untried valid row is scored. The course of a search
is: seeds; a spread initial design, or with a relative its local optima in turn with the model; then the row with the
highest log expected improvement times the probability that it does not fail. Slow rows carry little news about the
fast ones, so log-latencies far above the median are clipped before they are standardised.

The model is our own and NumPy only (see ``gaussian_process``). In this sampler, on the recorded convolutions (8 seeds,
one core of a loaded machine), the mean fraction of the best after 30 trials was 0.964 on the A4000 and 0.948 on the
A6000; with scikit-learn's process in its place 0.950 and 0.861, at twice to nine times the time a trial and 1.6 s to
import. ``benchmarks/replay_tuning.py`` compares it with the other strategies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike

from tracea.errors import InvalidOption
from tracea.optimizer.samplers.base import History, Sampler
from tracea.optimizer.samplers.gaussian_process import GaussianProcess, Trend, log_expected_improvement, log_normal_cdf
from tracea.optimizer.space import FloatArray, IndexArray, Schedule, SearchSpace

INITIAL_DESIGN: Final = 8
# The initial design is spread among this many random rows: enough to fill the space, few enough to differ from seed
# to seed.
DESIGN_POOL: Final = 2_000
MAX_CANDIDATES: Final = 20_000
MAX_POINTS: Final = 160
# A relative's measurements beyond this many are thinned to the fastest quarter and a random rest: the fit is cubic in
# their number.
MAX_HISTORY: Final = 600
RESTARTS: Final = 1
# A relative's local optima among its fastest eighth are tried early, each once: on the recorded convolutions the
# A100's best family is only the third of the A4000's.
MAX_BASINS: Final = 6
BASIN_SHARE: Final = 8
MAX_BASIN_TESTS: Final = 600
# Of standardised log-latency: about a tenth of a percent of the latency in a usual space.
LOG_GAIN_FLOOR: Final = math.log(1e-3)
# Variance that a label of +1 or -1 has beyond the process: how soon a failure is believed of its neighbours.
LABEL_NOISE: Final = 0.1

PriorMean = Callable[[Schedule], float]


class GaussianProcessSampler(Sampler):
    """Proposes the row that is expected to improve on the best the most.

    ``prior_mean`` predicts a latency in milliseconds (a roofline, say): a callable on a schedule, or an array (N,) in
    the order of the space. Its scale does not matter; its shape is trusted as far as the measurements agree with it.
    """

    name: ClassVar[str] = "gp"
    history_use: ClassVar[str] = "its local optima are tried early; it is the trend that measurements correct"

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int = 0,
        history: History = (),
        seeds: Iterable[Sequence[int]] = (),
        prior_mean: PriorMean | ArrayLike | None = None,
    ) -> None:
        super().__init__(space, seed=seed, history=history, seeds=seeds)
        trends = [_log_prior(space, prior_mean)] if prior_mean is not None else []
        relative = self._relative_trend()
        if relative is not None:
            trends.append(relative)
        ones = np.ones(len(space))
        self._columns = np.stack([ones, *(_standardised(trend) for trend in trends)], axis=1)
        # A trend is trusted to have the right sign and order of magnitude: its slope is one deviation of the values,
        # give or take a half. Two trends share that slope.
        count = max(len(trends), 1)
        self._trend = Trend(
            coefficients=np.array([0.0] + [1.0 / count] * len(trends)), deviations=np.array([1.0] + [0.5] * len(trends))
        )
        self._has_trend = bool(trends)
        self._basins = self._basin_floors(relative) if relative is not None else []
        self._model = GaussianProcess(groups=space.feature_groups, trend=self._trend)
        # Until a failure says otherwise, a row is expected to run.
        self._success = GaussianProcess(
            groups=space.feature_groups, trend=Trend(coefficients=np.array([0.5]), deviations=np.array([0.5]))
        )
        self._design: list[int] | None = None
        self._failed: list[int] = []

    @property
    def length_scales(self) -> dict[str, float]:
        """Return the shortest length scale of each parameter: small where the latency depends on it strongly."""
        return self.space.by_parameter(self._model.length_scales)

    def _propose(self) -> int:
        good = [index for index, latency in self._results.items() if latency is not None]
        # Floors and the model take turns, also among rows that are asked for together: a relative that is right should
        # not have to wait for six floors.
        while self._basins and (len(self._results) + len(self._pending)) % 2 == 0:
            index = self._basins.pop()
            if not self._taken[index]:
                return index
        if self._has_trend and not good:
            return self._first_by_trend()
        if not self._has_trend and len(self._results) + len(self._pending) < INITIAL_DESIGN:
            return self._next_of_design()
        if len(good) < (1 if self._has_trend else 2):
            return self._far_from_failures()
        return self._most_promising(good)

    def _learn(self, index: int, latency_ms: float | None) -> None:
        if latency_ms is None and index not in self._failed:
            self._failed.append(index)
        elif latency_ms is not None and index in self._failed:
            self._failed.remove(index)

    def _basin_floors(self, trend: FloatArray) -> list[int]:
        """Return the rows that no change of one parameter improves, by the relative's account, fastest last.

        Machines that rank whole families of schedules differently often agree on what is best within one.
        """
        floors: list[int] = []
        for index in np.argsort(trend, kind="stable")[: min(len(trend) // BASIN_SHARE + 1, MAX_BASIN_TESTS)].tolist():
            near = self.space.neighbours(self.space.row(index))
            if not len(near) or trend[index] <= float(trend[near].min()):
                floors.append(index)
            if len(floors) == MAX_BASINS:
                break
        return floors[::-1]

    def _first_by_trend(self) -> int:
        untried = self._untried()
        return int(
            untried[np.argmin(self._columns[untried] @ self._trend.coefficients - 1e3 * self._log_success(untried))]
        )

    def _next_of_design(self) -> int:
        if self._design is None:
            self._design = self._spread_rows(INITIAL_DESIGN)[::-1]
        while self._design:
            index = self._design.pop()
            if not self._taken[index]:
                return index
        return self._any_untried()

    def _spread_rows(self, count: int) -> list[int]:
        """Return rows far from each other and from those taken: each next one is the farthest of a random pool."""
        pool = self._rng.permutation(self._untried())[:DESIGN_POOL]
        features = self.space.features[pool]
        nearest = np.full(len(pool), np.inf)
        for index in np.flatnonzero(self._taken).tolist():
            nearest = np.minimum(nearest, ((features - self.space.features[index]) ** 2).sum(axis=1))
        chosen: list[int] = []
        for _ in range(min(count, len(pool))):
            pick = int(np.argmax(nearest))
            chosen.append(int(pool[pick]))
            nearest = np.minimum(nearest, ((features - features[pick]) ** 2).sum(axis=1))
            nearest[pick] = -1.0
        return chosen

    def _far_from_failures(self) -> int:
        candidates = self._candidates()
        return int(candidates[np.argmax(self._log_success(candidates) + 1e-9 * self._rng.random(len(candidates)))])

    def _most_promising(self, good: list[int]) -> int:
        # The fastest and the newest stay when there are more points than the model can hold within its time.
        if len(good) > MAX_POINTS:
            fastest = sorted(good, key=lambda index: self._results[index] or math.inf)[: MAX_POINTS // 2]
            rest = [index for index in good if index not in set(fastest)]
            good = fastest + rest[-(MAX_POINTS - len(fastest)) :]
        points = np.array(good, dtype=np.int64)
        values = _standardised_log([self._results[index] or math.inf for index in good])
        space, columns = self.space, self._columns
        self._model.fit(space.features[points], values, columns[points], self._rng, restarts=RESTARTS)
        if self._pending:
            # Rows that are being measured now count as measured at their prediction, so that the next ask goes
            # elsewhere.
            waiting = np.array(list(self._pending), dtype=np.int64)
            believed, _ = self._model.predict(space.features[waiting], columns[waiting])
            points, values = np.concatenate([points, waiting]), np.concatenate([values, believed])
            self._model.condition(space.features[points], values, columns[points])
        candidates = self._candidates()
        mean, deviation = self._model.predict(space.features[candidates], columns[candidates])
        gain = log_expected_improvement(mean, deviation, float(values.min()))
        # Gains below the floor are worth nothing: there the chance not to fail decides, the gain only among equals.
        score = np.logaddexp(gain, LOG_GAIN_FLOOR) + self._log_success(candidates) + 1e-6 * gain
        return int(candidates[np.argmax(score)])

    def _candidates(self) -> IndexArray:
        """Return the untried rows; of very many, the neighbourhood of the best and a random rest."""
        untried = self._untried()
        if len(untried) <= MAX_CANDIDATES:
            return untried
        near = self.space.neighbours(self.best[0], changes=2) if self.best else np.zeros(0, dtype=np.int64)
        near = near[~self._taken[near]][: MAX_CANDIDATES // 2]
        rest = self._rng.choice(np.setdiff1d(untried, near), MAX_CANDIDATES - len(near), replace=False)
        return np.concatenate([near, rest]).astype(np.int64)

    def _log_success(self, candidates: IndexArray) -> FloatArray:
        """Return the log probability of not failing: least-squares classification by a second process."""
        if not self._failed:
            return np.zeros(len(candidates))
        told = np.array(list(self._results), dtype=np.int64)[-MAX_POINTS:]
        labels = np.array([-1.0 if self._results[index] is None else 1.0 for index in told.tolist()])
        features = self.space.features
        self._success.fit(features[told], labels, np.ones((len(told), 1)), self._rng, restarts=0)
        mean, deviation = self._success.predict(features[candidates], np.ones((len(candidates), 1)))
        return log_normal_cdf(mean / np.sqrt(deviation**2 + LABEL_NOISE))

    def _relative_trend(self) -> FloatArray | None:
        """Return the relative's log-latency for every row, measured or predicted; None without history."""
        measured = [(row, math.log(latency)) for row, latency in self._history if latency is not None]
        if len(measured) < 2:
            return None
        rows = np.array([row for row, _ in measured], dtype=np.int64)
        logs = np.array([value for _, value in measured])
        kept = np.arange(len(logs))
        if len(logs) > MAX_HISTORY:
            order = np.argsort(logs, kind="stable")
            fastest = order[: MAX_HISTORY // 4]
            kept = np.concatenate(
                [fastest, self._rng.choice(order[len(fastest) :], MAX_HISTORY - len(fastest), replace=False)]
            )
        model = GaussianProcess(
            groups=self.space.feature_groups, trend=Trend(coefficients=np.zeros(1), deviations=np.ones(1))
        )
        center, width = float(logs[kept].mean()), float(logs[kept].std()) or 1.0
        features, values = self.space.features_of(rows[kept]), (logs[kept] - center) / width
        few = self._rng.choice(len(kept), min(len(kept), MAX_POINTS), replace=False)
        ones = np.ones((len(kept), 1))
        model.fit(features[few], values[few], ones[few], self._rng, restarts=RESTARTS)
        model.condition(features, values, ones)
        predicted, _ = model.predict(self.space.features, np.ones((len(self.space), 1)))
        trend = predicted * width + center
        for row, value in zip(rows.tolist(), logs.tolist(), strict=True):
            position = self.space.position(row)
            if position is not None:
                trend[position] = value
        return trend


def _standardised_log(latencies_ms: Sequence[float]) -> FloatArray:
    logs = np.log(np.array(latencies_ms))
    middle = float(np.median(logs))
    clipped = np.minimum(logs, 2.0 * middle - float(logs.min()))
    return _standardised(clipped)


def _standardised(values: FloatArray) -> FloatArray:
    width = float(values.std())
    return (values - values.mean()) / (width if width > 1e-9 else 1.0)


def _log_prior(space: SearchSpace, prior_mean: PriorMean | ArrayLike) -> FloatArray:
    latencies = np.array(
        [prior_mean(space.decode(row)) for row in space] if callable(prior_mean) else prior_mean, dtype=np.float64
    )
    if latencies.shape != (len(space),) or not np.all(np.isfinite(latencies) & (latencies > 0.0)):
        raise InvalidOption(
            field="prior_mean",
            got=latencies.shape if latencies.shape != (len(space),) else float(latencies.min()),
            expected=f"{len(space)} positive finite latencies",
            remedy="predict a latency in milliseconds for each valid row",
        )
    return np.log(latencies)
