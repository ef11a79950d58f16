"""Functions of torch that an expression of others is, as exact as they are for small and for large operands."""

from __future__ import annotations

import math
from typing import Final

from tracea.core.expr import Binary, BinaryFunction, Constant, Expr, Input, Unary, UnaryFunction, exp, select, tanh

__all__ = ["CEIL", "EXPM1", "FLOOR", "LOG1P", "ROUND", "TRUNC", "floor"]

_X: Final = Input(0)


def _log(x: Expr) -> Expr:
    return Unary(UnaryFunction.LOG, x)


def floor(x: Expr) -> Expr:
    """Return the largest whole number that is not above x."""
    return Unary(UnaryFunction.FLOOR, x)


def _log1p() -> Expr:
    """Return log(1 + x): log(u) of the rounded u = 1 + x, times what the rounding left out.

    Source: W. Kahan, in the HP-15C Advanced Functions Handbook, 1982; D. Goldberg, "What every computer scientist
    should know about floating-point arithmetic", 1991, theorem 4.
    """
    u = _X + 1.0
    is_small = Binary(BinaryFunction.EQ, u, Constant(1.0))
    return select(is_small, _X, select(u < math.inf, _log(u) * (_X / (u - 1.0)), _log(u)))


def _round() -> Expr:
    """Return the nearest whole number, of two as near the even one; exact, as x - floor(x) is from -1/2 upwards.

    Below it, where x is small, what is left of 1 rounds to no less than 1/2, and the even one is 0.
    """
    below = floor(_X)
    left, half = _X - below, below * 0.5
    is_even = Binary(BinaryFunction.EQ, half, floor(half))
    return select(left < 0.5, below, select(left > 0.5, below + 1.0, select(is_even, below, below + 1.0)))


LOG1P: Final = _log1p()
EXPM1: Final = select(_X < 88.0, tanh(_X * 0.5) * (exp(_X) + 1.0), exp(_X))  # tanh(z / 2) (exp(z) + 1) = exp(z) - 1
FLOOR: Final = floor(_X)
CEIL: Final = -floor(-_X)
TRUNC: Final = select(_X < 0.0, CEIL, floor(_X))
ROUND: Final = _round()
