"""What the gradients of a norm are in NumPy float64, and how far a correct kernel's may lie from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.function import Array
from tracea.core.interval import Enclosure, around, enclose
from tracea.core.ops.norm_gradient import NormGradientOp
from tracea.core.statistics_meaning import statistics_enclosure, statistics_value

__all__ = ["norm_gradient_enclosure", "norm_gradient_value"]


def norm_gradient_value(op: NormGradientOp, arrays: Sequence[Array]) -> Array:
    """Return the gradients, flattened one after the other."""
    grad, x = arrays[:2]
    terms = [grad * statistics_value(op.normal, [x]), grad][: len(op.parts) - 1]
    sums = [term.sum(axis=op.summed).reshape(-1) for term in terms]
    return np.concatenate([statistics_value(op.for_x, arrays).reshape(-1), *sums])


def norm_gradient_enclosure(
    op: NormGradientOp, arrays: Sequence[Array], compute: DType, constant: Callable[[int], float]
) -> Enclosure:
    """Return the enclosure of the gradients; ``constant`` gives the error of a sum of so many terms, in eps."""
    grad, x = arrays[:2]
    ends = [tuple(end.reshape(-1) for end in statistics_enclosure(op.for_x, arrays, compute, constant))]
    normal = statistics_value(op.normal, [x])
    low, high = enclose(
        Input(0) * Input(1), [(grad, grad), statistics_enclosure(op.normal, [x], compute, constant)], compute
    )
    exact = grad * normal
    error = np.where(low == high, 0.0, np.maximum(high - exact, exact - low))
    for term, spread in ((exact, error), (grad, np.zeros(grad.shape)))[: len(op.parts) - 1]:
        count = math.prod(term.shape[axis] for axis in op.summed)
        slack = (constant(count) * compute.eps * (np.abs(term) + spread) + spread).sum(axis=op.summed)
        ends.append(around(term.sum(axis=op.summed).reshape(-1), slack.reshape(-1)))
    lows, highs = zip(*ends, strict=True)
    return np.concatenate(lows), np.concatenate(highs)
