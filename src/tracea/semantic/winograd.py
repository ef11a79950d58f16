"""Winograd's minimal filtering F(m, 3) along rows and columns: the matrices, what they mean, and that they are right.

``m`` neighbouring results of a filter of three taps take ``n = m + 2`` products instead of ``3 m``: with the image's
``n`` elements d and the taps g they are ``Aᵀ((G g) ⊙ (Bᵀ d))``; in two dimensions each matrix is applied to both axes.
(Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016, sections 4.1 and 4.3.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, Final

import numpy as np

__all__ = ["ALGORITHMS", "TAPS", "Algorithm"]

Array = np.ndarray[Any, Any]
Matrix = tuple[tuple[Fraction, ...], ...]

TAPS: Final = 3


@dataclass(frozen=True, slots=True)
class Algorithm:
    """F(m, 3): ``image`` is Bᵀ (n, n), ``filters`` G (n, 3), ``result`` Aᵀ (m, n)."""

    image: Matrix
    filters: Matrix
    result: Matrix

    @property
    def m(self) -> int:
        """Results of a tile, along each axis."""
        return len(self.result)

    @property
    def n(self) -> int:
        """Pixels of a tile, and products, along each axis."""
        return len(self.image)

    def is_exact(self) -> bool:
        """Whether the matrices give each result its three taps over its three pixels, and nothing else, in exact sums.

        Σ_k Aᵀ[i, k] · G[k, t] · Bᵀ[k, j] has to be 1 where j = i + t and else 0: both sides are bilinear in d and g. Of
        two axes it follows, since each is applied on its own.
        """
        return all(
            sum(self.result[i][k] * self.filters[k][t] * self.image[k][j] for k in range(self.n)) == int(j == i + t)
            for i, t, j in product(range(self.m), range(TAPS), range(self.n))
        )

    def transformed_image(self, tiles: Array) -> Array:
        """Return Bᵀ d B of tiles (…, n, n)."""
        return _both_sides(self.image, tiles)

    def transformed_filters(self, taps: Array) -> Array:
        """Return G g Gᵀ of taps (…, 3, 3)."""
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


ALGORITHMS: Final = {
    2: Algorithm(
        image=_matrix([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]),
        filters=_matrix([[1, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 1]], [1, 2, 2, 1]),
        result=_matrix([[1, 1, 1, 0], [0, 1, -1, -1]]),
    ),
    4: Algorithm(
        image=_matrix(
            [
                [4, 0, -5, 0, 1, 0],
                [0, -4, -4, 1, 1, 0],
                [0, 4, -4, -1, 1, 0],
                [0, -2, -1, 2, 1, 0],
                [0, 2, -1, -2, 1, 0],
                [0, 4, 0, -5, 0, 1],
            ]
        ),
        filters=_matrix([[1, 0, 0], [-1, -1, -1], [-1, 1, -1], [1, 2, 4], [1, -2, 4], [0, 0, 1]], [4, 6, 6, 24, 24, 1]),
        result=_matrix([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]),
    ),
}
