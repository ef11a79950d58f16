"""The nodes of a norm's gradients: rows or planes of the gradient for its source, and what they add to the others."""

from __future__ import annotations

from dataclasses import dataclass

from tracea.core.ops.rows import RowKind
from tracea.semantic.nodes import Access, Intrinsic, Node, Region, reads, writes

__all__ = ["NormGradientTile", "PlaneGradientTile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gradients(Node):
    """target = the gradient of a norm of the source, given ``grads`` of its result; sums = what it adds to the others.

    They are of grads · normal, in the first row, and, where the norm takes a mean away, of grads in the second.
    """

    intrinsic: Intrinsic
    grads: Region
    source: Region
    weight: Region | None
    target: Region
    sums: Region
    eps: float = 0.0

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the operands and the writes of the gradient and of the sums."""
        return reads(self.grads, self.source, self.weight) + writes(self.target, self.sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class NormGradientTile(_Gradients):
    """The gradient of a norm of whole rows, each for itself, and sums over them.

    Shapes:
        grads, source, target: (rows, columns); weight: (1, columns); sums: (1, 2 or, of RMS norm, 1, columns).
    """

    kind: RowKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneGradientTile(_Gradients):
    """The gradient of a layer norm of all of its planes, and sums of each plane with a weight of its own, or of all.

    Shapes:
        grads, source, target: (1, 1, planes, length); weight: (1, 1, planes or 1, 1); sums: (1, 2, planes or 1).
    """
