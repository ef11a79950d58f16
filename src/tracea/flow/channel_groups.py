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
from tracea.flow.reduction import add_reduction, wide_type

__all__ = ["add_group_norm", "add_group_scale", "has_narrow_groups"]

# Channels of a group, and elements of an image, between which this was faster than slabs in every measurement on a
# Zen 3: 1.0 to 1.3 of 32 and 40 channels, 1.7 to 1.9 of 16, 2.5 to 9 of 4 to 10 (benchmarks/NOTES.md).
_NARROW: Final = 64
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

    The variance is summed around its group's mean, not the channel's.

    Shapes: both are (n, c, 1, ...) for x (n, c, ...).
    """
    batch, channels, *sides = x.type.static_shape
    wide = wide_type(x.type.dtype)
    grouped, single = (batch, groups, channels // groups), (batch, channels, *(1 for _ in sides))

    def of_channels(sources: list[Node], term: Expr) -> Node:
        made = add_reduction(
            graph,
            ReduceKind.MEAN,
            sources,
            range(2, x.type.rank),
            prologue=term,
            keepdims=True,
            out=TensorType(single, wide),
            threads=threads,
        )
        return graph.add_view(ViewKind.RESHAPE, made, shape=grouped)

    def of_groups(sources: list[Node], value: Expr) -> Node:
        op = StatisticsOp(
            x=tuple(node.type for node in sources),
            axes=(2,),
            statistics=(Statistic(ReduceKind.MEAN, Input(0)),),
            expr=value,
            out=TensorType(grouped, wide),
        )
        return graph.add_view(ViewKind.RESHAPE, graph.add(op, sources), shape=single)

    away = Input(0) - Input(1)
    mean = of_groups([of_channels([x], Input(0))], Input(1))
    spread = [of_channels([x, mean], away * away)]
    if weight is None:
        return mean, of_groups(spread, Unary(UnaryFunction.RSQRT, Input(1) + eps))
    spread.append(graph.add_view(ViewKind.RESHAPE, weight, shape=grouped[1:]))
    return mean, of_groups(spread, Input(1) * Unary(UnaryFunction.RSQRT, Input(2) + eps))
