"""Fourier–Motzkin elimination over the integers: whether a set of linear inequalities has no solution.

Each monomial of the given polynomials counts as one unknown. Rows are divided by the common factor of their
coefficients, and the constant is rounded down, as integers allow: ``2x − 1 >= 0`` becomes ``x − 1 >= 0``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd

from tracea.semantic.linear import Monomial, Polynomial

__all__ = ["eliminates"]

_MAX_ROWS = 260

# Unknowns are numbered. A direction is the pairs (unknown, coefficient) of a row in order; rows map each direction to
# the smallest constant that it occurs with: direction·x + constant >= 0.
_Direction = tuple[tuple[int, int], ...]


class _Contradiction(Exception):
    """No values satisfy all rows."""


class _Rows:
    """Rows in lowest terms, each direction once; ``pairs``: one was added whose opposite makes it an equality."""

    __slots__ = ("offsets", "pairs")

    def __init__(self) -> None:
        self.offsets: dict[_Direction, int] = {}
        self.pairs = False

    def add(self, terms: dict[int, int], offset: int) -> None:
        """Add a row where it is tighter than the one there.

        Raises:
            _Contradiction: it cannot hold, alone or with its opposite.
        """
        direction = tuple(sorted([item for item in terms.items() if item[1]]))
        if not direction:
            if offset < 0:
                raise _Contradiction
            return
        content = gcd(*[value for _, value in direction])
        if content > 1:
            direction = tuple([(unknown, value // content) for unknown, value in direction])
            offset //= content
        known = self.offsets.get(direction)
        if known is not None and known <= offset:
            return
        self.offsets[direction] = offset
        opposite = self.offsets.get(tuple([(unknown, -value) for unknown, value in direction]))
        if opposite is None:
            return
        if offset + opposite < 0:
            raise _Contradiction
        self.pairs = self.pairs or offset + opposite == 0


@lru_cache(maxsize=16_384)  # two of three questions are asked again: at another place, or of another kernel
def eliminates(constraints: tuple[Polynomial, ...]) -> bool:
    """Return whether it was shown that not all polynomials can be >= 0 at once."""
    try:
        rows = _numbered(constraints)
        while rows.offsets:
            rows = _without_equalities(rows)
            counts = _bounded(rows)
            if not counts:
                return False
            rows = _without(rows, min(counts, key=lambda u: (counts[u][0] * counts[u][1] - sum(counts[u]), u)))
            if len(rows.offsets) > _MAX_ROWS:
                return False
    except _Contradiction:
        return True
    return False


def _numbered(constraints: Sequence[Polynomial]) -> _Rows:
    """Return the polynomials as rows, unknowns in the order in which they occur."""
    order: dict[Monomial, int] = {}
    rows = _Rows()
    for row in constraints:
        rows.add({order.setdefault(m, len(order)): value for m, value in row.terms.items() if m}, row.offset)
    return rows


def _bounded(rows: _Rows) -> dict[int, list[int]]:
    """Drop rows with an unknown that no row bounds from the other side; return how often each other one is bounded."""
    while True:
        counts: dict[int, list[int]] = {}
        for direction in rows.offsets:
            for unknown, value in direction:
                counts.setdefault(unknown, [0, 0])[value > 0] += 1
        free = {unknown for unknown, (below, above) in counts.items() if not below or not above}
        if not free:
            return counts
        for direction in [d for d in rows.offsets if any(unknown in free for unknown, _ in d)]:
            del rows.offsets[direction]


def _without(rows: _Rows, chosen: int) -> _Rows:
    """Return the rows that all pairs of bounds of an unknown make of it, and those without it."""
    rest = _Rows()
    lower: list[tuple[dict[int, int], int, int]] = []
    upper: list[tuple[dict[int, int], int, int]] = []
    for direction, offset in rows.offsets.items():
        terms = dict(direction)
        value = terms.pop(chosen, 0)
        if not value:
            rest.offsets[direction] = offset
        else:
            (lower if value > 0 else upper).append((terms, offset, abs(value)))
    for low, low_offset, low_factor in lower:
        for high, high_offset, high_factor in upper:
            terms = {unknown: value * high_factor for unknown, value in low.items()}
            for unknown, value in high.items():
                terms[unknown] = terms.get(unknown, 0) + value * low_factor
            rest.add(terms, low_offset * high_factor + high_offset * low_factor)
    return rest


def _without_equalities(rows: _Rows) -> _Rows:
    """Substitute unknowns of coefficient 1 that two opposite rows determine."""
    while rows.pairs:
        found = _equality(rows)
        if found is None:
            rows.pairs = False
            break
        direction, unknown, sign = found
        equal, equal_offset = dict(direction), rows.offsets[direction]
        skipped = (direction, tuple((other, -value) for other, value in direction))
        replaced = _Rows()
        replaced.pairs = True  # others may be left
        moved: list[tuple[dict[int, int], int]] = []
        for other, offset in rows.offsets.items():
            terms = dict(other)
            factor = terms.get(unknown, 0) * sign
            if not factor:
                replaced.offsets[other] = offset
            elif other not in skipped:
                for name, value in equal.items():
                    terms[name] = terms.get(name, 0) - value * factor
                moved.append((terms, offset - equal_offset * factor))
        for terms, offset in moved:
            replaced.add(terms, offset)
        rows = replaced
    return rows


def _equality(rows: _Rows) -> tuple[_Direction, int, int] | None:
    """Return a row that holds with equality, an unknown that it determines, and that unknown's coefficient."""
    for direction, offset in rows.offsets.items():
        if direction[0][1] < 0:
            continue  # the opposite row stands for both
        opposite = rows.offsets.get(tuple([(unknown, -value) for unknown, value in direction]))
        if opposite is None or offset + opposite:
            continue
        for unknown, value in direction:
            if value in (1, -1):
                return direction, unknown, value
    return None
