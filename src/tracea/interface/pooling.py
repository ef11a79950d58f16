"""Pooling of images as functions: zero copy, row-major or channels last, the result in the order of the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from tracea.core.graph import Graph
from tracea.core.op import AdaptivePool2dOp, Op, Pool2dOp, PoolKind, ReduceKind, pool_to_grid
from tracea.core.ops.images import is_channels_last, like_image
from tracea.errors import InvalidOp
from tracea.flow.compile import compile_graph, compile_op
from tracea.flow.reduction import add_reduction
from tracea.interface.keywords import tells_keywords
from tracea.interface.operands import Given, flag
from tracea.interface.results import state_result
from tracea.interface.whole_numbers import pair
from tracea.runtime.extension import dispatcher

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["adaptive_avg_pool2d", "adaptive_max_pool2d", "avg_pool2d", "max_pool2d"]

_KEPT: Final = 0  # as many windows as the image has rows, or columns


@tells_keywords
def max_pool2d(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    *,
    ceil_mode: bool = False,
    out: Any = None,
) -> Any:
    """Return the largest element of each window, NaN where it holds one, as ``torch.nn.functional.max_pool2d``.

    Shapes: x is (n, c, h, w); ``stride`` None is the window's size.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for a number that no
    window has.
    """
    numbers = _numbers(kernel_size, stride, padding)
    return _dispatch_pool()(x, out, "max", *numbers, flag("ceil_mode", ceil_mode), True)


@tells_keywords
def avg_pool2d(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    out: Any = None,
) -> Any:
    """Return the mean of each window, as ``torch.nn.functional.avg_pool2d``.

    Shapes: x is (n, c, h, w); ``stride`` None is the window's size.

    Raises: as :func:`max_pool2d`.
    """
    numbers = _numbers(kernel_size, stride, padding)
    return _dispatch_pool()(
        x, out, "average", *numbers, flag("ceil_mode", ceil_mode), flag("count_include_pad", count_include_pad)
    )


@tells_keywords
def adaptive_avg_pool2d(x: Any, output_size: int | Sequence[int | None], *, out: Any = None) -> Any:
    """Return the mean of each window of a grid over the image, as ``torch.nn.functional.adaptive_avg_pool2d``.

    Shapes: x is (n, c, h, w), the result (n, c, *output_size); None is as many as the image has. Window i of m along an
    axis of n is from ``⌊i·n/m⌋`` to ``⌈(i + 1)·n/m⌉``; (1, 1) is the mean of the image.

    Raises: as :func:`max_pool2d`.
    """
    return _dispatch_adaptive()(x, out, "average", *_grid(output_size))


@tells_keywords
def adaptive_max_pool2d(
    x: Any, output_size: int | Sequence[int | None], return_indices: bool = False, *, out: Any = None
) -> Any:
    """Return the largest element of each window of a grid, NaN where it holds one, as torch's ``adaptive_max_pool2d``.

    Shapes: as :func:`adaptive_avg_pool2d`.

    Raises: InvalidOp: ``return_indices``: places are not kept; else as :func:`max_pool2d`.
    """
    if flag("return_indices", return_indices):
        raise InvalidOp(
            field="return_indices",
            got=True,
            expected="False: the values, not their places",
            remedy="call torch.nn.functional.adaptive_max_pool2d for the places",
        )
    return _dispatch_adaptive()(x, out, "max", *_grid(output_size))


def _grid(output_size: Any) -> tuple[int, int]:
    """Return the numbers of windows along rows and columns, ``_KEPT`` for None."""
    if not isinstance(output_size, list | tuple) or None not in output_size:
        return pair("output_size", output_size, 1)
    given = cast("Sequence[Any]", output_size)
    known = [1 if size is None else size for size in given]
    if len(given) == 1:  # one number is of both axes, None is of neither
        raise InvalidOp(field="output_size", got=output_size, expected="two: rows and columns", remedy="(None, None)")
    rows, columns = pair("output_size", known, 1)
    return _KEPT if given[0] is None else rows, _KEPT if given[1] is None else columns


def _numbers(kernel_size: Any, stride: Any, padding: Any) -> tuple[int, ...]:
    kernel = pair("kernel_size", kernel_size, 1)
    steps = kernel if stride is None else pair("stride", stride, 1)
    return (*kernel, *steps, *pair("padding", padding, 0))


@cache
def _dispatch_pool() -> Any:
    return dispatcher(1, _missed_pool)


@cache
def _dispatch_adaptive() -> Any:
    return dispatcher(1, _missed_adaptive)


def _missed_pool(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    kind, rows, columns, down, right, above, left, ceil_mode, count_padding = attributes
    window = {"kernel": (rows, columns), "stride": (down, right), "padding": (above, left)}
    return _compiled(arrays, out, threads, kind=PoolKind(kind), ceil=ceil_mode, count_padding=count_padding, **window)


def _missed_adaptive(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(("x",), arrays, out)
    given.check_floats(one_arithmetic=True)
    kind, *sizes = attributes
    x, image = given.type(0), given.type(0).static_shape[2:]
    rows, columns = (size or extent for size, extent in zip(sizes, (*image, 1, 1)[:2], strict=True))
    op = pool_to_grid(PoolKind(kind), x, (rows, columns))
    if (rows, columns) == (1, 1) and x.elements and not is_channels_last(x):
        return _whole(given, op, threads)
    return _compile(given, replace(op, out=given.result or like_image(x, op.shape, x.dtype)), threads)


def _compiled(arrays: tuple[Any, ...], out: Any, threads: int, **fields: Any) -> Program:
    given = Given.of(("x",), arrays, out)
    given.check_floats(one_arithmetic=True)
    x = given.type(0)
    op = Pool2dOp(x=x, **fields)
    return _compile(given, replace(op, out=given.result or like_image(x, op.shape, x.dtype)), threads)


def _whole(given: Given, op: Pool2dOp | AdaptivePool2dOp, threads: int) -> Program:
    """Return the reduction of each channel's image to a number, on vectors of pixels, which are neighbours here."""
    graph, kind = Graph(), ReduceKind.MEAN if op.kind is PoolKind.AVERAGE else ReduceKind.MAX
    given.check_result(op)
    source = graph.add_input(op.x)
    wanted = given.result or op.infer()
    node = add_reduction(graph, kind, [source], (2, 3), keepdims=True, out=wanted, threads=threads)
    state_result(graph, node, op.shape, given.result)
    return compile_graph(graph, threads=threads, name=op.name).program


def _compile(given: Given, op: Op, threads: int) -> Program:
    given.check_result(op)
    return compile_op(op, threads=threads)
