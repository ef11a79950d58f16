"""Shapes of convolutions, transposed ones and gradients, in the axes of the caller: what results, what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any, Final

from tracea.core.names import meant, near
from tracea.core.plain_shape import axes_remedy, plain_shape
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidOp, InvalidShape
from tracea.interface.operands import Given, check_same_dtype
from tracea.interface.whole_numbers import each_axis, read_wholes, whole_number

__all__ = [
    "check_axes",
    "check_filters",
    "check_forward",
    "check_phase_taps",
    "check_taps",
    "convolution_numbers",
    "extents_of",
    "factors_of",
    "meant_padding",
    "same_shape",
    "that_would_agree",
    "transposed_extents",
    "transposed_numbers",
]

_MOST_TAPS: Final = 256  # of the kernels: the places of a result's gradient are taps there
_COUNTS: Final = {3: "three", 4: "four", 5: "five"}
_ONE: Final = {3: "one signal", 4: "one image", 5: "one volume"}
_AXES: Final = {
    3: ("l", "s", "places"),
    4: ("h, w", "r, s", "rows and columns"),
    5: ("d, h, w", "t, r, s", "planes, rows and columns"),
}


def convolution_numbers(axes: int, stride: Any, padding: Any, dilation: Any, groups: Any) -> tuple[int, ...]:
    """Return stride, padding and dilation, each one number an axis, then groups.

    Raises:
        InvalidOp: one of them is no such number.
    """
    return (
        *each_axis("stride", stride, 1, axes),
        *each_axis("padding", padding, 0, axes),
        *each_axis("dilation", dilation, 1, axes),
        whole_number("groups", groups, 1),
    )


def transposed_numbers(axes: int, more: Any, *given: Any) -> tuple[int, ...]:
    """Return the numbers of a transposed convolution: those of :func:`convolution_numbers`, then its output padding.

    Raises:
        InvalidOp: one of them is no such number, or an output padding fills a step.
    """
    numbers, extra = convolution_numbers(axes, *given), each_axis("output_padding", more, 0, axes)
    stride, dilation = numbers[:axes], numbers[2 * axes : 3 * axes]
    if any(each >= max(step, gap) for each, step, gap in zip(extra, stride, dilation, strict=True)):
        got, steps, gaps = (each[0] if axes == 1 else each for each in (extra, stride, dilation))
        raise InvalidOp(
            field="output_padding",
            got=got,
            expected=f"less than the stride {steps} or the dilation {gaps}",
            remedy="output_padding=0",
        )
    return (*numbers, *extra)


def meant_padding(padding: str) -> str:
    """Return the beginning of a remedy that names the word which an unknown one may have meant."""
    known = ("same", "valid")
    return "" if padding in known else meant(tuple(f'"{word}"' for word in near(padding, known)))


def extents_of(name: str, shape: Any, rank: int) -> tuple[int, ...]:
    """Return a stated shape of ``rank`` axes.

    Raises:
        InvalidShape: it is no sequence of so many whole numbers from 0 on.
    """
    extents = read_wholes(shape) or ()
    if len(extents) != rank or not all(0 <= extent < 2**31 for extent in extents):
        expected = f"{_COUNTS[rank]} extents, whole numbers from 0 to {2**31 - 1}"
        got = f"a tensor of shape {tuple(shape.shape)}" if hasattr(shape, "shape") else shape
        raise InvalidShape(field=name, got=got, expected=expected, remedy=f"{name}=tuple(tensor.shape)")
    return extents


def check_axes(op: str, types: Mapping[str, TensorType], axes: int) -> None:
    """Refuse operands of ``op`` by name, filters being ``weight``, that have not ``axes`` axes each.

    Raises:
        InvalidShape: one of them has more axes, or fewer.
    """
    ranks = {type_.rank for type_ in types.values()}
    if ranks == {axes}:
        return
    places, windows, _ = _AXES[axes]
    filters = f"({'c, k' if 'transpose' in op else 'k, c'}/groups, {windows})"
    others = [
        f"{op.replace(f'{axes - 2}d', f'{rank - 2}d')} takes {_COUNTS[rank]} axes each"
        for rank in ranks
        if len(ranks) == 1 and rank in _AXES
    ]
    mended = (
        f"give weight as {filters}"
        if name == "weight" and type_.rank != axes
        else axes_remedy(name, type_.rank, axes, _ONE[axes])
        for name, type_ in types.items()
    )
    raise InvalidShape(
        field=op,
        got={name: plain_shape(type_.shape) for name, type_ in types.items()},
        expected=f"{_COUNTS[axes]} axes each: (n, c, {places}), and filters {filters}",
        remedy="; ".join([*others, *filter(None, mended)]),
    )


def factors_of(given: Given, op: str, axes: int) -> tuple[TensorType, TensorType]:
    """Return the types of the first two operands of ``op``, which have ``axes`` axes and one element type each.

    Raises: InvalidShape, InvalidDType.
    """
    given.check_floats(one_arithmetic=True)
    first, second = given.type(0), given.type(1)
    check_axes(op, dict(zip(given.names, (first, second), strict=False)), axes)
    check_same_dtype(op, first, second)
    return first, second


def check_forward(op: str, x: Sequence[int], weight: Sequence[int], numbers: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a convolution's result; ``numbers`` are stride, padding, dilation (one an axis) and groups.

    Raises: InvalidShape: channels disagree, or the result would be empty along one of the axes behind them.
    """
    axes, groups = len(x) - 2, numbers[-1]
    stride, padding, dilation = (numbers[axes * each : axes * (each + 1)] for each in range(3))
    places, windows, _ = _AXES[len(x)]
    if x[1] != weight[1] * groups or weight[0] % groups or 0 in (*x[1:], *weight[1:]):
        raise InvalidShape(
            field=op,
            got={"x": tuple(x), "weight": tuple(weight), "groups": groups},
            expected=f"x (n, c, {places}), weight (k, c/groups, {windows}), k a multiple of groups, "
            "only n and k may be 0",
            remedy=_channels_that_agree(x, weight, groups),
        )
    along = zip(x[2:], weight[2:], stride, padding, dilation, strict=True)
    extents = tuple((size + 2 * pad - gap * (tap - 1) - 1) // step + 1 for size, tap, step, pad, gap in along)
    if min(extents) < 1:
        raise InvalidShape(
            field=op,
            got={"x": tuple(x), "weight": tuple(weight), "result": extents},
            expected=f"a result of at least {'×'.join('1' * axes)}",
            remedy="pad more, or use a smaller filter or dilation",
        )
    return (x[0], weight[0], *extents)


def _channels_that_agree(x: Sequence[int], weight: Sequence[int], groups: int) -> str:
    channels, filters, each = x[1], weight[0], weight[1]
    fitting = channels // each if each and channels and channels % each == 0 else 0
    if fitting > 0 and filters % fitting == 0 and fitting != groups:
        return f"groups={fitting} fits this x and weight"
    if x[-1] == each * groups != channels:
        turned = ", ".join(map(str, (0, len(x) - 1, *range(1, len(x) - 1))))
        return f"the last axis of x has the {each * groups} channels that weight takes: x.permute({turned})"
    if channels and channels != each * groups and channels % groups == filters % groups == 0:
        return f"groups={groups} needs weight of {channels // groups} channels"
    return that_would_agree(channels == each * groups, filters, "filters", groups, (*x[1:], *weight[1:]))


def transposed_extents(
    op: str,
    x: TensorType,
    weight: TensorType,
    bias: TensorType | None,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    more: Sequence[int],
    groups: int,
) -> tuple[int, ...]:
    """Return the filters of a transposed convolution's result and its extents behind them.

    Raises:
        InvalidShape: the channels do not agree, the bias is not one value a filter, or nothing would result.
    """
    _, channels, *size = x.static_shape
    rows, filters, *taps = weight.static_shape
    places, windows, axes = _AXES[x.rank]
    if channels != rows or channels % groups or 0 in (channels, *size, *taps):
        raise InvalidShape(
            field=op,
            got={"x": x.shape, "weight": weight.shape, "groups": groups},
            expected=f"x (n, c, {places}), weight (c, k/groups, {windows}), c a multiple of groups, "
            "only n and k may be 0",
            remedy=that_would_agree(channels == rows, channels, "channels", groups, (channels, *size, *taps)),
        )
    if bias is not None and bias.shape != (filters * groups,):
        raise InvalidShape(
            field="bias", got=bias.shape, expected=(filters * groups,), remedy="give one value for each filter"
        )
    extents = tuple(
        (length - 1) * step - 2 * pad + gap * (tap - 1) + extra + 1
        for length, step, pad, gap, tap, extra in zip(size, stride, padding, dilation, taps, more, strict=True)
    )
    if min(extents) < 1:
        raise InvalidShape(
            field=op,
            got={"x": x.shape, "weight": weight.shape, "result": extents},
            expected=f"a result of at least {'×'.join('1' * len(extents))}",
            remedy=f"pad less: padding leaves out {axes} of the result",
        )
    return (filters * groups, *extents)


def same_shape(grad: TensorType, expected: tuple[Any, ...]) -> None:
    """Refuse a gradient of another shape than that of the convolution's result.

    Raises:
        InvalidShape: its shape is another one.
    """
    if grad.shape != expected:
        raise InvalidShape(
            field="grad",
            got=grad.shape,
            expected=expected,
            remedy="give the gradient of that convolution's result, and its stride, padding, dilation and groups",
        )


def that_would_agree(is_agreed: bool, count: int, counted: str, groups: int, extents: Sequence[int]) -> str:
    """Return what to change of an image and filters that make no convolution: ``count`` is what groups must divide."""
    if 0 in extents:
        return "give at least one channel, one place and one tap along each axis"
    if is_agreed:
        return f"groups={groups} must divide the {count} {counted}"
    return "make the channels of x and weight agree"


def check_filters(weight: TensorType) -> None:
    """Refuse filters that are longer than those of any kernel.

    Raises:
        InvalidShape: an axis has more taps than kernels have.
    """
    if max(weight.static_shape[2:][-2:]) > _MOST_TAPS:  # planes of a volume's are convolutions of their own
        raise InvalidShape(
            field="weight",
            got=weight.shape,
            expected=f"at most {_MOST_TAPS} taps along {'the signal' if weight.rank == 3 else _AXES[4][2]}",
            remedy="sum the results of parts of the filters, or use torch for this layer",
        )


def check_phase_taps(weight: TensorType, stride: int, dilation: int) -> None:
    """Refuse filters of a signal of which some place of a transposed convolution meets more taps than kernels have.

    Raises:
        InvalidShape: some place meets more.
    """
    met = -(-weight.static_shape[2] // (stride // gcd(stride, dilation)))
    if met > _MOST_TAPS:
        raise InvalidShape(
            field="weight",
            got={"weight": weight.shape, "stride": stride, "taps of a place": met},
            expected=f"at most {_MOST_TAPS} taps that meet at one place",
            remedy="sum the results of parts of the filters, or use torch for this layer",
        )


def check_taps(grad: TensorType) -> None:
    """Refuse a gradient that no kernel takes as its taps.

    Raises:
        InvalidShape: an axis of it is longer than the taps of a kernel.
    """
    if max(grad.static_shape[2:]) > _MOST_TAPS:
        raise InvalidShape(
            field="grad",
            got=grad.shape,
            expected=f"at most {_MOST_TAPS} {_AXES[grad.rank][2]}",
            remedy="sum the gradients of bands of rows",
        )
