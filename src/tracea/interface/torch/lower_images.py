"""Lowerings of convolutions and pooling: images stay channels last from kernel to kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracea.core.expr import Expr, Input, Unary, UnaryFunction
from tracea.core.op import Conv2dOp, Epilogue, Pool2dOp, PoolKind, ReduceKind
from tracea.core.ops.images import image_type
from tracea.core.tensor_type import static

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = ["adaptive_avg_pool2d", "avg_pool2d", "conv2d", "conv2d_padded", "max_pool2d", "mean_of_image", "normalized"]


def conv2d(
    low: Lowering,
    x: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Node:
    """Lower a convolution; torch gives one number or two for rows and columns."""
    _check_image(low, x)
    extras = () if bias is None else (low.reshape(bias, (*bias.type.shape, 1, 1)),)
    op = Conv2dOp(
        x=x.type,
        w=weight.type,
        stride=_pair(stride),
        padding=_pair(padding),
        dilation=_pair(dilation),
        groups=groups,
        epilogue=Epilogue.of(bias=extras[0].type if extras else None),
        out=image_type(low.shape, low.dtype, channels_last=True),
    )
    return low.images.made(low.graph.add(op, (x, weight, *extras), name=low.label()))


def conv2d_padded(
    low: Lowering,
    x: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Sequence[int] = (1, 1),
    padding: str = "valid",
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Node:
    """Lower a convolution whose padding is a word."""
    around = [0, 0]
    if padding == "same":
        taps = [static(dim) - 1 for dim in weight.type.shape[2:]]
        around = [gap * tap for gap, tap in zip(_pair(dilation), taps, strict=True)]
        if any(size % 2 for size in around):
            low.refuse("padding of unequal sides", "pad the image by torch.nn.functional.pad, or use odd filters")
    return conv2d(low, x, weight, bias, stride, [size // 2 for size in around], dilation, groups)


def max_pool2d(
    low: Lowering,
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
) -> Node:
    """Lower the largest of each window."""
    if set(dilation) != {1}:
        low.refuse(f"a window with gaps, dilation {list(dilation)}", "pool neighbours only")
    return _pool(low, x, PoolKind.MAX, kernel, stride, padding, ceil=ceil_mode)


def avg_pool2d(
    low: Lowering,
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Node:
    """Lower the mean of each window."""
    if divisor_override is not None:
        low.refuse("a divisor of its own", "multiply the mean instead")
    return _pool(low, x, PoolKind.AVERAGE, kernel, stride, padding, ceil=ceil_mode, count_padding=count_include_pad)


def adaptive_avg_pool2d(low: Lowering, x: Node, size: Sequence[int]) -> Node:
    """Lower the means of a grid of equal windows."""
    _check_image(low, x)
    rows, columns = (static(dim) for dim in x.type.shape[2:])
    p, q = (static(dim) for dim in low.shape[2:])
    if 0 in (p, q) or rows % p or columns % q:
        low.refuse(f"windows of several sizes, from {rows}×{columns} to {p}×{q}", "pool to a size that divides it")
    window = (rows // p, columns // q)
    return _pool(low, x, PoolKind.AVERAGE, window, window, (0, 0))


def _pool(
    low: Lowering,
    x: Node,
    kind: PoolKind,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    **more: Any,
) -> Node:
    _check_image(low, x)
    op = Pool2dOp(
        kind=kind,
        x=x.type,
        kernel=_pair(kernel),
        stride=_pair(stride or kernel),
        padding=_pair(padding),
        out=image_type(low.shape, low.dtype, channels_last=True),
        **more,
    )
    return low.images.made(low.graph.add(op, (x,), name=low.label()))


def mean_of_image(low: Lowering, kind: ReduceKind, x: Node, axes: Sequence[int], *, keepdims: bool) -> Node | None:
    """Return a reduction over rows and columns, made over pixels, where vectors are of channels; None of others."""
    pixels = low.images.pixels(x)
    if pixels is None or sorted(axis % 4 for axis in axes) != [2, 3]:
        return None
    means = low.reduce(kind, pixels, (1, 2), keepdims=False)
    return low.reshape(means, low.shape) if keepdims else means


def normalized(
    low: Lowering, x: Node, statistics: tuple[Node, Node], weight: Node | None, bias: Node | None, eps: float
) -> Node:
    """Return an image normalised by stored statistics: one factor and one term a channel, computed beforehand."""
    mean, variance = statistics
    factor: Expr = Unary(UnaryFunction.RSQRT, Input(0) + eps)
    operands = [variance]
    if weight is not None:
        operands.append(weight)
        factor = factor * Input(1)
    scale = low.graph.add_pointwise(factor, *operands, name=low.label("scale"))
    shift: Expr = -(Input(0) * Input(1)) if bias is None else Input(2) - Input(0) * Input(1)
    terms = (mean, scale) if bias is None else (mean, scale, bias)
    moved = low.graph.add_pointwise(shift, *terms, name=low.label("shift"))
    rows = (low.reshape(row, (*row.type.shape, 1, 1)) for row in (scale, moved))
    return low.pointwise(Input(0) * Input(1) + Input(2), x, *rows)


def _check_image(low: Lowering, x: Node) -> None:
    if x.type.rank != 4 or not x.type.is_static:
        low.refuse(f"an image of {x.type}", "give (n, c, h, w), all extents known: dynamic=None")
    if not x.type.dtype.is_float:
        low.refuse(f"an image of {x.type.dtype.value}", "convert it to floats")


def _pair(values: Sequence[int]) -> tuple[int, int]:
    return int(values[0]), int(values[-1])
