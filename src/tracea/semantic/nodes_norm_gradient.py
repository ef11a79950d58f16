"""The node of a norm's gradients: rows of the gradient for its source, and what a block of rows adds to the others."""

from __future__ import annotations

from dataclasses import dataclass

from tracea.core.ops.rows import RowKind
from tracea.semantic.nodes import Access, Intrinsic, Node, Region, reads, writes

__all__ = ["NormGradientTile"]


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
