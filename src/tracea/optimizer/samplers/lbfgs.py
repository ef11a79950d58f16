"""Limited-memory BFGS on a smooth function of few variables.

Kept here so that the default sampler needs NumPy only: the marginal likelihood of a Gaussian process has about ten
variables, its gradient costs as much as its value, and the answer needs two digits. Source: Nocedal and Wright,
Numerical Optimization, algorithm 7.4.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np

from tracea.optimizer.space import FloatArray

_MEMORY: Final = 8
_ARMIJO: Final = 1e-4
_MAX_BACKTRACKS: Final = 20


def minimize(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    *,
    max_steps: int = 40,
    tolerance: float = 1e-3,
) -> tuple[FloatArray, float]:
    """Descend from ``start`` and return the point reached with its value.

    The objective returns its value and gradient; a value of infinity marks a point that is not allowed. A step that
    does not lower the value ends the descent, so the result is never worse than the start.
    """
    point, (value, gradient) = start, objective(start)
    pairs: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=_MEMORY)
    for _ in range(max_steps):
        if float(np.abs(gradient).max(initial=0.0)) < tolerance:
            break
        direction = _two_loop(gradient, pairs)
        slope = float(gradient @ direction)
        if slope >= 0.0:  # the memory has gone stale: fall back to steepest descent
            pairs.clear()
            direction, slope = -gradient, -float(gradient @ gradient)
        # Without curvature the gradient says a direction, not a length.
        step = 1.0 if pairs else min(1.0, 1.0 / math.sqrt(-slope))
        for _ in range(_MAX_BACKTRACKS):
            trial = point + step * direction
            trial_value, trial_gradient = objective(trial)
            if trial_value <= value + _ARMIJO * step * slope:
                break
            step *= 0.5
        else:
            break
        moved, bent = trial - point, trial_gradient - gradient
        curvature = float(moved @ bent)
        if curvature > 1e-10:
            pairs.append((moved, bent, 1.0 / curvature))
        gained = value - trial_value
        point, value, gradient = trial, trial_value, trial_gradient
        if gained < 1e-6 * (1.0 + abs(value)):
            break
    return point, value


def _two_loop(gradient: FloatArray, pairs: deque[tuple[FloatArray, FloatArray, float]]) -> FloatArray:
    """Return minus the inverse Hessian estimate times the gradient."""
    direction = -gradient
    weights: list[float] = []
    for moved, bent, inverse in reversed(pairs):
        weight = inverse * float(moved @ direction)
        weights.append(weight)
        direction = direction - weight * bent
    if pairs:
        moved, bent, inverse = pairs[-1]
        direction = direction / (inverse * float(bent @ bent))
    for (moved, bent, inverse), weight in zip(pairs, reversed(weights), strict=True):
        direction = direction + (weight - inverse * float(bent @ direction)) * moved
    return direction
