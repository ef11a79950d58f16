"""The nodes of a convolution by Winograd's F(m, r): the transforms around its products.

A tile is m by m results of one filter, computed from n by n pixels, n = m + r - 1, at n² ``places``. Rows and columns
of tiles are counted by ``tiles``; one tile follows the other along a row. The products of a place are a matrix product,
tiles by channels by filters: a :class:`~tracea.semantic.nodes.MicroKernel` whose routine is ``place_tile``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracea.core.expr import Expr
from tracea.errors import InvalidSchedule
from tracea.semantic.access import Access, AccessMode, Region, reads, writes
from tracea.semantic.index import Index
from tracea.semantic.nodes import MicroKernel, Node
from tracea.semantic.winograd import ALGORITHMS, Algorithm

__all__ = ["TransformBack", "TransformFilters", "TransformImage", "is_place_product"]


def is_place_product(node: MicroKernel) -> bool:
    """Whether a tile sums the products of one place of the transformed image."""
    return node.intrinsic.name == "place_tile"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transform(Node):
    m: int
    taps: int

    def __post_init__(self) -> None:
        if (self.m, self.taps) not in ALGORITHMS:
            raise InvalidSchedule(
                field=f"{type(self).__name__}.m, taps",
                got=[self.m, self.taps],
                expected=list(ALGORITHMS),
                remedy="choose one of them",
            )

    @property
    def algorithm(self) -> Algorithm:
        """The matrices of F(m, taps)."""
        return ALGORITHMS[self.m, self.taps]

    @property
    def title(self) -> str:
        """The algorithm's name."""
        return f"F({self.m}, {self.taps})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformImage(_Transform):
    """target = Bᵀ d B of every tile of an image, zeros standing outside of the image's buffer.

    Shapes:
        source: (1, …, m · rows + r - 1, m · columns + r - 1, channels), masked; target: (places, rows · columns,
            channels).
    """

    source: Region
    target: Region
    tiles: tuple[Index, Index]

    def accesses(self) -> tuple[Access, ...]:
        """Return the masked read and the write."""
        return (Access(self.source, AccessMode.READ, masked=True), *writes(self.target))


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformFilters(_Transform):
    """target = G g Gᵀ of every channel of a panel of filters; columns without a filter are zero.

    Shapes:
        source: (1, …, r, r, channels, filters); target: (1, …, places, channels, panel).
    """

    source: Region
    target: Region

    def accesses(self) -> tuple[Access, ...]:
        """Return the read and the write."""
        return reads(self.source) + writes(self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformBack(_Transform):
    """target = expr(Aᵀ p A, operands) of every tile's products, as far as the target's rows and columns reach.

    ``expr`` is over Input(0), a result, and Input(i), operand i − 1, which broadcasts to the target.

    Shapes:
        source: (places, rows · columns, filters); target: (1, …, p, q, filters), p ≤ m · rows, q ≤ m · columns.
    """

    source: Region
    target: Region
    tiles: tuple[Index, Index]
    expr: Expr
    operands: tuple[Region, ...] = ()

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the products and the operands, and the write of the results."""
        return reads(self.source, *self.operands) + writes(self.target)
