"""Convolutions of volumes as functions: zero copy, row-major or channels last, by the kernels of ``conv2d``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tracea.core.contract import Accuracy
from tracea.core.op import Epilogue
from tracea.core.ops.volumes import like_volume
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidOp
from tracea.flow.plane_parts import Triple
from tracea.flow.sections import compile_sections
from tracea.flow.volumes import VolumeConvolution
from tracea.interface.convolution_shapes import check_filters, check_forward, factors_of, meant_padding
from tracea.interface.keywords import tells_keywords
from tracea.interface.operands import FLOATS, Given, check_filter_bias, dispatched
from tracea.interface.policy import library_allowed
from tracea.interface.whole_numbers import triple, whole_number
from tracea.runtime.buffers import view

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["conv3d"]

_OPERANDS: Final = ("x", "weight", "bias", "residual")


@tells_keywords
def conv3d(
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
    """Return ``activation(x * weight + bias) + residual``: cross-correlation, as ``torch.nn.functional.conv3d``.

    Shapes: x is (n, c, d, h, w); weight (k, c/groups, t, r, s); bias (k,); the result (n, k, e, p, q), channels last
    where x is; residual broadcasts to it. ``padding`` may be "valid" (none) or "same" (e, p, q = d, h, w; with stride 1
    and an even dilation · (taps - 1) along each axis).

    ``accuracy`` is that of ``conv2d``, of each plane of the filters: what it errs by is the sum over planes.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for an unknown
    activation, or a number that no convolution has; InvalidOption for an accuracy that there is none of.
    """
    steps, gaps = triple("stride", stride, 1), triple("dilation", dilation, 1)
    around = _padding(weight, padding, steps, gaps) if isinstance(padding, str) else triple("padding", padding, 0)
    numbers = (*steps, *around, *gaps, whole_number("groups", groups, 1))
    asked = Accuracy.of(accuracy).value
    return _dispatch_conv3d()(x, weight, bias, residual, out, *numbers, activation, asked, library_allowed())


def _padding(weight: Any, padding: str, stride: Triple, dilation: Triple) -> Triple:
    if padding == "valid":
        return 0, 0, 0
    taps = view(weight, "weight", FLOATS).shape[-3:]
    around = [gap * (int(tap) - 1) for gap, tap in zip(dilation, taps, strict=False)]
    if padding != "same" or stride != (1, 1, 1) or len(around) != 3 or any(size % 2 for size in around):
        raise InvalidOp(
            field="padding",
            got={"padding": padding, "stride": stride, "taps": taps, "dilation": dilation},
            expected='a number, three, "valid", or "same" with stride 1 and an even dilation · (taps - 1)',
            remedy=f"{meant_padding(padding)}pad the volume by itself, and give padding=0",
        )
    planes, rows, columns = (size // 2 for size in around)
    return planes, rows, columns


@cache
def _dispatch_conv3d() -> Any:
    return dispatched(_OPERANDS, _missed_conv3d)


def _missed_conv3d(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(_OPERANDS, arrays, out)
    numbers, (activation, accuracy, allowed) = attributes[:10], attributes[10:]
    x, weight = factors_of(given, "conv3d", 5)
    bias, residual = given.optional(2), given.optional(3)
    shape = check_forward("conv3d", x.static_shape, weight.static_shape, numbers)
    check_filters(weight)
    at_every_voxel = check_forward("conv3d", x.static_shape, weight.static_shape, (1, 1, 1, *numbers[3:]))
    given.check_broadcasts(shape, 3)
    check_filter_bias(bias, weight)
    Epilogue.of(activation=activation)  # an unknown one is refused before anything is compiled
    y = given.result_type(like_volume(x, shape, x.dtype))
    whole = VolumeConvolution(
        x=x,
        w=weight,
        y=y,
        bias=bias,
        residual=None if residual is None else _expanded(residual, shape),
        activation=activation,
        stride=tuple(map(min, numbers[:3], at_every_voxel[2:])),  # no further beyond the volume than it must
        padding=numbers[3:6],
        dilation=numbers[6:9],
        groups=numbers[9],
        accuracy=Accuracy(accuracy),
    ).by_fewest_sums()
    return compile_sections(
        tuple(whole.sections()),
        inputs=[type_ for type_ in (x, weight, bias, residual) if type_ is not None],
        output=y,
        temporaries=whole.temporaries,
        threads=threads,
        library=allowed,
        name="conv3d",
    )


def _expanded(type_: TensorType, shape: tuple[int, ...]) -> TensorType:
    """Return a type that broadcasts to ``shape`` as one of that shape, with strides of 0."""
    missing = len(shape) - type_.rank
    dims, strides = (1,) * missing + type_.static_shape, (0,) * missing + type_.strides
    spread = tuple(0 if dim == 1 else stride for dim, stride in zip(dims, strides, strict=True))
    return TensorType(shape, type_.dtype, StridedLayout(spread))
