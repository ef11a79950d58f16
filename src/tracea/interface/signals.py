"""Convolutions of signals as functions: those of images of one row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from tracea.core.contract import Accuracy
from tracea.core.op import Conv2dOp, Epilogue
from tracea.core.ops.images import like_image, over_filters
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidOp
from tracea.flow.sections import Part, Section, compile_sections
from tracea.interface.convolution_shapes import check_axes, check_filters, check_forward, meant_padding
from tracea.interface.keywords import tells_keywords
from tracea.interface.operands import Given, check_filter_bias, check_same_dtype
from tracea.interface.policy import library_allowed
from tracea.interface.whole_numbers import single
from tracea.runtime.extension import dispatcher

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["conv1d"]


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


@cache
def _dispatch_conv1d() -> Any:
    return dispatcher(4, _missed_conv1d)


def _missed_conv1d(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(("x", "weight", "bias", "residual"), arrays, out)
    step, before, gap, groups, same, activation, accuracy, allowed = attributes
    given.check_floats(one_arithmetic=True)
    x, weight, bias, residual = given.type(0), given.type(1), given.optional(2), given.optional(3)
    check_axes("conv1d", {"x": x, "weight": weight}, 3)
    check_same_dtype("conv1d", x, weight)
    around = gap * (weight.static_shape[2] - 1)
    # Padded by "same" a signal keeps its length: a stated padding stands in for it, which leaves at least that.
    check_forward("conv1d", x.static_shape, weight.static_shape, (step, around if same else before, gap, groups))
    plain = Conv2dOp(
        x=_one_row(x),
        w=_one_row(weight),
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
    y = like_image(plain.x, plain.shape, x.dtype)
    given.check_result_type(_no_rows(y))
    whole = given.result or _no_rows(y)
    epilogue = Epilogue.of(
        bias=None if bias is None else over_filters(bias),
        activation=activation,
        residual=None if residual is None else _one_row(residual),
    )
    inputs = [type_ for type_ in (x, weight, bias, residual) if type_ is not None]
    op = Conv2dOp(
        x=plain.x,
        w=plain.w,
        stride=plain.stride,
        padding=plain.padding,
        dilation=plain.dilation,
        groups=groups,
        size=plain.size,
        accuracy=plain.accuracy,
        epilogue=epilogue,
        out=_one_row(whole),
    )
    section = Section(op=op, operands=tuple(Part(number) for number in range(len(inputs))))
    return compile_sections((section,), inputs=inputs, output=whole, threads=threads, library=allowed, name="conv1d")


def _one_row(type_: TensorType) -> TensorType:
    """Return the type with an axis of one row before its last."""
    if type_.rank == 0:
        return type_
    *shape, last = type_.shape
    *strides, step = type_.strides
    return TensorType((*shape, 1, last), type_.dtype, StridedLayout((*strides, 0, step)))


def _no_rows(type_: TensorType) -> TensorType:
    """Return the type of an image of one row without that axis."""
    *shape, _, last = type_.shape
    *strides, _, step = type_.strides
    return TensorType((*shape, last), type_.dtype, StridedLayout((*strides, step)))
