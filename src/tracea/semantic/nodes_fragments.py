"""Nodes on fragments: matrix loads and products, the late ones too, and what is done to sums before a store."""

from __future__ import annotations

from dataclasses import dataclass

from tracea.semantic.index import FALSE, Index, Predicate, as_index
from tracea.semantic.nodes import (
    Access,
    AccessMode,
    EpilogueCall,
    Intrinsic,
    Node,
    Region,
    Scalar,
    coerce,
    reads,
    writes,
)

__all__ = [
    "Clear",
    "FragmentOp",
    "LoadMatrix",
    "Mma",
    "StoreFragment",
    "Wgmma",
    "WgmmaCommit",
    "WgmmaFence",
    "WgmmaWait",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMatrix(Node):
    """Load a matrix tile from shared memory into a fragment, in the instruction's lane map (``ldmatrix``).

    ``intrinsic.meaning(tile) -> fragment`` in the shape of the target's extent.
    """

    intrinsic: Intrinsic
    source: Region
    target: Region

    def accesses(self) -> tuple[Access, ...]:
        """Return the read of the tile and the write of the fragment."""
        return reads(self.source) + writes(self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mma(Node):
    """c = a·b + c on fragments, c = a·b where not ``accumulate``; done when the next node begins (``mma.sync``).

    ``intrinsic.meaning(a, b, c) -> c`` on fragments; c is 0 where not accumulating.
    """

    intrinsic: Intrinsic
    a: Region
    b: Region
    c: Region
    accumulate: Predicate = FALSE

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the operands and the update of the accumulator."""
        mode = AccessMode.WRITE if self.accumulate == FALSE else AccessMode.UPDATE
        return (*reads(self.a, self.b), Access(self.c, mode))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wgmma(Node):
    """As :class:`Mma`, but late: operands are still read, and c is undefined, until the group was waited for."""

    intrinsic: Intrinsic
    a: Region
    b: Region
    c: Region
    accumulate: Predicate = FALSE

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the operands and the update of the accumulator."""
        mode = AccessMode.WRITE if self.accumulate == FALSE else AccessMode.UPDATE
        return (*reads(self.a, self.b), Access(self.c, mode))


@dataclass(frozen=True, slots=True, kw_only=True)
class WgmmaFence(Node):
    """Order what the executor did to registers before the matrix operations that follow (``wgmma.fence``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WgmmaCommit(Node):
    """Close the executor's open group of matrix operations (``wgmma.commit_group``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WgmmaWait(Node):
    """Wait until all but the latest ``pending`` groups of matrix operations are complete (``wgmma.wait_group``)."""

    pending: Index

    def __post_init__(self) -> None:
        coerce(self, "pending")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clear(Node):
    """Set a fragment to 0: where a sum begins."""

    target: Region

    def accesses(self) -> tuple[Access, ...]:
        """Return the write."""
        return writes(self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentOp(Node):
    """A vector operation on fragments and row state: scale, online softmax, accumulator to operand.

    ``intrinsic.meaning(*inputs, *updates, *indices)`` returns the outputs and then the new updates, a tuple if more
    than one.
    """

    intrinsic: Intrinsic
    inputs: tuple[Region | Scalar, ...] = ()
    updates: tuple[Region, ...] = ()
    outputs: tuple[Region, ...] = ()
    indices: tuple[Index, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", tuple(map(as_index, self.indices)))

    def accesses(self) -> tuple[Access, ...]:
        """Return reads, updates and writes, in that order."""
        regions = (region for region in self.inputs if isinstance(region, Region))
        updates = tuple(Access(region, AccessMode.UPDATE) for region in self.updates)
        return reads(*regions) + updates + writes(*self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFragment(Node):
    """Store a fragment as a matrix tile, through the epilogue; the target's extent is the mask.

    ``intrinsic.meaning(fragment) -> tile`` has at least the target's extent; more is dropped.
    """

    intrinsic: Intrinsic
    source: Region
    target: Region
    epilogue: EpilogueCall | None = None

    def accesses(self) -> tuple[Access, ...]:
        """Return the read of the fragment, what the epilogue reads, and the write of the target."""
        operands = self.epilogue.accesses() if self.epilogue else ()
        return reads(self.source) + operands + writes(self.target)
