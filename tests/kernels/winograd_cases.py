"""The kernels of Winograd's F(2, 3) and F(4, 3) that the tests compile."""

from __future__ import annotations

from dataclasses import replace

from tests.kernels.conformance import Case
from tests.kernels.conv_cases import BF16, F64, FUSED, conv

from tracea.core.contract import Accuracy
from tracea.core.op import Conv2dOp


def winograd_cases() -> tuple[Case, ...]:
    """Kernels of F(2, 3) and F(4, 3): bands with tails, panels with tails, borders, groups, layouts of the result."""
    last = {"channels_last": True, "accuracy": Accuracy.NORMWISE}
    two = {"m": 2, "mr": 3, "nv": 2, "unroll": 2, "rows": 2, "kb": 32, "gap": 0, "tail": 1, "prefetch": 0}
    four = {**two, "m": 4, "rows": 1, "gap": 16}
    padded = {"padding": (2, 0), "kernel": (3, 3)}
    return (
        Case.of("winograd_default", "conv.winograd_prepacked", conv(20, (10, 14), 40, **last)),
        Case.of("winograd_two", "conv.winograd", conv(7, (11, 7), 70, batch=2, **last, **FUSED), **two),
        Case.of("winograd_two_prepacked", "conv.winograd_prepacked", conv(18, (5, 9), 33, **last, **FUSED), **two),
        Case.of("winograd_four", "conv.winograd", conv(35, (9, 10), 40, batch=2, **last, **FUSED), **four),
        Case.of("winograd_four_prepacked", "conv.winograd_prepacked", conv(32, (13, 6), 70, **last), **four),
        Case.of("winograd_groups", "conv.winograd", conv(34, (7, 8), 70, groups=2, **last, **FUSED), **two),
        Case.of("winograd_padded", "conv.winograd_prepacked", conv(17, (6, 9), 40, **padded, **last), **two),
        Case.of("winograd_small", "conv.winograd_prepacked", conv(17, (1, 2), 40, **last, **FUSED), **four),
        Case.of("winograd_f64", "conv.winograd", conv(9, (7, 6), 20, dtype=F64, **last, **FUSED), **two),
        Case.of("winograd_bf16", "conv.winograd_prepacked", conv(20, (7, 6), 20, dtype=BF16, **last, **FUSED), **two),
        Case.of("winograd_planar", "conv.winograd_prepacked", planar_result(18, (6, 7), 20), **two),
    )


def planar_result(channels: int, size: tuple[int, int], filters: int) -> Conv2dOp:
    """An image of channels last that becomes one whose pixels lie next to each other."""
    op = conv(channels, size, filters, channels_last=True, bias=True, activation="relu", accuracy=Accuracy.NORMWISE)
    return replace(op, out=None)
