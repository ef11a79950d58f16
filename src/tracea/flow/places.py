"""The places of extremes, and elements by their places, as ops of a graph: those of a call and of a captured module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Input, select
from tracea.core.graph import Graph, Node
from tracea.core.op import GatherRowsOp, PointwiseOp, ReduceKind, Statistic, StatisticsOp, ViewKind
from tracea.core.tensor_type import Dim, TensorType, static
from tracea.flow.reduction import wide_type

__all__ = ["EXACT_IN_F32", "add_elements", "add_place_of_extreme", "line_begins", "order_in_memory", "type_of_places"]

_FEW_PLACES: Final = 4  # of a row: walked as one axis with their rows, each with a number of its own
EXACT_IN_F32: Final = 1 << 24


def type_of_places(x: TensorType, axis: int) -> DType:
    """Return the float type in which the extremes of an axis are compared, and its places counted."""
    is_wide = wide_type(x.dtype) is DType.F64 or static(x.shape[axis]) > EXACT_IN_F32
    return DType.F64 if is_wide else DType.F32


def add_place_of_extreme(
    graph: Graph,
    x: Node,
    numbers: Node,
    axis: int,
    *,
    largest: bool,
    keepdims: bool = False,
    names: Callable[[str], str | None] = lambda _: None,
    out: TensorType | None = None,
) -> Node:
    """Append the place of the largest element along an axis, or the smallest, the first of equals; a NaN is either.

    Shapes:
        ``numbers`` are 0, 1, ... of :func:`type_of_places` along that axis of x, and of extent 1 behind it; the result
        is x's without the axis, or with an extent of 1 there, of i64.
    """
    compute = numbers.type.dtype
    is_it = select(Binary(BinaryFunction.EQ, Input(0), Input(2)), 1.0, Binary(BinaryFunction.NE, Input(0), Input(0)))
    shape = (dim if at != axis else 1 for at, dim in enumerate(x.type.shape) if keepdims or at != axis)
    result = TensorType(tuple(shape), DType.I64)
    op = StatisticsOp(
        x=(x.type, numbers.type),
        axes=(axis,),
        statistics=(
            Statistic(ReduceKind.MAX if largest else ReduceKind.MIN, Input(0)),
            Statistic(ReduceKind.MIN, select(is_it, Input(1), float("inf"))),
        ),
        expr=Input(3),
        reduced=True,
        keepdims=keepdims,
        out=TensorType(result.shape, compute),
    )
    found = graph.add(op, [x, numbers], name=names("found"))
    cast = PointwiseOp(expr=Input(0), inputs=(found.type,), out_dtype=DType.I64, out=out or result)
    return graph.add(cast, [found], name=names(""))


def order_in_memory(x: TensorType) -> tuple[int, ...] | None:
    """Return the order of the axes in which a tensor is contiguous, or None where it has gaps or repeats elements."""
    order = tuple(sorted(range(x.rank), key=lambda axis: (x.shape[axis] != 1, -x.strides[axis])))
    return order if x.permuted(order).is_contiguous else None


def line_begins(x: TensorType, axis: int, shape: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return where in memory the line along an axis begins that each of so many places along it is in.

    Shapes:
        ``shape`` is that of the places, no larger than x but along the axis; the result has it, with an extent of 1
        along the axis unless that is the last one and has few places.
    """
    firsts = [1 if at == axis else extent for at, extent in enumerate(shape)]
    begins = np.zeros(firsts, np.int64)
    for at, extent in enumerate(firsts):
        along = [1] * len(firsts)
        along[at] = extent
        begins += (np.arange(extent, dtype=np.int64) * x.strides[at]).reshape(along)
    if axis == len(shape) - 1 and shape[axis] <= _FEW_PLACES:
        begins = np.repeat(begins, shape[axis], axis=axis)
    return begins


def add_elements(
    graph: Graph, x: Node, places: Node, begins: Node, axis: int, *, names: Callable[[str], str | None] = lambda _: None
) -> Node:
    """Append the elements of x at places along an axis, in the places' shape; one that there is not becomes NaN.

    All elements of x, which has no gaps, as they lie in memory are one column, whatever the order of the axes;
    ``begins`` are those of :func:`line_begins`.
    """
    order = order_in_memory(x.type)
    assert order is not None
    step = x.type.strides[axis]
    shape: tuple[Dim, ...] = places.type.shape
    if order != tuple(range(len(order))):
        x = graph.add_view(ViewKind.PERMUTE, x, axes=order)
    column = graph.add_view(ViewKind.RESHAPE, x, shape=(x.type.elements, 1))
    moved = graph.add_pointwise(
        Input(0) * step + Input(1), places, begins, out_dtype=DType.I64, name=names("positions")
    )
    line = graph.add_view(ViewKind.RESHAPE, moved, shape=(moved.type.elements,))
    found = graph.add(GatherRowsOp(table=column.type, indices=line.type), [column, line], name=names("elements"))
    return graph.add_view(ViewKind.RESHAPE, found, shape=shape)
