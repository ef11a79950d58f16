"""The kernels of Winograd's F(2, 3), F(4, 3) and F(2, 5) that the tests compile."""

from __future__ import annotations

from dataclasses import replace

from tests.kernels.conformance import Case
from tests.kernels.conv_cases import BF16, F32, F64, FUSED, conv, strided_conv

from tracea.core.contract import Accuracy
from tracea.core.op import Conv2dOp
from tracea.core.tensor_type import StridedLayout, TensorType

BY_NORM = {"accuracy": Accuracy.NORMWISE}


def winograd_cases() -> tuple[Case, ...]:
    """Kernels of each F(m, r): bands with tails, panels with tails, borders, groups, layouts of the result."""
    last = {"channels_last": True, **BY_NORM}
    two = {"m": 2, "mr": 3, "nv": 2, "unroll": 2, "rows": 2, "kb": 32, "gap": 0, "tail": 1, "prefetch": 0}
    two |= {"columns": 3}
    four = {**two, "m": 4, "rows": 1, "columns": 5, "gap": 16}
    padded = {"padding": (2, 0), "kernel": (3, 3)}
    wide = {"padding": (2, 2), "kernel": (5, 5)}
    return (
        Case.of("winograd_default", "conv.winograd_prepacked", conv(20, (10, 14), 40, **last)),
        Case.of("winograd_two", "conv.winograd", conv(7, (11, 7), 70, batch=2, **last, **FUSED), **two),
        Case.of("winograd_two_prepacked", "conv.winograd_prepacked", conv(18, (5, 9), 33, **last, **FUSED), **two),
        Case.of("winograd_four", "conv.winograd", conv(35, (9, 10), 40, batch=2, **last, **FUSED), **four),
        Case.of("winograd_four_prepacked", "conv.winograd_prepacked", conv(32, (13, 6), 70, **last), **four),
        Case.of("winograd_groups", "conv.winograd", conv(34, (7, 8), 70, groups=2, **last, **FUSED), **two),
        Case.of("winograd_padded", "conv.winograd_prepacked", conv(17, (6, 9), 40, **padded, **last), **two),
        Case.of("winograd_small", "conv.winograd_prepacked", conv(17, (1, 2), 40, **last, **FUSED), **four),
        Case.of("winograd_upcoming", "conv.winograd", conv(34, (7, 8), 70, **last, **FUSED), **two, upcoming=3),
        Case.of("winograd_f64", "conv.winograd", conv(9, (7, 6), 20, dtype=F64, **last, **FUSED), **two),
        Case.of("winograd_bf16", "conv.winograd_prepacked", conv(20, (7, 6), 20, dtype=BF16, **last, **FUSED), **two),
        Case.of("winograd_planar", "conv.winograd_prepacked", planar_result(18, (6, 7), 20), **two),
        Case.of("winograd_rows", "conv.winograd", conv(37, (9, 7), 40, batch=2, **FUSED, **BY_NORM), **four),
        Case.of("winograd_wide", "conv.winograd", conv(19, (11, 8), 37, batch=2, **wide, **last, **FUSED), **two),
        Case.of("winograd_wide_prepacked", "conv.winograd_prepacked", conv(17, (9, 14), 70, **wide, **last), **two),
        Case.of("winograd_strided", "conv.winograd", strided(2, 5, (6, 9), 40), **two),
    )


def strided(images: int, channels: int, size: tuple[int, int], filters: int) -> Conv2dOp:
    """No stride of x and w is 1: channels lie apart, and so do filters and taps."""
    plain = strided_conv(images, channels, size, filters)
    rows, columns = size
    x = TensorType((images, channels, rows, columns), F32, StridedLayout(tuple(2 * step for step in plain.x.strides)))
    w = TensorType((filters, channels, 3, 3), F32, StridedLayout((2, 18 * filters + 5, 6 * filters + 2, 2 * filters)))
    return Conv2dOp(x=x, w=w, padding=(1, 2), accuracy=Accuracy.NORMWISE)


def planar_result(channels: int, size: tuple[int, int], filters: int) -> Conv2dOp:
    """An image of channels last that becomes one whose pixels lie next to each other."""
    op = conv(channels, size, filters, channels_last=True, bias=True, activation="relu", accuracy=Accuracy.NORMWISE)
    return replace(op, out=None)
