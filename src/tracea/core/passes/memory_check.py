"""An independent check of memory plans: it plays the program through and asks of every byte read who wrote it last.

It knows nothing of lifetimes, so a mistake in them shows as a value that was overwritten before it was read.
"""

from __future__ import annotations

from tracea.core.graph import Graph, Node
from tracea.core.op import PointwiseOp, SourceOp, ViewOp
from tracea.core.passes.memory import BufferKind, MemoryPlan, Placement
from tracea.errors import InvalidGraph

__all__ = ["check_memory"]


class _Bytes:
    """Who wrote each byte last, as spans that do not overlap."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int, str]] = []

    def write(self, start: int, end: int, owner: str) -> None:
        kept: list[tuple[int, int, str]] = []
        for low, high, name in self.spans:
            if low < start:
                kept.append((low, min(high, start), name))
            if high > end:
                kept.append((max(low, end), high, name))
        self.spans = [span for span in kept if span[0] < span[1]]
        if start < end:
            self.spans.append((start, end, owner))

    def owners(self, start: int, end: int) -> set[str]:
        """Return who owns bytes of the range; "nobody" for those that were never written."""
        inside = [
            (max(low, start), min(high, end), name) for low, high, name in self.spans if low < end and start < high
        ]
        covered = sum(high - low for low, high, _ in inside)
        return {name for _, _, name in inside} | ({"nobody"} if covered < end - start else set())


def check_memory(graph: Graph, plan: MemoryPlan) -> None:
    """Check that every step of the graph reads what the steps before it made, and that outputs last to the end.

    Raises:
        InvalidGraph: a placement is missing, misaligned or outside the arena, or a value is overwritten before its last
        use.
    """
    buffers: dict[tuple[BufferKind, str], _Bytes] = {}
    owner: dict[str, str] = {}
    for node in graph:
        place = plan.placements.get(node.id)
        if place is None:
            raise _refused(node, "no placement", "one for each node")
        memory = buffers.setdefault((place.buffer, place.name), _Bytes())
        for name in node.inputs:
            source = plan.placements[name]
            _check_read(node, graph[name], source, buffers[source.buffer, source.name], owner[name])
        if isinstance(node.op, ViewOp):
            owner[node.id] = owner[node.inputs[0]]
            _check_view(plan, node, node.op)
            continue
        owner[node.id] = node.id
        if place.buffer is BufferKind.ARENA:
            _check_bounds(plan, node, place)
        if place.nbytes < node.type.storage_bytes:
            raise _refused(node, f"{place.nbytes} bytes", f"{node.type.storage_bytes} bytes")
        if not isinstance(node.op, SourceOp):
            _check_overwrite(graph, plan, node, place)
        memory.write(*_range(node, place), node.id)
    for node in graph.outputs:
        place = plan.placements[node.id]
        found = buffers[place.buffer, place.name].owners(*_range(node, place))
        if place.buffer is not BufferKind.OUTPUT or found - {owner[node.id]}:
            raise _refused(
                node, f"{place.buffer.value} bytes of {sorted(found)} at the end", "an output buffer of its own"
            )


def _range(node: Node, place: Placement) -> tuple[int, int]:
    low, high = node.type.extent
    size = node.type.dtype.nbytes
    return place.offset_bytes + low * size, place.offset_bytes + high * size


def _check_read(node: Node, source: Node, place: Placement, memory: _Bytes, owner: str) -> None:
    strangers = memory.owners(*_range(source, place)) - {owner}
    if strangers:
        raise _refused(node, f"reads {source.id} where {sorted(strangers)} was written", f"bytes of {owner}")


def _check_view(plan: MemoryPlan, node: Node, op: ViewOp) -> None:
    base, place = plan.placements[node.inputs[0]], plan.placements[node.id]
    expected = base.offset_bytes + op.offset_elements * node.type.dtype.nbytes
    if (place.buffer, place.name, place.offset_bytes) != (base.buffer, base.name, expected):
        raise _refused(node, f"offset {place.offset_bytes}", f"offset {expected} in the buffer of {node.inputs[0]}")


def _check_bounds(plan: MemoryPlan, node: Node, place: Placement) -> None:
    start, end = _range(node, place)
    if start < 0 or end > plan.arena_bytes or place.offset_bytes % plan.alignment:
        raise _refused(
            node, f"bytes {start} to {end}", f"a multiple of {plan.alignment} within {plan.arena_bytes} bytes"
        )


def _check_overwrite(graph: Graph, plan: MemoryPlan, node: Node, place: Placement) -> None:
    """Refuse a result that lies on an input of its own op, unless each element is read just before it is written."""
    start, end = _range(node, place)
    for name in node.inputs:
        other = plan.placements[name]
        low, high = _range(graph[name], other)
        if (other.buffer, other.name) != (place.buffer, place.name) or end <= low or high <= start:
            continue
        same = isinstance(node.op, PointwiseOp) and graph[name].type == node.type and low == start
        if not same:
            raise _refused(node, f"written over its input {name}", "other bytes, or the same element of a pointwise op")


def _refused(node: Node, got: str, expected: str) -> InvalidGraph:
    return InvalidGraph(
        field=f"memory of node {node.id}",
        got=got,
        expected=expected,
        remedy="plan again with plan_memory; report the graph",
    )
