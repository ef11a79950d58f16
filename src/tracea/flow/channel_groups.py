"""Norms of groups of channels that lie side by side in each pixel, a few of them: by channel first, then by group.

A slab of such a group has rows of its few channels, which vectors do not fill. Its channels' own sums go down the
image's pixels in whole vectors; what is left, a number a channel, is gathered by groups and given back to each channel.
"""

from __future__ import annotations

import math
from typing import Final

from tracea.core.expr import Expr, Input, Unary, UnaryFunction
from tracea.core.graph import Graph, Node
from tracea.core.op import PointwiseOp, ReduceKind, Statistic, StatisticsOp, ViewKind
from tracea.core.tensor_type import TensorType
from tracea.flow.channel_moments import add_channel_moments, add_slope
from tracea.flow.reduction import add_reduction, wide_type

__all__ = ["add_group_norm", "add_group_norm_gradients", "add_group_scale", "has_narrow_groups"]

# Channels of a group, and elements of an image, between which this was faster than slabs in every measurement on a
# Zen 3: 1.2 to 2.5 of 128 and 160 channels, more of fewer; 0.8 of 2048 and 49 pixels (benchmarks/NOTES.md).
_NARROW: Final = 256
_FEW: Final = 1 << 11


def has_narrow_groups(x: TensorType, groups: int) -> bool:
    """Tell whether the groups of (n, c, ...) are a few channels of each pixel, and there are pixels enough."""
    batch, channels, *sides = x.static_shape
    pixels = math.prod(sides)
    beside = x.strides[1] == 1 and all(step >= channels for step in x.strides[2:])
    return beside and pixels > 1 and 1 < channels // groups <= _NARROW and batch * channels * pixels >= _FEW


def add_group_norm(
    graph: Graph,
    x: Node,
    groups: int,
    *,
    weight: Node | None,
    bias: Node | None,
    eps: float,
    out: TensorType,
    threads: int,
) -> Node:
    """Append ``(x - mean) / sqrt(variance + eps) · weight + bias`` by the statistics of each group of channels.

    Shapes: x and out are (n, c, ...), with pixels; weight and bias (c,); ``groups`` divides c.
    """
    nodes = [x, *add_group_scale(graph, x, groups, weight=weight, eps=eps, threads=threads)]
    value: Expr = (Input(0) - Input(1)) * Input(2)
    if bias is not None:
        shape = (*bias.type.shape, *(1,) * (x.type.rank - 2))
        nodes.append(graph.add_view(ViewKind.RESHAPE, bias, shape=shape))
        value = value + Input(3)
    op = PointwiseOp(expr=value, inputs=tuple(node.type for node in nodes), out_dtype=out.dtype, out=out)
    return graph.add(op, nodes)


def add_group_scale(
    graph: Graph, x: Node, groups: int, *, weight: Node | None, eps: float, threads: int
) -> tuple[Node, Node]:
    """Append the mean of each channel's group, and ``weight / sqrt(variance + eps)`` of it.

    Shapes: both are (n, c, 1, ...) for x (n, c, ...).
    """
    of = _Groups(graph, x, groups, threads)
    return of.mean, of.scale(weight, eps)


def add_group_norm_gradients(
    graph: Graph, grad: Node, x: Node, groups: int, *, weight: Node | None, eps: float, out: TensorType, threads: int
) -> tuple[Node, Node, Node]:
    """Append the gradients of a group norm for x, weight and bias; the latter two are sums that the first needs too.

    With ``s`` the inverse root, ``n = (x - mean) · s`` and ``g = grad · weight``, that for x is
    ``s · (g - mean g - n · mean(g · n))``, means over a group; for weight ``sum(grad · n)``, for bias ``sum grad``.

    Shapes: grad, x and out are (n, c, ...), with pixels; weight and both of its gradients (c,).
    """
    of = _Groups(graph, x, groups, threads, grad)
    mean, scale = of.mean, of.scale(None, eps)
    total, along = of.sums
    share = 1.0 / math.prod(x.type.static_shape[2:])
    weighted = Input(0) if weight is None else Input(0) * Input(2)
    parameters = [scale] if weight is None else [scale, weight]
    found = Input(1 + len(parameters)) * share
    # s · w, s · mean g and s^3 · mean(g · (x - mean)): one number a channel of each image. In this order nothing
    # overflows where a group's elements are nearly the same.
    term = of.channels.groups([total, *parameters], weighted, found * Input(1))
    bend = of.channels.groups([along, *parameters], weighted, found * Input(1) * Input(1) * Input(1))
    factor = scale
    if weight is not None:
        beside = graph.add_view(ViewKind.RESHAPE, weight, shape=(*weight.type.shape, *of.channels.single[2:]))
        factor = graph.add_pointwise(Input(0) * Input(1), scale, beside)
    rows = (total, along, scale)
    total, along, scale = (graph.add_view(ViewKind.RESHAPE, node, shape=of.channels.single[:2]) for node in rows)
    result = TensorType(of.channels.single[1:2], x.type.dtype)
    for_weight, for_bias = (
        add_reduction(graph, ReduceKind.SUM, sums, (0,), prologue=expr, out=result, threads=threads)
        for sums, expr in (([along, scale], Input(0) * Input(1)), ([total], Input(0)))
    )
    return add_slope(graph, (grad, x), mean, (factor, bend, term), out), for_weight, for_bias


class _Groups:
    """Appends the mean of each channel's group, what its variance is a mean of, and the sums of a gradient.

    Where channels come last in memory one walk over the image finds each channel's own moments, which its group's are
    made of; elsewhere a variance is summed around the group's mean, in walks of its own.
    """

    def __init__(self, graph: Graph, x: Node, groups: int, threads: int, grad: Node | None = None) -> None:
        self.channels = of = _Channels(graph, x.type, groups, threads)
        moments = add_channel_moments(graph, x, grad, of_batch=False, threads=threads)
        self.sums: tuple[Node, ...] = ()
        if moments is None:
            away = Input(0) - Input(1)
            self.mean = of.groups([of.pixels(ReduceKind.MEAN, [x], Input(0))], Input(0), Input(1))
            self._spread = [of.pixels(ReduceKind.MEAN, [x, self.mean], away * away)]
            self._square: Expr = Input(0)
            if grad is not None:
                along = of.pixels(ReduceKind.SUM, [grad, x, self.mean], Input(0) * (Input(1) - Input(2)))
                self.sums = of.pixels(ReduceKind.SUM, [grad], Input(0)), along
            return
        own = [moments.pivot, moments.away]
        self.mean = of.groups(own, Input(0) + Input(1), Input(2))
        beyond = Input(0) - Input(2) + Input(1)
        self._spread = [*own, self.mean, moments.variance]
        self._square = Input(3) + beyond * beyond
        if moments.sums:
            level, slope = moments.sums
            self.sums = level, graph.add_pointwise(Input(3) + beyond * Input(4), *own, self.mean, slope, level)

    def scale(self, weight: Node | None, eps: float) -> Node:
        """Append ``weight / sqrt(variance + eps)`` for each channel."""
        count = len(self._spread)
        root = Unary(UnaryFunction.RSQRT, Input(count + (weight is not None)) + eps)
        if weight is None:
            return self.channels.groups(self._spread, self._square, root)
        return self.channels.groups([*self._spread, weight], self._square, Input(count) * root)


class _Channels:
    """Appends numbers of the channels of each image: (n, c, 1, ...), in a type that loses nothing."""

    def __init__(self, graph: Graph, x: TensorType, groups: int, threads: int) -> None:
        batch, channels, *sides = x.static_shape
        self.graph, self.threads, self.wide = graph, threads, wide_type(x.dtype)
        self.single = (batch, channels, *(1 for _ in sides))
        self.grouped = (batch, groups, channels // groups)

    def pixels(self, kind: ReduceKind, sources: list[Node], term: Expr) -> Node:
        """Append a reduction over the pixels of each channel."""
        return add_reduction(
            self.graph,
            kind,
            sources,
            range(2, len(self.single)),
            prologue=term,
            keepdims=True,
            out=TensorType(self.single, self.wide),
            threads=self.threads,
        )

    def groups(self, sources: list[Node], term: Expr, value: Expr) -> Node:
        """Append, for each channel, what ``value`` makes of the mean over its group, the input after the sources."""
        shapes = [self.grouped if source.type.rank > 1 else self.grouped[1:] for source in sources]
        nodes = [
            self.graph.add_view(ViewKind.RESHAPE, source, shape=shape)
            for source, shape in zip(sources, shapes, strict=True)
        ]
        op = StatisticsOp(
            x=tuple(node.type for node in nodes),
            axes=(2,),
            statistics=(Statistic(ReduceKind.MEAN, term),),
            expr=value,
            out=TensorType(self.grouped, self.wide),
        )
        return self.graph.add_view(ViewKind.RESHAPE, self.graph.add(op, nodes), shape=self.single)
