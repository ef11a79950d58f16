"""The routines that every backend's math.h and vec.h have under the same names, and the chains that one of them is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracea.core.activation_slope import slope_of
from tracea.core.expr import Binary, BinaryFunction, Constant, Expr, Input, Unary, UnaryFunction, activation

__all__ = ["BINARY", "UNARY", "find_routine"]

# The routine for each scalar function, over names of its operands.
UNARY: Final[Mapping[UnaryFunction, str]] = {
    UnaryFunction.NEG: "neg",
    UnaryFunction.ABS: "abs",
    UnaryFunction.EXP: "exp",
    UnaryFunction.LOG: "log",
    UnaryFunction.LOG2: "log2",
    UnaryFunction.LOG10: "log10",
    UnaryFunction.SIN: "sin",
    UnaryFunction.COS: "cos",
    UnaryFunction.SQRT: "sqrt",
    UnaryFunction.RSQRT: "rsqrt",
    UnaryFunction.RECIPROCAL: "reciprocal",
    UnaryFunction.TANH: "tanh",
    UnaryFunction.ERF: "erf",
    UnaryFunction.SIGMOID: "sigmoid",
    UnaryFunction.FLOOR: "floor",
}
BINARY: Final[Mapping[BinaryFunction, str]] = {
    BinaryFunction.ADD: "add({0}, {1})",
    BinaryFunction.SUB: "sub({0}, {1})",
    BinaryFunction.MUL: "mul({0}, {1})",
    BinaryFunction.DIV: "div({0}, {1})",
    BinaryFunction.MAX: "maximum({0}, {1})",
    BinaryFunction.MIN: "minimum({0}, {1})",
    BinaryFunction.POW: "pow({0}, {1})",
    BinaryFunction.FMOD: "fmod({0}, {1})",
    BinaryFunction.LT: "less({0}, {1})",
    BinaryFunction.LE: "less_equal({0}, {1})",
    BinaryFunction.GT: "less({1}, {0})",
    BinaryFunction.GE: "less_equal({1}, {0})",
    BinaryFunction.EQ: "equal({0}, {1})",
    BinaryFunction.NE: "not_equal({0}, {1})",
}
# Chains that math.h has one routine for, more exact and faster than the chain: gelu by erfc keeps its negative tail.
_IDIOMS: Final = (
    *((activation(name), name) for name in ("gelu", "gelu_tanh", "silu", "relu")),
    (slope_of("gelu"), "gelu_slope"),
)


def find_routine(expr: Expr) -> tuple[str, Expr] | None:
    """Return the routine that a chain is, and the expression that it is applied to; None where it is none."""
    for template, routine in _IDIOMS:
        bound: list[Expr] = []
        if _matches(template, expr, bound):
            return routine, bound[0]
    return None


def _matches(template: Expr, expr: Expr, bound: list[Expr]) -> bool:
    # Input(0) of the template stands for one and the same expression wherever it occurs.
    if isinstance(template, Input):
        if not bound:
            bound.append(expr)
        return bound[0] is expr or bound[0] == expr
    if type(template) is not type(expr):
        return False
    match template, expr:
        case (Constant(), Constant()):
            return template == expr
        case (Unary(function=wanted), Unary(function=found)) | (Binary(function=wanted), Binary(function=found)):
            same = wanted is found
        case _:
            return False
    return same and all(_matches(part, other, bound) for part, other in zip(template.parts, expr.parts, strict=True))
