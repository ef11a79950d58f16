"""The structure of a TileKernel, and the nodes of a CPU kernel: frozen data, with accesses that the proofs read.

A node's operands are :class:`Region` values: rectangles of a buffer in logical coordinates. Whatever a node's
interior does, it reads and writes nothing but its :meth:`Node.accesses`; the extent of a region is the mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tracea.core.expr import Expr
from tracea.core.ops.rows import ReduceKind, RowKind
from tracea.errors import InvalidSchedule
from tracea.semantic.access import Access, AccessMode, ImageArea, Intrinsic, Region, reads, writes
from tracea.semantic.index import FALSE, TRUE, Const, Index, Predicate, Var, as_index, ceil_div

__all__ = [
    "ONE",
    "Access",
    "AccessMode",
    "Barrier",
    "Block",
    "CopyTile",
    "EpilogueCall",
    "For",
    "If",
    "ImageArea",
    "Intrinsic",
    "Let",
    "Level",
    "MicroKernel",
    "Node",
    "Pack",
    "Parallel",
    "PointwiseTile",
    "ReduceTile",
    "Region",
    "RowTile",
    "Scalar",
    "block",
    "coerce",
    "in_granules",
    "reads",
    "writes",
]

ONE: Index = Const(1)


class Level(Enum):
    """Who executes the iterations of a ``Parallel`` and who meets at a ``Barrier``."""

    TASK = "task"  # handed out dynamically to the threads of the team, each index once
    TEAM = "team"  # one contiguous range of the indices to each thread of the team
    BLOCK = "block"  # one block (workgroup) of a GPU each, with shared memory of its own
    ROLE = "role"  # the subgroups that share a role in a specialised block
    SUBGROUP = "subgroup"  # one subgroup (warp, wavefront, simdgroup) each
    LANE = "lane"  # one lane of a subgroup each


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One step of a tile program."""

    def accesses(self) -> tuple[Access, ...]:
        """Return every region that the node itself touches; a structural node touches none."""
        return ()

    def children(self) -> tuple[Block, ...]:
        """Return the blocks inside, in order."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Node):
    """Nodes one after the other."""

    nodes: tuple[Node, ...]

    def walk(self) -> Iterator[Node]:
        """Yield every node inside, outer ones first."""
        for node in self.nodes:
            yield node
            for child in node.children():
                yield from child.walk()


def block(*nodes: Node) -> Block:
    """Return the nodes as a block."""
    return Block(nodes=nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class For(Node):
    """Sequential loop: ``var`` = 0, step, 2·step, … < extent; ``length`` names min(step, extent − var)."""

    var: Var
    extent: Index
    step: Index = ONE
    length: Var | None = None
    body: Block

    def __post_init__(self) -> None:
        coerce(self, "extent", "step")

    def children(self) -> tuple[Block, ...]:
        """Return the body."""
        return (self.body,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel(Node):
    """A loop whose iterations belong to different executors of ``level``, in any order; variables as in :class:`For`.

    The iterations of one TASK loop are shared by the threads of the team; no barrier is implied at its end.
    """

    level: Level
    var: Var
    extent: Index
    step: Index = ONE
    length: Var | None = None
    body: Block

    def __post_init__(self) -> None:
        coerce(self, "extent", "step")

    def children(self) -> tuple[Block, ...]:
        """Return the body."""
        return (self.body,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier(Node):
    """All executors of ``level`` meet; what was written before is visible after. TASK means TEAM."""

    level: Level = Level.TEAM


@dataclass(frozen=True, slots=True, kw_only=True)
class If(Node):
    """One of two blocks."""

    predicate: Predicate
    then: Block
    otherwise: Block = Block(nodes=())

    def children(self) -> tuple[Block, ...]:
        """Return both blocks."""
        return (self.then, self.otherwise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Let(Node):
    """A name for an index expression, for the rest of the enclosing block; ``bits`` is the width it is computed in."""

    var: Var
    value: Index
    bits: int = 64

    def __post_init__(self) -> None:
        coerce(self, "value")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A float64 runtime argument (a scale, a slope), by name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpilogueCall:
    """What happens to a finished accumulator: ``expr`` over Input(0), the accumulator, and Input(i), operand i − 1.

    Operands broadcast to the tile by NumPy's rules: an axis that an operand does not have is of extent 1 or missing
    on the left. ``target`` is where the result goes, in that buffer's dtype; None: in place of the accumulator.
    """

    expr: Expr
    operands: tuple[Region | Scalar, ...] = ()
    target: Region | None = None

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the operands and the write of the target."""
        return reads(*(operand for operand in self.operands if isinstance(operand, Region))) + writes(self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack(Node):
    """Copy a matrix block into zero-padded panels, converting to the target's dtype.

    ``axis`` (0 or 1) of the source's last two axes is cut into panels of ``panel``; the other one is the depth.
    With several ``terms`` each element becomes that many elements of the target whose sum it is, as
    :func:`tracea.semantic.intrinsics.split_terms` says. Steps are written in whole granules: up to ``granule`` − 1
    steps of zeros follow the last one, whether the target's region says them or not. How a granule is laid out is the
    routine's own; panels and granules lie in order. ``marks`` more elements of a step say whether the terms are to be
    multiplied as they are. The depth may be several axes that are ``merged``. ``turned``:
    granules of axis 0 are laid out as those of axis 1 are, and the other way around, because the panels of A are the
    second factor of a product.

    Shapes:
        source: (1, …, rows, depth) for axis 0 (A), (1, …, depth, columns) for axis 1 (B), with as many axes of depth
        as are merged, the last one the fastest.
        target: (panels, depth, terms · panel + marks) with panels = ceil(rows or columns / panel), after leading axes
        of extent 1.
    """

    source: Region
    target: Region
    panel: int
    axis: int
    terms: int = 1
    granule: int = 1
    merged: int = 1
    turned: bool = False
    marks: int = 0

    def __post_init__(self) -> None:
        least = min(self.panel, self.terms, self.granule, self.merged, self.marks + 1)
        no_terms = self.turned and (self.terms == 1 or self.merged > 1)
        if least < 1 or self.axis not in (0, 1) or self.merged > 1 > self.axis or no_terms:
            raise InvalidSchedule(
                field="Pack",
                got=(self.panel, self.axis, self.terms, self.granule, self.merged, self.turned),
                expected="panel, terms, granule and merged >= 1, axis 0 or 1, merged axes for axis 1, turned terms",
                remedy="axis 0 packs A, 1 packs B",
            )

    @property
    def is_split(self) -> bool:
        """Whether the target holds terms, not the elements themselves."""
        return self.terms > 1 or self.marks > 0

    @property
    def width(self) -> int:
        """The elements of a step of a panel."""
        return self.terms * self.panel + self.marks

    def accesses(self) -> tuple[Access, ...]:
        """Return the read of the source and the write of the panels, whole granules of them."""
        return reads(self.source) + writes(in_granules(self.target, self.granule))


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTile(Node):
    """Copy a rectangle, converting to the target's dtype; ``masked``: ``fill`` stands outside of the source's buffer.

    A halo buffer is filled by one masked copy: its source region may begin at negative coordinates. From global memory
    to a GPU's registers ``chunk_bytes`` of a row are one access; None is an element each.
    """

    source: Region
    target: Region
    masked: bool = False
    fill: float = 0.0
    chunk_bytes: int | None = None

    def accesses(self) -> tuple[Access, ...]:
        """Return the (masked) read and the write."""
        return (Access(self.source, AccessMode.READ, masked=self.masked), Access(self.target, AccessMode.WRITE))


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroKernel(Node):
    """A register tile: c = intrinsic(a, b), plus c if ``accumulate``; then the epilogue, if ``finish``.

    The interior is opaque. ``intrinsic.meaning(a, b)`` gets both operands as NumPy arrays of the accumulator's dtype
    without their leading axes of extent 1, and returns at least (rows, columns) of c; what it returns beyond them
    (panel padding) is dropped. The routine reads panels in whole granules of ``granule`` steps. ``masked``: zeros stand
    for what of a is outside of its buffer, which the routine does not read. ``ahead`` is asked for early, for others:
    nothing of it is read, and it may lie outside of its buffer. ``image`` says which rows, or rows and columns, of a
    window a are zeros that stand around an image: the routine may leave them out of its sums.
    """

    intrinsic: Intrinsic
    a: Region
    b: Region
    c: Region
    ahead: Region | None = None
    accumulate: Predicate = FALSE
    finish: Predicate = TRUE
    epilogue: EpilogueCall | None = None
    granule: int = 1
    masked: bool = False
    image: ImageArea | None = None

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of a and b, the update of c and what the epilogue touches."""
        mode = AccessMode.WRITE if self.accumulate == FALSE else AccessMode.UPDATE
        a, b = (in_granules(panels, self.granule) for panels in (self.a, self.b))
        own = (Access(a, AccessMode.READ, masked=self.masked), *reads(b), Access(self.c, mode))
        return own + (self.epilogue.accesses() if self.epilogue else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTile(Node):
    """Normalise each row of a block along its last axis: ``kind`` of prologue(inputs), then the epilogue.

    Inputs broadcast to the target's extent. ``scratch`` keeps a row of prologue values where they are needed twice.
    """

    kind: RowKind
    intrinsic: Intrinsic
    inputs: tuple[Region, ...]
    prologue: Expr
    epilogue: EpilogueCall | None = None
    target: Region
    scratch: Region | None = None
    eps: float = 0.0

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the inputs and operands and the writes of the target and the scratch row."""
        operands = self.epilogue.accesses() if self.epilogue else ()
        return reads(*self.inputs) + operands + writes(self.scratch, self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwiseTile(Node):
    """target = expr(inputs), elementwise; inputs broadcast to the target's extent."""

    intrinsic: Intrinsic
    expr: Expr
    inputs: tuple[Region | Scalar, ...]
    target: Region

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the inputs and the write of the target."""
        return reads(*(region for region in self.inputs if isinstance(region, Region))) + writes(self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceTile(Node):
    """Reduce ``axes`` of prologue(inputs), with the target's value if ``accumulate``; then the epilogue, if ``finish``.

    ``shape`` is the extent that the inputs broadcast to; the target has it without ``axes``, or with extent 1 there.
    ``count`` is the number of elements that a MEAN divides by, once, at the finish.
    """

    kind: ReduceKind
    intrinsic: Intrinsic
    inputs: tuple[Region, ...]
    prologue: Expr
    shape: tuple[Index, ...]
    axes: tuple[int, ...]
    target: Region
    count: Index = ONE
    accumulate: Predicate = FALSE
    finish: Predicate = TRUE
    epilogue: EpilogueCall | None = None

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of the inputs, the update of the target and what the epilogue touches."""
        mode = AccessMode.WRITE if self.accumulate == FALSE else AccessMode.UPDATE
        own = (*reads(*self.inputs), Access(self.target, mode))
        return own + (self.epilogue.accesses() if self.epilogue else ())


def in_granules(panels: Region, granule: int) -> Region:
    """Return a region of panels with its depth, the axis before the last, rounded up to whole granules.

    A region of two axes is a matrix: a routine that splits what it reads in place reads no more than there is.
    """
    if granule == 1 or len(panels.extent) < 3:
        return panels
    depth = ceil_div(panels.extent[-2], granule) * granule
    return Region(panels.buffer, panels.offset, (*panels.extent[:-2], depth, panels.extent[-1]))


def coerce(node: Node, *names: str) -> None:
    """Turn integer fields of a node under construction into constants."""
    for name in names:
        object.__setattr__(node, name, as_index(getattr(node, name)))
