"""The kernels with vectors along pixels that the tests compile."""

from __future__ import annotations

from tests.kernels.conformance import Case
from tests.kernels.conv_cases import BF16, F16, F32, F64, FUSED, ONE, conv


def pixel_cases() -> tuple[Case, ...]:
    """Rows longer and shorter than a tile, panels, bands and tiles with tails, borders, groups, element types."""
    tile = {"nr": 4, "nv": 2, "tail": 3, "rows": 3, "kb": 8, "gap": 5}
    wide = {"kernel": (3, 5), "padding": (2, 4)}
    apart = {"kernel": (3, 2), "padding": (2, 3), "dilation": (2, 3)}
    return (
        Case.of("pixels_default", "conv.pixels_prepacked", conv(17, (12, 37), 19, bias=True, activation="relu")),
        Case.of("pixels_long_rows", "conv.pixels", conv(5, (7, 70), 11, batch=2, **FUSED), **tile),
        Case.of("pixels_short_rows", "conv.pixels_prepacked", conv(7, (10, 3), 7, batch=2, **FUSED), **tile),
        Case.of("pixels_wide_border", "conv.pixels", conv(3, (1, 2), 3, **wide), **tile),
        Case.of("pixels_groups", "conv.pixels", conv(10, (7, 8), 35, groups=5, dilation=(2, 1), **FUSED), **tile),
        Case.of("pixels_dilated", "conv.pixels_prepacked", conv(6, (9, 17), 15, bias=True, **apart), **tile),
        Case.of("pixels_one_by_one", "conv.pixels", conv(9, (6, 9), 7, **ONE, **FUSED), **{**tile, "gap": 0}),
        Case.of("pixels_f64", "conv.pixels", conv(7, (5, 9), 7, dtype=F64, **FUSED), **{**tile, "nv": 1}),
        Case.of("pixels_bf16", "conv.pixels_prepacked", conv(7, (5, 40), 7, dtype=BF16, **FUSED), **tile),
        Case.of("pixels_f16_to_f32", "conv.pixels", conv(7, (5, 40), 7, dtype=F16, out_dtype=F32), **tile),
    )
