"""Divisibility: by what an expression is a multiple for all arguments, from strides' guards and loops' steps.

Worked example: where the launcher checks ``lda % 8 == 0``, the offset ``(row·lda + 32·k) · 2 bytes`` is a multiple of
16 bytes: ``row`` may be anything, since ``2·lda`` is one.
"""

from __future__ import annotations

from math import gcd

from tracea.semantic.index import Compare, Const, Index, Max, Min, Mod, Param
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.predicate import And, Predicate, Relation
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["Divisibility"]


class Divisibility:
    """What the guards of a kernel say about remainders."""

    def __init__(self, kernel: TileKernel) -> None:
        self._known: dict[Index, int] = {}
        for param in kernel.params:
            if param.minimum == param.maximum:
                self._known[param] = param.minimum
        for guard in _parts(kernel.assumptions):
            self._learn(guard)

    def of(self, polynomial: Polynomial) -> int:
        """Return the largest known divisor of every value; 0 where the value is always 0."""
        result = 0
        for monomial, value in polynomial.terms.items():
            term = abs(value)
            for atom in monomial:
                term *= self._of_atom(atom)
            result = gcd(result, term)
        return result

    def divides(self, divisor: int, polynomial: Polynomial) -> bool:
        """Return whether every value was shown to be a multiple."""
        return self.of(polynomial) % divisor == 0

    def _of_atom(self, atom: Index) -> int:
        if atom in self._known:
            return self._known[atom]
        match atom:
            case Min(left=left, right=right) | Max(left=left, right=right):
                return gcd(self.of(normalize(left)), self.of(normalize(right)))
            case Mod(left=left, right=right):
                return gcd(self.of(normalize(left)), self.of(normalize(right)))
            case _:
                return 1

    def _learn(self, guard: Predicate) -> None:
        """Learn from ``c·x mod m == 0`` that x is a multiple of ``m / gcd(c, m)``."""
        if not isinstance(guard, Compare) or guard.relation is not Relation.EQ:
            return
        for side, other in ((guard.left, guard.right), (guard.right, guard.left)):
            if other == Const(0) and isinstance(side, Mod):
                modulus, numerator = side.right.constant, normalize(side.left)
                if modulus is None or modulus < 1 or len(numerator.terms) != 1:
                    continue
                ((monomial, factor),) = numerator.terms.items()
                if len(monomial) == 1 and isinstance(monomial[0], Param):
                    atom, divisor = monomial[0], modulus // gcd(factor, modulus)
                    known = self._known.get(atom, 1)
                    self._known[atom] = known * divisor // gcd(known, divisor) if known else 0


def _parts(predicate: Predicate) -> tuple[Predicate, ...]:
    if not isinstance(predicate, And):
        return (predicate,)
    return tuple(part for inner in predicate.parts for part in _parts(inner))
