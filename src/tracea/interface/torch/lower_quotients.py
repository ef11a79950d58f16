"""Lowerings of quotients that are rounded to whole numbers and of what they leave, with the roundings of torch.

A quotient's floor is taken from what is left of the division, not from the rounded quotient: ``1 // 0.1`` is 9, since
0.1 is a little more than a tenth. One operator of torch rounds each step to its type, and takes a 16-bit dividend and
a single divisor in float32; these results jump, so that a step that is rounded elsewhere would be off by one. Of whole
numbers below 2^53 the floor of the rounded quotient is right: a quotient that is not whole is at least 1/y below the
next whole number, and its rounding moves it by less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Cast, Constant, Expr, Input, select
from tracea.core.graph import Node
from tracea.interface.torch.functions import TRUNC, floor

if TYPE_CHECKING:
    from tracea.interface.torch.lowering import Lowering, Operand

__all__ = ["div", "floor_divide", "fmod", "remainder"]

_X: Final = Input(0)
_Y: Final = Input(1)
_NARROW: Final = (DType.F16, DType.BF16)


def div(low: Lowering, left: Operand, right: Operand, rounding_mode: str | None = None) -> Node:
    """Lower ``left / right``, the floor of it, or its whole part."""
    if rounding_mode is None:
        return low.pointwise(_X / _Y, left, right)
    if not low.dtype.is_float:
        if rounding_mode != "floor":
            low.refuse("the whole part of a quotient of integers", 'round it down: rounding_mode="floor"')
        return low.pointwise(floor(_X / _Y), left, right)
    return _lowered(low, left, right, _floor if rounding_mode == "floor" else _whole_part, of_single_in_f32=True)


def floor_divide(low: Lowering, left: Operand, right: Operand) -> Node:
    """Lower ``left // right``."""
    return div(low, left, right, "floor")


def remainder(low: Lowering, left: Operand, right: Operand) -> Node:
    """Lower ``left % right``, which has the sign of the divisor."""
    if not low.dtype.is_float:
        return low.pointwise(_X - floor(_X / _Y) * _Y, left, right)
    return _lowered(low, left, right, _rest)


def fmod(low: Lowering, left: Operand, right: Operand) -> Node:
    """Lower the rest that has the sign of the dividend."""
    return _lowered(low, left, right, lambda a, b, _: _fmod(a, b))


_Round = Callable[[Expr], Expr]


def _lowered(
    low: Lowering,
    left: Operand,
    right: Operand,
    formula: Callable[[Expr, Expr, _Round], Expr],
    *,
    of_single_in_f32: bool = False,
) -> Node:
    is_single = not isinstance(right, Node) or (right.type.is_static and right.type.elements == 1)
    compute = DType.F32 if of_single_in_f32 and is_single and low.dtype in _NARROW else low.dtype
    others = [node for node in (left, right) if isinstance(node, Node) and node.type.dtype not in (compute, low.dtype)]
    # A kernel computes in the type itself where that is 32 or 64 bits wide and nothing of another type is read; else
    # in a wider one, from whatever it fused the operands with.
    steps_are_wider = bool(others) or compute in _NARROW

    def rounded(x: Expr) -> Expr:
        return Cast(x, compute) if steps_are_wider else x

    def taken(term: Expr, operand: Operand, dtype: DType) -> Expr:
        is_as_read = isinstance(operand, Node) and operand.type.dtype is dtype
        return term if is_as_read and dtype not in _NARROW and not others else Cast(term, dtype)

    found = formula(taken(_X, left, low.dtype), taken(_Y, right, compute), rounded)
    # What reads the quotient in one kernel with it may jump too: it reads what a tensor of the type would hold.
    return low.pointwise(found if compute is low.dtype else Cast(found, low.dtype), left, right)


def _fmod(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryFunction.FMOD, a, b)


def _whole_part(a: Expr, b: Expr, rounded: _Round) -> Expr:
    quotient = rounded(a / b)
    return TRUNC.substitute({0: quotient})


def _is_of_other_sign(rest: Expr, b: Expr) -> Expr:
    return select(b < 0.0, rest > 0.0, rest < 0.0)


def _rest(a: Expr, b: Expr, rounded: _Round) -> Expr:
    rest = _fmod(a, b)
    return select(_is_of_other_sign(rest, b), rounded(rest + b), rest)


def _floor(a: Expr, b: Expr, rounded: _Round) -> Expr:
    quotient, rest = rounded(a / b), _fmod(a, b)
    near = rounded(rounded(a - rest) / b)  # whole, but for its last rounding
    near = select(_is_of_other_sign(rest, b), rounded(near - 1.0), near)
    down = floor(near)
    whole = select(rounded(near - down) > 0.5, rounded(down + 1.0), down)
    whole = select(Binary(BinaryFunction.EQ, near, Constant(0.0)), quotient * 0.0, whole)  # 0 of the quotient's sign
    return select(Binary(BinaryFunction.EQ, b, Constant(0.0)), quotient, whole)
