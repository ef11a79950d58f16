"""The grouped kernels that the tests compile: several blocks of K, rows and columns, tails, layouts, types."""

from __future__ import annotations

from dataclasses import replace

from tests.kernels.conformance import Case

from tracea.core.dtype import DType
from tracea.core.op import GroupedGemmOp
from tracea.core.tensor_type import StridedLayout, TensorType

FUSED = {"bias": True, "activation": "gelu"}


def turned(op: GroupedGemmOp) -> GroupedGemmOp:
    """The weights as torch's linear layers hold them: (groups, n, k), seen as (groups, k, n)."""
    steps = StridedLayout((op.n * op.k, 1, op.k))
    return replace(op, weights=TensorType((op.groups, op.k, op.n), op.weights.dtype, steps))


def strided(op: GroupedGemmOp) -> GroupedGemmOp:
    """Every operand with all strides above 1, groups in turn with other memory between them."""
    m, n, k, groups = op.m, op.n, op.k, op.groups

    def of(shape: tuple[int, ...], *strides: int) -> TensorType:
        return TensorType(shape, DType.F32, StridedLayout(strides))

    return replace(
        op,
        x=of((m, k), 2 * k + 3, 2),
        weights=of((groups, k, n), (3 * k + 1) * n + 7, 3, 3 * k + 1),
        bias=None if op.bias is None else of((groups, n), 1, groups + 2),
        out=of((m, n), 2, 2 * m + 1),
    )


def grouped_cases() -> tuple[Case, ...]:
    """Kernels on vectors, for all instruction sets."""
    name = "gemm.grouped"
    sizes = {"m": 61, "n": 101, "k": 77, "groups": 5, "parts": 9}
    small = {"mr": 4, "nv": 1, "kc": 32, "mc": 8, "nc": 48, "sweep": 2}
    return (
        Case.of("grouped_default", name, GroupedGemmOp.of(m=64, n=64, k=64, groups=4)),
        Case.of("grouped", name, GroupedGemmOp.of(**sizes, **FUSED), **small),
        Case.of("grouped_ahead", name, GroupedGemmOp.of(**sizes, **FUSED), upcoming=3, **small),
        Case.of("grouped_wide", name, GroupedGemmOp.of(**sizes), **{**small, "mc": 64, "nc": 512, "sweep": 1}),
        Case.of("grouped_f64", name, GroupedGemmOp.of(**sizes, dtype=DType.F64, **FUSED), **small),
        Case.of("grouped_bf16", name, GroupedGemmOp.of(**sizes, dtype=DType.BF16, **FUSED), **small),
        Case.of("grouped_f16_to_f32", name, GroupedGemmOp.of(**sizes, dtype=DType.F16, out_dtype=DType.F32), **small),
        Case.of("grouped_turned", name, turned(GroupedGemmOp.of(**sizes)), **small),
        Case.of("grouped_strided", name, strided(GroupedGemmOp.of(**sizes, bias=True)), **small),
    )


def grouped_tile_cases() -> tuple[Case, ...]:
    """Kernels on matrix tiles."""
    name, sizes = "gemm.amx_grouped", {"m": 93, "n": 101, "k": 77, "groups": 5, "parts": 9}
    small = {"kc": 32, "mc": 32, "nc": 64, "sweep": 2}
    return (
        Case.of("amx_grouped_default", name, GroupedGemmOp.of(m=128, n=96, k=160, groups=4)),
        Case.of("amx_grouped", name, GroupedGemmOp.of(**sizes, **FUSED), **small),
        Case.of("amx_grouped_to_bf16", name, turned(GroupedGemmOp.of(**sizes, out_dtype=DType.BF16)), **small),
        Case.of("amx_grouped_bf16", name, GroupedGemmOp.of(**sizes, dtype=DType.BF16, **FUSED), **small),
        Case.of("amx_grouped_f16", name, GroupedGemmOp.of(**sizes, dtype=DType.F16, out_dtype=DType.F32), **small),
        Case.of("amx_grouped_strided", name, strided(GroupedGemmOp.of(**sizes, bias=True)), **small),
    )


def grouped_golden() -> tuple[Case, ...]:
    """One op a variant, with its default schedule."""
    op = GroupedGemmOp.of(m=512, n=4096, k=1024, groups=8, parts=11, bias=True, activation="gelu")
    return (
        Case.of("gemm.grouped", "gemm.grouped", op),
        Case.of("gemm.amx_grouped", "gemm.amx_grouped", GroupedGemmOp.of(m=512, n=4096, k=1024, groups=8, parts=11)),
    )
