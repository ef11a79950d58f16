"""A small exact Gaussian process: Matérn-5/2, one length scale a feature group, noise, and a trend with known prior.

Values are standardised by the caller. Hyperparameters maximise the marginal likelihood times a log-normal prior: with
a dozen points the likelihood alone is often flat, and the prior then keeps the length scales at about the width of
the space. The trend (a constant, a roofline, a relative's measurements) enters as a Bayesian linear model:
coefficients with a prior mean and deviation, marginalised exactly by adding their covariance to the kernel's.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, sections 2.7, 4.2 and 5.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tracea.optimizer.samplers.lbfgs import minimize
from tracea.optimizer.space import FloatArray, IndexArray

_ROOT_5: Final = math.sqrt(5.0)
_JITTER: Final = 1e-6
# Beyond these the kernel is constant, or the matrix singular, in double precision.
_LOG_BOUND: Final = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Columns that the latency is expected to follow, and how firmly.

    Shapes: ``coefficients`` and ``deviations`` are (p,), one for each trend column that ``fit`` and ``predict`` are
    given.
    """

    coefficients: FloatArray
    deviations: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperPrior:
    """Log-normal priors of the hyperparameters, for standardised values and features in [0, 1].

    Units: natural logarithms; ``length`` is the mean for one group, to which half the logarithm of the number of
    groups is added, since distances grow with the square root of the dimension.
    """

    signal: float = 0.0
    signal_deviation: float = 1.0
    length: float = math.log(0.5)
    length_deviation: float = 1.0
    noise: float = math.log(1e-2)
    noise_deviation: float = 1.0


@dataclass(slots=True, eq=False)
class GaussianProcess:
    """The model; ``fit`` it, then ``predict``. Refits start from the last hyperparameters."""

    groups: IndexArray
    trend: Trend
    prior: HyperPrior = field(default_factory=HyperPrior)
    _log_parameters: FloatArray = field(init=False)
    _prior_mean: FloatArray = field(init=False)
    _prior_deviation: FloatArray = field(init=False)
    _features: FloatArray = field(init=False)
    _columns: FloatArray = field(init=False)
    _whitener: FloatArray = field(init=False)
    _weights: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        count, prior = self.group_count, self.prior
        lengths = np.full(count, prior.length + 0.5 * math.log(max(count, 1)))
        self._prior_mean = np.concatenate([[prior.signal], lengths, [prior.noise]])
        self._prior_deviation = np.concatenate(
            [[prior.signal_deviation], np.full(count, prior.length_deviation), [prior.noise_deviation]]
        )
        self._log_parameters = self._prior_mean.copy()

    @property
    def group_count(self) -> int:
        """Return the number of length scales."""
        return int(self.groups.max()) + 1 if len(self.groups) else 0

    @property
    def length_scales(self) -> FloatArray:
        """Return the length scale of each group: small where the latency depends on it strongly."""
        return np.exp(self._log_parameters[1:-1])

    def fit(
        self,
        features: FloatArray,
        values: FloatArray,
        columns: FloatArray,
        rng: np.random.Generator,
        *,
        restarts: int = 1,
    ) -> None:
        """Choose hyperparameters and condition on the points.

        Shapes: features (n, f), values (n,), trend columns (n, p).
        """
        squared = self._squared_distances(features)
        residual = values - columns @ self.trend.coefficients
        trend_covariance = (columns * self.trend.deviations**2) @ columns.T

        def objective(log_parameters: FloatArray) -> tuple[float, FloatArray]:
            return self._loss(log_parameters, squared, residual, trend_covariance)

        starts = [self._log_parameters, self._prior_mean]
        starts += [
            self._prior_mean + self._prior_deviation * rng.standard_normal(len(self._prior_mean))
            for _ in range(restarts - 1)
        ]
        self._log_parameters = min(
            (minimize(objective, start) for start in starts[: restarts + 1]), key=lambda found: found[1]
        )[0]
        self.condition(features, values, columns)

    def condition(self, features: FloatArray, values: FloatArray, columns: FloatArray) -> None:
        """Condition on the points under the hyperparameters as they are."""
        noise = math.exp(self._log_parameters[-1])
        covariance = self.kernel(features, features) + (columns * self.trend.deviations**2) @ columns.T
        covariance[np.diag_indices(len(values))] += noise + _JITTER
        self._features, self._columns = features, columns
        factor = np.linalg.cholesky(covariance)
        self._whitener = np.asarray(np.linalg.solve(factor, np.eye(len(values))), dtype=np.float64)
        self._weights = self._whitener.T @ (self._whitener @ (values - columns @ self.trend.coefficients))

    def predict(self, features: FloatArray, columns: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the deviation of the noiseless value, (m,) each."""
        scaled = columns * self.trend.deviations**2
        cross = self.kernel(self._features, features) + self._columns @ scaled.T
        mean = columns @ self.trend.coefficients + cross.T @ self._weights
        prior_variance = math.exp(self._log_parameters[0]) + (scaled * columns).sum(axis=1)
        variance = prior_variance - ((self._whitener @ cross) ** 2).sum(axis=0)
        return mean, np.sqrt(np.maximum(variance, 1e-12))

    def kernel(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the covariance between points without noise or trend: (n, f), (m, f) to (n, m)."""
        return math.exp(self._log_parameters[0]) * self.correlation(left, right)

    def correlation(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return how alike points are, 1 for the same point: (n, f), (m, f) to (n, m)."""
        weights = 1.0 / self.length_scales[self.groups] if len(self.groups) else np.zeros(0)
        a, b = left * weights, right * weights
        squared = np.maximum((a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None, :] - 2.0 * (a @ b.T), 0.0)
        distance = np.sqrt(squared, out=squared)
        return (1.0 + _ROOT_5 * distance + (5.0 / 3.0) * distance**2) * np.exp(-_ROOT_5 * distance)

    def _squared_distances(self, features: FloatArray) -> FloatArray:
        """Return the squared distance within each group, (groups, n, n)."""
        columns = (features[:, None, :] - features[None, :, :]) ** 2
        total = np.zeros((self.group_count, len(features), len(features)))
        for column, group in enumerate(self.groups.tolist()):
            total[group] += columns[:, :, column]
        return total

    def _loss(
        self, log_parameters: FloatArray, squared: FloatArray, residual: FloatArray, trend_covariance: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return minus the log posterior of the hyperparameters, and its gradient."""
        if float(np.abs(log_parameters).max()) > _LOG_BOUND:
            return math.inf, np.zeros_like(log_parameters)
        signal, noise = math.exp(log_parameters[0]), math.exp(log_parameters[-1])
        inverse_squares = np.exp(-2.0 * log_parameters[1:-1])
        distance = np.sqrt(np.tensordot(inverse_squares, squared, axes=1))
        decay = np.exp(-_ROOT_5 * distance)
        linear = 1.0 + _ROOT_5 * distance
        correlation = (linear + (5.0 / 3.0) * distance**2) * decay
        covariance = signal * correlation + trend_covariance
        covariance[np.diag_indices(len(residual))] += noise + _JITTER
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return math.inf, np.zeros_like(log_parameters)
        whitener = np.linalg.solve(factor, np.eye(len(residual)))
        inverse = whitener.T @ whitener
        weights = inverse @ residual
        pull = (log_parameters - self._prior_mean) / self._prior_deviation
        loss = 0.5 * float(residual @ weights) + float(np.log(np.diag(factor)).sum()) + 0.5 * float(pull @ pull)
        outer = np.outer(weights, weights) - inverse
        gradient = np.empty_like(log_parameters)
        gradient[0] = -0.5 * signal * float((outer * correlation).sum())
        slope = outer * ((5.0 / 3.0) * signal * linear * decay)
        gradient[1:-1] = -0.5 * inverse_squares * np.tensordot(squared, slope, axes=2)
        gradient[-1] = -0.5 * noise * float(np.trace(outer))
        return loss, gradient + pull / self._prior_deviation


def log_expected_improvement(mean: FloatArray, deviation: FloatArray, best: float) -> FloatArray:
    """Return the logarithm of how much below ``best`` a value is expected to come, elementwise.

    The logarithm keeps an order among candidates whose expected improvement underflows; for them the asymptotic series
    phi(z)/z² (1 - 3/z²) replaces z Phi(z) + phi(z), which cancels.
    """
    z = (best - mean) / deviation
    density = -0.5 * z * z - 0.5 * math.log(2.0 * math.pi)
    far = z < -8.0
    near_z = np.where(far, 0.0, z)
    near = np.exp(np.where(far, 0.0, density)) + near_z * _normal_cdf(near_z)
    square = np.where(far, z * z, 64.0)
    return np.log(deviation) + np.where(far, density - np.log(square) + np.log1p(-3.0 / square), np.log(near))


def log_normal_cdf(z: FloatArray) -> FloatArray:
    """Return the logarithm of the standard normal distribution function, elementwise; below -30 it is held."""
    return np.log(_normal_cdf(np.maximum(z, -30.0)))


def _normal_cdf(z: FloatArray) -> FloatArray:
    # math.erfc is exact in the tail, where 1 - erf would cancel; NumPy has neither.
    return np.fromiter((0.5 * math.erfc(x) for x in (z * -math.sqrt(0.5)).tolist()), dtype=np.float64, count=len(z))
