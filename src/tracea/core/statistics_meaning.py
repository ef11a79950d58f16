"""What statistics of slabs mean in float64, and how far a correct kernel may lie from that."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tracea.core.dtype import DType
from tracea.core.function import Array
from tracea.core.interval import Enclosure, around, enclose
from tracea.core.ops.rows import ReduceKind
from tracea.core.ops.statistics import StatisticsOp
from tracea.core.tensor_type import static

__all__ = ["product_error", "reduced", "statistics_enclosure", "statistics_value"]


def reduced(kind: ReduceKind, v: Array, axes: tuple[int, ...], *, keepdims: bool) -> Array:
    """Return the reduction of an array over ``axes``."""
    match kind:
        case ReduceKind.SUM:
            return np.asarray(v.sum(axis=axes, keepdims=keepdims))
        case ReduceKind.PRODUCT:
            return np.asarray(v.prod(axis=axes, keepdims=keepdims))
        case ReduceKind.MAX:
            return np.asarray(v.max(axis=axes, keepdims=keepdims))
        case ReduceKind.MIN:
            return np.asarray(v.min(axis=axes, keepdims=keepdims))
        case ReduceKind.MEAN:
            count = np.prod([v.shape[axis] for axis in axes], dtype=np.float64)
            return np.asarray(v.sum(axis=axes, keepdims=keepdims) / count)


def statistics_value(op: StatisticsOp, arrays: Sequence[Array]) -> Array:
    """Return the op's result in float64."""
    shape = tuple(static(dim) for dim in op.source_shape)
    values = list(arrays)
    for statistic in op.statistics:
        v = np.broadcast_to(statistic.expr.evaluate(values), shape)
        values.append(reduced(statistic.kind, v, op.axes, keepdims=True))
    return _result(op, op.expr.evaluate(values))


def statistics_enclosure(
    op: StatisticsOp, arrays: Sequence[Array], compute: DType, constant: Callable[[int], float]
) -> Enclosure:
    """Return the enclosure of the result; ``constant`` gives the error of a sum of so many terms, in eps."""
    shape = tuple(static(dim) for dim in op.source_shape)
    count = math.prod(shape[axis] for axis in op.axes)
    sum_error = constant(count) * compute.eps
    values, bounds = list(arrays), [(x, x) for x in arrays]
    for statistic in op.statistics:
        v = np.broadcast_to(statistic.expr.evaluate(values), shape)
        low, high = (np.broadcast_to(end, shape) for end in enclose(statistic.expr, bounds, compute))
        exact = reduced(statistic.kind, v, op.axes, keepdims=True)
        values.append(exact)
        bounds.append(_fold(statistic.kind, op.axes, (v, low, high), exact=exact, sum_error=sum_error, compute=compute))
    low, high = enclose(op.expr, bounds, compute)
    return _result(op, low), _result(op, high)


def _fold(
    kind: ReduceKind,
    axes: tuple[int, ...],
    source: tuple[Array, Array, Array],
    *,
    exact: Array,
    sum_error: float,
    compute: DType,
) -> Enclosure:
    v, low, high = source
    if kind in (ReduceKind.MAX, ReduceKind.MIN):
        return tuple(reduced(kind, end, axes, keepdims=True) for end in (low, high))  # pyright: ignore[reportReturnType]
    error = np.where(low == high, 0.0, np.maximum(high - v, v - low))
    if kind is ReduceKind.PRODUCT:
        return around(exact, product_error(v, error, axes, compute, keepdims=True))
    slack = np.asarray((sum_error * (np.abs(v) + error) + error).sum(axis=axes, keepdims=True))
    if kind is ReduceKind.MEAN:
        count = math.prod(v.shape[axis] for axis in axes)
        steps = sum_error / compute.eps if compute.is_float else 0.0  # of which each loses what is next to zero
        lost = np.where((v != 0.0).any(axis=axes, keepdims=True), steps * compute.smallest, 0.0)
        return around(exact, slack / count + 2 * compute.eps * np.abs(exact) + lost)
    return around(exact, slack)


def product_error(v: Array, error: Array, axes: tuple[int, ...], compute: DType, *, keepdims: bool) -> Array:
    """Return how far a product in any order may be off; infinite where an order of the factors overflows on its way."""
    size: Array = np.abs(v) + error
    with np.errstate(all="ignore"):
        relative: Array = np.log1p(np.nan_to_num(error / np.abs(v), nan=0.0, posinf=0.0))
    relative += 2 * compute.eps
    log = np.log2(np.where(size > 0.0, size, 1.0))
    up: Array = np.maximum(log, 0.0).sum(axis=axes, keepdims=keepdims)
    down: Array = np.minimum(log, 0.0).sum(axis=axes, keepdims=keepdims)
    grown: Array = np.expm1(relative.sum(axis=axes, keepdims=keepdims)) * np.abs(v.prod(axis=axes, keepdims=keepdims))
    # Where factors of error stand beside an exact zero, or a partial product is subnormal, its size says it.
    vague: Array = np.where(v == 0.0, error, 0.0).max(axis=axes, keepdims=keepdims, initial=0.0)
    smallest, most = math.log2(compute.smallest / compute.eps), math.log2(compute.largest) - 1.0
    bound = grown + np.exp2(np.minimum(smallest + up, most)) * (down < smallest)
    bound = np.maximum(bound, np.exp2(np.minimum(up, most)) * (vague > 0.0))
    return np.asarray(np.where(up > most, np.inf, bound), dtype=np.float64)


def _result(op: StatisticsOp, value: Array) -> Array:
    shape = tuple(static(dim) for dim in op.source_shape)
    if not op.reduced:
        return np.broadcast_to(value, shape)
    kept = tuple(1 if axis in op.axes else dim for axis, dim in enumerate(shape))
    return np.broadcast_to(value, kept).reshape(op.infer().static_shape)
