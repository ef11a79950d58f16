"""The block-sparse kernels that the tests compile: blocks above and below a tile, chunks, tails, layouts, types."""

from __future__ import annotations

from dataclasses import replace

from tests.kernels.conformance import Case

from tracea.core.dtype import DType
from tracea.core.op import BlockSparseOp
from tracea.core.tensor_type import StridedLayout, TensorType


def strided(m: int, n: int, k: int, block: int, chunk: int) -> BlockSparseOp:
    """Every operand with both strides above 1."""

    def matrix(rows: int, columns: int, row_step: int, column_step: int) -> TensorType:
        return TensorType((rows, columns), DType.F32, StridedLayout((row_step, column_step)))

    return replace(
        BlockSparseOp.of(m=m, n=n, k=k, block=block, chunk=chunk),
        a=matrix(m, k, 2 * k + 3, 2),
        b=matrix(k, n, 3, 3 * k + 1),
        out=matrix(m, n, 2, 2 * m + 1),
    )


def sparse_cases() -> tuple[Case, ...]:
    """Kernels on vectors, for all instruction sets."""
    tile = {"mr": 4, "nv": 1, "mc": 8, "tail": 1}
    name, sizes = "gemm.block_sparse", {"m": 33, "n": 150, "k": 141}
    return (
        Case.of("sparse_default", name, BlockSparseOp.of(m=64, n=64, k=64, block=32)),
        Case.of("sparse_chunks", name, BlockSparseOp.of(**sizes, block=32, chunk=2), **tile),
        Case.of(
            "sparse_streaming",
            name,
            BlockSparseOp.of(m=33, n=160, k=141, block=32, chunk=5),
            **tile,
            ahead=1,
            streaming=1,
        ),
        Case.of(
            "sparse_streaming_unaligned",
            name,
            BlockSparseOp.of(**sizes, block=32, chunk=2),
            **tile,
            ahead=1,
            streaming=1,
        ),
        Case.of("sparse_small_blocks", name, BlockSparseOp.of(**sizes, block=7, chunk=5), **tile),
        Case.of("sparse_f64", name, BlockSparseOp.of(**sizes, block=64, dtype=DType.F64), **tile),
        Case.of("sparse_bf16", name, BlockSparseOp.of(**sizes, block=32, chunk=3, dtype=DType.BF16), **tile),
        Case.of("sparse_f16", name, BlockSparseOp.of(**sizes, block=16, chunk=3, dtype=DType.F16), **tile),
        Case.of("sparse_strided", name, strided(33, 150, 141, 32, 2), **tile),
    )


def sparse_tile_cases() -> tuple[Case, ...]:
    """Kernels on matrix tiles."""
    name, sizes = "gemm.amx_block_sparse", {"m": 70, "n": 150, "k": 141}
    return (
        Case.of("amx_sparse_default", name, BlockSparseOp.of(m=128, n=96, k=160, block=32)),
        Case.of("amx_sparse", name, BlockSparseOp.of(**sizes, block=32, chunk=2), mc=32),
        Case.of("amx_sparse_wide", name, BlockSparseOp.of(**sizes, block=64, chunk=1, out_dtype=DType.BF16), mc=64),
        Case.of("amx_sparse_strided", name, strided(70, 150, 141, 64, 2), mc=32),
        Case.of("amx_sparse_bf16", name, BlockSparseOp.of(**sizes, block=32, chunk=2, dtype=DType.BF16), mc=32),
        Case.of(
            "amx_sparse_bf16_to_f32",
            name,
            BlockSparseOp.of(**sizes, block=64, chunk=3, dtype=DType.BF16, out_dtype=DType.F32),
            mc=64,
        ),
        Case.of("amx_sparse_f16", name, BlockSparseOp.of(**sizes, block=64, chunk=1, dtype=DType.F16), mc=64),
    )


def sparse_golden() -> tuple[Case, ...]:
    """One op a variant, with its default schedule."""
    op = BlockSparseOp.of(m=2048, n=2048, k=2048, block=64, chunk=8)
    return (
        Case.of("gemm.block_sparse", "gemm.block_sparse", op),
        Case.of("gemm.amx_block_sparse", "gemm.amx_block_sparse", op),
    )
