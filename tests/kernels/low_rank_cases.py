"""The low-rank kernels that the tests compile: operands in place and packed, tails of rows, rank and steps, layouts."""

from __future__ import annotations

from dataclasses import replace

from tests.kernels.conformance import Case

from tracea.core.dtype import DType
from tracea.core.op import LowRankOp
from tracea.core.tensor_type import StridedLayout, TensorType

PACKED = {"pack_x": 1, "pack_a": 1, "pack_b": 1}


def strided(m: int, n: int, k: int, r: int, dtype: DType = DType.F32, *, step: int = 2) -> LowRankOp:
    """Every operand with both strides above 1, but for x whose elements are ``step`` apart."""

    def matrix(rows: int, columns: int, row_step: int, column_step: int) -> TensorType:
        return TensorType((rows, columns), dtype, StridedLayout((row_step, column_step)))

    return replace(
        LowRankOp.of(m=m, n=n, k=k, r=r, dtype=dtype),
        x=matrix(m, k, 2 * k + 3, step),
        a=matrix(k, r, 3, 3 * k + 1),
        b=matrix(r, n, 2, 2 * r + 1),
        out=matrix(m, n, 2, 2 * m + 1),
    )


def low_rank_cases() -> tuple[Case, ...]:
    """Kernels of every structure, for all instruction sets."""
    tile = {"mr": 4, "nv": 2, "nv_rank": 1, "mc": 8, "tail": 1, "steps": 1, "pack_a": 0}
    blocks = {**tile, "kc": 16, "rc": 8}
    fused = {"bias": True, "activation": "gelu"}
    sizes = {"m": 33, "n": 70, "k": 40, "r": 21}
    name = "gemm.low_rank"
    return (
        Case.of("low_rank_default", name, LowRankOp.of(m=64, n=64, k=64, r=16)),
        Case.of("low_rank", name, LowRankOp.of(**sizes, **fused), **blocks),
        Case.of("low_rank_packed", name, LowRankOp.of(**sizes, **fused), **{**blocks, **PACKED}),
        Case.of(
            "low_rank_steps",  # tasks of 100 rows, 48 at a time
            name,
            LowRankOp.of(**{**sizes, "m": 121, "k": 43}, **fused),
            **{**blocks, "steps": 4, "pack_a": 1, "nv_rank": 2, "mc": 100},
        ),
        Case.of("low_rank_f64", name, LowRankOp.of(**sizes, dtype=DType.F64, **fused), **blocks),
        Case.of("low_rank_bf16", name, LowRankOp.of(**sizes, dtype=DType.BF16, **fused), **blocks),
        Case.of("low_rank_f16_to_f32", name, LowRankOp.of(**sizes, dtype=DType.F16, out_dtype=DType.F32), **blocks),
        Case.of("low_rank_strided", name, strided(**sizes), **blocks),
    )


def low_rank_tile_cases() -> tuple[Case, ...]:
    """Kernels on matrix tiles."""
    name, sizes = "gemm.amx_low_rank", {"m": 93, "n": 101, "k": 141, "r": 41}
    fused = {"bias": True, "activation": "gelu"}
    return (
        Case.of("amx_low_rank_default", name, LowRankOp.of(m=64, n=96, k=128, r=16)),
        Case.of("amx_low_rank", name, LowRankOp.of(**sizes, **fused), mc=32),
        Case.of("amx_low_rank_to_bf16", name, LowRankOp.of(**sizes, out_dtype=DType.BF16), mc=64),
        Case.of("amx_low_rank_strided", name, strided(**sizes, step=1), mc=64),
    )


def low_rank_golden() -> tuple[Case, ...]:
    """One op a variant with its default schedule, and one that packs what it can."""
    op = LowRankOp.of(m=512, n=1024, k=1024, r=32, bias=True, activation="gelu")
    narrow = replace(op, a=replace(op.a, layout=StridedLayout((1, 1024))))
    return (
        Case.of("gemm.low_rank", "gemm.low_rank", op),
        Case.of("gemm.low_rank.steps", "gemm.low_rank", LowRankOp.of(m=512, n=1024, k=1024, r=16)),
        Case.of("gemm.low_rank.packed", "gemm.low_rank", narrow, pack_x=1, pack_b=1),
        Case.of("gemm.amx_low_rank", "gemm.amx_low_rank", op),
    )
