"""Prints index expressions and predicates as C++ expressions over integers, for every backend whose text is C++."""

from __future__ import annotations

from tracea.errors import EmitError
from tracea.semantic.index import (
    Add,
    And,
    Compare,
    Const,
    FloorDiv,
    Index,
    Lookup,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Param,
    Predicate,
    Var,
)

__all__ = ["index_text", "predicate_text"]

_OPERATORS: dict[type[Index], tuple[str, int]] = {Add: ("+", 1), Mul: ("*", 2), FloorDiv: ("/", 2), Mod: ("%", 2)}
_CALLS: dict[type[Index], str] = {Min: "min_index", Max: "max_index"}


def index_text(index: Index) -> str:
    """Return the C++ spelling of an index expression.

    Raises: EmitError for a node that has no spelling.
    """
    return _spell(index)[0]


def predicate_text(predicate: Predicate) -> str:
    """Return the C++ spelling of a condition.

    Raises: EmitError for a node that has no spelling.
    """
    match predicate:
        case Compare(relation=relation, left=left, right=right):
            return f"{index_text(left)} {relation.value} {index_text(right)}"
        case And(parts=()):
            return "true"
        case Or(parts=()):
            return "false"
        case And(parts=parts):
            return " && ".join(_enclosed(part) for part in parts)
        case Or(parts=parts):
            return " || ".join(_enclosed(part) for part in parts)
        case Not(part=part):
            return f"!({predicate_text(part)})"
        case _:
            raise EmitError(node=predicate, detail="no spelling for this predicate")


def _enclosed(part: Predicate) -> str:
    text = predicate_text(part)
    return f"({text})" if isinstance(part, And | Or) and len(part.parts) > 1 else text


def _spell(index: Index) -> tuple[str, int]:
    # Returns the text and how tightly its outermost operator binds: 1 sums, 2 products, 3 names and calls.
    match index:
        case Const(value=value):
            return (str(value), 3) if value >= 0 else (f"({value})", 3)
        case Var(name=name) | Param(name=name):
            return name, 3
        case Min(left=left, right=right) | Max(left=left, right=right):
            return f"{_CALLS[type(index)]}({index_text(left)}, {index_text(right)})", 3
        case Add(left=left, right=Mul() as product) if (subtracted := _negated(product)) is not None:
            return f"{_at_least(left, 1)} - {_at_least(subtracted, 2)}", 1
        case Add(left=left, right=Const(value=value)) if value < 0:
            return f"{_at_least(left, 1)} - {-value}", 1
        case Add() | Mul() | FloorDiv() | Mod():
            operator, strength = _OPERATORS[type(index)]
            # The right operand binds tighter than the operator unless both are sums: a * (b / c) keeps its parentheses.
            right = _at_least(index.right, strength if operator == "+" else strength + 1)
            return f"{_at_least(index.left, strength)} {operator} {right}", strength
        case Lookup(table=table, index=position):
            return f"{table}[{index_text(position)}]", 3
        case _:
            raise EmitError(node=index, detail="no spelling for this index expression")


def _negated(product: Mul) -> Index | None:
    # a * (-n) subtracts a * n.
    match product:
        case Mul(left=Const(value=value), right=other) | Mul(left=other, right=Const(value=value)) if value < 0:
            return other * -value
        case _:
            return None


def _at_least(index: Index, strength: int) -> str:
    text, found = _spell(index)
    return text if found >= strength else f"({text})"
