"""Lowerings of sums of rows by index: bags of an embedding, and rows that are added where indices say."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import GatherRowsOp, ReduceKind, SumRowsOp, WeightedRowsOp
from tracea.core.ops.weighted_rows import MOST_ROWS
from tracea.core.tensor_type import TensorType
from tracea.flow.reduction import wide_type
from tracea.interface.torch.lower_indexed import progression
from tracea.interface.torch.types import torch_dtype_of

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = ["embedding_bag", "index_add"]

_SUM, _MEAN, _MAX = range(3)  # as torch numbers its modes
_EQUAL: Final = "give indices (bags, k) without offsets; of bags of several sizes sum nn.Embedding's rows yourself"


def embedding_bag(
    low: Lowering,
    table: Node,
    indices: Node,
    offsets: Node,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    factors: Node | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    *_: Any,
) -> tuple[Node, None, None, None]:
    """Lower the sum, mean or largest of the rows of each bag, all of which have as many.

    torch gives bags (bags, k) as a line of indices and the constant places at which each bag begins.
    """
    del scale_grad_by_freq, sparse  # of gradients
    if padding_idx is not None:
        low.refuse("rows that are left out of their bags", "padding_idx=None, and per_sample_weights of zero for them")
    if not (table.type.is_static and indices.type.is_static) or include_last_offset:
        low.refuse(f"bags of {indices.type} with offsets", _EQUAL)
    count, bags = indices.type.elements, offsets.type.elements
    begins = low.constant_of(offsets)
    if not bags or not count:
        low.refuse(f"{bags} bags of {count} indices", "leave out what has no elements")
    each = count // bags
    if begins is None or count % bags or [*(progression(begins, count) or ())] != [*range(0, count, each)]:
        low.refuse("bags that begin at offsets", _EQUAL)
    if each > MOST_ROWS:
        low.refuse(f"bags of {each} rows", f"give at most {MOST_ROWS} rows of a bag, and sum the results")
    low.check_indices(indices, table.type.static_shape[0])
    if mode == _MAX:
        op = GatherRowsOp(table=table.type, indices=low.reshape(indices, (count,)).type)
        rows = low.graph.add(op, [table, low.reshape(indices, (count,))], name=low.label("rows"))
        found = low.reshape(rows, (bags, each, table.type.static_shape[1]))
        return low.reduce(ReduceKind.MAX, found, (1,), keepdims=False), None, None, None
    wide = DType.F64 if table.type.dtype is DType.F64 else DType.F32
    if factors is None:
        one = low.constant(_number(1.0 if mode == _SUM else 1.0 / each, torch_dtype_of(wide)), "weight")
        weights = low.expand(one, (bags, each))
    else:
        weights = low.reshape(low.cast(factors, wide), (bags, each))
    rows, columns = table.type.static_shape
    tables, places = low.reshape(table, (1, rows, columns)), low.reshape(indices, (bags, each))
    out = TensorType((1, bags, columns), low.dtype)
    bag = WeightedRowsOp(table=tables.type, indices=places.type, weights=weights.type, out=out)
    sums = low.graph.add(bag, [tables, places, weights], name=low.label("bags"))
    return low.reshape(sums, low.shape), None, None, None


def index_add(low: Lowering, x: Node, axis: int, places: Node, source: Node, alpha: float = 1) -> Node:
    """Lower x and, in each row of an axis, the sum of the rows of ``source`` whose place it is."""
    if not (x.type.is_static and source.type.is_static and x.type.dtype.is_float):
        low.refuse(f"rows of {source.type} added to {x.type}", "add floats, all extents known: dynamic=None")
    if 0 in x.type.static_shape or 0 in source.type.static_shape:
        return low.copy(x)  # which nothing is added to
    axis = axis % x.type.rank if x.type.rank else 0
    if x.type.rank == 0:
        low.refuse("rows added to one number", "give it an axis: x.reshape(1)")
    order = (axis, *(each for each in range(x.type.rank) if each != axis))
    extent, *rest = (x.type.static_shape[each] for each in order)
    count = places.type.elements
    low.check_indices(places, extent)
    line = low.reshape(places, (count,))
    rows = low.reshape(low.permute(source, order), (count, math.prod(rest)))
    out = TensorType((extent, math.prod(rest)), wide_type(low.dtype))
    op = SumRowsOp(x=rows.type, indices=line.type, rows=extent, out=out)
    sums = low.reshape(low.graph.add(op, [rows, line], name=low.label("sums")), (extent, *rest))
    back = low.permute(sums, [order.index(each) for each in range(x.type.rank)])
    return low.pointwise(Input(0) + (Input(1) if alpha == 1 else Input(1) * float(alpha)), x, back)


@lru_cache(maxsize=256)
def _number(value: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.full((1, 1), value, dtype=dtype, device="cpu")
