"""Pooling of signals as functions: that of images of one row, zero copy, the result in the order of the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tracea.core.op import AdaptivePool2dOp, Pool2dOp, pool_to_grid
from tracea.core.ops.images import is_channels_last, like_signal, no_rows, one_row
from tracea.core.ops.pool2d import check_windows
from tracea.core.plain_shape import plain_shape
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidShape
from tracea.interface.keywords import tells_keywords
from tracea.interface.operands import Given, dispatched, flag
from tracea.interface.pooling import compile_mean_or_max, compile_windows, pooled, refuse_places, window_numbers
from tracea.interface.whole_numbers import single

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["adaptive_avg_pool1d", "adaptive_max_pool1d", "avg_pool1d", "max_pool1d"]

_OPERANDS: Final = ("x",)


@tells_keywords
def max_pool1d(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    *,
    ceil_mode: bool = False,
    out: Any = None,
) -> Any:
    """Return the largest element of each window, NaN where it holds one, as ``torch.nn.functional.max_pool1d``.

    Shapes: x is (n, c, l); ``stride`` None is the window's size.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for a number that no
    window has.
    """
    numbers = window_numbers(1, kernel_size, stride, padding)
    return _dispatch_pool()(x, out, "max_pool1d", *numbers, flag("ceil_mode", ceil_mode), True)


@tells_keywords
def avg_pool1d(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    out: Any = None,
) -> Any:
    """Return the mean of each window, as ``torch.nn.functional.avg_pool1d``.

    Shapes: x is (n, c, l); ``stride`` None is the window's size.

    Raises: as :func:`max_pool1d`.
    """
    numbers = window_numbers(1, kernel_size, stride, padding)
    flags = flag("ceil_mode", ceil_mode), flag("count_include_pad", count_include_pad)
    return _dispatch_pool()(x, out, "avg_pool1d", *numbers, *flags)


@tells_keywords
def adaptive_avg_pool1d(x: Any, output_size: int | Sequence[int], *, out: Any = None) -> Any:
    """Return the mean of each of ``output_size`` windows over the signal, as torch's ``adaptive_avg_pool1d``.

    Shapes: x is (n, c, l), the result (n, c, output_size). Window i of m is from ``⌊i·l/m⌋`` to ``⌈(i + 1)·l/m⌉``; 1 is
    the mean of the signal.

    Raises: as :func:`max_pool1d`.
    """
    return _dispatch_adaptive()(x, out, "adaptive_avg_pool1d", single("output_size", output_size, 1))


@tells_keywords
def adaptive_max_pool1d(
    x: Any, output_size: int | Sequence[int], return_indices: bool = False, *, out: Any = None
) -> Any:
    """Return the largest element of each window, NaN where it holds one, as torch's ``adaptive_max_pool1d``.

    Shapes: as :func:`adaptive_avg_pool1d`.

    Raises: InvalidOp: ``return_indices``: places are not kept; else as :func:`max_pool1d`.
    """
    refuse_places("adaptive_max_pool1d", return_indices)
    return _dispatch_adaptive()(x, out, "adaptive_max_pool1d", single("output_size", output_size, 1))


@cache
def _dispatch_pool() -> Any:
    return dispatched(_OPERANDS, _missed_pool)


@cache
def _dispatch_adaptive() -> Any:
    return dispatched(_OPERANDS, _missed_adaptive)


def _missed_pool(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(_OPERANDS, arrays, out)
    name, size, step, pad, ceil, count_padding = attributes
    kind, x = pooled(given, name, 3)
    check_windows(name, {"l": x.static_shape[2]}, (size,), (step,), (pad,), ceil=ceil)
    op = Pool2dOp(
        kind=kind,
        x=one_row(x),
        kernel=(1, size),
        stride=(1, step),
        padding=(0, pad),
        ceil=ceil,
        count_padding=count_padding,
    )
    return _compile(given, op, threads)


def _missed_adaptive(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(_OPERANDS, arrays, out)
    name, count = attributes
    kind, x = pooled(given, name, 3)
    if x.shape[2] == 0:
        raise InvalidShape(
            field=name,
            got=plain_shape(x.shape),
            expected="(n, c, l), a signal of at least 1",
            remedy="pool a signal that has places",
        )
    op = pool_to_grid(kind, one_row(x), (1, count))
    if count == 1 and x.elements and not is_channels_last(op.x):
        y = _result(given, op)
        return compile_mean_or_max(kind, x, y, threads=threads, name=name)
    return _compile(given, op, threads)


def _result(given: Given, op: Pool2dOp | AdaptivePool2dOp) -> TensorType:
    """Return the result's type without rows: that of ``out``, which may be of other floats than the signal."""
    x, shape = given.type(0), no_rows(op.infer()).shape
    return given.result_type(like_signal(x, shape) if given.result is None else TensorType(shape, given.result.dtype))


def _compile(given: Given, op: Pool2dOp | AdaptivePool2dOp, threads: int) -> Program:
    y = _result(given, op)
    return compile_windows(replace(op, out=one_row(y)), given.type(0), y, threads=threads)
