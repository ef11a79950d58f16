"""Functions that walk an axis or an index tensor: cumulative sums, embeddings, sorting, elements by place."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Final

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.graph import Graph
from tracea.core.op import CumulativeSumOp, GatherRowsOp, LargestOp, PointwiseOp, ViewKind
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidDType, InvalidOp, InvalidShape
from tracea.flow.compile import compile_graph, compile_op
from tracea.flow.places import add_elements, line_begins, order_in_memory
from tracea.interface.operands import ANY, FLOATS, FOLLOWING, INDICES, Given, dispatched, flag
from tracea.interface.reductions import axis_of
from tracea.interface.results import compile_as_vectors, compile_as_views, filled, state_result, vector
from tracea.interface.whole_numbers import axis_number, whole_number
from tracea.runtime.index_range import Named

__all__ = ["argsort", "copy", "cumsum", "embedding", "sort", "topk"]

_OF_COPY: Final = ("x",)
_MOVED_AS: Final = {DType.I64: DType.F64, DType.I32: DType.F32}  # of one size: arithmetic does not hold every integer
_OF_EMBEDDING: Final = ("indices", "table")
_OF_ELEMENTS: Final = ("x", "places")
_ORDERED: Final = (*FLOATS, "i64", "i32", "i8", "u8")


def copy(x: Any, *, out: Any = None) -> Any:
    """Return a row-major copy, or one into ``out`` in its own strides: any permutation, slice or broadcast of axes.

    Elements are floats, int64, int32, int8, uint8 or booleans; an integer keeps all of its bits, a NaN stays one.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput.
    """
    return _dispatch_copy()(x, out)


def cumsum(x: Any, dim: int, *, out: Any = None) -> Any:
    """Return the sums of the elements up to each along ``dim``, with an error that does not grow with the length.

    Raises: InvalidShape: there is no such axis. InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput.
    """
    return _dispatch_sums()(x, out, axis_number("dim", dim))


def embedding(indices: Any, table: Any, *, out: Any = None) -> Any:
    """Return the rows of ``table`` that ``indices`` name, as ``torch.nn.functional.embedding``.

    Shapes: indices are of any shape, int64 or int32; table (rows, columns); the result (*indices, columns).

    Raises: InvalidIndex: an index names no row; the error says it and the number of rows. InvalidShape, InvalidDType,
    InvalidDevice, InvalidStride, OverlappingOutput.
    """
    return _dispatch_embedding()(indices, table, out)


def topk(x: Any, k: int, dim: int = -1, *, largest: bool = True) -> tuple[Any, Any]:
    """Return the ``k`` largest elements along ``dim``, or the smallest, the largest first, and their places as int64.

    Of equal elements the first; a NaN is larger than all others. Elements are floats, int64, int32, int8 or uint8.

    Shapes: both have k elements along dim, k at most the extent of dim; with a k of 0 both are empty.

    Raises: InvalidShape: there is no such axis. InvalidDType, InvalidDevice, InvalidStride; InvalidOp: no such k.
    """
    count = whole_number("k", k, 0, remedy="give a k from 0 to the number of elements along dim")
    axis = axis_number("dim", dim)
    places = _dispatch_places()(x, None, count, not flag("largest", largest), axis)
    return _dispatch_elements()(x, places, None, axis), places


def sort(x: Any, dim: int = -1, *, descending: bool = False, stable: bool = False) -> tuple[Any, Any]:
    """Return the elements along ``dim`` in order, the smallest first or the largest, and their places as int64.

    Equal elements keep their order, with ``stable`` or without; a NaN is larger than all others, and -0.0 equals 0.0.
    Elements are floats, int64, int32, int8 or uint8.

    Raises: InvalidShape: there is no such axis. InvalidDType, InvalidDevice, InvalidStride.
    """
    places = argsort(x, dim, descending=descending, stable=stable)
    return _dispatch_elements()(x, places, None, axis_number("dim", dim)), places


def argsort(x: Any, dim: int = -1, *, descending: bool = False, stable: bool = False) -> Any:
    """Return the places of the elements along ``dim`` in order, as :func:`sort` does.

    Raises: InvalidShape: there is no such axis. InvalidDType, InvalidDevice, InvalidStride.
    """
    flag("stable", stable)
    return _dispatch_places()(x, None, None, not flag("descending", descending), axis_number("dim", dim))


@cache
def _dispatch_copy() -> Any:
    return dispatched(_OF_COPY, _missed_copy)


def _missed_copy(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    del attributes
    given = Given.of(_OF_COPY, arrays, out, takes={"x": ANY, "out": FOLLOWING})
    x = given.type(0)
    given.check_result_type(TensorType(x.shape, x.dtype))
    kind, result = _MOVED_AS.get(x.dtype, x.dtype), given.result
    read, out = (None if of is None else replace(of, dtype=kind) for of in (x, result))
    assert read is not None
    program = compile_op(PointwiseOp(expr=Input(0), inputs=(read,), out_dtype=kind, out=out), threads=threads)
    return _of_type(program, x)


@cache
def _dispatch_sums() -> Any:
    return dispatched(_OF_COPY, _missed_sums)


def _missed_sums(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OF_COPY, arrays, out)
    given.check_floats()
    x = given.type(0)
    given.check_result_type(TensorType(x.shape, x.dtype))
    output = given.result or TensorType(x.shape, x.dtype)
    op = CumulativeSumOp(x=vector(x), axis=axis_of(attributes[0], x.rank), out=vector(output))
    return compile_as_vectors(op, inputs=(x,), output=output, threads=threads)


@cache
def _dispatch_embedding() -> Any:
    return dispatched(_OF_EMBEDDING, _missed_embedding)


def _missed_embedding(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    del attributes
    given = Given.of(_OF_EMBEDDING, arrays, out, takes={"indices": INDICES, "table": ANY, "out": FOLLOWING})
    places, table = given.type(0), given.type(1)
    if table.rank != 2:
        raise InvalidShape(field="table", got=table.shape, expected="(rows, columns)", remedy="reshape it")
    named = given.index_range(0, table.static_shape[0], Named.ROWS)
    shape = (*places.shape, table.shape[1])
    given.check_result_type(TensorType(shape, table.dtype))
    graph, moved = Graph(), replace(table, dtype=_MOVED_AS.get(table.dtype, table.dtype))
    result = None if given.result is None else replace(given.result, dtype=moved.dtype)
    rows, source = graph.add_input(places), graph.add_input(moved)
    if places.rank != 1:
        if not places.is_contiguous:
            rows = graph.add_pointwise(Input(0), rows)
        rows = graph.add_view(ViewKind.RESHAPE, rows, shape=(places.elements,))
    stated = result if places.rank == 1 else None
    node = graph.add(GatherRowsOp(table=moved, indices=rows.type, out=stated), [source, rows])
    state_result(graph, node, shape, result)
    program = compile_graph(graph, threads=threads, name="embedding").program
    return replace(_of_type(program, table, 1), index_ranges=(named,))


@cache
def _dispatch_places() -> Any:
    return dispatched(_OF_COPY, _missed_places)


def _missed_places(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OF_COPY, arrays, out, takes={"x": _ORDERED})
    asked, smallest, dim = attributes
    x = given.type(0)
    if x.dtype.value not in _ORDERED:
        raise InvalidDType(
            field="x", got=x.dtype.value, expected=_ORDERED, remedy="convert it to numbers that have an order: int8"
        )
    order, back = _last(x.rank, dim)
    most = x.static_shape[order[-1]] if x.rank else 1
    k = most if asked is None else asked
    if not (0 if x.rank else 1) <= k <= most:
        expected = f"0 to {most}: the elements along dim" if x.rank else "1: a number is one element"
        raise InvalidOp(field="k", got=k, expected=expected, remedy=f"k={most}")
    if k == 0:
        none = (0 if axis == order[-1] else extent for axis, extent in enumerate(x.shape))
        return filled(arrays[0], TensorType(tuple(none), DType.I64), out, 0)
    op = LargestOp(x=vector(x).permuted(order), k=k, smallest=smallest)
    # Rows of the result lie as x's would without gaps: the axis of places is the result's own one.
    shape = tuple(op.shape[axis] for axis in back)
    output = TensorType(shape if x.rank else (), DType.I64)
    given.check_result_type(output)
    op = replace(op, out=TensorType(shape, DType.I64).permuted(order))
    return compile_as_views(op, inputs=(x,), output=output, threads=threads)


@cache
def _dispatch_elements() -> Any:
    return dispatched(_OF_ELEMENTS, _missed_elements)


def _missed_elements(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    """Return the program that takes elements of rows by their places in them: rows of a column of all elements."""
    given = Given.of(_OF_ELEMENTS, arrays, out, takes={"x": _ORDERED, "places": INDICES})
    x, places = given.type(0), given.type(1)
    if places.elements == 0:
        return filled(arrays[0], TensorType(places.shape, x.dtype), out, 0)
    axis = axis_of(attributes[0], x.rank) if x.rank else 0
    kind = _MOVED_AS.get(x.dtype, x.dtype)
    graph = Graph()
    source, within = graph.add_input(replace(x, dtype=kind)), graph.add_input(places)
    if x.rank == 0:
        source, within = (graph.add_view(ViewKind.RESHAPE, node, shape=(1,)) for node in (source, within))
    if order_in_memory(source.type) is None:  # gaps are copied away
        source = graph.add_pointwise(Input(0), source)
    offsets = line_begins(source.type, axis, within.type.static_shape)
    begins = graph.add_constant(TensorType(offsets.shape, DType.I64), name="begins")
    node = add_elements(graph, source, within, begins, axis)
    state_result(graph, node, places.shape, TensorType(places.shape, kind))
    program = compile_graph(graph, {"begins": offsets}, threads=threads, name="elements").program
    return _of_type(program, x)


def _of_type(program: Any, x: TensorType, position: int = 0) -> Any:
    """Return a program that moves elements, and computes with none, of x's own type, which is that input."""
    written = tuple(replace(of, dtype=x.dtype) for of in program.outputs)
    read = tuple(x if at == position else of for at, of in enumerate(program.inputs))
    return replace(program, inputs=read, outputs=written)


def _last(rank: int, dim: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the order of axes in which ``dim`` is the last one, and the order back; a number has one axis."""
    axis = axis_of(dim, rank)
    order = (*(at for at in range(rank) if at != axis), axis)
    return order, tuple(sorted(range(len(order)), key=order.__getitem__))
