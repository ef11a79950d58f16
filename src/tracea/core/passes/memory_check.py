"""An independent check of memory plans: it plays the program through and asks of every byte read who wrote it last.

It knows nothing of lifetimes, so a mistake in them shows as a value that was overwritten before it was read.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np
from numpy.typing import NDArray

from tracea.core.graph import Graph, Node
from tracea.core.op import JoinOp, PointwiseOp, SourceOp, ViewOp
from tracea.core.passes.memory import BufferKind, MemoryPlan, Placement, joins_of, lies_alike
from tracea.core.tensor_type import StridedLayout
from tracea.errors import InvalidGraph

__all__ = ["check_memory"]

_NOBODY = "nobody"


class _Bytes:
    """Who wrote each byte last, as numbers: elements of two values may lie between each other."""

    def __init__(self) -> None:
        self._first = 0
        self._writers = np.zeros(0, np.int32)
        self._names = [_NOBODY]

    def write(self, places: NDArray[np.int64], owner: str) -> None:
        if places.size:
            self._reach(int(places[0]), int(places[-1]) + 1)
            self._names.append(owner)
            self._writers[places - self._first] = len(self._names) - 1

    def owners(self, places: NDArray[np.int64]) -> set[str]:
        """Return who owns these bytes; "nobody" for those that were never written."""
        if not places.size:
            return set()
        self._reach(int(places[0]), int(places[-1]) + 1)
        return {self._names[number] for number in np.unique(self._writers[places - self._first])}

    def _reach(self, low: int, high: int) -> None:
        before, behind = max(0, self._first - low), max(0, high - self._first - self._writers.size)
        self._writers = np.pad(self._writers, (before, behind))
        self._first -= before


def check_memory(graph: Graph, plan: MemoryPlan) -> None:
    """Check that every step of the graph reads what the steps before it made, and that outputs last to the end.

    Raises:
        InvalidGraph: a placement is missing, misaligned or outside the arena, or a value is overwritten before its last
        use.
    """
    buffers: dict[tuple[BufferKind, str], _Bytes] = {}
    owner: dict[str, frozenset[str]] = {}
    parts = joins_of(graph)
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
        if isinstance(node.op, JoinOp):
            owner[node.id] = frozenset(each for name in node.inputs for each in owner[name])
            _check_join(plan, node, node.op)
            continue
        owner[node.id] = frozenset({node.id})
        if place.buffer is BufferKind.ARENA:
            _check_bounds(plan, node, place, parts)
        if place.nbytes < node.type.storage_bytes:
            raise _refused(node, f"{place.nbytes} bytes", f"{node.type.storage_bytes} bytes")
        if not isinstance(node.op, SourceOp):
            _check_overwrite(graph, plan, node, place)
        memory.write(_places(node, place), node.id)
    for node in graph.outputs:
        place = plan.placements[node.id]
        found = buffers[place.buffer, place.name].owners(_places(node, place))
        if place.buffer is not BufferKind.OUTPUT or found - owner[node.id]:
            raise _refused(
                node, f"{place.buffer.value} bytes of {sorted(found)} at the end", "an output buffer of its own"
            )


def _range(node: Node, place: Placement) -> tuple[int, int]:
    low, high = node.type.extent
    size = node.type.dtype.nbytes
    return place.offset_bytes + low * size, place.offset_bytes + high * size


def _places(node: Node, place: Placement) -> NDArray[np.int64]:
    """Return the bytes of a value's elements, in order."""
    type_ = node.type
    if not isinstance(type_.layout, StridedLayout):
        return np.arange(*_range(node, place))
    found = np.arange(place.offset_bytes, place.offset_bytes + type_.dtype.nbytes)
    for size, stride in zip(type_.static_shape, type_.strides, strict=True):
        found = np.unique(np.add.outer(np.arange(size) * stride * type_.dtype.nbytes, found))
    return found


def _check_read(node: Node, source: Node, place: Placement, memory: _Bytes, owners: frozenset[str]) -> None:
    strangers = memory.owners(_places(source, place)) - owners
    if strangers:
        raise _refused(node, f"reads {source.id} where {sorted(strangers)} was written", f"bytes of {sorted(owners)}")


def _check_join(plan: MemoryPlan, node: Node, op: JoinOp) -> None:
    base = plan.placements[node.id]
    for number, name in enumerate(node.inputs):
        wanted, first = op.place(number)
        place = plan.placements[name]
        expected = base.offset_bytes + first * wanted.dtype.nbytes
        if not lies_alike(op.parts[number], wanted) or (place.buffer, place.name, place.offset_bytes) != (
            base.buffer,
            base.name,
            expected,
        ):
            raise _refused(
                node, f"{name} at {place.offset_bytes}, {op.parts[number]}", f"at {expected} in its buffer, {wanted}"
            )


def _check_view(plan: MemoryPlan, node: Node, op: ViewOp) -> None:
    base, place = plan.placements[node.inputs[0]], plan.placements[node.id]
    expected = base.offset_bytes + op.offset_elements * node.type.dtype.nbytes
    if (place.buffer, place.name, place.offset_bytes) != (base.buffer, base.name, expected):
        raise _refused(node, f"offset {place.offset_bytes}", f"offset {expected} in the buffer of {node.inputs[0]}")


def _check_bounds(plan: MemoryPlan, node: Node, place: Placement, parts: Container[str]) -> None:
    start, end = _range(node, place)
    if start < 0 or end > plan.arena_bytes or (node.id not in parts and place.offset_bytes % plan.alignment):
        raise _refused(
            node, f"bytes {start} to {end}", f"a multiple of {plan.alignment} within {plan.arena_bytes} bytes"
        )


def _check_overwrite(graph: Graph, plan: MemoryPlan, node: Node, place: Placement) -> None:
    """Refuse a result that lies on an input of its own op, unless each element is read just before it is written."""
    written = _places(node, place)
    for name in node.inputs:
        other = plan.placements[name]
        read = _places(graph[name], other)
        if (other.buffer, other.name) != (place.buffer, place.name) or not np.intersect1d(written, read).size:
            continue
        same = isinstance(node.op, PointwiseOp) and graph[name].type == node.type and read[0] == written[0]
        if not same:
            raise _refused(node, f"written over its input {name}", "other bytes, or the same element of a pointwise op")


def _refused(node: Node, got: str, expected: str) -> InvalidGraph:
    return InvalidGraph(
        field=f"memory of node {node.id}",
        got=got,
        expected=expected,
        remedy="plan again with plan_memory; report the graph",
    )
