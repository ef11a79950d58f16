"""Index tensors: their check before anything is read with them, and the places of extremes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Constant, Input, select
from tracea.core.graph import Graph
from tracea.core.op import PointwiseOp, ReduceKind, Statistic, StatisticsOp, ViewKind
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidIndex, InvalidShape
from tracea.flow.compile import compile_graph
from tracea.flow.reduction import add_reduction
from tracea.interface.operands import Given, flag
from tracea.interface.reductions import axis_of
from tracea.runtime.buffers import view
from tracea.runtime.extension import dispatcher

__all__ = ["argmax", "argmin", "check_indices"]


def argmax(x: Any, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the place of the largest element along ``dim``, the first of equals, as int64; a NaN is the largest.

    None is the place in the row-major order of all elements.

    Raises: InvalidShape: there is no such axis, or no element. InvalidDType, InvalidDevice, InvalidStride,
    OverlappingOutput.
    """
    return _dispatch_extreme()(x, out, True, dim, flag("keepdim", keepdim))


def argmin(x: Any, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the place of the smallest element along ``dim``, the first of equals, as int64; a NaN is the smallest.

    Raises: as :func:`argmax`.
    """
    return _dispatch_extreme()(x, out, False, dim, flag("keepdim", keepdim))


def check_indices(name: str, indices: Any, count: int, *, ignored: int | None = None) -> None:
    """Check that indices name one of ``count`` rows, or are the ``ignored`` number.

    Raises: InvalidIndex: one does not; the error says it, and the number of rows.
    """
    if 0 in view(indices).shape:
        return
    for kind in ("min", "max"):
        extreme = _dispatch_range()(indices, None, kind, ignored)
        found = int(view(extreme).numpy())
        if not 0 <= found < count:
            raise InvalidIndex(
                field=name,
                got=found,
                expected=f"0 to {count - 1}, of {count}" if count else "none: there are no rows",
                remedy="count from 0; give the table a row for each index",
            )


@cache
def _dispatch_range() -> Any:
    return dispatcher(1, _missed_range)


def _missed_range(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(("indices",), arrays, out)
    kind, ignored = attributes
    type_ = given.type(0)
    graph = Graph()
    node = graph.add_input(type_)
    if type_.rank == 0:
        node = graph.add_view(ViewKind.RESHAPE, node, shape=(1,))
    expr = Input(0)
    if ignored is not None:
        expr = select(Binary(BinaryFunction.EQ, Input(0), Constant(ignored)), 0.0, Input(0))
    result = TensorType((), DType.F64)
    axes = tuple(range(node.type.rank))
    node = add_reduction(graph, ReduceKind(kind), [node], axes, prologue=expr, out=result, threads=threads)
    graph.set_outputs(node)
    return compile_graph(graph, threads=threads, name="range of indices").program


@cache
def _dispatch_extreme() -> Any:
    return dispatcher(1, _missed_extreme)


def _missed_extreme(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(("x",), arrays, None)
    given.check_floats()
    is_largest, dim, keepdims = attributes
    x = given.type(0)
    axis = None if dim is None else axis_of(dim, max(x.rank, 1))
    if 0 in (x.static_shape if axis is None or x.rank == 0 else (x.static_shape[axis],)):
        raise InvalidShape(
            field="x", got=x.shape, expected="an element along dim", remedy="the extreme of nothing has no place"
        )
    if axis is None or x.rank == 0:
        shape: tuple[int, ...] = (1,) * x.rank if keepdims else ()
    else:
        shape = tuple(1 if at == axis else size for at, size in enumerate(x.static_shape) if keepdims or at != axis)
    Given.of(("x",), arrays, out).check_result_type(TensorType(shape, DType.I64))
    graph = Graph()
    source = graph.add_input(x)
    if axis is None or x.rank == 0:
        if not x.is_contiguous:
            source = graph.add_pointwise(Input(0), source)
        source, axis = graph.add_view(ViewKind.RESHAPE, source, shape=(x.elements,)), 0
    count = source.type.static_shape[axis]
    # Places are exact in f32 up to 2^24.
    compute = DType.F64 if x.dtype is DType.F64 or count > 1 << 24 else DType.F32
    places = TensorType((count, *(1,) * (source.type.rank - 1 - axis)), compute)
    order = graph.add_constant(places, name="places")
    is_it = select(Binary(BinaryFunction.EQ, Input(0), Input(2)), 1.0, Binary(BinaryFunction.NE, Input(0), Input(0)))
    op = StatisticsOp(
        x=(source.type, places),
        axes=(axis,),
        statistics=(
            Statistic(ReduceKind.MAX if is_largest else ReduceKind.MIN, Input(0)),
            Statistic(ReduceKind.MIN, select(is_it, Input(1), float("inf"))),
        ),
        expr=Input(3),
        reduced=True,
        keepdims=keepdims,
    )
    op = StatisticsOp(
        x=op.x,
        axes=op.axes,
        statistics=op.statistics,
        expr=op.expr,
        reduced=True,
        keepdims=keepdims,
        out=TensorType(op.shape, compute),
    )
    found = graph.add(op, [source, order])
    result = TensorType(op.shape, DType.I64)
    strided = out is not None and shape == op.shape
    cast = PointwiseOp(
        expr=Input(0),
        inputs=(found.type,),
        out_dtype=DType.I64,
        out=Given.of(("x",), arrays, out).result if strided else result,
    )
    node = graph.add(cast, [found])
    if node.type.shape != shape:
        node = graph.add_view(ViewKind.RESHAPE, node, shape=shape)
    graph.set_outputs(node)
    values = {"places": np.arange(count, dtype=compute.numpy).reshape(places.static_shape)}
    return compile_graph(graph, values, threads=threads, name="argmax" if is_largest else "argmin").program
