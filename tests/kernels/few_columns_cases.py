"""Products with few columns: rows or columns of A read in place, and the transposed product."""

from __future__ import annotations

from dataclasses import replace

from tests.kernels.conformance import Case

from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.core.tensor_type import StridedLayout, TensorType

F32, F64, BF16 = DType.F32, DType.F64, DType.BF16
FUSED = {"bias": True, "activation": "gelu", "residual": True}


def matrix(rows: int, columns: int, dtype: DType, row_step: int, column_step: int) -> TensorType:
    return TensorType((rows, columns), dtype, StridedLayout((row_step, column_step)))


def narrow_cases() -> tuple[Case, ...]:
    """Products with few columns whose B is packed, A read in place: tails, K blocks, a result of another type."""
    fused = GemmOp.of(m=70, n=37, k=41, transpose_b=True, **FUSED)
    return tuple(
        Case.of(f"{name}{suffix}", f"gemm.{name}", op, **values)
        for name in ("narrow", "narrow_prepacked")
        for suffix, op, values in (
            ("", fused, {"nv": 1}),
            ("_blocks", fused, {"kc": 16, "mc": 12}),
            ("_columns", GemmOp.of(m=31, n=64, k=17), {}),
            ("_f64", GemmOp.of(m=29, n=5, k=9, dtype=F64, transpose_b=True), {}),
            ("_other_type", GemmOp.of(m=20, n=11, k=30, out_dtype=BF16), {"kc": 8}),
        )
    )


def turned_cases() -> tuple[Case, ...]:
    """Products with few columns, A by columns or by rows: epilogues, element types, a batch and one A for all of it."""
    fused = GemmOp.of(m=70, n=3, k=41, transpose_a=True, **FUSED)
    halves = GemmOp.of(m=70, n=2, k=41, dtype=BF16, transpose_a=True, **FUSED)
    batched = GemmOp.of(m=70, n=2, k=41, batch=(3,), transpose_a=True, **FUSED)
    shared_a = replace(batched, a=matrix(70, 41, F32, 1, 70))
    rows = GemmOp.of(m=70, n=3, k=41, transpose_b=True, **FUSED)
    half_rows = GemmOp.of(m=70, n=3, k=41, dtype=BF16, transpose_b=True, **FUSED)
    several = GemmOp.of(m=21, n=8, k=41, batch=(3,), transpose_b=True, **FUSED)
    parts = {"kc": 16, "nc": 32, "fold": 32}
    direct, stream, split = "gemm.direct_turned", "gemm.stream_turned", "gemm.stream_split_turned"
    return (
        Case.of("dot_turned", "gemm.dot_turned", rows),
        Case.of("dot_turned_bf16", "gemm.dot_turned", half_rows),
        Case.of("dot_turned_batch", "gemm.dot_turned", several),
        Case.of("dot_turned_f64", "gemm.dot_turned", GemmOp.of(m=70, n=17, k=9, dtype=F64, transpose_b=True)),
        Case.of("direct_turned", direct, GemmOp.of(m=70, n=9, k=41, transpose_a=True, **FUSED), nc=48),
        Case.of("direct_turned_both", direct, GemmOp.of(m=70, n=9, k=41, transpose_a=True, transpose_b=True), kc=16),
        Case.of("direct_turned_f64", direct, GemmOp.of(m=37, n=21, k=30, dtype=F64, transpose_a=True, **FUSED)),
        Case.of("direct_turned_batch", direct, GemmOp.of(m=70, n=7, k=11, batch=(3,), transpose_a=True, **FUSED)),
        Case.of("direct_turned_bf16", direct, GemmOp.of(m=50, n=6, k=12, transpose_a=True, out_dtype=BF16)),
        Case.of("stream_turned", stream, fused, nc=32),
        Case.of("stream_turned_bf16", stream, halves, nc=32),
        Case.of("stream_turned_column", stream, GemmOp.of(m=70, n=1, k=41, transpose_a=True, **FUSED), nc=32),
        Case.of("stream_turned_f64", stream, GemmOp.of(m=70, n=4, k=41, dtype=F64, transpose_a=True), nc=32),
        Case.of("stream_turned_batch", stream, batched, nc=32),
        Case.of("stream_turned_shared_a", stream, shared_a, nc=32),
        Case.of("stream_split_turned", split, fused, **parts),
        Case.of("stream_split_turned_bf16", split, halves, **parts),
        Case.of(
            "stream_split_turned_f64", split, GemmOp.of(m=70, n=1, k=41, dtype=F64, transpose_a=True), kc=10, fold=16
        ),
    )
