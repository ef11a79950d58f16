"""The convolutions with few filters, in vectors along channels, that the tests compile."""

from __future__ import annotations

from tests.kernels.conformance import Case
from tests.kernels.conv_cases import BF16, F16, F32, F64, FUSED, ONE, SHORT, conv, conv_part, strided_conv


def dot_cases() -> tuple[Case, ...]:
    """Tails of channels, pixels and filters, borders, groups, images in rows, element types, results in parts."""
    tile, last = {"mr": 3, "nk": 2, "tail": 1, "rows": 3, "kb": 4, "gap": 5}, {"channels_last": True}
    return (
        Case.of("dot_default", "conv.dot_prepacked", conv(40, (9, 14), 3, **last, bias=True)),
        Case.of("dot_last", "conv.dot", conv(37, (5, 7), 5, batch=2, **last, **FUSED), **tile),
        Case.of("dot_dense", "conv.dot_prepacked", conv(33, (5, 7), 2, **last), **tile),
        Case.of("dot_rows", "conv.dot", conv(21, (5, 7), 5, batch=2, **FUSED), **tile),
        Case.of("dot_rows_one_run", "conv.dot_prepacked", conv(21, (5, 7), 3, **SHORT), **{**tile, "gap": 0}),
        Case.of("dot_one_by_one", "conv.dot", conv(35, (4, 7), 3, batch=2, **ONE, **last, **FUSED), **tile),
        Case.of(
            "dot_groups",
            "conv.dot_prepacked",
            conv(54, (7, 10), 9, groups=3, stride=(2, 3), dilation=(2, 1), batch=2, **last, **FUSED),
            **tile,
        ),
        Case.of(
            "dot_dilated",
            "conv.dot",
            conv(19, (9, 10), 4, kernel=(3, 2), padding=(2, 3), dilation=(2, 3), stride=(1, 2), **last),
            **tile,
        ),
        Case.of("dot_wide_border", "conv.dot", conv(20, (3, 2), 7, kernel=(3, 5), padding=(2, 4), **last), **tile),
        Case.of("dot_part", "conv.dot", conv_part(18, (5, 7), 3), **tile),
        Case.of("dot_strided", "conv.dot_prepacked", strided_conv(2, 5, (6, 14), 3), **tile),
        Case.of("dot_f64", "conv.dot_prepacked", conv(19, (5, 7), 3, dtype=F64, **last, **FUSED), **tile),
        Case.of("dot_bf16", "conv.dot", conv(19, (5, 7), 3, dtype=BF16, **last, **FUSED), **tile),
        Case.of("dot_f16_to_f32", "conv.dot_prepacked", conv(40, (5, 7), 3, dtype=F16, out_dtype=F32, **last), **tile),
        Case.of("dot_f16_rows", "conv.dot", conv(40, (5, 7), 3, dtype=F16), **tile),
    )
