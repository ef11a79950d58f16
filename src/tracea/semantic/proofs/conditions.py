"""Conditions as cases, each of polynomials that are all >= 0: what a prover of inequalities takes."""

from __future__ import annotations

from math import prod
from typing import Final

from tracea.semantic.index import Compare, Relation
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.predicate import And, Not, Or, Predicate
from tracea.semantic.proofs.certificate import refuse

__all__ = ["MOST_CASES", "alternatives", "conjuncts"]

MOST_CASES: Final = 256  # each goal is shown in each case


def conjuncts(predicate: Predicate) -> tuple[Polynomial, ...] | None:
    """Return a condition as polynomials that are all >= 0; None where it has several cases."""
    cases = alternatives(predicate)
    return cases[0] if len(cases) == 1 else None


def alternatives(predicate: Predicate) -> tuple[tuple[Polynomial, ...], ...]:
    """Return a condition as cases, each of polynomials that are all >= 0; no case is false.

    Raises:
        ProofFailed: there are more than anybody waits for: each difference in a conjunction doubles them.
    """
    if not isinstance(predicate, Compare):
        count = _count(predicate)
        if count > MOST_CASES:
            detail = f"has {count} cases, of which at most {MOST_CASES} are looked at"
            raise refuse("conditions", str(predicate), detail)
    return _alternatives(predicate)


def _count(predicate: Predicate) -> int:
    """Return the number of a condition's cases."""
    match predicate:
        case Compare(relation=relation):
            return 2 if relation is Relation.NE else 1
        case And(parts=parts):
            return prod(map(_count, parts))
        case Or(parts=parts):
            return sum(map(_count, parts))
        case Not(part=part):
            return _count(_negated(part))
        case _:
            raise TypeError(f"not a predicate: {predicate!r}")


def _alternatives(predicate: Predicate) -> tuple[tuple[Polynomial, ...], ...]:
    match predicate:
        case Compare(relation=relation, left=left, right=right):
            difference = normalize(right) - normalize(left)
            match relation:
                case Relation.LE:
                    return ((difference,),)
                case Relation.LT:
                    return ((difference - 1,),)
                case Relation.EQ:
                    return ((difference, -difference),)
                case Relation.NE:
                    return ((difference - 1,), (-difference - 1,))
        case And(parts=parts):
            cases: tuple[tuple[Polynomial, ...], ...] = ((),)
            for part in parts:
                cases = tuple((*before, *case) for before in cases for case in _alternatives(part))
            return cases
        case Or(parts=parts):
            return tuple(case for part in parts for case in _alternatives(part))
        case Not(part=part):
            return _alternatives(_negated(part))
        case _:
            raise TypeError(f"not a predicate: {predicate!r}")


def _negated(predicate: Predicate) -> Predicate:
    match predicate:
        case Compare(relation=Relation.LT, left=left, right=right):
            return Compare(Relation.LE, right, left)
        case Compare(relation=Relation.LE, left=left, right=right):
            return Compare(Relation.LT, right, left)
        case Compare(relation=relation, left=left, right=right):
            return Compare(Relation.NE if relation is Relation.EQ else Relation.EQ, left, right)
        case And(parts=parts):
            return Or(tuple(Not(part) for part in parts))
        case Or(parts=parts):
            return And(tuple(Not(part) for part in parts))
        case Not(part=part):
            return part
        case _:
            raise TypeError(f"not a predicate: {predicate!r}")
