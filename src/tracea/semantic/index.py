"""Integer index expressions and conditions over them: exact, symbolic, evaluated on integers or NumPy arrays."""

from __future__ import annotations

from tracea.semantic.index_nodes import (
    INT32_MAX,
    INT64_MAX,
    Add,
    Const,
    FloorDiv,
    Index,
    Lookup,
    Max,
    Min,
    Mod,
    Mul,
    Param,
    Var,
    as_index,
)
from tracea.semantic.predicate import FALSE, TRUE, And, Compare, Not, Or, Predicate, Relation

__all__ = [
    "FALSE",
    "INT32_MAX",
    "INT64_MAX",
    "TRUE",
    "Add",
    "And",
    "Compare",
    "Const",
    "FloorDiv",
    "Index",
    "Lookup",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Not",
    "Or",
    "Param",
    "Predicate",
    "Relation",
    "Var",
    "as_index",
    "ceil_div",
    "differs",
    "equal",
    "maximum",
    "minimum",
    "product",
    "total",
]


def ceil_div(numerator: Index | int, denominator: Index | int) -> Index:
    """Return the quotient rounded up, for a non-negative numerator and a positive denominator."""
    divisor = as_index(denominator)
    return (as_index(numerator) + (divisor - 1)) // divisor


def minimum(left: Index | int, right: Index | int) -> Index:
    """Return the smaller one."""
    a, b = as_index(left), as_index(right)
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(min(a.value, b.value))
    return a if a == b else Min(a, b)


def maximum(left: Index | int, right: Index | int) -> Index:
    """Return the larger one."""
    a, b = as_index(left), as_index(right)
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(max(a.value, b.value))
    return a if a == b else Max(a, b)


def product(*factors: Index | int) -> Index:
    """Return the product of the factors, 1 for none."""
    result: Index = Const(1)
    for factor in factors:
        result = result * factor
    return result


def total(*terms: Index | int) -> Index:
    """Return the sum of the terms, 0 for none."""
    result: Index = Const(0)
    for term in terms:
        result = result + term
    return result


def equal(left: Index | int, right: Index | int) -> Compare:
    """Return the condition that both are the same."""
    return Compare(Relation.EQ, as_index(left), as_index(right))


def differs(left: Index | int, right: Index | int) -> Compare:
    """Return the condition that both are not the same."""
    return Compare(Relation.NE, as_index(left), as_index(right))
