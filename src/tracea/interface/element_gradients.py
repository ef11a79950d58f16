"""Gradients of what acts on elements, or hands on elements or rows by place.

Activations, cumulative sums, the k largest, rows of a table.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np

from tracea.core.activation_slope import backward_of
from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Input, activation, select
from tracea.core.graph import Graph
from tracea.core.op import CumulativeSumOp, PointwiseOp, ReduceKind, SumRowsOp, ViewKind
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidDType, InvalidOp, InvalidShape
from tracea.flow.compile import compile_graph, compile_op
from tracea.flow.places import EXACT_IN_F32
from tracea.flow.reduction import add_reduction
from tracea.flow.room import require_memory
from tracea.interface.layouts import kept_layout
from tracea.interface.operands import INDICES, Given, dispatched
from tracea.interface.reductions import axis_of
from tracea.interface.results import compile_as_vectors, filled, state_result, vector
from tracea.interface.whole_numbers import axis_number, read_whole, whole_number
from tracea.runtime.index_range import Named

__all__ = ["activation_backward", "cumsum_backward", "embedding_backward", "topk_backward"]

_OF_SLOPE: Final = ("grad", "x")
_OF_SUMS: Final = ("grad",)
_OF_ROWS: Final = ("grad", "indices")
_OF_PLACES: Final = ("grad", "places")


def activation_backward(grad: Any, x: Any, activation: str, *, out: Any = None) -> Any:
    """Return the gradient of an activation for x, by the name that ``gemm`` and ``fuse`` know it by; at kinks torch's.

    Shapes: grad and x are alike.

    Raises: InvalidOp: the name is not known. InvalidShape, InvalidDType, InvalidDevice, InvalidStride,
    OverlappingOutput.
    """
    return _dispatch_slope()(grad, x, out, _known(activation))


def _known(name: Any) -> str:
    activation(name)  # refuses
    return str(name)


def cumsum_backward(grad: Any, dim: int, *, out: Any = None) -> Any:
    """Return the gradient of ``cumsum(x, dim)`` for x: the sums of ``grad`` from each element to the last one.

    Raises: InvalidShape: there is no such axis. InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput.
    """
    return _dispatch_sums()(grad, out, axis_number("dim", dim))


def embedding_backward(grad: Any, indices: Any, rows: int, *, padding_idx: int | None = None, out: Any = None) -> Any:
    """Return the gradient of ``embedding(indices, table)`` for the table of so many ``rows``: sums of rows of ``grad``.

    Row r is the sum of those whose index is r, in float32 or of float64 in that, zero where there is none and for
    ``padding_idx``, which counts from the end where it is negative, as torch's. The bits depend on no thread.

    Shapes: indices of any shape, int64 or int32; grad (*indices, columns); the gradient (rows, columns).

    Raises: InvalidIndex: an index names no row of so many. InvalidOp: ``rows`` is no whole number, ``padding_idx`` no
    row. InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput.
    """
    extent = whole_number("rows", rows, 0, remedy="rows=table.shape[0]")
    return _dispatch_rows()(grad, indices, out, extent, _row_skipped(padding_idx, extent))


def _row_skipped(padding_idx: Any, rows: int) -> int | None:
    if padding_idx is None:
        return None
    number = read_whole(padding_idx)
    if number is None or not -rows <= number < rows:
        raise InvalidOp(
            field="padding_idx",
            got=padding_idx,
            expected=f"a row from {-rows} to {rows - 1}, or None" if rows else "None: there are no rows",
            remedy="padding_idx=None",
        )
    return number % rows


def topk_backward(grad: Any, places: Any, count: int, dim: int = -1, *, out: Any = None) -> Any:
    """Return the gradient of the values of ``topk(x, k, dim)`` for x, of which ``count`` elements lie along ``dim``.

    Each element of ``grad`` goes to its place, and zeros elsewhere; elements with one place are added.

    Shapes: grad and places are alike, places int64 or int32; the gradient has ``count`` elements along dim. Numbers
    are those of a number, whose ``count`` is 1.

    Raises: InvalidIndex: a place is none of ``count``. InvalidShape: there is no such axis.
    InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp: ``count`` is no whole number, or not 1
    where x was a number.
    """
    extent = whole_number("count", count, 0, remedy="count=x.shape[dim]")
    return _dispatch_places()(grad, places, out, extent, axis_number("dim", dim))


@cache
def _dispatch_slope() -> Any:
    return dispatched(_OF_SLOPE, _missed_slope)


def _missed_slope(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OF_SLOPE, arrays, out)
    given.check_floats()
    grad, x = given.type(0), given.type(1)
    _check_alike("x", grad, x)
    given.check_result_type(TensorType(x.shape, x.dtype))
    expr = backward_of(attributes[0])
    result = given.result or kept_layout((grad, x), x.dtype, given.kind)
    op = PointwiseOp(expr=expr, inputs=(grad, x), out_dtype=x.dtype, out=result)
    return compile_op(op, threads=threads)


def _check_alike(name: str, grad: TensorType, other: TensorType) -> None:
    if grad.shape != other.shape:
        raise InvalidShape(
            field="grad", got=grad.shape, expected=other.shape, remedy=f"give the gradient of the result, alike {name}"
        )


@cache
def _dispatch_sums() -> Any:
    return dispatched(_OF_SUMS, _missed_sums)


def _missed_sums(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OF_SUMS, arrays, out)
    given.check_floats()
    grad = given.type(0)
    given.check_result_type(TensorType(grad.shape, grad.dtype))
    output = given.result or TensorType(grad.shape, grad.dtype)
    axis = axis_of(attributes[0], grad.rank)
    op = CumulativeSumOp(x=vector(grad), axis=axis, backward=True, out=vector(output))
    return compile_as_vectors(op, inputs=(grad,), output=output, threads=threads)


@cache
def _dispatch_rows() -> Any:
    return dispatched(_OF_ROWS, _missed_rows)


def _missed_rows(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OF_ROWS, arrays, out, takes={"indices": INDICES})
    rows, skipped = attributes
    grad, places = given.type(0), given.type(1)
    named = given.index_range(1, rows, Named.ROWS)
    _check_float_gradient(grad, "give floats, as the table has")
    if grad.rank == 0 or grad.shape[:-1] != places.shape:
        raise InvalidShape(
            field="grad",
            got=grad.shape,
            expected=(*places.shape, "columns"),
            remedy="give the gradient of what embedding returned: a row for each index",
        )
    wanted = TensorType((rows, grad.shape[-1]), grad.dtype)
    given.check_result_type(wanted)
    if wanted.elements == 0 or grad.elements == 0:
        return filled(arrays[0], wanted, out, 0.0)
    graph = Graph()
    nodes = [graph.add_input(grad), graph.add_input(places)]
    if places.rank != 1:
        nodes = [node if node.type.is_contiguous else graph.add_pointwise(Input(0), node) for node in nodes]
        count = places.elements
        shapes = ((count, *grad.shape[-1:]), (count,))
        nodes = [graph.add_view(ViewKind.RESHAPE, node, shape=shape) for node, shape in zip(nodes, shapes, strict=True)]
    op = SumRowsOp(x=nodes[0].type, indices=nodes[1].type, rows=rows, skipped=skipped, out=given.result)
    graph.set_outputs(graph.add(op, nodes))
    program = compile_graph(graph, threads=threads, name="embedding_backward").program
    return replace(program, index_ranges=(named,))


def _check_float_gradient(grad: TensorType, remedy: str) -> None:
    if not grad.dtype.is_float:
        raise InvalidDType(field="grad", got=grad.dtype.value, expected="f64 | f32 | f16 | bf16", remedy=remedy)


@cache
def _dispatch_places() -> Any:
    return dispatched(_OF_PLACES, _missed_places)


def _missed_places(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    """Return the program that compares each place with each element's own: there are few for each slab."""
    given = Given.of(_OF_PLACES, arrays, out, takes={"places": INDICES})
    count, dim = attributes
    grad, places = given.type(0), given.type(1)
    named = given.index_range(1, count, Named.PLACES)
    _check_float_gradient(grad, "give floats, as x was")
    _check_alike("places", grad, places)
    if grad.rank == 0 and count != 1:
        raise InvalidOp(
            field="count", got=count, expected="1, for a gradient without axes is that of a number", remedy="count=1"
        )
    axis = axis_of(dim, grad.rank)
    shape = (*grad.shape[:axis], count, *grad.shape[axis + 1 :]) if grad.rank else ()
    wanted = TensorType(shape, grad.dtype)
    given.check_result_type(wanted)
    if wanted.elements == 0 or grad.elements == 0:
        return filled(arrays[0], wanted, out, 0.0)
    graph = Graph()
    nodes = [graph.add_input(grad), graph.add_input(places)]
    # (…, k, 1, …) beside the places (count, …, 1): the axis of k goes.
    lead, rest = grad.static_shape[:axis], grad.static_shape[axis + 1 :]
    spread = (*lead, *grad.static_shape[axis : axis + 1], 1, *rest) if grad.rank else (1, 1)
    nodes = [node if node.type.is_contiguous else graph.add_pointwise(Input(0), node) for node in nodes]
    nodes = [graph.add_view(ViewKind.RESHAPE, node, shape=spread) for node in nodes]
    extent = count if grad.rank else 1
    own = TensorType((extent, *(1,) * len(rest)), DType.F32 if extent <= EXACT_IN_F32 else DType.F64)
    require_memory(f"the places along an axis of {extent}", own.nbytes, remedy="take the gradient in parts")
    values = {"own": np.arange(extent, dtype=own.dtype.numpy).reshape(own.static_shape)}
    nodes.append(graph.add_constant(own, name="own"))
    expr = select(Binary(BinaryFunction.EQ, Input(1), Input(2)), Input(0), 0.0)
    result = TensorType((*lead, extent, *rest), grad.dtype)
    node = add_reduction(graph, ReduceKind.SUM, nodes, (axis,), prologue=expr, out=result, threads=threads)
    state_result(graph, node, shape, given.result)
    program = compile_graph(graph, values, threads=threads, name="topk_backward").program
    return replace(program, index_ranges=(named,))
