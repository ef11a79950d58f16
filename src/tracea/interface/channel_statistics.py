"""Mean and variance of each channel, as exact as the elements allow: sums are about the channel's first element.

A sum of large numbers rounds to their size, and so does a mean that is stored. So what is summed is what an element is
beyond the first one, and what rounding the mean to its type leaves out is kept beside it: of a channel that is
constant, or nearly so, the variance and what is normalised lose no digits, whatever its mean.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tracea.core.expr import Binary, BinaryFunction, Constant, Input, select
from tracea.core.graph import Graph, Node
from tracea.core.op import PointwiseOp, ReduceKind, ViewKind
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidShape
from tracea.flow.compile import compile_graph
from tracea.flow.reduction import add_reduction, wide_type
from tracea.interface.operands import Given, dispatched
from tracea.interface.results import compile_as_views

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["channel_means", "channel_variances", "rounded_as"]

_OF_MEANS: Final = ("x",)
_OF_VARIANCES: Final = ("x", "mean", "rest")
_OF_ROUNDED: Final = ("statistic", "x")


def channel_means(x: Any) -> tuple[Any, Any]:
    """Return the mean of each channel, and what rounding it to its type has left out.

    Shapes: x is (n, c, ...), the means are (c,): of 16-bit elements in float32, else in the type of x.

    Raises: InvalidShape: a channel has no element. InvalidDType, InvalidDevice, InvalidStride.
    """
    return _dispatch_means()(x, None)


def channel_variances(x: Any, mean: Any, rest: Any) -> Any:
    """Return the variance of each channel, by n, about both parts of its mean, in their type."""
    return _dispatch_variances()(x, mean, rest, None)


def rounded_as(x: Any, statistic: Any) -> Any:
    """Return numbers of channels in the type of x."""
    return _dispatch_rounded()(statistic, x, None)


@cache
def _dispatch_means() -> Any:
    return dispatched(_OF_MEANS, _missed_means)


def _missed_means(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    """Return the program of the means, and of what rounding them to their type has left out."""
    given = Given.of(_OF_MEANS, arrays, out)
    given.check_floats()
    graph, x, axes = _channels_of(given)
    # About the first pixel: a channel that is constant, or nearly so, has that mean exactly, however many sum it.
    one, rank = TensorType(x.type.shape[1:2], wide_type(x.type.dtype)), x.type.rank
    corner = (1, *x.type.shape[1:2], *(1,) * (rank - 2))
    pixel = graph.add_view(ViewKind.SLICE, x, shape=corner, starts=(0,) * rank, steps=(1,) * rank)
    finite = select(Binary(BinaryFunction.EQ, Input(0) - Input(0), Constant(0.0)), Input(0), 0.0)
    pivot = graph.add_pointwise(finite, pixel, out_dtype=one.dtype)
    away = add_reduction(
        graph, ReduceKind.MEAN, [x, pivot], axes, prologue=Input(0) - Input(1), out=one, threads=threads
    )
    pivot = graph.add_view(ViewKind.RESHAPE, pivot, shape=one.shape)
    mean = graph.add_pointwise(Input(0) + Input(1), pivot, away)
    graph.set_outputs(mean, graph.add_pointwise(Input(0) - Input(2) + Input(1), pivot, away, mean))
    return compile_graph(graph, threads=threads, name="channel_means").program


@cache
def _dispatch_variances() -> Any:
    return dispatched(_OF_VARIANCES, _missed_variances)


def _missed_variances(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(_OF_VARIANCES, arrays, out)
    graph, x, axes = _channels_of(given)
    one = given.type(1)
    ends = (*one.shape, *(1,) * (x.type.rank - 2))
    parts = [graph.add_view(ViewKind.RESHAPE, graph.add_input(one), shape=ends) for _ in range(2)]
    away = Input(0) - Input(1) - Input(2)
    graph.set_outputs(
        add_reduction(graph, ReduceKind.MEAN, [x, *parts], axes, prologue=away * away, out=one, threads=threads)
    )
    return compile_graph(graph, threads=threads, name="channel_variances").program


def _channels_of(given: Given) -> tuple[Graph, Node, tuple[int, ...]]:
    """Return a graph of x, and the axes that its channels do not have."""
    graph, x = Graph(), given.type(0)
    return graph, graph.add_input(x), _all_but_channels(x)


@cache
def _dispatch_rounded() -> Any:
    return dispatched(_OF_ROUNDED, _missed_rounded)


def _missed_rounded(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(_OF_ROUNDED, arrays, out)
    of = given.type(0)
    like = TensorType(of.shape, given.type(1).dtype)
    op = PointwiseOp(expr=Input(0), inputs=(of,), out_dtype=like.dtype)
    return compile_as_views(op, inputs=(of, given.type(1)), output=like, threads=threads, order=(0,))


def _all_but_channels(x: TensorType) -> tuple[int, ...]:
    shape = x.static_shape
    if len(shape) < 2 or 0 in (shape[0], *shape[2:]):
        raise InvalidShape(
            field="x", got=shape, expected="(n, c, ...) with an element a channel", remedy="give the batch and channels"
        )
    return (0, *range(2, len(shape)))
