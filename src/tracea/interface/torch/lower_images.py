"""Lowerings of convolutions: images stay channels last from kernel to kernel, and sequences are images of one row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tracea.core.expr import Constant, Expr, Input, Unary, UnaryFunction
from tracea.core.op import Conv2dOp, Epilogue, JoinOp, ReduceKind
from tracea.core.ops.images import image_type
from tracea.core.tensor_type import static
from tracea.flow.reduction import wide_type
from tracea.flow.transposed import Phase

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = [
    "as_image",
    "batched",
    "check_image",
    "conv1d",
    "conv1d_padded",
    "conv2d",
    "conv2d_padded",
    "conv_transpose1d",
    "conv_transpose2d",
    "mean_of_image",
    "normalized",
    "padding_of",
    "pair",
    "unreached",
]


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
    check_image(low, x)
    return _convolution(low, x, weight, bias, low.shape, (pair(stride), pair(padding), pair(dilation), groups))


def conv1d(
    low: Lowering,
    x: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Node:
    """Lower a convolution of sequences, as one of images of one row."""
    image, filters = _one_row(low, x, weight)
    numbers = ((1, int(stride[0])), (0, int(padding[0])), (1, int(dilation[0])), groups)
    n, k, length = low.shape
    return low.images.sequence(_convolution(low, image, filters, bias, (n, k, 1, length), numbers))


def _one_row(low: Lowering, x: Node, weight: Node) -> tuple[Node, Node]:
    """Return a sequence and its filters as an image of one row and filters of one."""
    if x.type.rank != 3 or not x.type.is_static:
        low.refuse(f"a sequence of {x.type}", "give (n, c, l), all extents known: dynamic=None")
    k, c, taps = weight.type.shape
    image = low.images.image_of(x)
    check_image(low, image)
    return image, low.reshape(weight, (k, c, 1, taps))


def _convolution(
    low: Lowering, x: Node, weight: Node, bias: Node | None, shape: Sequence[Any], numbers: tuple[Any, ...]
) -> Node:
    extras = () if bias is None else (low.reshape(bias, (*bias.type.shape, 1, 1)),)
    stride, padding, dilation, groups = numbers
    op = Conv2dOp(
        x=x.type,
        w=weight.type,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        epilogue=Epilogue.of(bias=extras[0].type if extras else None),
        out=image_type(shape, low.dtype, channels_last=True),
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
    around = padding_of(low, weight, padding, pair(dilation))
    return conv2d(low, x, weight, bias, stride, around, dilation, groups)


def conv1d_padded(
    low: Lowering,
    x: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Sequence[int] = (1,),
    padding: str = "valid",
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Node:
    """Lower a convolution of sequences whose padding is a word."""
    return conv1d(low, x, weight, bias, stride, padding_of(low, weight, padding, dilation), dilation, groups)


def padding_of(low: Lowering, weight: Node, padding: str, dilation: Sequence[int]) -> list[int]:
    """Return how many zeros a word puts on each side of each axis."""
    around = [0] * len(dilation)
    if padding == "same":
        taps = [static(dim) - 1 for dim in weight.type.shape[2:]]
        around = [gap * tap for gap, tap in zip(dilation, taps, strict=True)]
        if any(size % 2 for size in around):
            low.refuse("padding of unequal sides", "pad the image by torch.nn.functional.pad, or use odd filters")
    return [size // 2 for size in around]


def conv_transpose2d(
    low: Lowering,
    x: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    output_padding: Sequence[int] = (0, 0),
    groups: int = 1,
    dilation: Sequence[int] = (1, 1),
) -> Node:
    """Lower a transposed convolution to the convolutions of its phases, each of which writes its rows and columns."""
    del output_padding  # the result's shape says it
    check_image(low, x)
    if low.makes_nothing_of(x):
        return low.nothing(x)
    return _transposed(low, x, weight, bias, low.shape, (pair(stride), pair(padding), pair(dilation), groups))


def conv_transpose1d(
    low: Lowering,
    x: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
    dilation: Sequence[int] = (1,),
) -> Node:
    """Lower a transposed convolution of sequences."""
    del output_padding
    if low.makes_nothing_of(x):
        return low.nothing(x)
    image, filters = _one_row(low, x, weight)
    numbers = ((1, int(stride[0])), (0, int(padding[0])), (1, int(dilation[0])), groups)
    n, k, length = low.shape
    return low.images.sequence(_transposed(low, image, filters, bias, (n, k, 1, length), numbers))


def _transposed(
    low: Lowering, x: Node, weight: Node, bias: Node | None, shape: Sequence[Any], numbers: tuple[Any, ...]
) -> Node:
    stride, padding, dilation, groups = numbers
    size = tuple(static(dim) for dim in shape)
    if 0 in size or 0 in x.type.static_shape or 0 in weight.type.static_shape:
        low.refuse(f"a transposed convolution of nothing, {x.type} by {weight.type}", "leave it out")
    filters = _by_filter(low, weight, groups)
    extras = () if bias is None else (low.reshape(bias, (*bias.type.shape, 1, 1)),)
    rows, columns = (
        tuple(
            Phase.all(
                image=x.type.static_shape[2 + axis],
                result=size[2 + axis],
                taps=weight.type.static_shape[2 + axis],
                stride=stride[axis],
                padding=padding[axis],
                dilation=dilation[axis],
            )
        )
        for axis in (0, 1)
    )
    phases = [(row, column) for row in rows for column in columns]
    parts = [_phase(low, x, filters, extras, phase, (*size[:2], groups)) for phase in phases]
    if len(parts) == 1:
        return low.images.made(parts[0])
    op = JoinOp(
        parts=tuple(part.type for part in parts),
        starts=tuple((0, 0, row.first, column.first) for row, column in phases),
        steps=((1, 1, *stride),) * len(parts),
        shape=size,
        out=image_type(size, low.dtype, channels_last=True),
    )
    return low.images.made(low.graph.add(op, parts, name=low.label()))


def _by_filter(low: Lowering, weight: Node, groups: int) -> Node:
    """Return filters (c, k/groups, r, s) as (k, c/groups, r, s)."""
    c, k, r, s = weight.type.static_shape
    if groups == 1:
        return low.permute(weight, (1, 0, 2, 3))
    apart = low.permute(low.reshape(weight, (groups, c // groups, k, r, s)), (0, 2, 1, 3, 4))
    return low.reshape(apart, (groups * k, c // groups, r, s))


def _phase(
    low: Lowering,
    x: Node,
    filters: Node,
    extras: tuple[Node, ...],
    phase: tuple[Phase, Phase],
    numbers: tuple[int, ...],
) -> Node:
    """Return every so many rows and columns of a result (n, k, p, q) as a convolution of stride 1, or as its bias."""
    row, column = phase
    n, k, groups = numbers
    shape = (n, k, row.count, column.count)
    if not row.taps or not column.taps:
        return unreached(low, x, extras, shape)
    _, _, h, width = x.type.static_shape
    image = low.slice(low.slice(x, 2, row.start, h - row.start), 3, column.start, width - column.start)
    taps = low.slice(filters, 2, row.tap, row.taps, row.tap_step)
    taps = low.slice(taps, 3, column.tap, column.taps, column.tap_step)
    op = Conv2dOp(
        x=image.type,
        w=taps.type,
        padding=(row.before, column.before),
        dilation=(row.dilation, column.dilation),
        groups=groups,
        size=(row.count, column.count),
        turned=row.taps * column.taps > 1,
        epilogue=Epilogue.of(bias=extras[0].type if extras else None),
        out=image_type(shape, low.dtype, channels_last=True),
    )
    return low.graph.add(op, (image, taps, *extras), name=low.label(f"phase{row.first}_{column.first}"))


def unreached(low: Lowering, x: Node, extras: tuple[Node, ...], shape: tuple[int, ...]) -> Node:
    """Return rows and columns that no tap reaches: the bias alone."""
    if extras:
        return low.expand(extras[0], shape)
    pixel = low.expand(low.slice(low.slice(low.slice(x, 1, 0, 1), 2, 0, 1), 3, 0, 1), shape)
    return low.graph.add_pointwise(Constant(0.0), pixel, out_dtype=low.dtype, name=low.label("unreached"))


def mean_of_image(low: Lowering, kind: ReduceKind, x: Node, axes: Sequence[int], *, keepdims: bool) -> Node | None:
    """Return a reduction over rows and columns, made over pixels, where vectors are of channels; None of others."""
    pixels = low.images.pixels(x, of_planes=True)
    if pixels is None or sorted(axis % x.type.rank for axis in axes) != list(range(2, x.type.rank)):
        return None
    if x.type.rank == 5:  # the pixels of a volume's planes follow each other
        n, _, *size = x.type.static_shape
        pixels = low.reshape(pixels, (n, size[0], size[1] * size[2], x.type.shape[1]))
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
    wide = wide_type(variance.type.dtype)
    scale = low.graph.add_pointwise(factor, *operands, out_dtype=wide, name=low.label("scale"))
    shift: Expr = -(Input(0) * Input(1)) if bias is None else Input(2) - Input(0) * Input(1)
    terms = (mean, scale) if bias is None else (mean, scale, bias)
    moved = low.graph.add_pointwise(shift, *terms, out_dtype=wide, name=low.label("shift"))
    trailing = (1,) * (x.type.rank - 2)
    rows = (low.reshape(row, (*row.type.shape, *trailing)) for row in (scale, moved))
    return low.pointwise(Input(0) * Input(1) + Input(2), x, *rows)


def batched(lower: Callable[..., Node], rank: int) -> Callable[..., Node]:
    """Return the lowering of an overload that takes ``rank`` axes, or one less: one image, which is a batch of one."""

    def either(low: Lowering, x: Node, *arguments: Any) -> Node:
        if x.type.rank != rank - 1:
            return lower(low, x, *arguments)
        wanted = low.shape
        low.begin(low.name, (1, *wanted), low.dtype)
        made = lower(low, low.images.batch_of(x), *arguments)
        low.begin(low.name, wanted, low.dtype)
        return low.images.alone(made)

    return either


def check_image(low: Lowering, x: Node) -> None:
    """Refuse what is no batch of images of known extents."""
    if x.type.rank != 4 or not x.type.is_static:
        low.refuse(f"an image of {x.type}", "give (n, c, h, w), all extents known: dynamic=None")
    if not x.type.dtype.is_float:
        low.refuse(f"an image of {x.type.dtype.value}", "convert it to floats")


def as_image(low: Lowering, x: Node) -> Node:
    """Return an image, or a sequence as one of one row."""
    image = low.images.image_of(x) if x.type.rank == 3 and x.type.is_static else x
    check_image(low, image)
    return image


def pair(values: Sequence[int]) -> tuple[int, int]:
    """Return one number, or two, as (rows, columns)."""
    return int(values[0]), int(values[-1])
