"""TileKernel: one op under one schedule for one target, as a structured tile program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tracea.core.dtype import DType
from tracea.errors import InvalidSchedule
from tracea.semantic.index import TRUE, Const, Index, Param, Predicate, as_index, product, total
from tracea.semantic.nodes import Block, For, Let, Node, Parallel, Region, Scalar
from tracea.semantic.nodes_async import Gather, Roles, SegmentLoop, TileLoop
from tracea.semantic.schedule import Schedule
from tracea.semantic.swizzle import Swizzle

__all__ = ["SCRATCH_ALIGNMENT", "Buffer", "BufferRole", "MemorySpace", "Table", "TileKernel"]

SCRATCH_ALIGNMENT = 64  # bytes: every scratch buffer begins on a cache line


class MemorySpace(Enum):
    """Who owns the memory of a buffer."""

    GLOBAL = "global"  # everybody: the arrays of the call
    TEAM = "team"  # the threads of a CPU team; on a GPU the block's shared memory
    THREAD = "thread"  # one CPU thread, one GPU subgroup
    REGISTER = "register"  # one CPU thread, one GPU subgroup: fragments and row state


class BufferRole(Enum):
    """What a buffer is to the kernel's caller."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"  # known before the call, possibly stored in a layout of the kernel's own
    SCRATCH = "scratch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A rectangular array of the kernel: logical shape and strides in elements; None is row-major without gaps.

    ``swizzle`` says where in shared memory the bytes of the array's plain layout are stored; what is computed does not
    depend on it. ``aligned_bytes`` is what the caller's address is a multiple of, which the launcher checks.
    """

    name: str
    dtype: DType
    space: MemorySpace
    shape: tuple[Index, ...]
    strides: tuple[Index, ...] | None = None
    role: BufferRole
    swizzle: Swizzle | None = None
    aligned_bytes: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(map(as_index, self.shape)))
        if self.strides is not None:
            object.__setattr__(self, "strides", tuple(map(as_index, self.strides)))
            if len(self.strides) != len(self.shape):
                raise InvalidSchedule(
                    field=f"strides of {self.name}",
                    got=len(self.strides),
                    expected=f"{len(self.shape)}, one per axis",
                    remedy="give one stride per axis, or None for row-major",
                )
        if self.role is not BufferRole.SCRATCH and self.space is not MemorySpace.GLOBAL:
            raise InvalidSchedule(
                field=f"space of {self.name}",
                got=self.space,
                expected="global",
                remedy="only scratch lives in other spaces",
            )
        if self.swizzle is not None and self.space is not MemorySpace.TEAM:
            raise InvalidSchedule(
                field=f"swizzle of {self.name}",
                got=f"{self.swizzle} in {self.space.value} memory",
                expected="a buffer in team memory",
                remedy="only shared memory has banks to spread over",
            )

    @property
    def alignment_bytes(self) -> int:
        """What the offset of a scratch buffer is a multiple of: a cache line, or its swizzle's period."""
        period = 1 if self.swizzle is None else self.swizzle.period_bytes
        return max(SCRATCH_ALIGNMENT, period)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def element_strides(self) -> tuple[Index, ...]:
        """Strides in elements, also where the buffer is row-major."""
        if self.strides is not None:
            return self.strides
        return tuple(product(*self.shape[axis + 1 :]).simplify() for axis in range(self.rank))

    @property
    def nbytes(self) -> Index:
        """Bytes from the first element to the end of the last: of a row-major buffer the product of its shape."""
        if self.strides is None:
            return product(*self.shape, self.dtype.nbytes).simplify()
        last = total(*((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)))
        return ((last + 1) * self.dtype.nbytes).simplify()

    def region(self, offset: tuple[Index | int, ...], extent: tuple[Index | int, ...]) -> Region:
        """Return a rectangle of this buffer.

        Raises:
            InvalidSchedule: the number of axes is not the buffer's.
        """
        if len(offset) != self.rank or len(extent) != self.rank:
            raise InvalidSchedule(
                field=f"region of {self.name}",
                got=f"{len(offset)} offsets, {len(extent)} extents",
                expected=f"{self.rank} of each",
                remedy="name every axis",
            )
        return Region(self.name, tuple(map(as_index, offset)), tuple(map(as_index, extent)))

    def whole(self) -> Region:
        """Return all of this buffer."""
        return Region(self.name, tuple(Const(0) for _ in self.shape), self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of integers that the host computes (a tile graph), and the range that its entries are checked against.

    ``permutation``: the entries are the numbers below the length, each once. ``ascending``: none is below the one
    before, the first is the minimum and the last the maximum. The host checks both too.
    """

    name: str
    length: Index
    minimum: Index
    maximum: Index
    permutation: bool = False
    ascending: bool = False

    def __post_init__(self) -> None:
        for name in ("length", "minimum", "maximum"):
            object.__setattr__(self, name, as_index(getattr(self, name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TileKernel:
    """A structured tile program: what one op does under one schedule on one target, for every value of its parameters.

    ``assumptions`` are the guards that the launcher checks before a run, besides each parameter's own range.
    """

    name: str
    op: Any
    variant: str
    schedule: Schedule
    target: str
    params: tuple[Param, ...]
    buffers: tuple[Buffer, ...]
    body: Block
    scalars: tuple[Scalar, ...] = ()
    tables: tuple[Table, ...] = ()
    assumptions: Predicate = TRUE

    def __post_init__(self) -> None:
        names = [*(p.name for p in self.params), *(b.name for b in self.buffers), *(t.name for t in self.tables)]
        names += [scalar.name for scalar in self.scalars]
        names += list(_bound_names(self.body))
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidSchedule(
                field=f"names of {self.name}",
                got=twice,
                expected="each name once in a kernel",
                remedy="rename the variables",
            )
        for node in self.body.walk():
            for access in node.accesses():
                buffer = self.buffer(access.region.buffer)
                if len(access.region.offset) != buffer.rank:
                    raise InvalidSchedule(
                        field=f"{type(node).__name__}: region of {buffer.name}",
                        got=f"{len(access.region.offset)} axes",
                        expected=f"{buffer.rank} axes",
                        remedy="name every axis of the buffer",
                    )

    def buffer(self, name: str) -> Buffer:
        """Return the buffer of that name.

        Raises:
            InvalidSchedule: there is none.
        """
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        raise InvalidSchedule(
            field="buffer", got=name, expected=[buffer.name for buffer in self.buffers], remedy="declare it in buffers"
        )

    def buffers_in(self, space: MemorySpace) -> tuple[Buffer, ...]:
        """Return the buffers of a memory space, in order."""
        return tuple(buffer for buffer in self.buffers if buffer.space is space)

    @property
    def team_scratch_bytes(self) -> Index:
        """Bytes of scratch that the team shares, each buffer rounded up to a cache line."""
        return self._scratch_bytes(MemorySpace.TEAM)

    @property
    def thread_scratch_bytes(self) -> Index:
        """Bytes of scratch of each thread, each buffer rounded up to a cache line."""
        return self._scratch_bytes(MemorySpace.THREAD)

    def scratch_offset_bytes(self, name: str) -> Index:
        """Return where a scratch buffer begins within its space's scratch."""
        buffer = self.buffer(name)
        before = self.buffers_in(buffer.space)
        return _begin(buffer, _end(before[: before.index(buffer)]))

    def _scratch_bytes(self, space: MemorySpace) -> Index:
        return _end(self.buffers_in(space))


def _end(buffers: tuple[Buffer, ...]) -> Index:
    end: Index = Const(0)
    for buffer in buffers:
        end = total(_begin(buffer, end), _rounded(buffer.nbytes, SCRATCH_ALIGNMENT)).simplify()
    return end


def _begin(buffer: Buffer, end: Index) -> Index:
    # Ends are multiples of a cache line: only a swizzled buffer needs more.
    return end if buffer.alignment_bytes == SCRATCH_ALIGNMENT else _rounded(end, buffer.alignment_bytes)


def _rounded(nbytes: Index, alignment: int) -> Index:
    known = nbytes.constant
    if known is not None:
        return Const(-(-known // alignment) * alignment)
    return (nbytes + (alignment - 1)) // alignment * alignment


def _bound_names(body: Block) -> Iterator[str]:
    for node in body.walk():
        yield from bound_names(node)


def bound_names(node: Node) -> Iterator[str]:
    """Yield the names that a node binds."""
    match node:
        case For() | Parallel():
            yield node.var.name
            if node.length is not None:
                yield node.length.name
        case Let():
            yield node.var.name
        case Roles():
            yield from (role.index.name for role in node.roles)
        case SegmentLoop():
            yield from (node.tile.name, node.first.name, node.count.name, node.last.name)
        case TileLoop():
            yield from (node.tile.name, node.turn.name, node.first.name)
        case Gather():
            yield from (point.name for point in node.points)
        case _:
            pass
