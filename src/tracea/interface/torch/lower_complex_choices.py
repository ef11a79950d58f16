"""Lowerings of choices among complex numbers, of their comparisons, and of what holds one number throughout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracea.core.expr import Binary, BinaryFunction, Input
from tracea.core.graph import Node
from tracea.interface.torch import lower_pointwise as pointwise
from tracea.interface.torch.complex_value import Complex, whole

if TYPE_CHECKING:
    from tracea.interface.torch.lowering import Lowering, Operand

__all__ = ["equal", "filled", "isnan", "masked_fill", "ones", "unequal", "where", "zeros"]

A, B, C, D = (Input(index) for index in range(4))


def where(low: Lowering, condition: Node, if_true: Any, if_false: Any) -> Complex:
    """Lower the choice by a mask."""
    x, y = Complex.of(if_true), Complex.of(if_false)
    parts = ((x.real, y.real), (x.imag, y.imag))
    return whole(low, *(_chosen(low, condition, *pair) for pair in parts))


def _chosen(low: Lowering, condition: Node, one: Operand, other: Operand) -> Operand:
    if not isinstance(one, Node) and not isinstance(other, Node) and one == other:
        return one
    return pointwise.where(low, condition, one, other)


def masked_fill(low: Lowering, x: Any, mask: Node, value: Any) -> Complex:
    """Lower ``value`` where the mask is set, else x."""
    return where(low, mask, value, x)


def equal(low: Lowering, left: Any, right: Any) -> Node:
    """Lower ``==``: both parts are."""
    x, y = Complex.of(left), Complex.of(right)
    same = Binary(BinaryFunction.MUL, Binary(BinaryFunction.EQ, A, C), Binary(BinaryFunction.EQ, B, D))
    return low.pointwise(same, x.real, x.imag, y.real, y.imag, exact=True)


def unequal(low: Lowering, left: Any, right: Any) -> Node:
    """Lower ``!=``: a part is."""
    x, y = Complex.of(left), Complex.of(right)
    other = Binary(BinaryFunction.MAX, Binary(BinaryFunction.NE, A, C), Binary(BinaryFunction.NE, B, D))
    return low.pointwise(other, x.real, x.imag, y.real, y.imag, exact=True)


def isnan(low: Lowering, x: Complex) -> Node:
    """Lower whether a part is NaN."""
    return unequal(low, x, x)


def filled(low: Lowering, x: Any, value: Any = 0.0, *_: Any) -> Complex:
    """Lower ``full_like`` and ``fill``."""
    del x
    number = Complex.of(value)
    return whole(low, low.number_of(number.real), low.number_of(number.imag))


def ones(low: Lowering, x: Any, *_: Any) -> Complex:
    """Lower ``ones_like``."""
    return filled(low, x, 1.0)


def zeros(low: Lowering, x: Any, *_: Any) -> Complex:
    """Lower ``zeros_like``."""
    return filled(low, x)
