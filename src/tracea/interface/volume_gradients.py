"""Transposed convolutions of volumes and gradients of their convolutions as functions: zero copy, no zeros inserted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tracea.core.op import Epilogue
from tracea.core.ops.volumes import like_volume
from tracea.core.tensor_type import TensorType
from tracea.flow.sections import compile_sections
from tracea.flow.volume_gradient import VolumeFilterGradient
from tracea.flow.volumes import VolumeTransposed
from tracea.interface.convolution_shapes import (
    check_forward,
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

__all__ = ["conv3d_grad_input", "conv3d_grad_weight", "conv_transpose3d"]

_OF_TRANSPOSED: Final = ("x", "weight", "bias")
_OF_GRAD_INPUT: Final = ("grad", "weight")
_OF_GRAD_WEIGHT: Final = ("x", "grad")


@tells_keywords
def conv_transpose3d(
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
    """Return ``activation(transposed convolution of x + bias)``, as ``torch.nn.functional.conv_transpose3d``.

    Shapes: x is (n, c, d, h, w); weight (c, k/groups, t, r, s); bias (k,); the result (n, k, e, p, q), channels last
    where x is, with ``e = (d - 1)·stride - 2·padding + dilation·(t - 1) + output_padding + 1``.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for an unknown
    activation, or a number that no transposed convolution has.
    """
    numbers = transposed_numbers(3, output_padding, stride, padding, dilation, groups)
    return _dispatch_transposed()(x, weight, bias, out, *numbers, activation, library_allowed())


@tells_keywords
def conv3d_grad_input(
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
    """Return the gradient of ``conv3d(x, weight)`` with respect to x, given that with respect to its result.

    Shapes: grad is (n, k, e, p, q), the shape of that result; weight (k, c/groups, t, r, s); the gradient
    ``input_shape``, (n, c, d, h, w), channels last where grad is. What no window reads gets 0.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for a number that no
    convolution has.
    """
    numbers = convolution_numbers(3, stride, padding, dilation, groups)
    return _dispatch_grad_input()(
        grad, weight, out, *numbers, *extents_of("input_shape", input_shape, 5), library_allowed()
    )


@tells_keywords
def conv3d_grad_weight(
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
    """Return the gradient of ``conv3d(x, weight)`` with respect to weight, given that with respect to its result.

    Shapes: x is (n, c, d, h, w); grad (n, k, e, p, q), the shape of that result, at most 256 planes, rows and columns;
    the gradient ``weight_shape``, (k, c/groups, t, r, s), its channels next to each other where those of x are.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for a number that no
    convolution has.
    """
    numbers = convolution_numbers(3, stride, padding, dilation, groups)
    return _dispatch_grad_weight()(
        x, grad, out, *numbers, *extents_of("weight_shape", weight_shape, 5), library_allowed()
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
    stride, padding, dilation, groups = attributes[:3], attributes[3:6], attributes[6:9], attributes[9]
    more, (activation, allowed) = attributes[10:13], attributes[13:]
    x, weight = factors_of(given, "conv_transpose3d", 5)
    bias = given.optional(2)
    extents = transposed_extents(
        "conv_transpose3d",
        x,
        weight,
        bias,
        stride=stride,
        padding=padding,
        dilation=dilation,
        more=more,
        groups=groups,
    )
    Epilogue.of(activation=activation)  # an unknown one is refused before anything is compiled
    y = given.result_type(like_volume(x, (x.static_shape[0], *extents), x.dtype))
    whole = VolumeTransposed(
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
    return _compiled(whole.by_fewest_sums(), inputs, y, threads, library=allowed, name="conv_transpose3d")


def _missed_grad_input(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OF_GRAD_INPUT, arrays, out)
    numbers, shape, allowed = attributes[:10], attributes[10:15], attributes[15]
    grad, weight = factors_of(given, "conv3d_grad_input", 5)
    same_shape(grad, check_forward("conv3d_grad_input", shape, weight.static_shape, numbers))
    y = given.result_type(like_volume(grad, shape, grad.dtype))
    if 0 in grad.static_shape:  # of no images or no filters: a sum of nothing
        return filled(arrays[0], y, out, 0.0)
    whole = VolumeTransposed(x=grad, w=weight, y=y, **_named(numbers)).by_fewest_sums()
    return _compiled(whole, (grad, weight), y, threads, library=allowed, name="conv3d_grad_input")


def _missed_grad_weight(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OF_GRAD_WEIGHT, arrays, out)
    numbers, shape, allowed = attributes[:10], attributes[10:15], attributes[15]
    x, grad = factors_of(given, "conv3d_grad_weight", 5)
    same_shape(grad, check_forward("conv3d_grad_weight", x.static_shape, shape, numbers))
    y = given.result_type(like_volume(x, shape, x.dtype))
    if 0 in grad.static_shape:  # of no images or no filters: a sum of nothing
        return filled(arrays[0], y, out, 0.0)
    check_taps(grad)
    whole = VolumeFilterGradient(x=x, grad=grad, y=y, **_named(numbers)).by_fewest_sums()
    return _compiled(whole, (x, grad), y, threads, library=allowed, name="conv3d_grad_weight")


def _named(numbers: tuple[Any, ...]) -> dict[str, Any]:
    return {"stride": numbers[:3], "padding": numbers[3:6], "dilation": numbers[6:9], "groups": numbers[9]}


def _compiled(
    whole: VolumeTransposed | VolumeFilterGradient,
    inputs: Sequence[TensorType],
    y: TensorType,
    threads: int,
    *,
    library: bool,
    name: str,
) -> Program:
    return compile_sections(
        tuple(whole.sections()),
        inputs=inputs,
        output=y,
        temporaries=whole.temporaries,
        threads=threads,
        library=library,
        name=name,
    )
