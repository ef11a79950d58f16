"""The nodes of a norm's gradients: rows or planes of the gradient for its source, and what they add to the others."""

from __future__ import annotations

from dataclasses import dataclass

from tracea.core.ops.rows import RowKind
from tracea.semantic.nodes import Access, Intrinsic, Node, Region, reads, writes

__all__ = ["NormGradientTile", "PlaneGradientTile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NormGradientTile(Node):
    """target = the gradient of a norm of whole rows for its source; sums = of grads · normal, and of grads, over them.

    Shapes:
        grads, source, target: (rows, columns); weight: (1, columns); sums: (1, 2 or, of RMS norm, 1, columns).
    """

    kind: RowKind
    intrinsic: Intrinsic
    grads: Region
    source: Region
    weight: Region | None
    target: Region
    sums: Region
    eps: float = 0.0

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the operands and the writes of the rows and of the sums."""
        return reads(self.grads, self.source, self.weight) + writes(self.target, self.sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneGradientTile(Node):
    """target = the gradient of a layer norm of all of its planes for their source; sums = what they add to the others.

    A row of ``sums`` has the sums of grads · normal, one of grads: a number for each plane that has a weight of its
    own, or one for all of them.

    Shapes:
        grads, source, target: (1, 1, planes, length); weight: (1, 1, planes or 1, 1); sums: (1, 2, planes or 1).
    """

    intrinsic: Intrinsic
    grads: Region
    source: Region
    weight: Region | None
    target: Region
    sums: Region
    eps: float = 0.0

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the operands and the writes of the planes and of the sums."""
        return reads(self.grads, self.source, self.weight) + writes(self.target, self.sums)
