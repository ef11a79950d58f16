"""The node of two results a place."""

from __future__ import annotations

from dataclasses import dataclass

from tracea.core.expr import Expr
from tracea.semantic.nodes import Access, Intrinsic, Node, Region, reads, writes

__all__ = ["PairsTile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsTile(Node):
    """target[..., 0] = first(inputs), target[..., 1] = second(inputs), elementwise.

    Shapes:
        the inputs broadcast to the target's extent without its last axis, which has 2 elements.
    """

    intrinsic: Intrinsic
    first: Expr
    second: Expr
    inputs: tuple[Region, ...]
    target: Region

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the inputs and the write of the target."""
        return reads(*self.inputs) + writes(self.target)
