"""Gradients of reductions as functions: each hands the gradient of its result on to the elements that were reduced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from tracea.core.expr import Binary, BinaryFunction, Constant, Expr, Input, Unary, UnaryFunction, select
from tracea.core.graph import Graph, Node
from tracea.core.op import PointwiseOp, ReduceKind, Statistic, StatisticsOp, ViewKind
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidShape
from tracea.flow.compile import compile_graph
from tracea.flow.reduction import add_statistics
from tracea.interface.operands import Given, dispatched, flag
from tracea.interface.reductions import axes_of, correction_number, dim_numbers
from tracea.interface.results import filled, state_result
from tracea.interface.whole_numbers import read_wholes

__all__ = [
    "amax_backward",
    "amin_backward",
    "mean_backward",
    "prod_backward",
    "std_backward",
    "sum_backward",
    "var_backward",
]

_OF_SPREAD: Final = ("grad",)
_OPERANDS: Final = ("grad", "x")

Dims = int | Sequence[int] | None

_X, _G, _FIRST, _SECOND, _THIRD = (Input(index) for index in range(5))  # x, the gradient, statistics of x


def sum_backward(grad: Any, shape: Sequence[int], dim: Dims = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the gradient of ``sum(x, dim, keepdim)`` for x of ``shape``: that of the result, for each element.

    Shapes: grad is that of the result.

    Raises: InvalidShape: there is no such axis, it is named twice, or grad is of another shape. InvalidDType,
    InvalidDevice, InvalidStride, OverlappingOutput.
    """
    return _dispatch_spread()(grad, out, "sum", flag("keepdim", keepdim), _extents(shape), *dim_numbers(dim))


def mean_backward(grad: Any, shape: Sequence[int], dim: Dims = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the gradient of ``mean(x, dim, keepdim)`` for x of ``shape``.

    Raises: as :func:`sum_backward`.
    """
    return _dispatch_spread()(grad, out, "mean", flag("keepdim", keepdim), _extents(shape), *dim_numbers(dim))


def amax_backward(grad: Any, x: Any, dim: Dims = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the gradient of ``amax(x, dim, keepdim)`` for x: equal parts of it for all that are the largest.

    Shapes: grad is that of the result; the gradient that of x.

    Raises: as :func:`sum_backward`.
    """
    return _dispatch()(grad, x, out, "amax", 0.0, flag("keepdim", keepdim), *dim_numbers(dim))


def amin_backward(grad: Any, x: Any, dim: Dims = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the gradient of ``amin(x, dim, keepdim)`` for x: equal parts of it for all that are the smallest.

    Raises: as :func:`sum_backward`.
    """
    return _dispatch()(grad, x, out, "amin", 0.0, flag("keepdim", keepdim), *dim_numbers(dim))


def prod_backward(grad: Any, x: Any, dim: Dims = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the gradient of ``prod(x, dim, keepdim)`` for x: the product of the other elements, zeros among them too.

    Without a zero among them it is the product over the element, as torch's: NaN where the element is infinite.

    Raises: as :func:`sum_backward`.
    """
    return _dispatch()(grad, x, out, "prod", 0.0, flag("keepdim", keepdim), *dim_numbers(dim))


def var_backward(
    grad: Any, x: Any, dim: Dims = None, *, correction: float = 1.0, keepdim: bool = False, out: Any = None
) -> Any:
    """Return the gradient of ``var(x, dim)`` for x: ``2 (x - mean) / (n - correction)``.

    Where n is ``correction`` that is infinite, and NaN at the mean.

    Raises: as :func:`sum_backward`; InvalidOp: ``correction`` is no finite number.
    """
    return _dispatch()(grad, x, out, "var", correction_number(correction), flag("keepdim", keepdim), *dim_numbers(dim))


def std_backward(
    grad: Any, x: Any, dim: Dims = None, *, correction: float = 1.0, keepdim: bool = False, out: Any = None
) -> Any:
    """Return the gradient of ``std(x, dim)`` for x; zero where there is no spread, as torch has it.

    Raises: as :func:`var_backward`.
    """
    return _dispatch()(grad, x, out, "std", correction_number(correction), flag("keepdim", keepdim), *dim_numbers(dim))


def _extents(shape: Any) -> str:
    """Return a shape as text: attributes of a call are numbers and names."""
    extents = read_wholes(shape)
    if extents is None or not all(0 <= extent < 2**31 for extent in extents):
        raise InvalidShape(
            field="shape", got=shape, expected="whole numbers from 0 to 2^31 - 1", remedy="shape=tuple(x.shape)"
        )
    return ",".join(map(str, extents))


def _spread(graph: Graph, node: Node, shape: tuple[int, ...], axes: Sequence[int]) -> Node:
    """Return the gradient of a result as a tensor of the source's rank: of extent 1 on what was reduced."""
    if not node.type.is_contiguous:
        node = graph.add_pointwise(Input(0), node)
    kept = tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    return node if node.type.shape == kept else graph.add_view(ViewKind.RESHAPE, node, shape=kept)


def _check_grad(grad: TensorType, shape: tuple[int, ...], axes: Sequence[int], *, keepdim: bool) -> None:
    kept = tuple(1 if axis in axes else dim for axis, dim in enumerate(shape) if keepdim or axis not in axes)
    if grad.shape != kept:
        raise InvalidShape(
            field="grad", got=grad.shape, expected=kept, remedy="give the gradient of the result, with keepdim as there"
        )


@cache
def _dispatch_spread() -> Any:
    return dispatched(_OF_SPREAD, _missed_spread)


def _missed_spread(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    name, keepdim, written, *dims = attributes
    shape = tuple(int(extent) for extent in written.split(",") if extent)
    given = Given.of(_OF_SPREAD, arrays, out)
    given.check_floats()
    grad, axes = given.type(0), axes_of(dims, len(shape)) if shape else ()
    _check_grad(grad, shape, axes, keepdim=keepdim)
    wanted = TensorType(shape, grad.dtype)
    given.check_result_type(wanted)
    if wanted.elements == 0:
        return filled(arrays[0], wanted, out, 0.0)
    graph = Graph()
    node = _spread(graph, graph.add_input(grad), shape, axes)
    if node.type.shape != shape:
        node = graph.add_view(ViewKind.EXPAND, node, shape=shape)
    count = math.prod(shape[axis] for axis in axes)
    expr: Expr = Input(0) if name == "sum" else Input(0) / Constant(count)
    op = PointwiseOp(expr=expr, inputs=(node.type,), out_dtype=grad.dtype, out=given.result or wanted)
    graph.set_outputs(graph.add(op, [node]))
    return compile_graph(graph, threads=threads, name=f"{name}_backward").program


@cache
def _dispatch() -> Any:
    return dispatched(_OPERANDS, _missed)


def _missed(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    name, correction, keepdim, *dims = attributes
    given = Given.of(_OPERANDS, arrays, out)
    given.check_floats()
    grad, x = given.type(0), given.type(1)
    shape = x.static_shape
    axes = axes_of(dims, x.rank) if x.rank else ()
    _check_grad(grad, shape, axes, keepdim=keepdim)
    like = TensorType(shape, x.dtype)
    given.check_result_type(like)
    if x.elements == 0:
        return filled(arrays[1], like, out, 0.0)
    graph = Graph()
    gradient, source = graph.add_input(grad), graph.add_input(x)
    if x.rank == 0:
        source, shape, axes = graph.add_view(ViewKind.RESHAPE, source, shape=(1,)), (1,), (0,)
    nodes = [source, _spread(graph, gradient, shape, axes)]
    divisor = math.prod(shape[axis] for axis in axes) - correction
    statistics, expr = _slope(name, divisor)
    stated = given.result if given.result is not None and x.rank else TensorType(shape, x.dtype)
    op = StatisticsOp(x=tuple(node.type for node in nodes), axes=axes, statistics=statistics, expr=expr, out=stated)
    state_result(graph, add_statistics(graph, op, nodes, threads=threads), x.shape, given.result)
    return compile_graph(graph, threads=threads, name=f"{name}_backward").program


def _slope(name: str, divisor: float) -> tuple[tuple[Statistic, ...], Expr]:
    """Return the statistics of x that a gradient needs, and the gradient."""
    match name:
        case "amax" | "amin":
            kind = ReduceKind.MAX if name == "amax" else ReduceKind.MIN
            is_it = _one_where(Binary(BinaryFunction.EQ, _X, _FIRST))
            # With a NaN nothing is the largest: NaN for all, as 0 of 0 parts.
            return (Statistic(kind, _X), Statistic(ReduceKind.SUM, is_it)), is_it * _G / _SECOND
        case "prod":
            others = select(_IS_ZERO, 1.0, _X)
            # Another zero times the rest, which is NaN where another element is infinite or NaN.
            zero = select(Binary(BinaryFunction.EQ, _THIRD, _IS_LOST), 0.0, math.nan)
            alone = select(Binary(BinaryFunction.EQ, _SECOND, Constant(1.0)), select(_IS_ZERO, _FIRST, zero), zero)
            product = select(Binary(BinaryFunction.EQ, _SECOND, Constant(0.0)), _FIRST / _X, alone)
            zeros, lost = (Statistic(ReduceKind.SUM, each) for each in (_one_where(_IS_ZERO), _IS_LOST))
            return (Statistic(ReduceKind.PRODUCT, others), zeros, lost), _G * product
        case _:
            away = _X - _FIRST
            mean, squares = Statistic(ReduceKind.MEAN, _X), Statistic(ReduceKind.SUM, away * away)
            if name == "var":
                return (mean,), _G * (away * (Constant(2.0) / Constant(divisor)))
            root = Unary(UnaryFunction.SQRT, _SECOND / Constant(max(0.0, divisor)))  # as std has it
            slope = away / (root * Constant(divisor))
            return (mean, squares), select(Binary(BinaryFunction.EQ, root, Constant(0.0)), 0.0, _G * slope)


def _one_where(condition: Expr) -> Expr:
    return select(condition, 1.0, 0.0)


_IS_ZERO: Final = Binary(BinaryFunction.EQ, _X, Constant(0.0))
_IS_LOST: Final = select(Binary(BinaryFunction.EQ, _X - _X, Constant(0.0)), 0.0, 1.0)  # infinite or NaN
