"""Gradients of softmax and of the norms as functions, given that of the result; ``torch.autograd.Function`` joins them.

Statistics are computed again from the input, which costs less than reading them back; no op here records a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tracea.core.expr import Expr, Input, Unary, UnaryFunction, exp
from tracea.core.graph import Graph, Node
from tracea.core.op import NormGradientOp, PointwiseOp, ReduceKind, RowKind, Statistic, StatisticsOp, ViewKind
from tracea.core.ops.norm_gradient import norm_slope
from tracea.core.tensor_type import TensorType
from tracea.doctor import host
from tracea.errors import InvalidOp, InvalidShape
from tracea.flow.channel_groups import add_group_norm_gradients
from tracea.flow.channel_moments import add_channel_moments, add_channel_statistics, add_slope
from tracea.flow.channel_planes import norm_of_planes
from tracea.flow.compile import compile_graph, compile_op
from tracea.flow.reduction import add_reduction, add_statistics, wide_type
from tracea.interface.normalizations import check_channels, check_groups, norm_eps, positive_eps, refuse_eps_in_place
from tracea.interface.operands import Given, dispatched
from tracea.interface.reductions import axis_of
from tracea.interface.results import apart, compile_as_vectors, compile_as_views, dense_like, filled, vector
from tracea.interface.whole_numbers import axis_number
from tracea.kernels.registry import candidates
from tracea.targets.target import for_threads

if TYPE_CHECKING:
    from tracea.runtime.program import Program

_HALF_BYTES: Final = 2  # of statistics, from which the gradient of f16 and bf16 would take what they have lost

__all__ = [
    "batch_norm_training_backward",
    "group_norm_backward",
    "layer_norm_backward",
    "log_softmax_backward",
    "rms_norm_backward",
    "softmax_backward",
]

_OF_SOFTMAX: Final = ("grad", "y")
_OF_NORM: Final = ("grad", "x", "weight")
_OF_CHANNELS: Final = ("grad", "x", "weight", "mean", "var")


def softmax_backward(grad: Any, y: Any, dim: int = -1, *, out: Any = None) -> Any:
    """Return the gradient of ``y = softmax(x, dim)`` for x: ``y · (grad - sum of grad · y)``.

    Shapes: grad and y are alike.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput.
    """
    return _dispatch_softmax()(grad, y, out, axis_number("dim", dim), False)


def log_softmax_backward(grad: Any, y: Any, dim: int = -1, *, out: Any = None) -> Any:
    """Return the gradient of ``y = log_softmax(x, dim)`` for x: ``grad - exp(y) · sum of grad``.

    Shapes: grad and y are alike.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput.
    """
    return _dispatch_softmax()(grad, y, out, axis_number("dim", dim), True)


def layer_norm_backward(grad: Any, x: Any, weight: Any = None, eps: float = 1e-5) -> tuple[Any, Any, Any]:
    """Return the gradients of ``layer_norm(x, weight, bias, eps)`` for x, weight and bias.

    Those of weight and bias are sums over rows, in the type of x.

    Shapes: grad and x are (..., columns), weight (columns,); the gradients those of x, weight, weight.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride; InvalidOp: eps is negative or not finite.
    """
    return _dispatch_norm(RowKind.LAYER_NORM)(grad, x, weight, None, positive_eps(eps))


def rms_norm_backward(grad: Any, x: Any, weight: Any = None, eps: float | None = 1e-6) -> tuple[Any, Any]:
    """Return the gradients of ``rms_norm(x, weight, eps)`` for x and weight; that of weight is a sum over rows.

    Shapes: grad and x are (..., columns), weight (columns,).

    Raises: as :func:`layer_norm_backward`.
    """
    return _dispatch_norm(RowKind.RMS_NORM)(grad, x, weight, None, None if eps is None else positive_eps(eps))


def group_norm_backward(
    grad: Any, x: Any, num_groups: int, weight: Any = None, eps: float = 1e-5
) -> tuple[Any, Any, Any]:
    """Return the gradients of ``group_norm(x, num_groups, weight, bias, eps)`` for x, weight and bias.

    Shapes: grad and x are (n, c, ...), weight (c,); the gradients those of x, weight, weight.

    Raises: as :func:`layer_norm_backward`; InvalidOp: ``num_groups`` is no whole number from 1 on.
    """
    return _dispatch_channels()(grad, x, weight, None, None, None, check_groups(num_groups), positive_eps(eps))


def batch_norm_training_backward(
    grad: Any, x: Any, weight: Any = None, eps: float = 1e-5, *, mean: Any = None, var: Any = None
) -> tuple[Any, Any, Any]:
    """Return the gradients of the first result of ``batch_norm_training(x, weight, bias, eps)`` for its operands.

    ``mean`` and ``var`` are its other two results. Where no single kernel makes the gradients (images in rows of less
    than 32 pixels, or with gaps) they save two passes over x, and are computed without. Elsewhere they are not read,
    for the pass that sums the gradients finds them again, and not where they are of 16 bits: these have lost digits,
    or are infinite.

    Shapes: grad and x are (n, c, ...), weight, mean and var (c,); the gradients those of x, weight, weight. That for x
    has the order of axes of x.

    Raises: as :func:`layer_norm_backward`; InvalidOp: of mean and var there is one.
    """
    if (mean is None) != (var is None):
        raise InvalidOp(
            field="mean, var",
            got="one of them",
            expected="both or neither",
            remedy="give the second and the third result of batch_norm_training",
        )
    return _dispatch_channels()(grad, x, weight, mean, var, None, 0, positive_eps(eps))


@cache
def _dispatch_softmax() -> Any:
    return dispatched(_OF_SOFTMAX, _missed_softmax)


def _missed_softmax(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OF_SOFTMAX, arrays, out)
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
def _dispatch_norm(kind: RowKind) -> Any:
    def missed(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
        refuse_eps_in_place(_OF_NORM, arrays)
        given = Given.of(_OF_NORM, arrays, out)
        given.check_floats()
        grad, x = _alike(given, "x")
        weight = given.optional(2)
        if x.rank == 0:
            raise InvalidShape(field="x", got=(), expected="(..., columns)", remedy="give rows: x[None] is one of one")
        if weight is not None and weight.shape != x.shape[-1:]:
            raise InvalidShape(
                field="weight",
                got=weight.shape,
                expected=x.shape[-1:],
                remedy="give one value for each column",
            )
        op = NormGradientOp(kind=kind, grad=grad, x=x, weight=weight, eps=norm_eps(attributes[0], x))
        given.check_result(op)
        if x.elements == 0:  # no row, or rows without a column
            return tuple(filled(arrays[1], TensorType(shape, x.dtype), None, 0.0) for shape in op.parts)
        if candidates(op, for_threads(host(), threads)):
            return apart(compile_op(op, threads=threads), op.parts, op.offsets)
        graph, nodes = _sources(given)
        if weight is not None:
            nodes.append(graph.add_input(weight))
        return _in_steps(op, graph, nodes, threads)

    return dispatched(_OF_NORM, missed)


def _in_steps(op: NormGradientOp, graph: Graph, nodes: Sequence[Node], threads: int) -> Program:
    """Return the program of gradients that are made one after the other: of rows that do not lie along memory."""
    axes, others = (op.x.rank - 1,), tuple(range(op.x.rank - 1))
    made = [_for_x(graph, nodes, axes, op.eps, is_centred=op.is_centred, threads=threads)]
    for index in range(1, len(op.parts)):
        made.append(
            _for_parameter(
                graph, nodes, (axes, others), op.eps, is_centred=op.is_centred, is_weight=index == 1, threads=threads
            )
        )
    graph.set_outputs(*made)
    return compile_graph(graph, threads=threads, name="norm_backward").program


def _alike(given: Given, name: str) -> tuple[TensorType, TensorType]:
    grad, other = given.type(0), given.type(1)
    if grad.shape != other.shape:
        raise InvalidShape(
            field="grad", got=grad.shape, expected=other.shape, remedy=f"give the gradient of the result, alike {name}"
        )
    return grad, other


def _sources(given: Given) -> tuple[Graph, list[Node]]:
    """Return a graph of grad and x."""
    graph = Graph()
    return graph, [graph.add_input(given.type(0)), graph.add_input(given.type(1))]


def _for_x(
    graph: Graph, nodes: Sequence[Node], axes: tuple[int, ...], eps: float, *, is_centred: bool, threads: int
) -> Node:
    """Append ``scale · (g - mean g - normal · mean(g · normal))``, g the gradient before the weight."""
    x = nodes[1].type
    g: Expr = Input(0) if len(nodes) == 2 else Input(0) * Input(2)
    statistics, slope = norm_slope(len(nodes), g, Input(1), eps, is_centred=is_centred)
    op = StatisticsOp(
        x=tuple(node.type for node in nodes),
        axes=axes,
        statistics=statistics,
        expr=slope,
        out=TensorType(x.shape, x.dtype),
    )
    return add_statistics(graph, op, nodes, threads=threads)


def _for_parameter(
    graph: Graph,
    nodes: Sequence[Node],
    axes: tuple[tuple[int, ...], tuple[int, ...]],
    eps: float,
    *,
    is_centred: bool,
    is_weight: bool,
    threads: int,
) -> Node:
    """Append the sum of the gradient, for the weight times what is normalised.

    ``axes`` are those of a slab, and those that a parameter does not have.
    """
    gradient, source = nodes[:2]
    of_slab, others = axes
    x = source.type
    used, expr = [gradient], Input(0)
    if is_weight:
        used += _normal(graph, source, of_slab, eps, is_centred=is_centred, threads=threads)
        expr = Input(0) * ((Input(2) - Input(3) if is_centred else Input(2)) * Input(1))
    if not others:
        return graph.add_pointwise(expr, *used, out_dtype=x.dtype)
    kept = tuple(dim for axis, dim in enumerate(x.shape) if axis not in others)
    out = TensorType(kept, x.dtype)
    return add_reduction(graph, ReduceKind.SUM, used, others, prologue=expr, out=out, threads=threads)


def _normal(
    graph: Graph, source: Node, axes: tuple[int, ...], eps: float, *, is_centred: bool, threads: int
) -> list[Node]:
    """Append what normalises x over ``axes``; return the scale of each slab, x, and, where it is centred, the means."""
    x = source.type
    shape = tuple(1 if axis in axes else dim for axis, dim in enumerate(x.shape))
    one = {"axes": axes, "reduced": True, "keepdims": True, "out": TensorType(shape, wide_type(x.dtype))}
    slabs = [source]
    if is_centred:
        mean = Statistic(ReduceKind.MEAN, Input(0))
        center = StatisticsOp(x=(x,), statistics=(mean,), expr=Input(1), **one)  # pyright: ignore[reportArgumentType]
        slabs.append(add_statistics(graph, center, [source], threads=threads))
    away = Input(0) - Input(1) if is_centred else Input(0)
    scale = StatisticsOp(
        x=tuple(node.type for node in slabs),
        statistics=(Statistic(ReduceKind.MEAN, away * away),),
        expr=Unary(UnaryFunction.RSQRT, Input(len(slabs)) + eps),
        **one,  # pyright: ignore[reportArgumentType]
    )
    return [add_statistics(graph, scale, slabs, threads=threads), *slabs]


def _of_batch(graph: Graph, nodes: Sequence[Node], known: Sequence[Node], eps: float, threads: int) -> list[Node]:
    """Append the gradients of a batch norm: that of x takes off the means of the sums that the other two are.

    ``known`` are the mean and the variance of each channel, or none.
    """
    gradient, source, *weights = nodes
    x, wide = source.type, wide_type(source.type.dtype)
    axes, share = (0, *range(2, x.rank)), x.static_shape[1] / x.elements
    one = TensorType((1, *x.shape[1:2], *(1,) * (x.rank - 2)), wide)
    moments = add_channel_moments(graph, source, gradient, of_batch=True, threads=threads)
    if moments is not None:
        scale = graph.add_pointwise(Unary(UnaryFunction.RSQRT, Input(0) + eps), moments.variance)
        center, away, (level, slope) = moments.pivot, [moments.away], moments.sums
        along = graph.add_pointwise(Input(0) * Input(1), slope, scale)
    else:
        center, *away, var = known or add_channel_statistics(graph, source, threads=threads)
        scale = graph.add_pointwise(Unary(UnaryFunction.RSQRT, Input(0) + eps), var, out_dtype=wide)
        normal = (Input(2) - Input(3) - Input(4) if away else Input(2) - Input(3)) * Input(1)
        sums = ([gradient], Input(0)), ([gradient, scale, source, center, *away], Input(0) * normal)
        level, along = (
            add_reduction(graph, ReduceKind.SUM, used, axes, prologue=expr, keepdims=True, out=one, threads=threads)
            for used, expr in sums
        )
    # Beside a gradient and an element one number a channel each: w · s, w · s² · mean(g · normal), and w · s · mean g.
    factor = graph.add_pointwise(Input(0) * Input(1), scale, weights[0]) if weights else scale
    bend = graph.add_pointwise(Input(0) * Input(1) * Input(2) * share, along, scale, factor)
    term = graph.add_pointwise(Input(0) * Input(1) * share, level, factor)
    if away:
        term = graph.add_pointwise(Input(0) - Input(1) * Input(2), term, bend, *away)
    for_x = add_slope(graph, (gradient, source), center, (factor, bend, term), dense_like(x))
    flat = (graph.add_view(ViewKind.RESHAPE, node, shape=x.shape[1:2]) for node in (along, level))
    return [for_x, *(graph.add_pointwise(Input(0), node, out_dtype=x.dtype) for node in flat)]


@cache
def _dispatch_channels() -> Any:
    return dispatched(_OF_CHANNELS, _missed_channels)


def _missed_channels(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    refuse_eps_in_place(_OF_CHANNELS, arrays)
    given = Given.of(_OF_CHANNELS, arrays, out)
    given.check_floats()
    groups, eps = attributes
    check_channels(given.type(1), groups or 1)
    x = _alike(given, "x")[1]
    channels = x.static_shape[1]
    parameters = [given.optional(index) for index in (2, 3, 4)]
    for name, type_ in zip(given.names[2:], parameters, strict=True):
        if type_ is not None and type_.shape != (channels,):
            raise InvalidShape(
                field=name, got=type_.shape, expected=(channels,), remedy="give one value for each channel"
            )
    if x.elements == 0:
        shapes = (x.shape, (channels,), (channels,))
        return tuple(filled(arrays[1], TensorType(shape, x.dtype), None, 0.0) for shape in shapes)
    sources = [type_ for type_ in (given.type(0), x, *parameters) if type_ is not None]
    of_planes = norm_of_planes(given.type(0), x, parameters[0], groups=groups, eps=eps, threads=threads)
    if of_planes is not None:
        order = range(len(of_planes.operands))  # mean and var come behind them
        program = compile_as_views(of_planes, inputs=sources, output=of_planes.infer(), threads=threads, order=order)
        return apart(program, (x.shape, (channels,), (channels,)), of_planes.offsets)
    graph, nodes = _sources(given)
    if x.strides[1] == 1 and nodes[0].type.strides[1] != 1:  # in the order of x, whose channels come last
        like = TensorType(x.shape, nodes[0].type.dtype, dense_like(x).layout)
        copy = PointwiseOp(expr=Input(0), inputs=(nodes[0].type,), out_dtype=like.dtype, out=like)
        nodes[0] = graph.add(copy, nodes[:1])
    weight, mean, var = (None if type_ is None else graph.add_input(type_) for type_ in parameters)
    if groups:
        made = _of_groups(graph, nodes[0], nodes[1], weight, groups=groups, eps=eps, threads=threads)
    else:
        ends = (channels, *(1,) * (x.rank - 2))
        whole = [node for node in (mean, var) if node is not None and node.type.dtype.nbytes > _HALF_BYTES]
        known = [graph.add_view(ViewKind.RESHAPE, node, shape=ends) for node in whole] if len(whole) > 1 else []
        if weight is not None:
            nodes.append(graph.add_view(ViewKind.RESHAPE, weight, shape=ends))
        made = _of_batch(graph, nodes, known, eps, threads)
    graph.set_outputs(*made)
    return compile_graph(graph, threads=threads, name="norm_backward").program


def _of_groups(
    graph: Graph, grad: Node, x: Node, weight: Node | None, *, groups: int, eps: float, threads: int
) -> list[Node]:
    """Append the gradients of a group norm; of rows of channels, each is an image of one pixel."""
    shape, out = x.type.shape, dense_like(x.type)
    if len(shape) == 2:
        out = TensorType((*shape, 1), x.type.dtype)
        grad, x = (graph.add_view(ViewKind.RESHAPE, node, shape=out.shape) for node in (grad, x))
    for_x, *others = add_group_norm_gradients(graph, grad, x, groups, weight=weight, eps=eps, out=out, threads=threads)
    if len(shape) == 2:
        for_x = graph.add_view(ViewKind.RESHAPE, for_x, shape=shape)
    return [for_x, *others]
