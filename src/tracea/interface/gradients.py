"""Gradients of softmax and of the norms as functions, given that of the result; ``torch.autograd.Function`` joins them.

Statistics are computed again from the input, which costs less than reading them back; no op here records a gradient.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tracea.core.expr import Expr, Input, Unary, UnaryFunction, exp
from tracea.core.graph import Graph
from tracea.core.op import ReduceKind, Statistic, StatisticsOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidShape
from tracea.flow.compile import compile_graph, compile_op
from tracea.flow.reduction import add_reduction, wide_type
from tracea.interface.normalizations import positive_eps
from tracea.interface.operands import Given
from tracea.interface.reductions import axis_of
from tracea.interface.results import compile_as_vectors, filled, vector
from tracea.runtime.extension import dispatcher

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["layer_norm_backward", "log_softmax_backward", "rms_norm_backward", "softmax_backward"]


def softmax_backward(grad: Any, y: Any, dim: int = -1, *, out: Any = None) -> Any:
    """Return the gradient of ``y = softmax(x, dim)`` for x: ``y · (grad - sum of grad · y)``.

    Shapes: grad and y are alike.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput.
    """
    return _dispatch_softmax()(grad, y, out, dim, False)


def log_softmax_backward(grad: Any, y: Any, dim: int = -1, *, out: Any = None) -> Any:
    """Return the gradient of ``y = log_softmax(x, dim)`` for x: ``grad - exp(y) · sum of grad``.

    Shapes: grad and y are alike.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput.
    """
    return _dispatch_softmax()(grad, y, out, dim, True)


def layer_norm_backward(grad: Any, x: Any, weight: Any = None, eps: float = 1e-5) -> tuple[Any, Any, Any]:
    """Return the gradients of ``layer_norm(x, weight, bias, eps)`` for x, weight and bias.

    Those of weight and bias are sums over rows, in the type of x.

    Shapes: grad and x are (..., columns), weight (columns,); the gradients those of x, weight, weight.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride; InvalidOp: eps is negative or not finite.
    """
    found = positive_eps(eps)
    dispatch = _dispatch_norm(is_centred=True)
    return tuple(dispatch(grad, x, weight, None, found, wanted) for wanted in ("x", "weight", "bias"))  # pyright: ignore[reportReturnType]


def rms_norm_backward(grad: Any, x: Any, weight: Any = None, eps: float = 1e-6) -> tuple[Any, Any]:
    """Return the gradients of ``rms_norm(x, weight, eps)`` for x and weight; that of weight is a sum over rows.

    Shapes: grad and x are (..., columns), weight (columns,).

    Raises: as :func:`layer_norm_backward`.
    """
    found = positive_eps(eps)
    dispatch = _dispatch_norm(is_centred=False)
    return dispatch(grad, x, weight, None, found, "x"), dispatch(grad, x, weight, None, found, "weight")


@cache
def _dispatch_softmax() -> Any:
    return dispatcher(2, _missed_softmax)


def _missed_softmax(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(("grad", "y"), arrays, out)
    given.check_floats()
    dim, is_logarithm = attributes
    grad, y = _alike(given, "y")
    axis, like = axis_of(dim, y.rank), TensorType(y.shape, grad.dtype)
    total = Statistic(ReduceKind.SUM, Input(0) if is_logarithm else Input(0) * Input(1))
    expr = Input(0) - exp(Input(1)) * Input(2) if is_logarithm else Input(1) * (Input(0) - Input(2))
    given.check_result_type(like)
    if y.elements == 0:
        return filled(arrays[0], like, out, 0.0)
    output = given.result or like
    op = StatisticsOp(x=(vector(grad), vector(y)), axes=(axis,), statistics=(total,), expr=expr, out=vector(output))
    return compile_as_vectors(op, inputs=(grad, y), output=output, threads=threads)


@cache
def _dispatch_norm(*, is_centred: bool) -> Any:
    def missed(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
        given = Given.of(("grad", "x", "weight"), arrays, out)
        given.check_floats()
        eps, wanted = attributes
        grad, x = _alike(given, "x")
        weight = given.optional(2)
        if x.rank == 0 or (weight is not None and weight.shape != x.shape[-1:]):
            raise InvalidShape(
                field="weight",
                got=None if weight is None else weight.shape,
                expected=x.shape[-1:],
                remedy="give one value for each column",
            )
        if x.elements == 0:  # no row, or rows without a column
            shape = x.shape if wanted == "x" else x.shape[-1:]
            return filled(arrays[1], TensorType(shape, x.dtype), out, 0.0)
        if wanted == "x":
            return compile_op(_for_x(grad, x, weight, eps, is_centred=is_centred), threads=threads)
        return _for_parameter(
            grad, x, weight, eps, is_centred=is_centred, is_weight=wanted == "weight", threads=threads
        )

    return dispatcher(3, missed)


def _alike(given: Given, name: str) -> tuple[TensorType, TensorType]:
    grad, other = given.type(0), given.type(1)
    if grad.shape != other.shape:
        raise InvalidShape(
            field="grad", got=grad.shape, expected=other.shape, remedy=f"give the gradient of the result, alike {name}"
        )
    return grad, other


def _moments(first: int, *, x: Expr, is_centred: bool) -> tuple[tuple[Statistic, ...], Expr, int]:
    """Return the statistics of a norm from ``Input(first)`` on, the row before its scale, and where the next one is."""
    if not is_centred:
        return (Statistic(ReduceKind.MEAN, x * x),), x, first + 1
    away = x - Input(first)
    return (Statistic(ReduceKind.MEAN, x), Statistic(ReduceKind.MEAN, away * away)), away, first + 2


def _for_x(grad: TensorType, x: TensorType, weight: TensorType | None, eps: float, *, is_centred: bool) -> StatisticsOp:
    """Return the op of ``scale · (g - mean g - normal · mean(g · normal))``, g the gradient before the weight."""
    sources = (grad, x) if weight is None else (grad, x, weight)
    g: Expr = Input(0) if weight is None else Input(0) * Input(2)
    moments, away, following = _moments(len(sources), x=Input(1), is_centred=is_centred)
    scale = Unary(UnaryFunction.RSQRT, Input(following - 1) + eps)
    along = Statistic(ReduceKind.MEAN, g * (away * scale))
    level = (Statistic(ReduceKind.MEAN, g),) if is_centred else ()
    slope = g - (away * scale) * Input(following)
    if is_centred:
        slope = slope - Input(following + 1)
    return StatisticsOp(
        x=sources,
        axes=(-1,),
        statistics=(*moments, along, *level),
        expr=slope * scale,
        out=TensorType(x.shape, x.dtype),
    )


def _for_parameter(
    grad: TensorType,
    x: TensorType,
    weight: TensorType | None,
    eps: float,
    *,
    is_centred: bool,
    is_weight: bool,
    threads: int,
) -> Program:
    """Return the sum over rows of the gradient, for the weight times the normalised rows."""
    graph = Graph()
    gradient, source = graph.add_input(grad), graph.add_input(x)
    if weight is not None:
        graph.add_input(weight)
    axes = tuple(range(x.rank - 1))
    result = TensorType(x.shape[-1:], x.dtype)
    wide = TensorType((*x.shape[:-1], 1), wide_type(x.dtype))
    nodes = [gradient]
    expr: Expr = Input(0)
    if is_weight:
        moments, _, following = _moments(1, x=Input(0), is_centred=is_centred)
        scale = StatisticsOp(
            x=(x,),
            axes=(-1,),
            statistics=moments,
            expr=Unary(UnaryFunction.RSQRT, Input(following - 1) + eps),
            reduced=True,
            keepdims=True,
            out=wide,
        )
        nodes += [source, graph.add(scale, [source])]
        expr = expr * (Input(1) * Input(2))
        if is_centred:
            center = StatisticsOp(
                x=(x,), axes=(-1,), statistics=moments[:1], expr=Input(1), reduced=True, keepdims=True, out=wide
            )
            nodes.append(graph.add(center, [source]))
            expr = Input(0) * ((Input(1) - Input(3)) * Input(2))
    if not axes:
        node = graph.add_pointwise(expr, *nodes, out_dtype=x.dtype)
    else:
        node = add_reduction(graph, ReduceKind.SUM, nodes, axes, prologue=expr, out=result, threads=threads)
    graph.set_outputs(node)
    return compile_graph(graph, threads=threads, name="norm_backward").program
