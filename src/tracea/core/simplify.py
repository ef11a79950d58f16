"""Rewrites of scalar expressions that keep the value for every input: NaN, infinities and signed zeros included.

So there is no ``x * 0 -> 0`` (NaN), no ``x + 0.0 -> x`` (-0.0) and no ``x - x -> 0`` (infinity). A power by a small
whole exponent becomes products, within one ulp of the power.
"""

from __future__ import annotations

import math

from tracea.core.expr import Binary, Cast, Constant, Expr, Input, Select, Unary
from tracea.core.function import BinaryFunction, UnaryFunction

__all__ = ["simplify"]

_ROUNDINGS = 8  # each pass shrinks the tree or stops; rules that enable one another settle in two or three


def simplify(expr: Expr) -> Expr:
    """Return ``expr`` rewritten bottom-up until nothing changes."""
    for _ in range(_ROUNDINGS):
        done: dict[int, Expr] = {}
        simpler = _rewrite(expr, done)
        if simpler == expr:
            break
        expr = simpler
    return expr


def _rewrite(expr: Expr, done: dict[int, Expr]) -> Expr:
    if id(expr) not in done:
        parts = [_rewrite(part, done) for part in expr.parts]
        same = all(new is old for new, old in zip(parts, expr.parts, strict=True))
        done[id(expr)] = _rule(expr if same else expr.with_parts(parts))
    return done[id(expr)]


def _rule(expr: Expr) -> Expr:
    if expr.parts and all(isinstance(part, Constant) for part in expr.parts):
        return Constant(float(expr.evaluate(())))
    match expr:
        case Unary():
            return _unary(expr)
        case Binary():
            return _binary(expr)
        case Select(condition=Constant(value=value), if_true=if_true, if_false=if_false):
            return if_true if value != 0.0 else if_false
        case Select(if_true=if_true, if_false=if_false) if if_true == if_false:
            return if_true
        case Cast():
            return _cast(expr)
        case _:
            return expr


def _unary(expr: Unary) -> Expr:
    match expr.function, expr.operand:
        case UnaryFunction.NEG, Unary(function=UnaryFunction.NEG, operand=inner):
            return inner
        case UnaryFunction.ABS, Unary(function=UnaryFunction.NEG | UnaryFunction.ABS, operand=inner):
            return Unary(UnaryFunction.ABS, inner)
        case UnaryFunction.FLOOR, Unary(function=UnaryFunction.FLOOR) as inner:
            return inner
        case _:
            return expr


def _binary(expr: Binary) -> Expr:
    function, left, right = expr.function, expr.left, expr.right
    # Not MAX and MIN: of 0.0 and -0.0 they may give either, which the order decides.
    if (
        function.is_commutative
        and function not in (BinaryFunction.MAX, BinaryFunction.MIN)
        and isinstance(left, Constant)
    ):
        return Binary(function, right, left)
    if function in (BinaryFunction.MAX, BinaryFunction.MIN) and left == right:
        return left
    if isinstance(right, Constant):
        return _with_constant(expr, function, left, right.value)
    return expr


def _with_constant(expr: Binary, function: BinaryFunction, left: Expr, value: float) -> Expr:
    match function:
        case BinaryFunction.MUL | BinaryFunction.DIV if value == 1.0:
            return left
        case BinaryFunction.SUB if _is_zero(value, sign=1.0):
            return left
        case BinaryFunction.ADD if _is_zero(value, sign=-1.0):
            return left
        case BinaryFunction.DIV if _has_exact_reciprocal(value):
            return Binary(BinaryFunction.MUL, left, Constant(1.0 / value))
        case BinaryFunction.POW:
            return _power(expr, left, value)
        case _:
            return expr


def _power(expr: Binary, base: Expr, exponent: float) -> Expr:
    if exponent == 0.0:
        return Constant(1.0)  # IEEE 754: also of NaN
    if exponent == 1.0:
        return base
    if exponent == -1.0:
        return Unary(UnaryFunction.RECIPROCAL, base)
    if exponent in (2.0, 3.0) and isinstance(base, Input):
        square = Binary(BinaryFunction.MUL, base, base)
        return square if exponent == 2.0 else Binary(BinaryFunction.MUL, square, base)
    return expr


def _cast(expr: Cast) -> Expr:
    operand, dtype = expr.operand, expr.dtype
    if isinstance(operand, Cast) and dtype.holds(operand.dtype):
        return operand
    if isinstance(operand, Binary) and operand.function.is_comparison:
        return operand  # 1 and 0 are values of every type
    return operand if dtype.value == "f64" else expr


def _is_zero(value: float, *, sign: float) -> bool:
    return value == 0.0 and math.copysign(1.0, value) == sign


def _has_exact_reciprocal(value: float) -> bool:
    # A power of two whose reciprocal is a normal number of every compute type.
    mantissa, exponent = math.frexp(value) if math.isfinite(value) else (0.0, 0)
    return abs(mantissa) == 0.5 and abs(exponent) < 100
