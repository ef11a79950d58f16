"""The places of extremes, as int64: the first of equals, the first NaN where there is one."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.graph import Graph
from tracea.core.op import ViewKind
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidShape
from tracea.flow.compile import compile_graph
from tracea.flow.places import add_place_of_extreme, type_of_places
from tracea.flow.room import require_memory
from tracea.interface.operands import ANY, Given, dispatched, flag
from tracea.interface.ranges import check_exact_numbers
from tracea.interface.reductions import axis_of
from tracea.interface.whole_numbers import axis_number
from tracea.runtime.buffers import view

__all__ = ["argmax", "argmin"]

_OPERANDS: Final = ("x",)
_TAKES: Final = {"x": ANY, "out": ("i64",)}


def argmax(x: Any, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the place of the largest element along ``dim``, the first of equals, as int64; a NaN is the largest.

    None is the place in the row-major order of all elements.

    Raises: InvalidShape: there is no such axis, or no element. InvalidInput: an integer is beyond 2^53. InvalidDType,
    InvalidDevice, InvalidStride, OverlappingOutput.
    """
    return _dispatch_extreme()(x, out, True, _axis(dim), flag("keepdim", keepdim))


def argmin(x: Any, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the place of the smallest element along ``dim``, the first of equals, as int64; a NaN is the smallest.

    Raises: as :func:`argmax`.
    """
    return _dispatch_extreme()(x, out, False, _axis(dim), flag("keepdim", keepdim))


def _axis(dim: Any) -> int | None:
    return None if dim is None else axis_number("dim", dim)


@cache
def _dispatch_extreme() -> Any:
    return dispatched(_OPERANDS, _missed_extreme)


def _missed_extreme(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    if view(arrays[0], "x", ANY).dtype is DType.I64:
        check_exact_numbers(arrays[0], 1, "integers")
        return _dispatch_exact()(arrays[0], out, *attributes)
    return _program(arrays, out, attributes, threads)


@cache
def _dispatch_exact() -> Any:
    return dispatched(_OPERANDS, _program)


def _program(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    is_largest, dim, keepdims = attributes
    x = Given.of(_OPERANDS, arrays, None, takes=_TAKES).type(0)
    axis = None if dim is None else axis_of(dim, x.rank)
    if 0 in (x.static_shape if axis is None or x.rank == 0 else (x.static_shape[axis],)):
        raise InvalidShape(
            field="x", got=x.shape, expected="an element along dim", remedy="the extreme of nothing has no place"
        )
    if axis is None or x.rank == 0:
        shape: tuple[int, ...] = (1,) * x.rank if keepdims else ()
    else:
        shape = tuple(1 if at == axis else size for at, size in enumerate(x.static_shape) if keepdims or at != axis)
    Given.of(_OPERANDS, arrays, out, takes=_TAKES).check_result_type(TensorType(shape, DType.I64))
    graph = Graph()
    source = graph.add_input(x)
    if axis is None or x.rank == 0:
        if not x.is_contiguous:
            source = graph.add_pointwise(Input(0), source)
        source, axis = graph.add_view(ViewKind.RESHAPE, source, shape=(x.elements,)), 0
    count = source.type.static_shape[axis]
    compute = type_of_places(source.type, axis)
    places = TensorType((count, *(1,) * (source.type.rank - 1 - axis)), compute)
    require_memory(f"the places along an axis of {count}", places.nbytes, remedy="search it in parts")
    order = graph.add_constant(places, name="places")
    strided = Given.of(_OPERANDS, arrays, out, takes=_TAKES).result if out is not None else None
    node = add_place_of_extreme(
        graph,
        source,
        order,
        axis,
        largest=is_largest,
        keepdims=keepdims,
        out=strided if source.type.rank == x.rank else None,
    )
    if node.type.shape != shape:
        node = graph.add_view(ViewKind.RESHAPE, node, shape=shape)
    graph.set_outputs(node)
    values = {"places": np.arange(count, dtype=compute.numpy).reshape(places.static_shape)}
    return compile_graph(graph, values, threads=threads, name="argmax" if is_largest else "argmin").program
