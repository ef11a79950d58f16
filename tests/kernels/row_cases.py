"""The row kernels that the tests compile: kinds, element types, strides, overlaps, several axes."""

from __future__ import annotations

from dataclasses import replace

from tests.kernels.conformance import Case

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import Epilogue, RowKind, RowOp
from tracea.core.tensor_type import StridedLayout, TensorType

F32, F64, F16, BF16 = DType.F32, DType.F64, DType.F16, DType.BF16


def row(kind: RowKind, shape: tuple[int, ...], dtype: DType = F32, **more: object) -> RowOp:
    x = TensorType(shape, dtype)
    return RowOp(kind=kind, x=(x,), eps=1e-5 if "norm" in kind.value else 0.0, **more)  # type: ignore[arg-type]


def norm(shape: tuple[int, ...], dtype: DType = F32) -> RowOp:
    """A layer norm of a sum, with weight, bias and residual."""
    x = TensorType(shape, dtype)
    w = TensorType(shape[-1:], F32)
    return RowOp(
        kind=RowKind.LAYER_NORM,
        x=(x, x),
        prologue=Input(0) + Input(1),
        epilogue=Epilogue(Input(0) * Input(1) + Input(2) + Input(3), (w, w, x)),
        eps=1e-5,
    )


def strided_softmax(rows: int, columns: int) -> RowOp:
    """A softmax over every second element of a wider tensor, into a transposed result."""
    return RowOp(
        kind=RowKind.SOFTMAX,
        x=(TensorType((rows, columns), F32, StridedLayout((2 * columns + 5, 2))),),
        prologue=Input(0) * 0.125,
        out=TensorType((rows, columns), F32, StridedLayout((1, rows + 2))),
    )


def row_cases() -> tuple[Case, ...]:
    """Row kernels: kinds, element types, strides, several axes."""
    return (
        Case.of("softmax", "rows.normalize", row(RowKind.SOFTMAX, (9, 100)), rows=4),
        Case.of("softmax_streaming", "rows.normalize", row(RowKind.SOFTMAX, (9, 100)), rows=4, streaming=1, prefetch=0),
        Case.of("softmax_apart", "rows.normalize", row(RowKind.SOFTMAX, (9, 100)), rows=4, overlap=0, prefetch=64),
        Case.of("softmax_strided", "rows.normalize", strided_softmax(9, 50), rows=4),
        Case.of("softmax_f64", "rows.normalize", row(RowKind.SOFTMAX, (9, 100), F64), rows=4),
        Case.of("log_softmax", "rows.normalize", row(RowKind.LOG_SOFTMAX, (9, 100)), rows=4),
        Case.of("softmax_turns", "rows.normalize", row(RowKind.SOFTMAX, (9, 1003)), rows=4, overlap=2, streaming=1),
        Case.of("log_softmax_turns", "rows.normalize", row(RowKind.LOG_SOFTMAX, (9, 1003), F16), rows=4, overlap=2),
        Case.of("rms_norm_bf16", "rows.normalize", row(RowKind.RMS_NORM, (9, 100), BF16), rows=4),
        Case.of("rms_norm_together", "rows.normalize", row(RowKind.RMS_NORM, (9, 100)), rows=4, overlap=1, prefetch=8),
        Case.of("layer_norm_fixed", "rows.normalize", norm((9, 100)), rows=2, fixed=1),
        Case.of("layer_norm_blocks_of_two", "rows.normalize", norm((9, 100)), rows=2, overlap=1, streaming=1),
        Case.of("layer_norm_pairs", "rows.normalize", norm((9, 100)), rows=5, overlap=2, prefetch=8, streaming=1),
        Case.of("layer_norm_pairs_f16", "rows.normalize", norm((9, 100), F16), rows=4, overlap=2),
        Case.of("rms_norm_pairs", "rows.normalize", row(RowKind.RMS_NORM, (9, 100), BF16), rows=9, overlap=2),
        Case.of("layer_norm", "rows.normalize", norm((9, 100)), rows=4),
        Case.of("layer_norm_f16", "rows.normalize", norm((9, 100), F16), rows=4),
        Case.of(
            "softmax_masked",
            "rows.normalize",
            RowOp(
                kind=RowKind.SOFTMAX,
                x=(TensorType((4, 3, 10, 30), F32), TensorType((4, 1, 1, 30), F32)),
                prologue=Input(0) + Input(1),
            ),
            rows=4,
        ),
        Case.of(
            "softmax_outer",
            "rows.normalize",
            replace(
                row(RowKind.SOFTMAX, (5, 6, 40)),
                x=(TensorType((5, 6, 40), F32, StridedLayout((300, 41, 1))),),
            ),
            split="outer",
        ),
    )
