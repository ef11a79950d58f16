"""Mean and variance of each channel, as exact as the elements allow: sums are about the channel's first element.

A sum of large numbers rounds to their size, and so does a mean that is stored. So what is summed is what an element is
beyond the first one, and what rounding the mean to its type leaves out is kept beside it: of a channel that is
constant, or nearly so, the variance and what is normalised lose no digits, whatever its mean.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tracea.core.expr import Input
from tracea.core.graph import Graph
from tracea.core.op import PointwiseOp, ViewKind
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidShape
from tracea.flow.channel_moments import add_channel_statistics
from tracea.flow.compile import compile_graph
from tracea.flow.reduction import wide_type
from tracea.interface.operands import Given, dispatched
from tracea.interface.results import compile_as_views, filled

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["channel_statistics", "rounded_as"]

_OF_STATISTICS: Final = ("x",)
_OF_ROUNDED: Final = ("statistic", "x")


def channel_statistics(x: Any) -> tuple[Any, Any, Any]:
    """Return the mean of each channel, what rounding it to its type has left out, and the variance, by n.

    Shapes: x is (n, c, ...), each result (c,): of 16-bit elements in float32, else in the type of x.

    Raises: InvalidShape: a channel has no element. InvalidDType, InvalidDevice, InvalidStride.
    """
    return _dispatch_statistics()(x, None)


def rounded_as(x: Any, statistic: Any) -> Any:
    """Return numbers of channels in the type of x."""
    return _dispatch_rounded()(statistic, x, None)


@cache
def _dispatch_statistics() -> Any:
    return dispatched(_OF_STATISTICS, _missed_statistics)


def _missed_statistics(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OF_STATISTICS, arrays, out)
    given.check_floats()
    x = given.type(0)
    _check_elements(x)
    if x.static_shape[1] == 0:
        of_none = TensorType((0,), wide_type(x.dtype))
        return tuple(filled(arrays[0], of_none, None, 0.0) for _ in range(3))
    graph = Graph()
    found = add_channel_statistics(graph, graph.add_input(x), threads=threads)
    graph.set_outputs(*(graph.add_view(ViewKind.RESHAPE, node, shape=node.type.shape[1:2]) for node in found))
    return compile_graph(graph, threads=threads, name="channel_statistics").program


@cache
def _dispatch_rounded() -> Any:
    return dispatched(_OF_ROUNDED, _missed_rounded)


def _missed_rounded(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(_OF_ROUNDED, arrays, out)
    of = given.type(0)
    like = TensorType(of.shape, given.type(1).dtype)
    op = PointwiseOp(expr=Input(0), inputs=(of,), out_dtype=like.dtype)
    return compile_as_views(op, inputs=(of, given.type(1)), output=like, threads=threads, order=(0,))


def _check_elements(x: TensorType) -> None:
    shape = x.static_shape
    if len(shape) < 2 or 0 in (shape[0], *shape[2:]):
        raise InvalidShape(
            field="x", got=shape, expected="(n, c, ...) with an element a channel", remedy="give the batch and channels"
        )
