"""Digits: a loop whose variable is divided becomes several, and quotients of a digit that is below the divisor go.

``t`` in ``[0, X·Y)`` that occurs as ``t div Y`` and ``t mod Y`` is ``i·Y + j``; then ``j div Y`` is 0 and ``j mod Y``
is ``j``, so that an index in which they stood is linear.
"""

from __future__ import annotations

from collections.abc import Mapping

from tracea.semantic.fields import expressions, subexpressions
from tracea.semantic.index import Const, FloorDiv, Index, Lookup, Mod, Param, Var
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import Block, Let
from tracea.semantic.nodes_async import Gather

__all__ = ["divisors", "radix", "settled"]


def divisors(body: Block, rings: frozenset[str]) -> dict[str, list[Index]]:
    """Return by name what each variable is divided by, nested divisions multiplied, ``Let`` names looked through.

    ``rings`` are buffers whose first offsets are slots.
    """
    lets: dict[str, Index] = {}
    found: dict[str, list[Index]] = {}

    def base(index: Index) -> tuple[str, Index] | None:
        match index:
            case Var(name=name):
                return (name, Const(1))
            case FloorDiv(left=left, right=right):
                inner = base(left)
                return None if inner is None else (inner[0], inner[1] * right)
            case Mod(left=left):
                return base(left)
            case _:
                return None

    for node in body.walk():
        if isinstance(node, Let) and not isinstance(node.value, Lookup):  # an entry of a table has digits of its own
            lets[node.var.name] = node.value.substitute(lets)
        points = {point.name for point in node.points} if isinstance(node, Gather) else frozenset[str]()
        slots = {access.region.offset[0] for access in node.accesses() if access.region.buffer in rings}
        for expression in expressions(node):
            if isinstance(expression, Mod) and expression in slots:
                continue  # a slot is the remainder of a use number, which stays whole
            for part in subexpressions(expression.substitute(lets)):
                if isinstance(part, FloorDiv | Mod):
                    below = base(part.left)
                    if below is not None and below[0] not in points:
                        found.setdefault(below[0], []).append(below[1] * part.right)
    return found


def radix(var: Var, extent: Polynomial, dividing: list[Polynomial]) -> list[tuple[Var, Polynomial, Polynomial]]:
    """Return digits (variable, count, weight) of a mixed-radix split of ``[0, extent)``, slowest first, or none."""
    weights = [Polynomial.of(1)]
    for divisor in dividing:
        if divisor.constant == 1:
            continue
        quotient, rest = divisor.split(weights[-1])
        if not rest.terms and quotient.terms and extent.split(divisor)[1] == Polynomial({}):
            weights.append(divisor)
    if len(weights) == 1:
        return []
    bounds = [*weights[1:], extent]
    digits = [
        (Var(f"{var.name}.{number}"), bound.split(weight)[0], weight)
        for number, (weight, bound) in enumerate(zip(weights, bounds, strict=True))
    ]
    return digits[::-1]


def settled(polynomial: Polynomial, digits: Mapping[str, Polynomial]) -> Polynomial:
    """Replace quotients and remainders of a digit that is below the divisor: ``j div Y`` is 0 and ``j mod Y`` is j."""
    result = polynomial
    for atom in polynomial.atoms():
        if not isinstance(atom, FloorDiv | Mod):
            continue
        numerator, divisor = settled(normalize(atom.left), digits), normalize(atom.right)
        if _below(numerator, divisor, digits):
            result = result.substitute(atom, Polynomial({}) if isinstance(atom, FloorDiv) else numerator)
        elif numerator != normalize(atom.left):
            again = type(atom)(numerator.to_index(), atom.right)
            result = result.substitute(atom, settled(normalize(again), digits))
    return result


def _below(numerator: Polynomial, divisor: Polynomial, digits: Mapping[str, Polynomial]) -> bool:
    if any(value < 0 for value in numerator.terms.values()):
        return False
    largest = numerator
    for atom in numerator.atoms():
        if _is_size(atom):
            continue
        count = digits.get(atom.name) if isinstance(atom, Var) else None
        if count is None:
            return False
        largest = largest.substitute(atom, count - 1)
    gap = (divisor - 1 - largest).terms
    return all(value >= 0 and all(_is_size(a) for a in monomial) for monomial, value in gap.items())


def _is_size(atom: Index) -> bool:
    """Return whether an atom is an argument or a quotient of arguments: the same in all iterations, never negative."""
    match atom:
        case Param(minimum=least):
            return least >= 0
        case FloorDiv(left=left, right=right):  # the division proof shows both signs
            return all(_is_size(part) for side in (left, right) for part in normalize(side).atoms())
        case _:
            return False
