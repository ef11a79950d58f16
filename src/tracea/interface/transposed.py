"""Transposed convolutions and the gradients of convolutions as functions: zero copy, no zeros inserted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tracea.core.op import Conv2dOp
from tracea.core.ops.images import like_image
from tracea.core.tensor_type import TensorType
from tracea.flow.channel_sums import ChannelSums
from tracea.flow.copied_channel_sums import CopiedChannelSums
from tracea.flow.filter_gradient import FilterGradient
from tracea.flow.filter_products import FilterProducts
from tracea.flow.filter_windows import FilterWindows
from tracea.flow.image_planes import ImagePlanes
from tracea.flow.image_products import ImageProduct
from tracea.flow.phase_images import PhaseImages
from tracea.flow.pixel_planes import PixelPlanes
from tracea.flow.pixel_sums import PixelSums
from tracea.flow.sections import compile_sections
from tracea.flow.signal_bands import SignalBands
from tracea.flow.transposed import Transposed
from tracea.interface.convolution_shapes import (
    check_taps,
    convolution_numbers,
    extents_of,
    factors_of,
    same_shape,
    transposed_extents,
    transposed_numbers,
)
from tracea.interface.keywords import tells_keywords
from tracea.interface.operands import Given, dispatched
from tracea.interface.policy import library_allowed
from tracea.interface.results import filled

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = [
    "compile_filter_gradient",
    "compile_image_gradient",
    "conv2d_grad_input",
    "conv2d_grad_weight",
    "conv_transpose2d",
]

_OF_TRANSPOSED: Final = ("x", "weight", "bias")
_OF_GRAD_INPUT: Final = ("grad", "weight")
_OF_GRAD_WEIGHT: Final = ("x", "grad")


@tells_keywords
def conv_transpose2d(
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
    """Return ``activation(transposed convolution of x + bias)``, as ``torch.nn.functional.conv_transpose2d``.

    Shapes: x is (n, c, h, w); weight (c, k/groups, r, s); bias (k,); the result (n, k, p, q), channels last where x is,
    with ``p = (h - 1)·stride - 2·padding + dilation·(r - 1) + output_padding + 1``.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for an unknown
    activation, or a number that no transposed convolution has.
    """
    numbers = transposed_numbers(2, output_padding, stride, padding, dilation, groups)
    return _dispatch_transposed()(x, weight, bias, out, *numbers, activation, library_allowed())


@tells_keywords
def conv2d_grad_input(
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
    """Return the gradient of ``conv2d(x, weight)`` with respect to x, given that with respect to its result.

    Shapes: grad is (n, k, p, q), the shape of that result; weight (k, c/groups, r, s); the gradient ``input_shape``,
    (n, c, h, w), channels last where grad is. Rows and columns that no window reads get 0.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for a number that no
    convolution has.
    """
    numbers = convolution_numbers(2, stride, padding, dilation, groups)
    return _dispatch_grad_input()(
        grad, weight, out, *numbers, *extents_of("input_shape", input_shape, 4), library_allowed()
    )


@tells_keywords
def conv2d_grad_weight(
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
    """Return the gradient of ``conv2d(x, weight)`` with respect to weight, given that with respect to its result.

    Shapes: x is (n, c, h, w); grad (n, k, p, q), the shape of that result, at most 256 rows and columns; the gradient
    ``weight_shape``, (k, c/groups, r, s), its channels next to each other where those of x are.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for a number that no
    convolution has.
    """
    numbers = convolution_numbers(2, stride, padding, dilation, groups)
    return _dispatch_grad_weight()(
        x, grad, out, *numbers, *extents_of("weight_shape", weight_shape, 4), library_allowed()
    )


@cache
def _dispatch_transposed() -> Any:
    return dispatched(_OF_TRANSPOSED, _missed_transposed)


@cache
def _dispatch_grad_input() -> Any:
    return dispatched(_OF_GRAD_INPUT, _missed_grad_input)


@cache
def _dispatch_grad_weight() -> Any:
    return dispatched(_OF_GRAD_WEIGHT, _missed_grad_weight)


def _missed_transposed(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(_OF_TRANSPOSED, arrays, out)
    stride, padding, dilation, groups = attributes[:2], attributes[2:4], attributes[4:6], attributes[6]
    more, (activation, allowed) = attributes[7:9], attributes[9:]
    x, weight, bias = *factors_of(given, "conv_transpose2d", 4), given.optional(2)
    extents = transposed_extents(
        "conv_transpose2d",
        x,
        weight,
        bias,
        stride=stride,
        padding=padding,
        dilation=dilation,
        more=more,
        groups=groups,
    )
    y = given.result_type(like_image(x, (x.shape[0], *extents), x.dtype))
    whole = Transposed(
        x=x,
        w=weight,
        y=y,
        bias=bias,
        activation=activation,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
    )
    inputs = (x, weight) if bias is None else (x, weight, bias)
    return compile_sections(
        whole.sections(), inputs=inputs, output=y, threads=threads, library=allowed, name="conv_transpose2d"
    )


def _missed_grad_input(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OF_GRAD_INPUT, arrays, out)
    numbers, shape, allowed = attributes[:7], attributes[7:11], attributes[11]
    grad, weight = factors_of(given, "conv2d_grad_input", 4)
    forward = _forward(TensorType(shape, grad.dtype), weight, numbers)
    same_shape(grad, forward.shape)
    y = given.result_type(like_image(grad, shape, grad.dtype))
    if 0 in grad.static_shape:  # of no images or no filters: a sum of nothing
        return filled(arrays[0], y, out, 0.0)
    whole = Transposed(
        x=grad,
        w=weight,
        y=y,
        stride=forward.stride,
        padding=forward.padding,
        dilation=forward.dilation,
        groups=forward.groups,
    )
    return compile_image_gradient(
        whole, inputs=(grad, weight), output=y, threads=threads, library=allowed, name="conv2d_grad_input"
    )


def compile_image_gradient(
    whole: Transposed, *, inputs: Sequence[TensorType], output: TensorType, threads: int, library: bool, name: str
) -> Program:
    """Return the program of a gradient for images by whichever way is fastest; ``whole`` is of views of the inputs.

    Raises: InvalidOp: a stride has so many phases that their kernels would take minutes to compile.
    """
    products = (
        ImageProduct.of(whole, threads=threads, library=library)
        or ImagePlanes.of(whole)
        or PixelPlanes.of(whole)
        or PhaseImages.of(whole, threads=threads, library=library)
    )
    sections, temporaries = (
        (whole.sections(), ()) if products is None else (tuple(products.sections()), products.temporaries)
    )
    return compile_sections(
        sections,
        inputs=inputs,
        output=output,
        temporaries=temporaries,
        threads=threads,
        library=library,
        name=name,
    )


def _missed_grad_weight(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OF_GRAD_WEIGHT, arrays, out)
    numbers, shape, allowed = attributes[:7], attributes[7:11], attributes[11]
    x, grad = factors_of(given, "conv2d_grad_weight", 4)
    forward = _forward(x, TensorType(shape, x.dtype), numbers)
    same_shape(grad, forward.shape)
    y = given.result_type(like_image(x, shape, x.dtype))
    if 0 in grad.static_shape:  # of no images or no filters: a sum of nothing
        return filled(arrays[0], y, out, 0.0)
    check_taps(grad)
    whole = FilterGradient(
        x=x,
        grad=grad,
        y=y,
        stride=forward.stride,
        padding=forward.padding,
        dilation=forward.dilation,
        groups=forward.groups,
    )
    return compile_filter_gradient(
        whole, inputs=(x, grad), output=y, threads=threads, library=allowed, name="conv2d_grad_weight"
    )


def compile_filter_gradient(
    whole: FilterGradient, *, inputs: Sequence[TensorType], output: TensorType, threads: int, library: bool, name: str
) -> Program:
    """Return the program of a gradient for filters by whichever way is fastest; ``whole`` is of views of the inputs."""
    products = (
        FilterWindows.of(whole, threads=threads, library=library)
        or FilterProducts.of(whole, threads=threads, library=library)
        or ChannelSums.of(whole)
        or PixelSums.of(whole)
        or CopiedChannelSums.of(whole)
        or SignalBands.of(whole)
    )
    sections, temporaries = (
        (whole.sections(), ()) if products is None else (tuple(products.sections()), products.temporaries)
    )
    return compile_sections(
        sections,
        inputs=inputs,
        output=output,
        temporaries=temporaries,
        threads=threads,
        library=library,
        name=name,
    )


def _forward(x: TensorType, weight: TensorType, numbers: tuple[Any, ...]) -> Conv2dOp:
    """Return the convolution that is differentiated, which checks its own numbers."""
    return Conv2dOp(x=x, w=weight, stride=numbers[:2], padding=numbers[2:4], dilation=numbers[4:6], groups=numbers[6])
