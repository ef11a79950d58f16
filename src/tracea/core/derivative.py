"""Derivatives of scalar expressions, as expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from tracea.core.expr import (
    Binary,
    BinaryFunction,
    Constant,
    Expr,
    Input,
    Select,
    Unary,
    UnaryFunction,
    exp,
    select,
)
from tracea.errors import InvalidOp

__all__ = ["derivative"]

_ZERO: Final = Constant(0.0)
_ONE: Final = Constant(1.0)
_COMPARISONS: Final = frozenset(
    {BinaryFunction.LT, BinaryFunction.LE, BinaryFunction.GT, BinaryFunction.GE, BinaryFunction.EQ, BinaryFunction.NE}
)

_UNWRITTEN: Final = (BinaryFunction.POW, BinaryFunction.FMOD)


def derivative(expr: Expr, index: int) -> Expr:
    """Return the derivative of an expression for ``Input(index)``; where one side or the other may be taken, one is.

    ``tanh(Input(0))`` gives ``1 - tanh(Input(0))²``; a maximum that of its larger part, half of each where they are
    equal, as torch does; a comparison and a floor give zero.

    Raises:
        InvalidOp: a power, a remainder or a cast of something that the input is in: none is written down here.
    """
    if index not in expr.inputs():
        return _ZERO
    match expr:
        case Input():
            return _ONE
        case Unary(function=function, operand=x):
            return _times(_UNARY[function](x), derivative(x, index))
        case Select(condition=condition, if_true=if_true, if_false=if_false):
            return select(condition, derivative(if_true, index), derivative(if_false, index))
        case Binary(function=function) if function in _COMPARISONS:
            return _ZERO
        case Binary(function=function, left=left, right=right) if function not in _UNWRITTEN:
            return _binary(function, left, right, derivative(left, index), derivative(right, index))
        case _:
            raise InvalidOp(
                field="score",
                got=str(expr),
                expected="sums, products, quotients, functions of one variable, selections",
                remedy="write powers as products, or exp(c * log(x)); leave remainders out",
            )


def _binary(function: BinaryFunction, left: Expr, right: Expr, to_left: Expr, to_right: Expr) -> Expr:
    match function:
        case BinaryFunction.ADD:
            return _plus(to_left, to_right)
        case BinaryFunction.SUB:
            return _plus(to_left, _times(Constant(-1.0), to_right))
        case BinaryFunction.MUL:
            return _plus(_times(right, to_left), _times(left, to_right))
        case BinaryFunction.DIV:
            quotient = _times(Constant(-1.0), _times(left / (right * right), to_right))
            return _plus(to_left if to_left == _ZERO else to_left / right, quotient)
        case _:
            first, second = (to_left, to_right) if function is BinaryFunction.MAX else (to_right, to_left)
            tied = _times(Constant(0.5), _plus(to_left, to_right))
            unequal = select(Binary(BinaryFunction.GT, left, right), first, second)
            return select(Binary(BinaryFunction.EQ, left, right), tied, unequal)


def _unary(function: UnaryFunction, x: Expr) -> Expr:
    return Unary(function, x)


_UNARY: Final[Mapping[UnaryFunction, Callable[[Expr], Expr]]] = {
    UnaryFunction.NEG: lambda x: Constant(-1.0),
    UnaryFunction.ABS: lambda x: select(
        Binary(BinaryFunction.GT, x, _ZERO), 1.0, select(Binary(BinaryFunction.LT, x, _ZERO), -1.0, 0.0)
    ),
    UnaryFunction.EXP: exp,
    UnaryFunction.LOG: lambda x: _unary(UnaryFunction.RECIPROCAL, x),
    UnaryFunction.LOG2: lambda x: _unary(UnaryFunction.RECIPROCAL, x) * (1.0 / math.log(2.0)),
    UnaryFunction.LOG10: lambda x: _unary(UnaryFunction.RECIPROCAL, x) * (1.0 / math.log(10.0)),
    UnaryFunction.SIN: lambda x: _unary(UnaryFunction.COS, x),
    UnaryFunction.COS: lambda x: _unary(UnaryFunction.SIN, x) * -1.0,
    UnaryFunction.SQRT: lambda x: _unary(UnaryFunction.RSQRT, x) * 0.5,
    UnaryFunction.RSQRT: lambda x: _unary(UnaryFunction.RSQRT, x) / x * -0.5,
    UnaryFunction.RECIPROCAL: lambda x: _ONE / (x * x) * -1.0,
    UnaryFunction.TANH: lambda x: 1.0 - _unary(UnaryFunction.TANH, x) * _unary(UnaryFunction.TANH, x),
    UnaryFunction.ERF: lambda x: exp(x * x * -1.0) * (2.0 / math.sqrt(math.pi)),
    UnaryFunction.SIGMOID: lambda x: _unary(UnaryFunction.SIGMOID, x) * (1.0 - _unary(UnaryFunction.SIGMOID, x)),
    UnaryFunction.FLOOR: lambda x: _ZERO,
}


def _plus(left: Expr, right: Expr) -> Expr:
    if left == _ZERO:
        return right
    return left if right == _ZERO else left + right


def _times(left: Expr, right: Expr) -> Expr:
    if _ZERO in (left, right):
        return _ZERO
    if left == _ONE:
        return right
    return left if right == _ONE else left * right
