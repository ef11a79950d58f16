"""The convolution kernels that the tests compile: layouts, strides, dilations, groups, element types, blocks, tails."""

from __future__ import annotations

from dataclasses import replace

from tests.kernels.conformance import Case

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import Conv2dOp, Epilogue
from tracea.core.tensor_type import StridedLayout, TensorType

F32, F64, F16, BF16 = DType.F32, DType.F64, DType.F16, DType.BF16
FUSED = {"bias": True, "activation": "gelu", "residual": True}
SHORT = {"bias": True, "activation": "relu", "residual": True}  # few enough steps to be applied in registers
ONE = {"kernel": (1, 1), "padding": (0, 0)}
THREE = {"kernel": (3, 3), "padding": (1, 1)}


def conv_part(channels: int, size: tuple[int, int], filters: int) -> Conv2dOp:
    """A result that is a slice of the channels of a larger image, channels last: an image of 53 channels."""
    plain = Conv2dOp.of(
        channels=channels, size=size, filters=filters, kernel=(3, 3), padding=(1, 1), channels_last=True
    )
    _, _, p, q = plain.infer().static_shape
    return replace(plain, out=TensorType(plain.infer().shape, F32, StridedLayout((53 * p * q, 1, 53 * q, 53))))


def strided_conv(images: int, channels: int, size: tuple[int, int], filters: int, dtype: DType = F32) -> Conv2dOp:
    """x, w and the result with every stride above 1; the epilogue's operands are one number a pixel, and one."""

    def spread(shape: tuple[int, ...], order: tuple[int, ...]) -> TensorType:
        strides, step = [0] * 4, 2
        for axis in order:
            strides[axis] = step
            step = step * shape[axis] + 3
        return TensorType(shape, dtype, StridedLayout(tuple(strides)))

    x, w = spread((images, channels, *size), (1, 3, 0, 2)), spread((filters, channels, 3, 2), (2, 0, 1, 3))
    plain = Conv2dOp(x=x, w=w, stride=(1, 2), padding=(1, 0))
    pixels = TensorType((images, 1, *plain.infer().static_shape[2:]), dtype)
    epilogue = Epilogue(Input(0) * Input(1) + Input(2), (pixels, TensorType((), dtype)))
    return replace(plain, epilogue=epilogue, out=spread(plain.infer().static_shape, (0, 3, 1, 2)))


def rows_of_channels(channels: int, size: tuple[int, int], filters: int, **more: object) -> Conv2dOp:
    """An image each row of which has all its channels, their columns next to each other, and no padding."""
    plain = Conv2dOp.of(channels=channels, size=size, filters=filters, batch=2, **more)  # type: ignore[arg-type]
    rows, columns = size
    strides = (channels * rows * columns, columns, channels * columns, 1)
    return replace(plain, x=TensorType(plain.x.shape, F32, StridedLayout(strides)))


def rows_apart(channels: int, size: tuple[int, int], filters: int) -> Conv2dOp:
    """One tap, channels last, of an image with two more columns in each row: rows do not follow each other."""
    plain = conv(channels, size, filters, **ONE, channels_last=True, **FUSED)
    rows, columns = size
    strides = (channels * rows * (columns + 2), 1, channels * (columns + 2), channels)
    return replace(plain, x=TensorType(plain.x.shape, F32, StridedLayout(strides)))


def conv(channels: int, size: tuple[int, int], filters: int, **more: object) -> Conv2dOp:
    return Conv2dOp.of(channels=channels, size=size, filters=filters, **{**THREE, **more})  # type: ignore[arg-type]


def conv_cases() -> tuple[Case, ...]:
    """Kernels of every variant that runs on all instruction sets."""
    tile = {"mr": 3, "nv": 2, "unroll": 2}
    small = {**tile, "rows": 2, "kb": 32, "cb": 0, "gap": 0, "tail": 1, "prefetch": 0}
    blocks = {**small, "cb": 3, "gap": 16}
    channelwise = {"mr": 3, "nv": 2, "tail": 1, "rows": 2, "cb": 16}
    last = {"channels_last": True}
    return (
        Case.of("conv_default", "conv.packed", conv(20, (10, 14), 40)),
        Case.of("conv_last", "conv.packed", conv(7, (5, 7), 70, **last, **FUSED), **small),
        Case.of("conv_last_blocks", "conv.packed", conv(7, (5, 7), 70, **last, **FUSED), **blocks),
        Case.of("conv_planar", "conv.packed", conv(7, (5, 7), 70, batch=2, **FUSED), **small),
        Case.of("conv_planar_blocks", "conv.prepacked", conv(7, (5, 7), 70, batch=2, **FUSED), **blocks),
        Case.of("conv_columns", "conv.packed", conv(40, (5, 7), 70, batch=2, **FUSED), **{**blocks, "cb": 24}),
        Case.of("conv_columns_in_runs", "conv.packed", conv(40, (5, 7), 70, **last), **small),
        Case.of("conv_plain_result", "conv.prepacked", conv(7, (5, 7), 33, **last), **blocks),
        Case.of("conv_strided", "conv.packed", strided_conv(2, 5, (6, 9), 40), **blocks),
        Case.of("conv_strided_prepacked", "conv.prepacked", strided_conv(2, 5, (6, 9), 40), **small),
        Case.of(
            "conv_groups",
            "conv.packed",
            conv(10, (7, 8), 70, groups=5, stride=(2, 3), dilation=(2, 1), batch=2, **FUSED),
            **small,
        ),
        Case.of("conv_depthwise", "conv.prepacked", conv(9, (7, 8), 9, groups=9, **last, **FUSED), **small),
        Case.of(
            "conv_dilated",
            "conv.prepacked",
            conv(6, (9, 10), 20, kernel=(3, 2), padding=(2, 3), dilation=(2, 3), stride=(1, 2), **last),
            **blocks,
        ),
        Case.of(
            "conv_wide_border", "conv.packed", conv(40, (3, 2), 33, kernel=(3, 5), padding=(2, 4), **last), **blocks
        ),
        Case.of("conv_stem", "conv.prepacked", conv(3, (15, 17), 16, kernel=(7, 7), padding=(3, 3), stride=(2, 2))),
        Case.of("conv_one_by_one", "conv.packed", conv(17, (5, 6), 18, **ONE, **FUSED), **small),
        Case.of("conv_in_place", "conv.prepacked", conv(7, (5, 7), 70, batch=2, **ONE, **last, **FUSED), **small),
        Case.of("conv_in_place_rows", "conv.prepacked", rows_apart(7, (5, 7), 70), **small),
        Case.of("conv_folded", "conv.prepacked", conv(40, (7, 7), 70, batch=2, **ONE, **last, **FUSED)),
        Case.of("conv_folded_planar", "conv.packed", conv(40, (6, 5), 70, batch=2, **ONE, **FUSED)),
        Case.of("conv_in_place_blocks", "conv.packed", conv(7, (9, 8), 40, stride=(2, 3), **ONE, **last), **blocks),
        Case.of("conv_ahead", "conv.prepacked", conv(7, (5, 17), 70, batch=2, **last, **SHORT), **small, ahead=2),
        Case.of("conv_ahead_in_place", "conv.packed", conv(9, (4, 7), 40, **ONE, **last, **FUSED), **blocks, ahead=1),
        Case.of("conv_upcoming", "conv.prepacked", conv(10, (7, 8), 70, groups=2, **last), **small, upcoming=3),
        Case.of("conv_upcoming_blocks", "conv.packed", conv(9, (4, 7), 40, **ONE, **last), **blocks, upcoming=1),
        Case.of("conv_split", "conv.split", conv(10, (5, 7), 20, batch=2, groups=2, **last, **FUSED), **blocks),
        Case.of("conv_split_prepacked", "conv.split_prepacked", conv(20, (1, 9), 5, **last, **SHORT), **blocks),
        Case.of("conv_split_in_place", "conv.split", conv(37, (3, 2), 16, **ONE, **last, dtype=BF16), **blocks),
        Case.of("conv_rows_of_channels", "conv.packed", rows_of_channels(7, (9, 12), 40, kernel=(3, 2)), **small),
        Case.of(
            "conv_rows_of_channels_strided",
            "conv.prepacked",
            rows_of_channels(9, (9, 12), 33, kernel=(3, 2), stride=(1, 2), dilation=(2, 1), **FUSED),
            **blocks,
        ),
        Case.of("depthwise_last", "conv.depthwise", conv(37, (7, 8), 37, groups=37, **last, **FUSED), **channelwise),
        Case.of(
            "depthwise_planar",
            "conv.depthwise_prepacked",
            conv(37, (9, 8), 37, groups=37, batch=2, stride=(2, 3), dilation=(2, 1), **FUSED),
            **channelwise,
        ),
        Case.of(
            "depthwise_inner",
            "conv.depthwise_prepacked",
            conv(37, (9, 8), 37, groups=37, batch=2, stride=(2, 1), **last, **FUSED),
            **{**channelwise, "inner": 1},
        ),
        Case.of("depthwise_default", "conv.depthwise_prepacked", conv(40, (12, 14), 40, groups=40, **last)),
        Case.of("depthwise_bf16", "conv.depthwise", conv(20, (5, 9), 20, groups=20, dtype=BF16, **last), **channelwise),
        Case.of(
            "depthwise_f64",
            "conv.depthwise_prepacked",
            conv(9, (5, 9), 9, groups=9, dtype=F64, bias=True),
            **channelwise,
        ),
        Case.of("conv_f64", "conv.packed", conv(7, (5, 7), 33, dtype=F64, **FUSED), **blocks),
        Case.of("conv_bf16", "conv.prepacked", conv(7, (5, 7), 40, dtype=BF16, **FUSED), **blocks),
        Case.of("conv_f16", "conv.packed", conv(7, (5, 7), 40, dtype=F16, **last, **FUSED), **small),
        Case.of("conv_f16_to_f32", "conv.packed", conv(7, (5, 7), 40, dtype=F16, out_dtype=F32, **last), **small),
    )


def amx_conv_cases() -> tuple[Case, ...]:
    """Kernels on matrix tiles: bands, tails in a granule, a tile and a row, phases of strided windows."""
    band, last = {"rows": 3, "kb": 32}, {"channels_last": True}
    return (
        Case.of("amx_conv_default", "conv.amx", conv(32, (9, 10), 32)),
        Case.of("amx_conv_last", "conv.amx", conv(37, (8, 9), 70, batch=2, **last, **FUSED), **band),
        Case.of("amx_conv_planar", "conv.amx_prepacked", conv(37, (8, 9), 70, batch=2, **FUSED), **band),
        Case.of("amx_conv_plain_result", "conv.amx_prepacked", conv(70, (5, 40), 40, **last), **band),
        Case.of("amx_conv_to_bf16", "conv.amx", conv(33, (7, 7), 40, out_dtype=BF16, bias=True), **band),
        Case.of(
            "amx_conv_groups",
            "conv.amx_prepacked",
            conv(66, (9, 10), 100, groups=2, stride=(2, 3), dilation=(2, 1), **FUSED),
            **band,
        ),
        Case.of(
            "amx_conv_dilated",
            "conv.amx",
            conv(6, (9, 10), 20, kernel=(3, 2), padding=(2, 3), dilation=(2, 3), stride=(1, 2), **last, **FUSED),
            **band,
        ),
        Case.of("amx_conv_one_by_one", "conv.amx_prepacked", conv(64, (7, 9), 64, **ONE, **last, **FUSED), **band),
        Case.of("amx_conv_panel_in_parts", "conv.amx", conv(137, (5, 9), 40, **last, **FUSED), rows=5, kb=64),
        Case.of("amx_conv_part", "conv.amx", conv_part(40, (7, 9), 24), **band),
        Case.of("amx_conv_every_second", "conv.amx", conv(40, (7, 9), 40, stride=(2, 2), **ONE), **band),
        *(
            Case.of(
                f"amx_conv_{dtype.value}_{name}",
                variant,
                conv(37, (8, 9), 70, batch=2, dtype=dtype, **how, **FUSED),
                **band,
            )
            for dtype in (BF16, F16)
            for name, variant, how in (
                ("last", "conv.amx", last),
                ("planar", "conv.amx_prepacked", {}),
                ("phases", "conv.amx", {"stride": (2, 2), "out_dtype": F32, **last}),
            )
        ),
        *stem_cases(),
    )


def stem_cases() -> tuple[Case, ...]:
    """Kernels on matrix tiles whose granules are filled by taps: one row of them, several, rows unread."""
    seven = {"kernel": (7, 7), "padding": (3, 3), "stride": (2, 2)}
    band, last = {"rows": 3, "kb": 32}, {"channels_last": True}
    return (
        Case.of("amx_stem_default", "conv.amx_stem", conv(3, (23, 26), 40, **seven)),
        Case.of("amx_stem_last", "conv.amx_stem", conv(3, (15, 17), 70, **seven, **last, **FUSED, batch=2), **band),
        Case.of("amx_stem_planar", "conv.amx_stem_prepacked", conv(3, (15, 17), 70, **seven, **FUSED), **band),
        Case.of("amx_stem_whole_window", "conv.amx_stem_prepacked", conv(3, (11, 40), 33, **last), **band),
        Case.of(
            "amx_stem_row_pairs",
            "conv.amx_stem",
            conv(2, (14, 9), 20, kernel=(4, 5), padding=(2, 0), stride=(3, 2), out_dtype=BF16, bias=True),
            **band,
        ),
        Case.of(
            "amx_stem_groups",
            "conv.amx_stem_prepacked",
            conv(6, (9, 10), 80, groups=2, stride=(4, 3), kernel=(3, 2), **FUSED),
            **band,
        ),
        *(
            Case.of(f"amx_stem_{dtype.value}_{name}", variant, conv(3, (15, 17), 70, dtype=dtype, **how), **band)
            for dtype in (BF16, F16)
            for name, variant, how in (
                ("last", "conv.amx_stem", {**seven, **last, **FUSED, "batch": 2}),
                ("planar", "conv.amx_stem_prepacked", {**seven, **FUSED}),
                ("whole_window", "conv.amx_stem_prepacked", {"out_dtype": F32, **last}),
            )
        ),
    )
