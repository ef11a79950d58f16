"""Pooling of images as functions: zero copy, row-major or channels last, the result in the order of the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from tracea.core.graph import Graph
from tracea.core.op import AdaptivePool2dOp, Pool2dOp, PoolKind, ReduceKind, pool_to_grid
from tracea.core.ops.images import is_channels_last, like_image
from tracea.core.ops.pool2d import check_windows
from tracea.core.plain_shape import axes_remedy, plain_shape
from tracea.core.tensor_type import Dim, TensorType
from tracea.errors import InvalidOp, InvalidShape
from tracea.flow.compile import compile_graph
from tracea.flow.pool_sections import pooled_by_pixels
from tracea.flow.reduction import add_reduction
from tracea.flow.sections import compile_sections
from tracea.interface.keywords import tells_keywords
from tracea.interface.operands import Given, dispatched, flag
from tracea.interface.results import compile_as_views, state_result
from tracea.interface.whole_numbers import each_axis, pair

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = [
    "adaptive_avg_pool2d",
    "adaptive_max_pool2d",
    "avg_pool2d",
    "compile_mean_or_max",
    "max_pool2d",
    "pooled",
    "refuse_places",
    "window_numbers",
]

_OPERANDS: Final = ("x",)

_POOLED: Final = {3: ("three", "l", "signal"), 4: ("four", "h, w", "image")}
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
    numbers = window_numbers(2, kernel_size, stride, padding)
    return _dispatch_pool()(x, out, "max_pool2d", *numbers, flag("ceil_mode", ceil_mode), True)


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
    numbers = window_numbers(2, kernel_size, stride, padding)
    return _dispatch_pool()(
        x, out, "avg_pool2d", *numbers, flag("ceil_mode", ceil_mode), flag("count_include_pad", count_include_pad)
    )


@tells_keywords
def adaptive_avg_pool2d(x: Any, output_size: int | Sequence[int | None], *, out: Any = None) -> Any:
    """Return the mean of each window of a grid over the image, as ``torch.nn.functional.adaptive_avg_pool2d``.

    Shapes: x is (n, c, h, w), the result (n, c, *output_size); None is as many as the image has. Window i of m along an
    axis of n is from ``⌊i·n/m⌋`` to ``⌈(i + 1)·n/m⌉``; (1, 1) is the mean of the image.

    Raises: as :func:`max_pool2d`.
    """
    return _dispatch_adaptive()(x, out, "adaptive_avg_pool2d", *_grid(output_size))


@tells_keywords
def adaptive_max_pool2d(
    x: Any, output_size: int | Sequence[int | None], return_indices: bool = False, *, out: Any = None
) -> Any:
    """Return the largest element of each window of a grid, NaN where it holds one, as torch's ``adaptive_max_pool2d``.

    Shapes: as :func:`adaptive_avg_pool2d`.

    Raises: InvalidOp: ``return_indices``: places are not kept; else as :func:`max_pool2d`.
    """
    refuse_places("adaptive_max_pool2d", return_indices)
    return _dispatch_adaptive()(x, out, "adaptive_max_pool2d", *_grid(output_size))


def _grid(output_size: Any) -> tuple[int, int]:
    """Return the numbers of windows along rows and columns, ``_KEPT`` for None."""
    if not isinstance(output_size, list | tuple) or all(
        each is not None for each in cast("Sequence[Any]", output_size)
    ):
        return pair("output_size", output_size, 1)
    given = cast("Sequence[Any]", output_size)
    known = [1 if size is None else size for size in given]
    if len(given) == 1:  # one number is of both axes, None is of neither
        raise InvalidOp(field="output_size", got=output_size, expected="two: rows and columns", remedy="(None, None)")
    rows, columns = pair("output_size", known, 1)
    return _KEPT if given[0] is None else rows, _KEPT if given[1] is None else columns


def refuse_places(op: str, return_indices: bool) -> None:
    """Refuse to return the places of the largest elements, which no kernel keeps.

    Raises:
        InvalidOp: they are asked for.
    """
    if flag("return_indices", return_indices):
        raise InvalidOp(
            field="return_indices",
            got=True,
            expected="False: the values, not their places",
            remedy=f"call torch.nn.functional.{op} for the places",
        )


def window_numbers(axes: int, kernel_size: Any, stride: Any, padding: Any) -> tuple[int, ...]:
    """Return a window's size, its stride, which is the size if it is None, and the padding, each one number an axis.

    Raises:
        InvalidOp: one of them is no such number.
    """
    kernel = each_axis("kernel_size", kernel_size, 1, axes)
    steps = kernel if stride is None else each_axis("stride", stride, 1, axes)
    return (*kernel, *steps, *each_axis("padding", padding, 0, axes))


@cache
def _dispatch_pool() -> Any:
    return dispatched(_OPERANDS, _missed_pool)


@cache
def _dispatch_adaptive() -> Any:
    return dispatched(_OPERANDS, _missed_adaptive)


def _missed_pool(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    name, rows, columns, down, right, above, left, ceil_mode, count_padding = attributes
    given = Given.of(_OPERANDS, arrays, out)
    kind, x = pooled(given, name, 4)
    sides = dict(zip("hw", x.static_shape[2:], strict=True))
    check_windows(name, sides, (rows, columns), (down, right), (above, left), ceil=ceil_mode)
    op = Pool2dOp(
        kind=kind,
        x=x,
        kernel=(rows, columns),
        stride=(down, right),
        padding=(above, left),
        ceil=ceil_mode,
        count_padding=count_padding,
    )
    return _compile(given, op, threads)


def _missed_adaptive(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(_OPERANDS, arrays, out)
    name, *sizes = attributes
    kind, x = pooled(given, name, 4)
    rows, columns = (size or extent for size, extent in zip(sizes, x.static_shape[2:], strict=True))
    op = pool_to_grid(kind, x, (rows or 1, columns or 1))
    if (rows, columns) == (1, 1) and x.elements and not is_channels_last(x):
        y = _result(given, op.shape)
        return compile_mean_or_max(op.kind, x, y, threads=threads, name=op.name)
    return _compile(given, op, threads)


def pooled(given: Given, op: str, axes: int) -> tuple[PoolKind, TensorType]:
    """Return what the pooling called ``op`` makes of a window, and the type of what it pools, of ``axes`` axes.

    Raises: InvalidShape, InvalidDType.
    """
    given.check_floats(one_arithmetic=True)
    x, (_, places, one) = given.type(0), _POOLED[axes]
    if x.rank != axes or x.shape[1] == 0:
        others = [
            f"{op.replace(f'{axes - 2}d', f'{rank - 2}d')} takes {count} axes"
            for rank, (count, *_) in _POOLED.items()
            if rank == x.rank
        ]
        mended = axes_remedy("x", x.rank, axes, f"one {one}")
        # An image alone is what most three axes are; more axes are rather another op's.
        remedies = [mended, *others] if x.rank < axes else [*others, mended]
        raise InvalidShape(
            field=op,
            got=plain_shape(x.shape),
            expected=f"(n, c, {places}), at least one channel",
            remedy="; ".join(remedies) if mended else f"give the {one}s a channel, or leave the pooling out",
        )
    return PoolKind.MAX if "max" in op else PoolKind.AVERAGE, x


def compile_mean_or_max(kind: PoolKind, x: TensorType, y: TensorType, *, threads: int, name: str) -> Program:
    """Return the reduction of each channel's image, or signal, to a number, on vectors of its pixels, row-major in x.

    Shapes: x is (n, c, ...); y (n, c, 1, ...).
    """
    graph, reduced = Graph(), ReduceKind.MEAN if kind is PoolKind.AVERAGE else ReduceKind.MAX
    axes = tuple(range(2, x.rank))
    node = add_reduction(graph, reduced, [graph.add_input(x)], axes, keepdims=True, out=y, threads=threads)
    state_result(graph, node, y.shape, y)
    return compile_graph(graph, threads=threads, name=name).program


def _compile(given: Given, op: Pool2dOp | AdaptivePool2dOp, threads: int) -> Program:
    y = _result(given, op.shape)
    return compile_windows(replace(op, out=y), given.type(0), y, threads=threads)


def _result(given: Given, shape: tuple[Dim, ...]) -> TensorType:
    """Return the result's type, which may be of other floats than the image."""
    x, stated = given.type(0), given.result
    return given.result_type(like_image(x, shape, x.dtype) if stated is None else TensorType(shape, stated.dtype))


def compile_windows(op: Pool2dOp | AdaptivePool2dOp, x: TensorType, y: TensorType, *, threads: int) -> Program:
    """Return the program of a pooling of images, of which x and y are views: signals have no rows."""
    sections = pooled_by_pixels(op) if isinstance(op, Pool2dOp) else None
    if sections is not None:
        return compile_sections(sections, inputs=(x,), output=y, threads=threads, name=op.name)
    return compile_as_views(op, inputs=(x,), output=y, threads=threads)
