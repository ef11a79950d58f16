"""Moments of channels that come last in memory: images are matrices of pixels, whose columns one walk sums."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Constant, Expr, Input, select
from tracea.core.graph import Graph, Node
from tracea.core.op import MomentsOp, PointwiseOp, ReduceKind, ViewKind, ViewOp
from tracea.core.tensor_type import TensorType
from tracea.doctor import host
from tracea.errors import InvalidStride
from tracea.flow.reduction import add_reduction, wide_type
from tracea.kernels.registry import candidates
from tracea.targets.target import for_threads

__all__ = ["ChannelMoments", "add_channel_moments", "add_channel_statistics", "add_slope"]

# What is no number is a poor place to sum about.
_FINITE = select(Binary(BinaryFunction.EQ, Input(0) - Input(0), Constant(0.0)), Input(0), 0.0)


@dataclass(frozen=True, slots=True)
class ChannelMoments:
    """Numbers of each channel, (n or 1, c, 1, ...), in the type that sums are made in.

    ``away`` is the mean beyond ``pivot``; ``sums``, where there is a gradient, are its own sum and that of its products
    with what is beyond the mean.
    """

    pivot: Node
    away: Node
    variance: Node
    sums: tuple[Node, ...] = ()


def _pivot(graph: Graph, x: Node, *, of_batch: bool, wide: DType) -> Node:
    """Append a number near each channel's mean: its first element, or 0 for one that is not finite.

    Shapes: x is (n, c, ...) with elements, the result (n, c, 1, ...), or ``of_batch`` (1, c, 1, ...).
    """
    batch, channels, *sides = x.type.static_shape
    corner = (1 if of_batch else batch, channels, *(1 for _ in sides))
    rank = x.type.rank
    pixel = graph.add_view(ViewKind.SLICE, x, shape=corner, starts=(0,) * rank, steps=(1,) * rank)
    return graph.add_pointwise(_FINITE, pixel, out_dtype=wide)


def add_channel_moments(
    graph: Graph, x: Node, grad: Node | None = None, *, of_batch: bool, threads: int
) -> ChannelMoments | None:
    """Append the moments of the channels of each image, or, ``of_batch``, of all; None where x is no such matrix.

    Shapes: x and grad are (n, c, ...), with elements.
    """
    nodes = [node for node in (x, grad) if node is not None]
    matrices = [type_ for node in nodes if (type_ := _pixels(node.type, of_batch=of_batch)) is not None]
    if len(matrices) < len(nodes):
        return None
    source, *grads = matrices
    images, _, channels = source.static_shape
    about = TensorType((images, 1, channels), wide_type(*(node.type.dtype for node in nodes)))
    op = MomentsOp(x=source, about=about, grad=grads[0] if grads else None)
    if not candidates(op, for_threads(host(), threads)):
        return None
    pivot = _pivot(graph, x, of_batch=of_batch, wide=about.dtype)
    last = [graph.add_view(ViewKind.PERMUTE, node, axes=_last(node.type)) for node in nodes]
    views = [graph.add_view(ViewKind.RESHAPE, node, shape=source.shape) for node in last]
    views.insert(1, graph.add_view(ViewKind.RESHAPE, pivot, shape=about.shape))
    made = graph.add(op, views)
    rows = (
        graph.add_view(ViewKind.SLICE, made, shape=about.shape, starts=(0, row, 0), steps=(1, 1, 1))
        for row in range(made.type.static_shape[1])
    )
    away, variance, *sums = (graph.add_view(ViewKind.RESHAPE, row, shape=pivot.type.shape) for row in rows)
    return ChannelMoments(pivot, away, variance, tuple(sums))


def add_channel_statistics(graph: Graph, x: Node, *, threads: int) -> tuple[Node, Node, Node]:
    """Append the mean of each channel of all images, what rounding it to its type leaves out, and the variance.

    Shapes: x is (n, c, ...), with elements; the three are (1, c, 1, ...).
    """
    moments = add_channel_moments(graph, x, of_batch=True, threads=threads)
    axes, wide = (0, *range(2, x.type.rank)), wide_type(x.type.dtype)
    pivot = _pivot(graph, x, of_batch=True, wide=wide) if moments is None else moments.pivot

    def mean_of(term: Expr, *numbers: Node) -> Node:
        out = TensorType(pivot.type.shape, wide)
        nodes = [x, *numbers]
        return add_reduction(
            graph, ReduceKind.MEAN, nodes, axes, prologue=term, keepdims=True, out=out, threads=threads
        )

    away = mean_of(Input(0) - Input(1), pivot) if moments is None else moments.away
    mean = graph.add_pointwise(Input(0) + Input(1), pivot, away)
    rest = graph.add_pointwise(Input(0) - Input(2) + Input(1), pivot, away, mean)
    if moments is not None:
        return mean, rest, moments.variance
    beyond = Input(0) - Input(1) - Input(2)
    return mean, rest, mean_of(beyond * beyond, mean, rest)


def add_slope(
    graph: Graph, images: tuple[Node, Node], center: Node, numbers: tuple[Node, Node, Node], out: TensorType
) -> Node:
    """Append a norm's gradient for x, ``grad · factor - (x - center) · bend - term``.

    Shapes: grad and x, the ``images``, and out are (n, c, ...); center and the three numbers (n or 1, c, 1, ...).
    """
    nodes = [*images, center, *numbers]
    value = Input(0) * Input(3) - (Input(1) - Input(2)) * Input(4) - Input(5)
    op = PointwiseOp(expr=value, inputs=tuple(node.type for node in nodes), out_dtype=out.dtype, out=out)
    return graph.add(op, nodes)


def _last(type_: TensorType) -> tuple[int, ...]:
    return (0, *range(2, type_.rank), 1)


def _pixels(type_: TensorType, *, of_batch: bool) -> TensorType | None:
    """Return (n, c, ...) as (n, pixels, c), or ``of_batch`` as (1, n · pixels, c); None where that is no view."""
    batch, channels, *sides = type_.static_shape
    images = 1 if of_batch else batch
    shape = (images, batch * math.prod(sides) // images, channels)
    try:
        return ViewOp(kind=ViewKind.RESHAPE, x=type_.permuted(_last(type_)), shape=shape).infer()
    except InvalidStride:
        return None
