"""Nodes of GPU kernels: asynchronous copies and their waits, roles, gathers, segments and flags, beside the fragments'.

Phases: use number ``k`` of a ring of ``N`` stages takes slot ``k mod N`` with parity ``(k div N) mod 2``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tracea.errors import InvalidSchedule
from tracea.semantic.index import Index, Predicate, Var, as_index
from tracea.semantic.nodes import Access, AccessMode, Block, Node, Region, coerce, reads, writes
from tracea.semantic.nodes_fragments import (
    Clear,
    FragmentOp,
    LoadMatrix,
    Mma,
    StoreFragment,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)

__all__ = [
    "MOST_USES",
    "AsyncCopy",
    "AwaitFlag",
    "Clear",
    "CommitGroup",
    "FragmentOp",
    "Gather",
    "LoadMatrix",
    "MbarrierArrive",
    "MbarrierExpect",
    "MbarrierInit",
    "MbarrierWait",
    "Mma",
    "Role",
    "Roles",
    "SegmentLoop",
    "SignalFlag",
    "StoreFragment",
    "TileLoop",
    "TmaCopy",
    "TmaDescriptor",
    "WaitGroup",
    "Wgmma",
    "WgmmaCommit",
    "WgmmaFence",
    "WgmmaWait",
]


MOST_USES: Final = 2**31 - 2**12  # of all turns together: some room in 32 bits for what is added to a use number


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncCopy(Node):
    """Copy global to shared memory (``cp.async``): the target is undefined until the copy's group was waited for.

    ``masked``: what lies outside of the source's buffer becomes 0, by the instruction's zero fill. Each lane moves
    pieces of ``chunk_bytes`` along the last axis; pieces narrower than 4 bytes have no such instruction, and are loaded
    and stored at once, which the contract allows.
    """

    source: Region
    target: Region
    masked: bool = False
    chunk_bytes: int = 16

    def __post_init__(self) -> None:
        if self.chunk_bytes not in (1, 2, 4, 8, 16):
            raise InvalidSchedule(
                field="AsyncCopy: chunk bytes",
                got=self.chunk_bytes,
                expected="1, 2, 4, 8 or 16",
                remedy="16 where addresses and strides allow, else the element's size",
            )

    def accesses(self) -> tuple[Access, ...]:
        """Return the (masked) read and the write."""
        return (Access(self.source, AccessMode.READ, masked=self.masked), Access(self.target, AccessMode.WRITE))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitGroup(Node):
    """Close the executor's open group of copies, which may be empty (``cp.async.commit_group``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitGroup(Node):
    """Wait until all but the executor's latest ``pending`` groups are complete (``cp.async.wait_group``)."""

    pending: Index

    def __post_init__(self) -> None:
        coerce(self, "pending")


@dataclass(frozen=True, slots=True, kw_only=True)
class MbarrierInit(Node):
    """Set up one barrier of an array: a phase completes after ``count`` arrivals and all expected bytes."""

    barrier: str
    slot: Index
    count: Index

    def __post_init__(self) -> None:
        coerce(self, "slot", "count")


@dataclass(frozen=True, slots=True, kw_only=True)
class MbarrierExpect(Node):
    """Arrive, and expect ``nbytes`` more bytes in the current phase (``mbarrier.arrive.expect_tx``)."""

    barrier: str
    slot: Index
    nbytes: Index

    def __post_init__(self) -> None:
        coerce(self, "slot", "nbytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class MbarrierArrive(Node):
    """Arrive: what the executor read and wrote before happened before the phase completes."""

    barrier: str
    slot: Index

    def __post_init__(self) -> None:
        coerce(self, "slot")


@dataclass(frozen=True, slots=True, kw_only=True)
class MbarrierWait(Node):
    """Wait until the phase of that parity has completed; a fresh barrier counts as having completed parity 1."""

    barrier: str
    slot: Index
    parity: Index

    def __post_init__(self) -> None:
        coerce(self, "slot", "parity")


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaDescriptor:
    """What the host encodes for the copy engine: a buffer, the box of one copy, and the swizzle of shared memory.

    Units: ``box`` in elements, one per axis of the buffer; ``swizzle_bytes`` is 0, 32, 64 or 128.
    """

    buffer: str
    box: tuple[int, ...]
    swizzle_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaCopy(Node):
    """Let the copy engine move one box to shared memory; its bytes count for the barrier's phase once landed.

    Outside of the buffer the box is filled with 0, and the bytes of the whole box are counted. The region of the
    target is the box.
    """

    descriptor: TmaDescriptor
    origin: tuple[Index, ...]
    target: Region
    barrier: str
    slot: Index

    def __post_init__(self) -> None:
        object.__setattr__(self, "origin", tuple(map(as_index, self.origin)))
        coerce(self, "slot")

    @property
    def source(self) -> Region:
        """The box in global memory."""
        return Region(self.descriptor.buffer, self.origin, tuple(map(as_index, self.descriptor.box)))

    def accesses(self) -> tuple[Access, ...]:
        """Return the masked read of the box and the write of the target."""
        return (Access(self.source, AccessMode.READ, masked=True), Access(self.target, AccessMode.WRITE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A part of a specialised block: so many executors of ``lanes`` lanes run the body; ``index`` numbers them.

    ``registers``: what each lane takes of the block's pool, more or fewer than it begins with (``setmaxnreg``); None
    leaves them as they are. Roles take the block's warps in order.
    """

    name: str
    executors: int
    index: Var
    body: Block
    lanes: int = 32
    registers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles(Node):
    """Split the block's executors into roles that run different bodies at the same time."""

    roles: tuple[Role, ...]

    def children(self) -> tuple[Block, ...]:
        """Return the bodies."""
        return tuple(role.body for role in self.roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gather(Node):
    """Copy one element per point of a rectangle from computed coordinates, ``fill`` where the predicate is false.

    ``points`` name the coordinates within the target's extent, one per axis. Coordinates and predicate are
    expressions over them, in ``bits`` wide integers; divisions by arguments are printed as fast divisions.
    ``asynchronous``: in the open group, as ``AsyncCopy``.
    """

    source: str
    points: tuple[Var, ...]
    coordinates: tuple[Index, ...]
    predicate: Predicate
    target: Region
    fill: float = 0.0
    bits: int = 32
    asynchronous: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "coordinates", tuple(map(as_index, self.coordinates)))

    def accesses(self) -> tuple[Access, ...]:
        """Return the write; the predicated reads are proved point by point."""
        return writes(self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLoop(Node):
    """Walk one worker's contiguous share of the flat (tile, step) space, one segment of one tile at a time (stream-K).

    Worker ``w`` of ``W`` owns the iterations ``w·T div W <= i < (w + 1)·T div W`` of ``T = tiles · steps``. In each
    segment ``tile`` is the tile, ``first`` its first step, ``count`` (>= 1) the number of steps, and ``last`` the
    worker that does the tile's last step: ``((tile + 1)·steps·W − 1) div T``. Over all workers every (tile, step)
    occurs once; the segment with ``first == 0`` owns the tile; if every worker has a share (T >= W), the others of
    its segments belong to the workers ``w + 1 … last``, each one's first.
    """

    worker: Index
    workers: Index
    tiles: Index
    steps: Index
    tile: Var
    first: Var
    count: Var
    last: Var
    body: Block

    def __post_init__(self) -> None:
        coerce(self, "worker", "workers", "tiles", "steps")

    def children(self) -> tuple[Block, ...]:
        """Return the body."""
        return (self.body,)


@dataclass(frozen=True, slots=True, kw_only=True)
class TileLoop(Node):
    """Walk the tiles of one worker, whole ones: a persistent block, or a share of its turns.

    Worker ``w`` of ``W`` has the tiles ``w + t·W`` below ``tiles``, in its turns ``t`` = 0, 1, …; this loop takes the
    turns ``share``, ``share + shares``, …. Each turn has ``steps`` uses of the block's rings, numbered on over turns:
    ``first = t·steps`` is the number of the turn's first one. By division with remainder every tile is one worker's in
    one turn, and every use number ``t·steps + k`` with ``0 <= k < steps`` is one turn's in one step.
    """

    worker: Index
    workers: Index
    tiles: Index
    steps: Index
    share: Index
    shares: Index
    tile: Var
    turn: Var
    first: Var
    body: Block

    def __post_init__(self) -> None:
        coerce(self, "worker", "workers", "tiles", "steps", "share", "shares")

    def children(self) -> tuple[Block, ...]:
        """Return the body."""
        return (self.body,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalFlag(Node):
    """Set a flag in global memory after everything that the executor wrote (a release)."""

    flag: Region

    def accesses(self) -> tuple[Access, ...]:
        """Return the write of the flag."""
        return writes(self.flag)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitFlag(Node):
    """Wait until a flag is set; what its signaller wrote before is visible (an acquire)."""

    flag: Region

    def accesses(self) -> tuple[Access, ...]:
        """Return the read of the flag."""
        return reads(self.flag)
