"""Pooling of images as functions: zero copy, row-major or channels last, the result in the order of the input."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from tracea.core.op import Pool2dOp, PoolKind
from tracea.core.ops.images import like_image
from tracea.errors import InvalidShape
from tracea.flow.compile import compile_op
from tracea.interface.operands import Given, flag
from tracea.interface.whole_numbers import pair
from tracea.runtime.extension import dispatcher

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["adaptive_avg_pool2d", "avg_pool2d", "max_pool2d"]


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


def adaptive_avg_pool2d(x: Any, output_size: int | Sequence[int], *, out: Any = None) -> Any:
    """Return the means of a grid of ``output_size`` equal windows, as ``torch.nn.functional.adaptive_avg_pool2d``.

    Shapes: x is (n, c, h, w), h and w multiples of ``output_size``; (1, 1) is the mean of the image.

    Raises: InvalidShape: the windows would differ in size; else as :func:`max_pool2d`.
    """
    rows, columns = pair("output_size", output_size, 1)
    return _dispatch_adaptive()(x, out, rows, columns)


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
    shape = given.type(0).static_shape
    if len(shape) != 4 or 0 in shape[2:] or any(size % part for size, part in zip(shape[2:], attributes, strict=True)):
        raise InvalidShape(
            field="x",
            got=shape,
            expected=f"(n, c, h, w), h a multiple of {attributes[0]} and w of {attributes[1]}",
            remedy="pool to a size that divides the image's",
        )
    rows, columns = (size // part for size, part in zip(shape[2:], attributes, strict=True))
    return _compiled(arrays, out, threads, kind=PoolKind.AVERAGE, kernel=(rows, columns), stride=(rows, columns))


def _compiled(arrays: tuple[Any, ...], out: Any, threads: int, **fields: Any) -> Program:
    given = Given.of(("x",), arrays, out)
    given.check_floats()
    x = given.type(0)
    if out is None:
        plain = Pool2dOp(x=x, **fields)
        op = Pool2dOp(x=x, **fields, out=like_image(x, plain.shape, x.dtype))
    else:
        op = Pool2dOp(x=x, **fields, out=given.result)
    given.check_result(op)
    return compile_op(op, threads=threads)
