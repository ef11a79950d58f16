"""Where each value lives: arena offsets from lifetimes by greedy best fit, in place where an op may be.

A value made by step ``i`` and last read by step ``j`` owns its bytes from ``i`` to ``j``, both included: an op's result
never shares bytes with its inputs, except for a pointwise op that reads each element just before it writes the same
one. What joins parts has its memory from the first part that is written on, and the parts lie in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from tracea.core.graph import Graph, Node
from tracea.core.op import JoinOp, PointwiseOp, SourceKind, SourceOp, ViewKind, ViewOp
from tracea.core.tensor_type import BlockedLayout, TensorType
from tracea.errors import InvalidGraph

__all__ = ["BufferKind", "MemoryPlan", "Placement", "is_whole", "joins_of", "lies_alike", "plan_memory", "root_of"]

ALIGNMENT = 64  # bytes of a cache line and of an AVX-512 register


class BufferKind(Enum):
    """Whose memory a value lies in."""

    INPUT = "input"
    CONSTANT = "constant"
    OUTPUT = "output"
    ARENA = "arena"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a value's first element lies: in the arena, or in the buffer that belongs to source or output ``name``."""

    buffer: BufferKind
    name: str
    offset_bytes: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """A placement for every node of one graph, and the arena that they need."""

    placements: Mapping[str, Placement]
    arena_bytes: int
    alignment: int

    @property
    def unshared_bytes(self) -> int:
        """Bytes that the arena would have if no two values shared any."""
        arena = [place for place in self.placements.values() if place.buffer is BufferKind.ARENA]
        return sum(_aligned(place.nbytes, self.alignment) for place in arena)


@dataclass(slots=True)
class _Slot:
    """One or more values that follow one another at the same address."""

    members: list[str]
    first: int
    last: int
    nbytes: int
    offset: int = 0


def plan_memory(graph: Graph, alignment: int = ALIGNMENT, *, in_place: bool = True) -> MemoryPlan:
    """Return where every value of a static graph lies.

    Sources lie with whoever gives them, outputs in the caller's buffers, views where they look, the rest in the arena.

    Raises:
        InvalidGraph: an output is no buffer of its own, which ``MaterializeOutputs`` gives it; a part of a join is no
        value of its own in the strides of its place, which ``PlaceParts`` makes it.
        InvalidShape: an extent is symbolic.
    """
    graph.verify()
    if alignment < 1 or alignment & (alignment - 1):
        raise InvalidGraph(field="alignment", got=alignment, expected="a power of two", remedy="use 64")
    joins = joins_of(graph)
    bases = {node.id: _base(graph, node, joins) for node in graph}
    roots = {name: root for name, (root, _) in bases.items()}
    homes = _outputs(graph, roots)
    last = _last_uses(graph, roots)
    slots: list[_Slot] = []
    holder: dict[str, _Slot] = {}
    for step, node in enumerate(graph):
        if isinstance(node.op, SourceOp | ViewOp) or node.id in homes:
            continue
        root = roots[node.id]
        if root in homes or root in holder:
            continue  # a part of a join that has its memory already
        nbytes = graph[root].type.storage_bytes
        reused = (
            _overwritten(graph, node, step, roots=roots, last=last, holder=holder)
            if in_place and root == node.id
            else None
        )
        if reused is None:
            slot = _Slot(members=[root], first=step, last=last[root], nbytes=nbytes)
            slots.append(slot)
        else:
            slot = reused
            slot.members.append(root)
            slot.last = last[root]
        holder[root] = slot
    arena_bytes = _assign(slots, alignment)
    placements: dict[str, Placement] = {}
    for node in graph:
        if isinstance(node.op, ViewOp):
            base = placements[node.inputs[0]]
            offset = base.offset_bytes + node.op.offset_elements * node.type.dtype.nbytes
            placements[node.id] = replace(base, offset_bytes=offset, nbytes=node.type.storage_bytes)
        elif isinstance(node.op, SourceOp):
            kind = BufferKind.INPUT if node.op.kind is SourceKind.INPUT else BufferKind.CONSTANT
            placements[node.id] = _placed(kind, node.id, 0, node.type)
        else:
            root, elements = bases[node.id]
            inside = elements * node.type.dtype.nbytes
            if root in homes:
                placements[node.id] = _placed(BufferKind.OUTPUT, homes[root], inside, node.type)
            else:
                placements[node.id] = _placed(BufferKind.ARENA, "", holder[root].offset + inside, node.type)
    return MemoryPlan(placements=placements, arena_bytes=arena_bytes, alignment=alignment)


def _placed(kind: BufferKind, name: str, offset: int, tensor: TensorType) -> Placement:
    return Placement(buffer=kind, name=name, offset_bytes=offset, nbytes=tensor.storage_bytes)


def root_of(graph: Graph, node: Node) -> str:
    """Return the id of the node whose memory a value is: itself, or what a chain of views looks at."""
    while isinstance(node.op, ViewOp):
        node = graph[node.inputs[0]]
    return node.id


def joins_of(graph: Graph) -> dict[str, tuple[str, int]]:
    """Return, for each value that is a part of a join, the join and the element of it that the part begins with.

    Parts that are no values of their own, or have other strides than their places, are left out.
    """
    found: dict[str, tuple[str, int]] = {}
    for node in graph:
        if not isinstance(node.op, JoinOp) or isinstance(node.type.layout, BlockedLayout):
            continue
        for number, name in enumerate(node.inputs):
            wanted, first = node.op.place(number)
            maker = graph[name]
            while isinstance(maker.op, ViewOp) and maker.op.kind is ViewKind.PERMUTE:
                maker = graph[maker.inputs[0]]
            is_own = not isinstance(maker.op, SourceOp | ViewOp) and maker.id not in found
            if is_own and lies_alike(graph[name].type, wanted):
                found[maker.id] = (node.id, first)
    return found


def lies_alike(one: TensorType, other: TensorType) -> bool:
    """Whether every element has the same address in both: the stride of an axis of one element says nothing."""
    if (one.shape, one.dtype) != (other.shape, other.dtype) or isinstance(one.layout, BlockedLayout):
        return one == other
    pairs = zip(one.shape, one.strides, other.strides, strict=True)
    return all(dim == 1 or own == its for dim, own, its in pairs)


def _base(graph: Graph, node: Node, joins: Mapping[str, tuple[str, int]]) -> tuple[str, int]:
    """Return the value whose memory holds another, and where in it that one's own memory begins."""
    name, elements = root_of(graph, node), 0
    if isinstance(graph[name].op, JoinOp):
        parts = [root_of(graph, graph[part]) for part in graph[name].inputs]
        if any(joins.get(part, ("", 0))[0] != name for part in parts) or len(set(parts)) != len(parts):
            raise InvalidGraph(
                field=f"join {name}",
                got=[part for part in parts if joins.get(part, ("", 0))[0] != name],
                expected="parts that are values of their own, in the strides of their places",
                remedy="apply PlaceParts() first",
            )
    while name in joins:
        name, first = joins[name]
        elements += first
    return name, elements


def is_whole(graph: Graph, node: Node, root: str) -> bool:
    """Whether a value is its root's memory, all of it, in row-major order."""
    tensor = graph[root].type
    if not (node.type.is_contiguous and tensor.is_contiguous and node.type.elements == tensor.elements):
        return False
    offset = 0
    while isinstance(node.op, ViewOp):
        offset += node.op.offset_elements
        node = graph[node.inputs[0]]
    return offset == 0


def _outputs(graph: Graph, roots: Mapping[str, str]) -> dict[str, str]:
    """Return the output whose buffer each root is written to, in strides of its own where its op states some."""
    homes: dict[str, str] = {}
    for node in graph.outputs:
        root = roots[node.id]
        written_as_it_is = node.id == root and not isinstance(node.type.layout, BlockedLayout)
        fits = written_as_it_is or is_whole(graph, node, root)
        if isinstance(graph[root].op, SourceOp) or root in homes or not fits:
            raise InvalidGraph(
                field=f"output {node.id}",
                got=f"a view of {root}" if root != node.id else f"{root}, which has a buffer already",
                expected="a value with a buffer of its own",
                remedy="apply MaterializeOutputs() first",
            )
        homes[root] = node.id
    return homes


def _last_uses(graph: Graph, roots: Mapping[str, str]) -> dict[str, int]:
    last = {node.id: step for step, node in enumerate(graph)}
    for step, node in enumerate(graph):
        for name in node.inputs:
            last[roots[name]] = max(last[roots[name]], step)
    return last


def _overwritten(
    graph: Graph,
    node: Node,
    step: int,
    *,
    roots: Mapping[str, str],
    last: Mapping[str, int],
    holder: Mapping[str, _Slot],
) -> _Slot | None:
    """Return the slot of an input that dies in this pointwise op and is read element for element as it writes."""
    if not isinstance(node.op, PointwiseOp):
        return None
    for name in node.inputs:
        root = roots[name]
        slot = holder.get(root)
        if slot is None or slot.members[-1] != root or last[root] != step:
            continue
        uses = [graph[other] for other in node.inputs if roots[other] == root]
        own = all(root_of(graph, use) == root for use in uses)  # not a part of a join, whose other parts would go
        same = own and all(use.type == node.type and is_whole(graph, use, root) for use in uses)
        if same and node.type.storage_bytes == slot.nbytes:
            return slot
    return None


def _assign(slots: list[_Slot], alignment: int) -> int:
    """Give every slot its offset, large ones first, each in the smallest gap that fits; return the arena's size."""
    placed: list[_Slot] = []
    arena = 0
    for slot in sorted(slots, key=lambda slot: (-slot.nbytes, slot.first)):
        rivals = sorted(
            (other for other in placed if other.first <= slot.last and slot.first <= other.last),
            key=lambda other: other.offset,
        )
        need = _aligned(slot.nbytes, alignment)
        best: tuple[int, int] | None = None  # gap, offset
        end = 0
        for other in rivals:
            gap = other.offset - end
            if gap >= need and (best is None or gap < best[0]):
                best = (gap, end)
            end = max(end, other.offset + _aligned(other.nbytes, alignment))
        slot.offset = end if best is None else best[1]
        arena = max(arena, slot.offset + need)
        placed.append(slot)
    return arena


def _aligned(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment
