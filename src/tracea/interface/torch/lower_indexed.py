"""Lowerings of what reads rows by index tensors, and what says that an index tensor names rows that there are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import torch

from tracea.core.dtype import DType
from tracea.core.expr import Expr, Input
from tracea.core.graph import Node
from tracea.core.op import GatherRowsOp, PointwiseOp, ReduceKind, ReduceOp, SourceOp, ViewKind, ViewOp
from tracea.core.tensor_type import Dim, TensorType
from tracea.interface.torch.types import are_below, extremes
from tracea.runtime.index_range import Named, unknown_index

if TYPE_CHECKING:
    from tracea.core.graph import Graph
    from tracea.interface.torch.lowering import Lowering

__all__ = [
    "Indexed",
    "IndexedRange",
    "check_ranges",
    "check_rows",
    "embedding",
    "flip",
    "gathered",
    "index",
    "index_checks",
    "index_select",
    "progression",
]

_WHOLE_NUMBERS: Final = (DType.I64, DType.I32, DType.I8, DType.U8)


@dataclass(frozen=True, slots=True)
class Indexed:
    """A value that names rows of a table of so many."""

    indices: Node
    rows: int


@dataclass(frozen=True, slots=True)
class IndexedRange:
    """What a program computes and names rows by: its smallest element is output ``first``, its largest the next one."""

    name: str
    first: int
    rows: int


def embedding(low: Lowering, table: Node, indices: Node, *_: Any) -> Node:
    """Lower the rows of a table that an index tensor names; what a gradient would be is no matter here."""
    if not (table.type.is_static and indices.type.is_static):
        low.refuse(f"rows of {table.type} named by {indices.type}", "make the axes of both static: dynamic=None")
    line = low.reshape(indices, (indices.type.elements,))
    low.check_indices(indices, table.type.static_shape[0])
    op = GatherRowsOp(table=table.type, indices=line.type)
    return low.from_matrix(low.graph.add(op, [table, line], name=low.label("rows")), low.shape)


def index_select(low: Lowering, x: Node, axis: int, places: Node) -> Node:
    """Lower the rows of an axis that an index tensor names."""
    if x.type.rank == 0:
        low.refuse("rows of one number", "give it an axis: x.reshape(1)")
    return _selected(low, x, axis % x.type.rank, places)


def index(low: Lowering, x: Node, indices: Sequence[Node | None]) -> Node:
    """Lower ``x[..., places, others]``: rows of one axis, or of several as of one, in the shape of what names them."""
    given = [(axis, places) for axis, places in enumerate(indices) if places is not None]
    for _, places in given:
        if places.type.dtype is DType.BOOL:
            low.refuse("a choice by a mask, whose length only a run knows", "keep the shape: torch.where(mask, x, 0.0)")
        if places.type.dtype is DType.U8:
            low.refuse(
                "rows named by uint8, which torch takes for a mask", "say what it is: mask.bool(), or places.long()"
            )
    given = [(axis, _from_the_first(low, places, x.type.shape[axis])) for axis, places in given]
    if len(given) == 1:
        return _selected(low, x, *given[0])
    if low.is_part:  # such as a resize, of which each tap would be read by itself: slower than torch's kernel
        low.refuse("elements named along several axes", "leave the line out")
    if not all(node.type.is_static for node in (x, *(places for _, places in given))):
        low.refuse(f"rows of {x.type} named along several axes", "make the axes of all tensors static: dynamic=None")
    return _selected(low, *_as_of_one_axis(low, x, given))


def _from_the_first(low: Lowering, places: Node, extent: Dim) -> Node:
    """Return places of which constants that count from the end count from the first element."""
    known = low.constant_of(places)
    if known is None or not known.numel() or int(known.min()) >= 0 or not isinstance(extent, int):
        return places
    return low.constant(torch.where(known < 0, known + extent, known), "places")


def _as_of_one_axis(low: Lowering, x: Node, given: Sequence[tuple[int, Node]]) -> tuple[Node, int, Node]:
    """Return x with one axis in place of those that are named along, that axis, and the places along it."""
    axes = [axis for axis, _ in given]
    if axes != [*range(axes[0], axes[-1] + 1)]:  # torch puts what is named apart in front
        x = low.permute(x, [*axes, *(axis for axis in range(x.type.rank) if axis not in axes)])
        axes = [*range(len(axes))]
    shape = x.type.static_shape
    extents = [shape[axis] for axis in axes]
    steps = [math.prod(extents[at + 1 :]) for at in range(len(axes))]
    for (_, places), extent in zip(given, extents, strict=True):
        low.check_indices(places, extent)
    merged = low.reshape(x, (*shape[: axes[0]], math.prod(extents), *shape[axes[-1] + 1 :]))
    known = [low.constant_of(places) for _, places in given]
    if all(places is not None for places in known):
        total = sum(places.long() * step for places, step in zip(known, steps, strict=True) if places is not None)
        return merged, axes[0], low.constant(cast("torch.Tensor", total), "places")
    value: Expr = Input(0) * float(steps[0])
    for at, step in enumerate(steps[1:], 1):
        value = value + Input(at) * float(step)
    line = low.pointwise(value, *(places for _, places in given), dtype=DType.I64, exact=True)
    return merged, axes[0], low.integers.state(line, 0, math.prod(extents) - 1)  # by the check of each


def _selected(low: Lowering, x: Node, axis: int, places: Node) -> Node:
    if not (x.type.is_static and places.type.is_static):
        low.refuse(f"rows of {x.type} named by {places.type}", "make the axes of both static: dynamic=None")
    if places.type.elements == 0:
        return low.nothing(x)
    if x.type.elements == 0:
        low.refuse(f"rows of {x.type} named by {places.type}", "leave out what has no elements")
    extent = x.type.static_shape[axis]
    fixed = progression(low.constant_of(places), extent)
    if fixed is not None:
        return low.reshape(low.slice(x, axis, fixed[0], len(fixed), fixed.step), low.shape)
    low.check_indices(places, extent)
    line = low.reshape(low.cast(places, DType.I64), (places.type.elements,))
    return low.reshape(gathered(low, x, axis, line), low.shape)


def gathered(low: Lowering, x: Node, axis: int, line: Node) -> Node:
    """Append the rows of an axis that a line of indices names, in x's axes."""
    axes = (axis, *(each for each in range(x.type.rank) if each != axis))
    rest = tuple(x.type.static_shape[each] for each in axes[1:])
    table = low.reshape(low.permute(x, axes), (x.type.static_shape[axis], math.prod(rest)))
    op = GatherRowsOp(table=table.type, indices=line.type)
    rows = low.graph.add(op, [table, line], name=low.label("rows"))
    found = low.reshape(rows, (line.type.static_shape[0], *rest))
    return low.permute(found, [axes.index(each) for each in range(x.type.rank)])


def flip(low: Lowering, x: Node, axes: Sequence[int]) -> Node:
    """Lower axes whose elements come from the last to the first."""
    if not x.type.is_static:
        low.refuse("a flip of symbolic extents", "make the axes static: dynamic=None")
    if low.makes_nothing_of(x):
        return low.nothing(x)
    for axis in sorted({axis % x.type.rank for axis in axes} if x.type.rank else ()):
        extent = x.type.static_shape[axis]
        if extent > 1:
            line = low.constant(torch.arange(extent - 1, -1, -1, device="cpu"), "from_the_last")
            x = gathered(low, x, axis, line)
    return x


def progression(places: torch.Tensor | None, extent: int) -> range | None:
    """Return places that are known as a rising range inside an axis; None if they are none."""
    if places is None or not places.numel():
        return None
    numbers = [int(each) for each in cast("list[int]", places.reshape(-1).tolist())]  # pyright: ignore
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    found = range(numbers[0], numbers[-1] + 1, step) if step > 0 else range(0)
    return found if [*found] == numbers and numbers[0] >= 0 and numbers[-1] < extent else None


def index_checks(
    graph: Graph, indexed: Sequence[Indexed], constants: Mapping[str, torch.Tensor], outputs: list[Node]
) -> tuple[dict[str, int], tuple[IndexedRange, ...]]:
    """Return the rows that inputs name; of indices that the graph computes, append the range to the outputs.

    Raises:
        InvalidIndex: a constant names a row that there is not.
    """
    rows: dict[str, int] = {}
    computed: dict[str, int] = {}
    for item in indexed:
        source = _source_of(graph, item.indices)
        if source is not None and source.id in constants:
            check_rows(constants[source.id], item.rows, source.id)
        elif item.indices.type.elements:
            found, name = (computed, item.indices.id) if source is None else (rows, source.id)
            found[name] = min(found.get(name, item.rows), item.rows)
    ranges: list[IndexedRange] = []
    for name, count in computed.items():
        ranges.append(IndexedRange(name, len(outputs), count))
        outputs += (_extreme(graph, graph[name], kind) for kind in (ReduceKind.MIN, ReduceKind.MAX))
    return rows, tuple(ranges)


def _source_of(graph: Graph, node: Node) -> Node | None:
    """Return the input or constant all elements of which a value has, as they are; None: it is computed."""
    while node.type.dtype in _WHOLE_NUMBERS:
        match node.op:
            case SourceOp():
                return node
            case ViewOp(kind=kind) if kind is not ViewKind.SLICE:
                node = graph[node.inputs[0]]
            case PointwiseOp(expr=Input(0)):
                node = graph[node.inputs[0]]
            case _:
                return None
    return None


def _extreme(graph: Graph, indices: Node, kind: ReduceKind) -> Node:
    source = indices if indices.type.rank else graph.add_view(ViewKind.RESHAPE, indices, shape=(1,))
    op = ReduceOp(kind=kind, x=(source.type,), axes=tuple(range(source.type.rank)), out=TensorType((), DType.F64))
    return graph.add(op, [source], name=graph.fresh(f"{indices.id}.{kind.value}"))


def check_rows(tensor: torch.Tensor, rows: int, field: str) -> None:
    """Check that an index tensor names rows of a table of so many.

    Raises:
        InvalidIndex: one names none; the error says it, and the number of rows.
    """
    if tensor.numel() and not are_below(tensor, rows):
        _check_extremes(*extremes(tensor), rows, field)


def check_ranges(results: Sequence[torch.Tensor], ranges: Sequence[IndexedRange]) -> None:
    """Check the indices that a program computed, by the outputs that say their range.

    Raises:
        InvalidIndex: as :func:`check_rows`.
    """
    for item in ranges:
        low, high = results[item.first : item.first + 2]
        _check_extremes(int(low), int(high), item.rows, item.name)


def _check_extremes(low: int, high: int, rows: int, field: str) -> None:
    if low >= 0 and high < rows:
        return
    raise unknown_index(field, low if low < 0 else high, rows, Named.PLACES)
