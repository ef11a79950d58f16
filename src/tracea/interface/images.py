"""Convolutions of images as functions: zero copy, row-major or channels last, the result in the order of the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tracea.core.contract import Accuracy
from tracea.core.op import Conv2dOp, Epilogue
from tracea.core.ops.images import like_image, over_filters
from tracea.errors import InvalidOp
from tracea.flow.sections import Part, Section, compile_sections
from tracea.interface.convolution_shapes import check_axes, check_filters, meant_padding
from tracea.interface.keywords import tells_keywords
from tracea.interface.operands import FLOATS, Given, check_filter_bias, check_same_dtype, dispatched
from tracea.interface.policy import library_allowed
from tracea.interface.whole_numbers import pair, whole_number
from tracea.runtime.buffers import view

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["conv2d"]

_OPERANDS: Final = ("x", "weight", "bias", "residual")


@tells_keywords
def conv2d(
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
    """Return ``activation(x * weight + bias) + residual``: cross-correlation, as ``torch.nn.functional.conv2d``.

    Shapes: x is (n, c, h, w); weight (k, c/groups, r, s); bias (k,); the result (n, k, p, q), channels last where x is;
    residual broadcasts to it. ``padding`` may be "valid" (none) or "same" (p = h, q = w; with stride 1).

    ``accuracy``: "elementwise" errs by rounding of each result's own products, for all inputs; "normwise" by rounding
    of the largest pixel times the sum of the taps, which allows fewer products (Winograd), for images that are finite
    and leave room: 100 times the largest pixel, and 900 times its product with a filter's taps, all added, are too.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for an unknown
    activation, or a number that no convolution has; InvalidOption for an accuracy that there is none of.
    """
    (down, right), (gap_r, gap_s) = pair("stride", stride, 1), pair("dilation", dilation, 1)
    above, left = _padding(weight, padding, (down, right), (gap_r, gap_s))
    numbers = (down, right, above, left, gap_r, gap_s, whole_number("groups", groups, 1))
    return _dispatch_conv2d()(
        x, weight, bias, residual, out, *numbers, activation, Accuracy.of(accuracy).value, library_allowed()
    )


def _padding(weight: Any, padding: Any, stride: tuple[int, int], dilation: tuple[int, int]) -> tuple[int, int]:
    if not isinstance(padding, str):
        return pair("padding", padding, 0)
    if padding == "valid":
        return 0, 0
    taps = view(weight, "weight", FLOATS).shape[-2:]
    around = [gap * (int(tap) - 1) for gap, tap in zip(dilation, taps, strict=False)]
    if padding != "same" or stride != (1, 1) or len(around) != 2 or any(size % 2 for size in around):
        raise InvalidOp(
            field="padding",
            got={"padding": padding, "stride": stride, "taps": taps, "dilation": dilation},
            expected='a number, two, "valid", or "same" with stride 1 and an even dilation · (taps - 1)',
            remedy=f"{meant_padding(padding)}pad the image by itself, and give padding=0",
        )
    return around[0] // 2, around[1] // 2


@cache
def _dispatch_conv2d() -> Any:
    return dispatched(_OPERANDS, _missed_conv2d)


def _missed_conv2d(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(_OPERANDS, arrays, out)
    down, right, above, left, gap_r, gap_s, groups, activation, accuracy, allowed = attributes
    given.check_floats(one_arithmetic=True)
    x, weight, bias, residual = given.type(0), given.type(1), given.optional(2), given.optional(3)
    check_axes("conv2d", {"x": x, "weight": weight}, 4)
    check_same_dtype("conv2d", x, weight)
    plain = Conv2dOp(
        x=x,
        w=weight,
        stride=(down, right),
        padding=(above, left),
        dilation=(gap_r, gap_s),
        groups=groups,
        accuracy=Accuracy(accuracy),
    )
    check_filters(weight)
    given.check_broadcasts(plain.shape, 3)
    check_filter_bias(bias, weight)
    op = replace(
        plain,
        epilogue=Epilogue.of(
            bias=None if bias is None else over_filters(bias), activation=activation, residual=residual
        ),
        out=given.result if out is not None else like_image(x, plain.shape, x.dtype),
    )
    given.check_result(op)
    inputs = [type_ for type_ in (x, weight, bias, residual) if type_ is not None]
    section = Section(op=op, operands=tuple(Part(number) for number in range(len(inputs))))
    return compile_sections((section,), inputs=inputs, output=op.infer(), threads=threads, library=allowed, name=op.key)
