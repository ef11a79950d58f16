"""Enclosures of what a kernel may compute for a scalar expression: interval arithmetic with each rounding added.

An enclosure is two arrays, low and high. Every correct kernel's value lies between them, as long as each function errs
by no more than its constant of ``FUNCTION_ERROR``, in units of the compute type's eps. An enclosure that is infinite
claims nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Cast, Constant, Expr, Input, Select, Unary, UnaryFunction
from tracea.core.function import Array

__all__ = ["BINARY_ERROR", "FUNCTION_ERROR", "Enclosure", "around", "enclose", "widen"]

Enclosure: TypeAlias = tuple[Array, Array]

# Relative error of one function, in eps of the compute type (eps is two rounding errors). ERF's is absolute: it is
# used next to 1.
FUNCTION_ERROR: dict[UnaryFunction, float] = {
    UnaryFunction.NEG: 0.0,
    UnaryFunction.ABS: 0.0,
    UnaryFunction.FLOOR: 0.0,
    UnaryFunction.SQRT: 1.0,
    UnaryFunction.RECIPROCAL: 2.0,
    UnaryFunction.RSQRT: 2.0,
    UnaryFunction.EXP: 4.0,
    UnaryFunction.LOG: 4.0,
    UnaryFunction.LOG2: 4.0,
    UnaryFunction.LOG10: 4.0,
    UnaryFunction.SIN: 4.0,
    UnaryFunction.COS: 4.0,
    UnaryFunction.TANH: 8.0,
    UnaryFunction.SIGMOID: 8.0,
    UnaryFunction.ERF: 8.0,
}
BINARY_ERROR: dict[BinaryFunction, float] = {
    BinaryFunction.ADD: 1.0,
    BinaryFunction.SUB: 1.0,
    BinaryFunction.MUL: 1.0,
    BinaryFunction.DIV: 2.0,
    # Plus twice the result's logarithm: exp(y log x) multiplies the error of the logarithm by it.
    BinaryFunction.POW: 8.0,
}
_DECREASING = (UnaryFunction.NEG, UnaryFunction.RECIPROCAL, UnaryFunction.RSQRT)
_CIRCLE = (UnaryFunction.SIN, UnaryFunction.COS)
_LOGARITHMS = (UnaryFunction.LOG, UnaryFunction.LOG2, UnaryFunction.LOG10)
_NEEDS_POSITIVE = (*_LOGARITHMS, UnaryFunction.SQRT, UnaryFunction.RSQRT)


def around(value: Array, error: Array) -> Enclosure:
    """Return the enclosure of a value that may be off by ``error``."""
    with np.errstate(all="ignore"):
        exact = error == 0.0
        return np.where(exact, value, value - error), np.where(exact, value, value + error)


def widen(enclosure: Enclosure, units: float | Array, dtype: DType) -> Enclosure:
    """Return the enclosure after a rounding of ``units`` eps; subnormals may be flushed, overflow is infinite.

    What is infinite at both ends stays so: no rounding makes a number of it.
    """
    low, high = enclosure
    if not dtype.is_float:
        return enclosure
    with np.errstate(all="ignore"):
        slack = np.asarray(units) * dtype.eps
        tiny = np.where(slack > 0.0, _smallest_normal(dtype), 0.0)
        low = low - np.where((low == 0.0) | np.isinf(low), 0.0, np.abs(low) * slack + tiny)
        high = high + np.where((high == 0.0) | np.isinf(high), 0.0, np.abs(high) * slack + tiny)
    return np.where(low < dtype.lowest, -np.inf, low), np.where(high > dtype.largest, np.inf, high)


def enclose(expr: Expr, inputs: Sequence[Enclosure], compute: DType) -> Enclosure:
    """Return the enclosure of an expression whose inputs are enclosed, computed in ``compute``."""
    with np.errstate(all="ignore"):
        return _enclose(expr, inputs, compute, {})


def _enclose(expr: Expr, inputs: Sequence[Enclosure], compute: DType, done: dict[int, Enclosure]) -> Enclosure:
    if id(expr) not in done:
        parts = [_enclose(part, inputs, compute, done) for part in expr.parts]
        done[id(expr)] = _step(expr, parts, inputs, compute)
    return done[id(expr)]


def _step(expr: Expr, parts: list[Enclosure], inputs: Sequence[Enclosure], compute: DType) -> Enclosure:
    match expr:
        case Input(index=index):
            return inputs[index]
        case Constant(value=value):
            exact = np.asarray(value, dtype=np.float64)
            rounded = compute.round(exact) if compute.is_float else exact
            return np.fmin(exact, rounded), np.fmax(exact, rounded)
        case Unary(function=function):
            return _unary(function, parts[0], compute)
        case Binary(function=function) if function.is_comparison:
            return _comparison(function, parts[0], parts[1])
        case Binary(function=function):
            return _binary(function, parts[0], parts[1], compute)
        case Cast(dtype=dtype):
            return dtype.round(parts[0][0]), dtype.round(parts[0][1])
        case _:
            return _select(cast("Select", expr), parts)


def _unary(function: UnaryFunction, part: Enclosure, compute: DType) -> Enclosure:
    low, high = part
    if function is UnaryFunction.ABS:
        straddles = (low < 0.0) & (high > 0.0)
        ends = np.abs(low), np.abs(high)
        return np.where(straddles, 0.0, np.minimum(*ends)), np.maximum(*ends)
    if function in _CIRCLE:
        middle, half = (low + high) / 2.0, np.where(low == high, 0.0, (high - low) / 2.0)
        value = function.meaning(middle)  # of slope 1 at most
        first, last = widen((value - half, value + half), FUNCTION_ERROR[function], compute)
        return np.maximum(first, -1.0), np.minimum(last, 1.0)
    first, last = function.meaning(low), function.meaning(high)
    if function in _DECREASING:
        first, last = last, first
    if function is UnaryFunction.ERF:
        is_zero = (first == 0.0) & (last == 0.0)
        slack = np.where(is_zero, 0.0, FUNCTION_ERROR[function] * compute.eps)
        return first - slack, last + slack
    first, last = widen((first, last), FUNCTION_ERROR[function], compute)
    if function is UnaryFunction.RECIPROCAL:
        return _unknown_where((low <= 0.0) & (high >= 0.0) & (low != high), (first, last))
    if function in _NEEDS_POSITIVE:
        return _unknown_where((low <= 0.0) & (low != high), (first, last))
    return first, last


def _binary(function: BinaryFunction, left: Enclosure, right: Enclosure, compute: DType) -> Enclosure:
    if function in (BinaryFunction.MAX, BinaryFunction.MIN):
        return function.meaning(left[0], right[0]), function.meaning(left[1], right[1])
    if function is BinaryFunction.FMOD:
        return _remainder(left, right)
    corners = [function.meaning(x, y) for x in left for y in right]
    low, high = np.minimum.reduce(np.broadcast_arrays(*corners)), np.maximum.reduce(np.broadcast_arrays(*corners))
    left_is_exact, right_is_exact = left[0] == left[1], right[0] == right[1]
    units: float | Array = BINARY_ERROR[function]
    if function is BinaryFunction.DIV:
        unknown = (right[0] <= 0.0) & (right[1] >= 0.0) & ~right_is_exact
    elif function is BinaryFunction.POW:
        unknown = (left[0] <= 0.0) & ~(left_is_exact & right_is_exact)
        units = BINARY_ERROR[function] + 2.0 * np.abs(np.log(np.maximum(np.abs(low), np.abs(high))))
        units = np.where(np.isfinite(units), units, BINARY_ERROR[function])
    else:
        unknown = np.zeros(low.shape, dtype=bool)
    return _unknown_where(unknown, widen((low, high), units, compute))


def _remainder(left: Enclosure, right: Enclosure) -> Enclosure:
    # Exact where both are; else of the left's sign, and no larger than either. A divisor that may be 0 claims nothing.
    function = BinaryFunction.FMOD
    value = function.meaning(left[0], right[0])
    certain = (left[0] == left[1]) & (right[0] == right[1]) | np.isnan(left[0]) | np.isnan(right[0])
    dividend = np.maximum(np.abs(left[0]), np.abs(left[1]))
    most = np.minimum(dividend, np.maximum(np.abs(right[0]), np.abs(right[1])))
    low, high = np.where(left[0] < 0.0, -most, 0.0), np.where(left[1] > 0.0, most, 0.0)
    unknown = (right[0] <= 0.0) & (right[1] >= 0.0) | np.isinf(dividend)
    low, high = _unknown_where(unknown, (low, high))
    return np.where(certain, value, low), np.where(certain, value, high)


def _comparison(function: BinaryFunction, left: Enclosure, right: Enclosure) -> Enclosure:
    # A comparison is certain where it is the same at all corners, and for equality where the enclosures are apart or
    # points.
    if function in (BinaryFunction.EQ, BinaryFunction.NE):
        points = (left[0] == left[1]) & (right[0] == right[1])
        apart = (left[1] < right[0]) | (right[1] < left[0])
        value = function.meaning(left[0], right[0])
        certain = points | apart | np.isnan(left[0]) | np.isnan(right[0])
        return np.where(certain, value, 0.0), np.where(certain, value, 1.0)
    corners = np.broadcast_arrays(*(function.meaning(x, y) for x in left for y in right))
    return np.minimum.reduce(corners), np.maximum.reduce(corners)


def _select(expr: Select, parts: list[Enclosure]) -> Enclosure:
    del expr
    (low, high), yes, no = parts
    surely_true = (low > 0.0) | (high < 0.0) | np.isnan(low) | np.isnan(high)
    surely_false = (low == 0.0) & (high == 0.0)
    both = np.fmin(yes[0], no[0]), np.fmax(yes[1], no[1])
    ends = [np.where(surely_true, yes[i], np.where(surely_false, no[i], both[i])) for i in (0, 1)]
    return ends[0], ends[1]


def _unknown_where(mask: Array | np.ndarray[tuple[int, ...], np.dtype[np.bool_]], enclosure: Enclosure) -> Enclosure:
    return np.where(mask, -np.inf, enclosure[0]), np.where(mask, np.inf, enclosure[1])


def _smallest_normal(dtype: DType) -> float:
    return dtype.smallest / dtype.eps
