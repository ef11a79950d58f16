"""Convolutions of signals, transposed ones and gradients as functions: those of images of one row, zero copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tracea.core.contract import Accuracy
from tracea.core.op import Conv2dOp, Epilogue
from tracea.core.ops.images import like_signal, one_row, over_filters
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidOp
from tracea.flow.filter_gradient import FilterGradient
from tracea.flow.sections import Part, Section, compile_sections
from tracea.flow.transposed import Transposed
from tracea.interface.convolution_shapes import (
    check_filters,
    check_forward,
    check_phase_taps,
    convolution_numbers,
    extents_of,
    factors_of,
    meant_padding,
    same_shape,
    transposed_extents,
    transposed_numbers,
)
from tracea.interface.keywords import tells_keywords
from tracea.interface.operands import Given, check_filter_bias, dispatched
from tracea.interface.policy import library_allowed
from tracea.interface.results import filled
from tracea.interface.transposed import compile_filter_gradient, compile_image_gradient
from tracea.interface.whole_numbers import single

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["conv1d", "conv1d_grad_input", "conv1d_grad_weight", "conv_transpose1d"]

_OF_CONV1D: Final = ("x", "weight", "bias", "residual")
_OF_TRANSPOSED: Final = ("x", "weight", "bias")
_OF_GRAD_INPUT: Final = ("grad", "weight")
_OF_GRAD_WEIGHT: Final = ("x", "grad")


@tells_keywords
def conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    activation: str | None = None,
    residual: Any = None,
    accuracy: Accuracy | str = Accuracy.ELEMENTWISE,
    out: Any = None,
) -> Any:
    """Return ``activation(x * weight + bias) + residual``: cross-correlation, as ``torch.nn.functional.conv1d``.

    Shapes: x is (n, c, l); weight (k, c/groups, s); bias (k,); the result (n, k, q), channels last where x is; residual
    broadcasts to it. ``padding`` may be "valid" (none) or "same" (q = l; with stride 1).

    ``accuracy`` is that of ``conv2d``. One row of taps has no algorithm of fewer products, so that "normwise", which
    allows one, runs the kernels of "elementwise".

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for an unknown
    activation, or a number that no convolution has; InvalidOption for an accuracy that there is none of.
    """
    step, gap = single("stride", stride, 1), single("dilation", dilation, 1)
    before, same = (0, padding == "same") if isinstance(padding, str) else (single("padding", padding, 0), False)
    if isinstance(padding, str) and (padding not in ("same", "valid") or (same and step != 1)):
        raise InvalidOp(
            field="padding",
            got={"padding": padding, "stride": step},
            expected='a number, "valid", or "same" with stride 1',
            remedy=f"{meant_padding(padding)}padding=0",
        )
    numbers = (step, before, gap, single("groups", groups, 1), same)
    asked = Accuracy.of(accuracy).value
    return _dispatch_conv1d()(x, weight, bias, residual, out, *numbers, activation, asked, library_allowed())


@tells_keywords
def conv_transpose1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    activation: str | None = None,
    out: Any = None,
) -> Any:
    """Return ``activation(transposed convolution of x + bias)``, as ``torch.nn.functional.conv_transpose1d``.

    Shapes: x is (n, c, l); weight (c, k/groups, s); bias (k,); the result (n, k, q), channels last where x is, with
    ``q = (l - 1)·stride - 2·padding + dilation·(s - 1) + output_padding + 1``.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for an unknown
    activation, or a number that no transposed convolution has.
    """
    numbers = transposed_numbers(1, output_padding, stride, padding, dilation, groups)
    return _dispatch_transposed()(x, weight, bias, out, *numbers, activation, library_allowed())


@tells_keywords
def conv1d_grad_input(
    grad: Any,
    weight: Any,
    input_shape: Sequence[int],
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    out: Any = None,
) -> Any:
    """Return the gradient of ``conv1d(x, weight)`` with respect to x, given that with respect to its result.

    Shapes: grad is (n, k, q), the shape of that result; weight (k, c/groups, s); the gradient ``input_shape``,
    (n, c, l), channels last where grad is. Places that no window reads get 0.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for a number that no
    convolution has.
    """
    numbers = convolution_numbers(1, stride, padding, dilation, groups)
    return _dispatch_grad_input()(
        grad, weight, out, *numbers, *extents_of("input_shape", input_shape, 3), library_allowed()
    )


@tells_keywords
def conv1d_grad_weight(
    x: Any,
    grad: Any,
    weight_shape: Sequence[int],
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    out: Any = None,
) -> Any:
    """Return the gradient of ``conv1d(x, weight)`` with respect to weight, given that with respect to its result.

    Shapes: x is (n, c, l); grad (n, k, q), the shape of that result; the gradient ``weight_shape``, (k, c/groups, s),
    its channels next to each other where those of x are.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for a number that no
    convolution has.
    """
    numbers = convolution_numbers(1, stride, padding, dilation, groups)
    return _dispatch_grad_weight()(
        x, grad, out, *numbers, *extents_of("weight_shape", weight_shape, 3), library_allowed()
    )


@cache
def _dispatch_conv1d() -> Any:
    return dispatched(_OF_CONV1D, _missed_conv1d)


@cache
def _dispatch_transposed() -> Any:
    return dispatched(_OF_TRANSPOSED, _missed_transposed)


@cache
def _dispatch_grad_input() -> Any:
    return dispatched(_OF_GRAD_INPUT, _missed_grad_input)


@cache
def _dispatch_grad_weight() -> Any:
    return dispatched(_OF_GRAD_WEIGHT, _missed_grad_weight)


def _missed_conv1d(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(_OF_CONV1D, arrays, out)
    step, before, gap, groups, same, activation, accuracy, allowed = attributes
    x, weight = factors_of(given, "conv1d", 3)
    bias, residual = given.optional(2), given.optional(3)
    around = gap * (weight.static_shape[2] - 1)
    # Padded by "same" a signal keeps its length: a stated padding stands in for it, which leaves at least that.
    check_forward("conv1d", x.static_shape, weight.static_shape, (step, around if same else before, gap, groups))
    plain = Conv2dOp(
        x=one_row(x),
        w=one_row(weight),
        stride=(1, step),
        padding=(0, around // 2 if same else before),
        dilation=(1, gap),
        groups=groups,
        # Of an odd number of zeros around the signal, the one more comes after it.
        size=(1, x.static_shape[2]) if same else None,
        accuracy=Accuracy(accuracy),
    )
    check_filters(weight)
    shape = (*plain.shape[:2], plain.shape[3])
    given.check_broadcasts(shape, 3)
    check_filter_bias(bias, weight)
    whole = given.result_type(like_signal(x, shape))
    epilogue = Epilogue.of(
        bias=None if bias is None else over_filters(bias),
        activation=activation,
        residual=None if residual is None else one_row(residual),
    )
    inputs = [type_ for type_ in (x, weight, bias, residual) if type_ is not None]
    op = replace(plain, epilogue=epilogue, out=one_row(whole))
    section = Section(op=op, operands=tuple(Part(number) for number in range(len(inputs))))
    return compile_sections((section,), inputs=inputs, output=whole, threads=threads, library=allowed, name="conv1d")


def _missed_transposed(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(_OF_TRANSPOSED, arrays, out)
    numbers, (more, activation, allowed) = attributes[:4], attributes[4:]
    x, weight = factors_of(given, "conv_transpose1d", 3)
    bias = given.optional(2)
    stride, padding, dilation, groups = numbers
    extents = transposed_extents(
        "conv_transpose1d",
        x,
        weight,
        bias,
        stride=(stride,),
        padding=(padding,),
        dilation=(dilation,),
        more=(more,),
        groups=groups,
    )
    y = given.result_type(like_signal(x, (x.static_shape[0], *extents)))
    whole = Transposed(
        x=one_row(x), w=one_row(weight), y=one_row(y), bias=bias, activation=activation, **_along_row(numbers)
    )
    check_phase_taps(weight, whole.stride[1], dilation)
    inputs = (x, weight) if bias is None else (x, weight, bias)
    return compile_sections(
        whole.sections(), inputs=inputs, output=y, threads=threads, library=allowed, name="conv_transpose1d"
    )


def _missed_grad_input(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OF_GRAD_INPUT, arrays, out)
    numbers, shape, allowed = attributes[:4], attributes[4:7], attributes[7]
    grad, weight = factors_of(given, "conv1d_grad_input", 3)
    same_shape(grad, check_forward("conv1d_grad_input", shape, weight.static_shape, numbers))
    forward = _forward(TensorType(shape, grad.dtype), weight, numbers)
    y = given.result_type(like_signal(grad, shape))
    if 0 in grad.static_shape:  # of no images or no filters: a sum of nothing
        return filled(arrays[0], y, out, 0.0)
    whole = Transposed(
        x=one_row(grad),
        w=forward.w,
        y=one_row(y),
        stride=forward.stride,
        padding=forward.padding,
        dilation=forward.dilation,
        groups=forward.groups,
    )
    check_phase_taps(weight, whole.stride[1], whole.dilation[1])
    return compile_image_gradient(
        whole, inputs=(grad, weight), output=y, threads=threads, library=allowed, name="conv1d_grad_input"
    )


def _missed_grad_weight(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OF_GRAD_WEIGHT, arrays, out)
    numbers, shape, allowed = attributes[:4], attributes[4:7], attributes[7]
    x, grad = factors_of(given, "conv1d_grad_weight", 3)
    same_shape(grad, check_forward("conv1d_grad_weight", x.static_shape, shape, numbers))
    forward = _forward(x, TensorType(shape, x.dtype), numbers)
    y = given.result_type(like_signal(x, shape))
    if 0 in grad.static_shape:  # of no signals or no filters: a sum of nothing
        return filled(arrays[0], y, out, 0.0)
    whole = FilterGradient(
        x=forward.x,
        grad=one_row(grad),
        y=one_row(y),
        stride=forward.stride,
        padding=forward.padding,
        dilation=forward.dilation,
        groups=forward.groups,
    )
    return compile_filter_gradient(
        whole, inputs=(x, grad), output=y, threads=threads, library=allowed, name="conv1d_grad_weight"
    )


def _forward(x: TensorType, weight: TensorType, numbers: tuple[Any, ...]) -> Conv2dOp:
    """Return the convolution that is differentiated, of images of one row."""
    return Conv2dOp(x=one_row(x), w=one_row(weight), **_along_row(numbers))


def _along_row(numbers: Sequence[int]) -> dict[str, Any]:
    """Return stride, padding, dilation and groups of a signal as those of an image of one row."""
    stride, padding, dilation, groups = numbers
    return {"stride": (1, stride), "padding": (0, padding), "dilation": (1, dilation), "groups": groups}
