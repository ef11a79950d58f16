"""The accuracy contract: how far a correct kernel's result may lie from the float64 reference, element by element.

Sums of ``k`` products err by at most ``c(k) · eps · (|A|·|B|)``, eps the accumulator's:

- ``c(k) = 4 + sqrt(k)`` for data whose rounding errors are independent, which is what gates use;
- ``c(k) = 1 + k/2`` with ``worst_case=True``, which holds for all data and any order of summation (Higham, Accuracy
and Stability
  of Numerical Algorithms, 2nd ed., section 3.1).

A product or a quotient next to zero loses up to the smallest subnormal besides: for products ``k`` times that is added
where a term is not zero, for the mean of a row ``c(k)`` times.

A convolution that asks for accuracy by norm errs against the largest pixel of its image: ``tracea.core.normwise``.

For f64 the constants double, since the reference errs as much as the kernel. Scalar functions err by the constants of
``tracea.core.interval``. The result's rounding to its storage type comes last. Where the bound is infinite the
contract claims nothing: a value that may overflow, a function next to its pole, or a sum with a term of 0 times what is
not finite that a kernel may as well leave out (padding under a filter, a key that a mask hides).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tracea.core.attention_gradient_meaning import attention_gradient_error
from tracea.core.attention_meaning import attention_error, unclaimed_sums
from tracea.core.contract import Accuracy
from tracea.core.dtype import DType
from tracea.core.function import Array
from tracea.core.indexed_meaning import indexed_enclosure
from tracea.core.interval import Enclosure, around, enclose
from tracea.core.meaning import bind_op, epilogue_of, factors, main_value, paired, row_source, sources
from tracea.core.norm_gradient_meaning import norm_gradient_enclosure
from tracea.core.normwise import beyond_norm, normwise_error
from tracea.core.op import (
    AdaptivePool2dOp,
    AttentionGradientOp,
    AttentionOp,
    BlockSparseOp,
    Conv2dOp,
    CumulativeSumOp,
    GatherRowsOp,
    GemmOp,
    GroupedGemmOp,
    JoinOp,
    LargestOp,
    LowRankOp,
    MomentsOp,
    NormGradientOp,
    Op,
    PairsOp,
    PointwiseOp,
    Pool2dOp,
    PoolKind,
    ReduceKind,
    ReduceOp,
    RowKind,
    RowOp,
    StatisticsOp,
    SumRowsOp,
    ViewOp,
    WeightedRowsOp,
)
from tracea.core.ops.grouped_gemm import grouped_rows
from tracea.core.statistics_meaning import product_error, statistics_enclosure

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["claim", "compute_type", "error_bound", "sum_constant"]


def sum_constant(count: int, dtype: DType, *, worst_case: bool = False) -> float:
    """Return ``c`` for a sum of ``count`` terms kept in ``dtype``, in units of its eps."""
    if count == 0 or not dtype.is_float:
        return 0.0
    c = 1.0 + count / 2 if worst_case else 4.0 + math.sqrt(count)
    return 2.0 * c if dtype is DType.F64 else c


def compute_type(op: Op) -> DType:
    """Return the type that a kernel computes scalars in: f64 as soon as an operand or the result is f64, else f32.

    An op without floats is exact: its type is i64.
    """
    types = {operand.dtype for operand in op.operands} | {op.infer().dtype}
    if not any(dtype.is_float for dtype in types):
        return DType.I64
    return DType.F64 if DType.F64 in types else DType.F32


def error_bound(op: Op, inputs: Sequence[Any], *, worst_case: bool = False) -> Array:
    """Return the largest absolute error of a correct kernel's stored result against ``evaluate(op, inputs)``.

    Where the reference is infinite or NaN the bound is 0: the kernel must give the same, but for what is not claimed.
    """
    _, bound, overflows = _bounded(op, inputs, worst_case)
    return np.where(overflows != 0.0, np.inf, bound)


def claim(op: Op, inputs: Sequence[Any], *, worst_case: bool = False) -> tuple[Array, Array]:
    """Return what a correct kernel's stored result is, and by how much each element may be off.

    The first is ``evaluate(op, inputs)``, but for results all of whose enclosure is a number of the compute type and
    beyond the largest of a narrower result: those are infinite, and the kernel must say so.

    Worked example: 70000 computed in f32 is inf in f16, which holds numbers up to 65504; 1e39 claims nothing there,
    since its sum may have passed through an infinity of f32 on the way, and come out of it as NaN.
    """
    expected, bound, overflows = _bounded(op, inputs, worst_case)
    certain = overflows != 0.0
    return np.where(certain, overflows, expected), bound


def _bounded(op: Op, inputs: Sequence[Any], worst_case: bool) -> tuple[Array, Array, Array]:
    """Return the meaning, the bound of its error, and the infinities to which it overflows for certain, else 0."""
    op = bind_op(op, inputs)
    arrays = sources(op, inputs)
    compute = compute_type(op)
    epilogue = epilogue_of(op)
    with np.errstate(all="ignore"):
        value = main_value(op, arrays)
        extras = arrays[len(arrays) - len(epilogue.operands) :]
        expected = np.broadcast_to(epilogue.expr.evaluate([value, *extras]), value.shape)
        if isinstance(op, PointwiseOp):
            low, high = enclose(op.expr, [(x, x) for x in arrays], compute)
        elif isinstance(op, PairsOp):
            low, high = _pairs_enclosure(op, arrays, compute)
        elif isinstance(op, ViewOp | JoinOp):
            return expected, np.zeros(value.shape), np.zeros(value.shape)
        else:
            main = _main_enclosure(op, arrays, value, compute, worst_case)
            low, high = enclose(epilogue.expr, [main, *((x, x) for x in extras)], compute)
        stored = op.infer().dtype
        most, least = stored.round(high), stored.round(low)
        bound = np.maximum(most - expected, expected - least)
        bound = np.where(np.isnan(bound), np.inf, bound)
        bound = np.where(np.isfinite(expected), np.maximum(bound, 0.0), 0.0)
        known = np.isfinite(expected) & (np.maximum(np.abs(low), np.abs(high)) <= compute.largest)
        overflows = np.where(known & np.isinf(least) & (least == most), least, 0.0)
        bound = np.where(overflows != 0.0, 0.0, bound)
        bound = np.where(_unclaimed(op, arrays, expected), np.inf, bound)
        return expected, bound, overflows


def _pairs_enclosure(op: PairsOp, arrays: list[Array], compute: DType) -> Enclosure:
    ends = zip(*(enclose(each, [(x, x) for x in arrays], compute) for each in op.expressions), strict=True)
    low, high = (paired(op, *both) for both in ends)
    return low, high


def _unclaimed(op: Op, arrays: list[Array], expected: Array) -> Array | NDArray[np.bool_] | bool | np.bool_:
    """Return where a correct kernel may give anything, as it may multiply zeros by what is not finite or skip them."""
    match op:
        case Conv2dOp(accuracy=Accuracy.NORMWISE):
            return beyond_norm(op, arrays[0], arrays[1])
        case Conv2dOp():
            return _outside_not_finite(op, arrays)
        case AttentionOp():
            return unclaimed_sums(op, arrays, compute_type(op))
        case AttentionGradientOp():
            # Every gradient sums over pairs that are hidden, or whose weight may be flushed.
            return ~np.isfinite(expected)
        case _:
            return False


def _outside_not_finite(op: Conv2dOp, arrays: list[Array]) -> Array | bool:
    """Return where a tap that is not finite lies outside of the image.

    Kernels that hold the padding multiply its zeros and get NaN, kernels that skip what lies outside do not: libraries
    have both. A result that counts fewer such taps inside of the image than its filter has, has one outside.
    """
    image, odd = arrays[0], (~np.isfinite(arrays[1])).astype(np.float64)
    if not odd.any():
        return False
    inside = main_value(op, [np.ones_like(image), odd])
    return inside < odd.sum(axis=(1, 2, 3))[:, None, None]


def _main_enclosure(  # noqa: PLR0911 - one case an op
    op: Op, arrays: list[Array], value: Array, compute: DType, worst_case: bool
) -> Enclosure:
    match op:
        case GemmOp():
            terms, dtype = arrays[0].shape[-1], op.accumulator
            a, b = factors(op, arrays)
            error = np.abs(a) @ np.abs(b)
        case BlockSparseOp():
            terms, dtype = op.k, op.accumulator
            error = main_value(op, [np.abs(arrays[0]), np.abs(arrays[1]), *arrays[2:]])
        case GroupedGemmOp():
            return _grouped_enclosure(op, arrays, compute, sum_constant(op.k, op.accumulator, worst_case=worst_case))
        case LowRankOp():
            x, a, b = (np.abs(array) for array in arrays[:3])
            both = sum(sum_constant(count, op.accumulator, worst_case=worst_case) for count in a.shape)
            size, (depth, rank) = x @ a @ b, a.shape
            lost = np.where(size > 0.0, (rank + depth * b.sum(axis=0)) * op.accumulator.smallest, 0.0)
            return around(value, both * (1 + op.accumulator.eps * sum(a.shape)) * op.accumulator.eps * size + lost)
        case Conv2dOp(accuracy=Accuracy.NORMWISE):
            constant = sum_constant(op.taps, op.accumulator, worst_case=worst_case)
            return around(value, normwise_error(op, arrays[0], arrays[1], constant, worst_case=worst_case))
        case Conv2dOp():
            terms, dtype = op.taps, op.accumulator
            error = main_value(op, [np.abs(arrays[0]), np.abs(arrays[1])])
        case Pool2dOp() | AdaptivePool2dOp():
            return _pool_enclosure(op, arrays[0], value, compute, worst_case)
        case RowOp():
            return around(value, _row_error(op, arrays, value, compute, worst_case))
        case ReduceOp():
            return _reduce_enclosure(op, arrays, compute, worst_case)
        case CumulativeSumOp() | GatherRowsOp() | SumRowsOp() | WeightedRowsOp() | LargestOp():
            return indexed_enclosure(
                op, arrays, value, compute, partial(sum_constant, dtype=compute, worst_case=worst_case)
            )
        case StatisticsOp():
            return statistics_enclosure(
                op, arrays, compute, lambda count: sum_constant(count, compute, worst_case=worst_case)
            )
        case MomentsOp():
            constant = partial(sum_constant, dtype=compute, worst_case=worst_case)
            ends = zip(*(statistics_enclosure(part, arrays, compute, constant) for part in op.parts), strict=True)
            low, high = (np.concatenate(rows, axis=1) for rows in ends)
            return low, high
        case NormGradientOp():
            constant = partial(sum_constant, dtype=compute, worst_case=worst_case)
            return norm_gradient_enclosure(op, arrays, compute, constant)
        case AttentionOp():
            constant = partial(sum_constant, dtype=compute, worst_case=worst_case)
            return around(value, attention_error(op, arrays, compute, constant))
        case AttentionGradientOp():
            constant = partial(sum_constant, dtype=compute, worst_case=worst_case)
            return around(value, attention_gradient_error(op, arrays, compute, constant))
        case _:
            return value, value
    lost = np.where(error > 0.0, terms * dtype.smallest, 0.0)
    return around(value, sum_constant(terms, dtype, worst_case=worst_case) * dtype.eps * error + lost)


def _grouped_enclosure(op: GroupedGemmOp, arrays: list[Array], compute: DType, constant: float) -> Enclosure:
    """Return the enclosure of each group's rows; rows of no group are zero and nothing else."""
    low, high = np.zeros(op.shape), np.zeros(op.shape)
    kind = op.accumulator
    for rows, group in grouped_rows(op, arrays):
        x, weights = arrays[0][rows], arrays[1][group]
        size = np.abs(x) @ np.abs(weights)
        lost = np.where(size > 0.0, op.k * kind.smallest, 0.0)
        extras = () if op.bias is None else (arrays[2][group],)
        main = around(x @ weights, constant * kind.eps * size + lost)
        low[rows], high[rows] = enclose(op.expr, [main, *((bias, bias) for bias in extras)], compute)
    return low, high


def _pool_enclosure(
    op: Pool2dOp | AdaptivePool2dOp, x: Array, value: Array, compute: DType, worst_case: bool
) -> Enclosure:
    if op.kind is PoolKind.MAX:
        return value, value
    window = op.kernel if isinstance(op, Pool2dOp) else op.longest
    c = sum_constant(math.prod(window), compute, worst_case=worst_case) + 2
    return around(value, c * compute.eps * main_value(op, [np.abs(x)]))


def _source(op: RowOp | ReduceOp, arrays: list[Array], compute: DType) -> tuple[Array, Array]:
    """Return the prologue's value and its error."""
    v = row_source(op, arrays)
    low, high = enclose(op.prologue, [(x, x) for x in arrays[: len(op.x)]], compute)
    exact = (low == v) & (high == v)  # an infinity is no further from itself than a number is
    return v, np.broadcast_to(np.where(exact, 0.0, np.maximum(high - v, v - low)), v.shape)


def _row_error(op: RowOp, arrays: list[Array], y: Array, compute: DType, worst_case: bool) -> Array:
    v, error = _source(op, arrays, compute)
    if v.size == 0:
        return v
    n, eps = v.shape[-1], compute.eps
    c = sum_constant(n, compute, worst_case=worst_case) * eps
    if op.kind in (RowKind.SOFTMAX, RowKind.LOG_SOFTMAX):
        distance = np.abs(v - v.max(axis=-1, keepdims=True))
        shift = error + error.max(axis=-1, keepdims=True) + eps * distance  # of the exponent, in absolute terms
        worst = np.max(np.where(np.isfinite(shift), shift, 0.0), axis=-1, keepdims=True)
        if op.kind is RowKind.SOFTMAX:
            # Twice the smallest normal: a kernel may flush what underflows, or is about to. exp(-inf) is zero, whatever
            # its row's other elements.
            spread = np.where(y == 0.0, 0.0, np.abs(y) * np.expm1(shift + worst + c + 12 * eps))
            return spread + 2 * compute.smallest / eps
        return shift + worst + c + 4 * eps * (1.0 + np.abs(y) + distance)
    # What is next to zero loses up to the smallest subnormal: a mean in each of its steps, a square, a result.
    lost = np.where((v != 0.0).any(axis=-1, keepdims=True), compute.smallest, 0.0)
    if op.kind is RowKind.LAYER_NORM:
        error = error + (c * np.abs(v) + error).mean(axis=-1, keepdims=True) + eps * np.abs(v) + c / eps * lost
        v = v - v.mean(axis=-1, keepdims=True)
    square = (v * v).mean(axis=-1, keepdims=True)
    square_error = (2 * np.abs(v) * error + error * error).mean(axis=-1, keepdims=True)
    square_error += (c + 2 * eps) * square + 2 * lost
    base = square + op.eps
    shrunk = np.maximum(base - square_error, op.eps)
    factor_error = np.where(shrunk > 0.0, np.sqrt(base / shrunk) - 1.0, np.inf) + 4 * eps
    exact_zero = (v == 0.0) & (error == 0.0)
    # Divided first: the product of a subnormal and an error is no number of the reference itself.
    size, error = np.abs(v) / np.sqrt(base), error / np.sqrt(base)
    return np.where(exact_zero, 0.0, size * factor_error + error * (1.0 + factor_error) + lost)


def _reduce_enclosure(op: ReduceOp, arrays: list[Array], compute: DType, worst_case: bool) -> Enclosure:
    v, error = _source(op, arrays, compute)
    if op.kind in (ReduceKind.MAX, ReduceKind.MIN):
        reduce = np.max if op.kind is ReduceKind.MAX else np.min
        low, high = (reduce(v + sign * error, axis=op.axes, keepdims=op.keepdims) for sign in (-1.0, 1.0))
        return np.asarray(low), np.asarray(high)
    if op.kind is ReduceKind.PRODUCT:
        value = np.asarray(v.prod(axis=op.axes, keepdims=op.keepdims))
        return around(value, product_error(v, error, op.axes, compute, keepdims=op.keepdims))
    count = math.prod(v.shape[axis] for axis in op.axes)
    c = sum_constant(count, compute, worst_case=worst_case) * compute.eps
    slack = np.asarray((c * (np.abs(v) + error) + error).sum(axis=op.axes, keepdims=op.keepdims))
    total = np.asarray(v.sum(axis=op.axes, keepdims=op.keepdims))
    if op.kind is ReduceKind.SUM:
        return around(total, slack)
    lost = np.where(total != 0.0, compute.smallest, 0.0)
    return around(total / count, slack / count + 2 * compute.eps * np.abs(total / count) + lost)
