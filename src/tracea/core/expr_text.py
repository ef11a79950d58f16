"""Scalar expressions as a reader writes them: ``gelu(x)``, ``max(a, b) + 1``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from tracea.core.activation import ACTIVATIONS
from tracea.core.expr import Binary, BinaryFunction, Cast, Constant, Expr, Input, Select, Unary

__all__ = ["expr_text"]

_SIGNS: Final = {
    BinaryFunction.ADD: "+",
    BinaryFunction.SUB: "-",
    BinaryFunction.MUL: "*",
    BinaryFunction.DIV: "/",
    BinaryFunction.LT: "<",
    BinaryFunction.LE: "<=",
    BinaryFunction.GT: ">",
    BinaryFunction.GE: ">=",
    BinaryFunction.EQ: "==",
    BinaryFunction.NE: "!=",
}
_LONGEST: Final = 120  # characters: a reader of a longer one reads the emitted kernel


def expr_text(expr: Expr, names: Sequence[str]) -> str:
    """Return an expression as text, ``Input(i)`` as ``names[i]``, activations by their names, cut off where it is long.

    >>> from tracea.core.expr import activation
    >>> expr_text(activation("gelu") + Input(1), ["x", "residual"])
    'gelu(x) + residual'
    """
    text = _text(expr, names)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _text(expr: Expr, names: Sequence[str]) -> str:
    named = _activation(expr)
    if named is not None:
        return f"{named[0]}({_text(named[1], names)})"
    match expr:
        case Input():
            return names[expr.index]
        case Constant():
            return f"{expr.value:g}"
        case Binary() if expr.function in _SIGNS:
            return f" {_SIGNS[expr.function]} ".join(_side(part, names) for part in expr.parts)
        case Unary() | Binary():
            return f"{expr.function.value}({', '.join(_parts(expr, names))})"
        case Select():
            return f"select({', '.join(_parts(expr, names))})"
        case Cast():
            return f"{expr.dtype.value}({_text(expr.operand, names)})"
        case _:
            return type(expr).__name__


def _parts(expr: Expr, names: Sequence[str]) -> list[str]:
    return [_text(part, names) for part in expr.parts]


def _side(expr: Expr, names: Sequence[str]) -> str:
    is_signed = isinstance(expr, Binary) and expr.function in _SIGNS and _activation(expr) is None
    return f"({_text(expr, names)})" if is_signed else _text(expr, names)


@cache
def _patterns() -> tuple[tuple[str, Expr], ...]:
    """Return the activations that are more than one function of their operand, as written and as simplified."""
    forms = [(name, form) for name, expr in ACTIVATIONS.items() for form in (expr, expr.simplify())]
    return tuple((name, form) for name, form in forms if not isinstance(form, Input | Unary))


def _activation(expr: Expr) -> tuple[str, Expr] | None:
    """Return the activation that an expression is, and what it is of."""
    for name, pattern in _patterns():
        found: list[Expr] = []
        if _is_of(pattern, expr, found) and all(each == found[0] for each in found):
            return name, found[0]
    return None


def _is_of(pattern: Expr, expr: Expr, found: list[Expr]) -> bool:
    if isinstance(pattern, Input):
        found.append(expr)
        return True
    if type(pattern) is not type(expr) or len(pattern.parts) != len(expr.parts):
        return False
    if not pattern.parts:
        return pattern == expr
    own = pattern.with_parts(expr.parts)  # of the same function?
    return own == expr and all(_is_of(*pair, found) for pair in zip(pattern.parts, expr.parts, strict=True))
