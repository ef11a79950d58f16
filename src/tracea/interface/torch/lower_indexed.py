"""Lowerings of what reads rows by index tensors, and what says that an index tensor names rows that there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.graph import Node
from tracea.core.op import GatherRowsOp, PointwiseOp, ReduceKind, ReduceOp, SourceOp, ViewKind, ViewOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidIndex
from tracea.interface.torch.types import extremes

if TYPE_CHECKING:
    from tracea.core.graph import Graph
    from tracea.interface.torch.lowering import Lowering

__all__ = ["Indexed", "IndexedRange", "check_ranges", "check_rows", "embedding", "index_checks"]

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
    low.indexed.append(Indexed(indices, table.type.static_shape[0]))
    op = GatherRowsOp(table=table.type, indices=line.type)
    return low.from_matrix(low.graph.add(op, [table, line], name=low.label("rows")), low.shape)


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
    if tensor.numel():
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
    raise InvalidIndex(
        field=field,
        got=low if low < 0 else high,
        expected=f"0 to {rows - 1}, of {rows}" if rows else "none: there are no rows",
        remedy="count from 0; give the table a row for each index",
    )
