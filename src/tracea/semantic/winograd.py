"""Winograd's minimal filtering F(m, r) along rows and columns: the matrices, what they mean, and that they are right.

``m`` neighbouring results of a filter of ``r`` taps take ``n = m + r - 1`` products instead of ``r m``: with the
image's ``n`` elements d and the taps g they are ``Aᵀ((G g) ⊙ (Bᵀ d))``; in two dimensions each matrix is applied to
both axes. (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016, sections 4.1 and 4.3.) Products are
values of polynomials at points: 0, 1, -1 and infinity for n = 4, also 2 and -2 for n = 6. Bᵀ depends on these alone, so
that F(2, 5) transforms the image as F(4, 3) does; row k of G is the powers of point k over that row's scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, Final

import numpy as np

__all__ = ["ALGORITHMS", "Algorithm", "results_of"]

Array = np.ndarray[Any, Any]
Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """F(m, r): ``image`` is Bᵀ (n, n), ``filters`` G (n, r), ``result`` Aᵀ (m, n)."""

    image: Matrix
    filters: Matrix
    result: Matrix

    @property
    def m(self) -> int:
        """Results of a tile, along each axis."""
        return len(self.result)

    @property
    def taps(self) -> int:
        """Taps of a filter, along each axis."""
        return len(self.filters[0])

    @property
    def n(self) -> int:
        """Pixels of a tile, and products, along each axis."""
        return len(self.image)

    def is_exact(self) -> bool:
        """Whether the matrices give each result its taps over its pixels, and nothing else, in exact sums.

        Σ_k Aᵀ[i, k] · G[k, t] · Bᵀ[k, j] has to be 1 where j = i + t and else 0: both sides are bilinear in d and g. Of
        two axes it follows, since each is applied on its own.
        """
        return all(
            sum(self.result[i][k] * self.filters[k][t] * self.image[k][j] for k in range(self.n)) == int(j == i + t)
            for i, t, j in product(range(self.m), range(self.taps), range(self.n))
        )

    def transformed_image(self, tiles: Array) -> Array:
        """Return Bᵀ d B of tiles (…, n, n)."""
        return _both_sides(self.image, tiles)

    def transformed_filters(self, taps: Array) -> Array:
        """Return G g Gᵀ of taps (…, r, r)."""
        return _both_sides(self.filters, taps)

    def results(self, products: Array) -> Array:
        """Return Aᵀ p A of products (…, n, n)."""
        return _both_sides(self.result, products)


def _both_sides(matrix: Matrix, values: Array) -> Array:
    known = np.array([[float(entry) for entry in row] for row in matrix])
    return known @ values @ known.T


def _matrix(rows: Sequence[Sequence[int]], over: Sequence[int] | None = None) -> Matrix:
    divisors = over or [1] * len(rows)
    return tuple(tuple(Fraction(x, divisor) for x in row) for row, divisor in zip(rows, divisors, strict=True))


_FOUR: Final = _matrix([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
_SIX: Final = _matrix(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
)
_SIX_SCALES: Final = (4, 6, 6, 24, 24, 1)

# By results and taps along each axis.
ALGORITHMS: Final = {
    (2, 3): Algorithm(
        image=_FOUR,
        filters=_matrix([[1, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 1]], [1, 2, 2, 1]),
        result=_matrix([[1, 1, 1, 0], [0, 1, -1, -1]]),
    ),
    (4, 3): Algorithm(
        image=_SIX,
        filters=_matrix([[1, 0, 0], [-1, -1, -1], [-1, 1, -1], [1, 2, 4], [1, -2, 4], [0, 0, 1]], _SIX_SCALES),
        result=_matrix([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]),
    ),
    (2, 5): Algorithm(
        image=_SIX,
        filters=_matrix(
            [
                [1, 0, 0, 0, 0],
                [-1, -1, -1, -1, -1],
                [-1, 1, -1, 1, -1],
                [1, 2, 4, 8, 16],
                [1, -2, 4, -8, 16],
                [0, 0, 0, 0, 1],
            ],
            _SIX_SCALES,
        ),
        result=_matrix([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 1]]),
    ),
}


def results_of(taps: int) -> tuple[int, ...]:
    """Return the m of every F(m, taps) that is known."""
    return tuple(m for m, r in ALGORITHMS if r == taps)
