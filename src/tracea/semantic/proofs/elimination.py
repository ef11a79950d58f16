"""Fourier–Motzkin elimination over the integers: whether a set of linear inequalities has no solution.

Each monomial of the given polynomials counts as one unknown. Rows are divided by the common factor of their
coefficients, and the constant is rounded down, as integers allow: ``2x − 1 >= 0`` becomes ``x − 1 >= 0``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tracea.semantic.linear import Monomial, Polynomial

__all__ = ["eliminates"]

_MAX_ROWS = 260

# Unknowns are numbered. A direction is the pairs (unknown, coefficient) of a row in order; rows map each direction to
# the smallest constant that it occurs with: direction·x + constant >= 0.
_Direction = tuple[tuple[int, int], ...]
_Rows = dict[_Direction, int]


def eliminates(constraints: Sequence[Polynomial]) -> bool:
    """Return whether it was shown that not all polynomials can be >= 0 at once."""
    rows = _numbered(constraints)
    while rows:
        rows = _without_equalities(rows)
        if not rows:
            break
        counts: dict[int, list[int]] = {}
        for direction in rows:
            for unknown, value in direction:
                counts.setdefault(unknown, [0, 0])[value > 0] += 1
        chosen = min(counts, key=lambda u: (counts[u][0] * counts[u][1] - sum(counts[u]), u))
        rest: _Rows = {}
        lower: list[tuple[dict[int, int], int, int]] = []
        upper: list[tuple[dict[int, int], int, int]] = []
        for direction, offset in rows.items():
            terms = dict(direction)
            value = terms.pop(chosen, 0)
            if not value:
                rest[direction] = offset
            else:
                (lower if value > 0 else upper).append((terms, offset, abs(value)))
        for low, low_offset, low_factor in lower:
            for high, high_offset, high_factor in upper:
                terms = {unknown: value * high_factor for unknown, value in low.items()}
                for unknown, value in high.items():
                    terms[unknown] = terms.get(unknown, 0) + value * low_factor
                if not _insert(rest, terms, low_offset * high_factor + high_offset * low_factor):
                    return True
        if len(rest) > _MAX_ROWS:
            return False
        rows = rest
    return rows is None


def _numbered(constraints: Sequence[Polynomial]) -> _Rows | None:
    """Return the polynomials as rows, unknowns in the order of their text; None at a contradiction."""
    monomials = {monomial for row in constraints for monomial in row.terms if monomial}
    order: dict[Monomial, int] = {
        monomial: number for number, monomial in enumerate(sorted(monomials, key=lambda m: [a.text for a in m]))
    }
    rows: _Rows = {}
    for row in constraints:
        terms = {order[monomial]: value for monomial, value in row.terms.items() if monomial}
        if not _insert(rows, terms, row.offset):
            return None
    return rows


def _insert(rows: _Rows, terms: dict[int, int], offset: int) -> bool:
    """Add a row in lowest terms where it is tighter than the one there; return whether no contradiction shows."""
    direction = tuple(sorted([item for item in terms.items() if item[1]]))
    if not direction:
        return offset >= 0
    content = gcd(*[value for _, value in direction])
    if content > 1:
        direction = tuple([(unknown, value // content) for unknown, value in direction])
        offset //= content
    known = rows.get(direction)
    if known is not None and known <= offset:
        return True
    rows[direction] = offset
    opposite = rows.get(tuple([(unknown, -value) for unknown, value in direction]))
    return opposite is None or offset + opposite >= 0


def _without_equalities(rows: _Rows) -> _Rows | None:
    """Substitute unknowns of coefficient 1 that two opposite rows determine; None at a contradiction."""
    while True:
        found = _equality(rows)
        if found is None:
            return rows
        direction, unknown, sign = found
        equal, equal_offset = dict(direction), rows[direction]
        skipped = (direction, tuple((other, -value) for other, value in direction))
        replaced: _Rows = {}
        for other, offset in rows.items():
            if other in skipped:
                continue
            terms = dict(other)
            factor = terms.get(unknown, 0) * sign
            if not factor:
                if not _insert(replaced, terms, offset):
                    return None
                continue
            for name, value in equal.items():
                terms[name] = terms.get(name, 0) - value * factor
            if not _insert(replaced, terms, offset - equal_offset * factor):
                return None
        rows = replaced


def _equality(rows: _Rows) -> tuple[_Direction, int, int] | None:
    """Return a row that holds with equality, an unknown that it determines, and that unknown's coefficient."""
    for direction, offset in rows.items():
        if direction[0][1] < 0:
            continue  # the opposite row stands for both
        opposite = rows.get(tuple([(unknown, -value) for unknown, value in direction]))
        if opposite is None or offset + opposite:
            continue
        for unknown, value in direction:
            if value in (1, -1):
                return direction, unknown, value
    return None
