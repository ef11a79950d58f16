"""Numbers of a schedule that no GPU kernel can be made of are refused by name, before anything is proved."""

from __future__ import annotations

import pytest

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.errors import InvalidSchedule
from tracea.flow.kernel import build, choose_for_gpu
from tracea.targets.gpu import load_gpu


def refused(target: str, op: GemmOp, variant: str | None = None, **changes: int) -> InvalidSchedule:
    gpu = load_gpu(target)
    with pytest.raises(InvalidSchedule) as caught:
        build(op, *choose_for_gpu(op, gpu, variant=variant, schedule=changes), gpu)
    return caught.value


def square(dtype: DType, *, transpose_b: bool = False) -> GemmOp:
    return GemmOp.of(m=64, n=64, k=64, dtype=dtype, transpose_b=transpose_b)


@pytest.mark.parametrize(
    ("target", "variant", "dtype", "name", "chunk"),
    [
        ("sm_86", None, DType.F64, "chunk_b", 4),
        ("sm_80", "gemm.simt", DType.F32, "chunk_a", 2),
        ("sm_80", "gemm.mma_cp_async", DType.F16, "chunk_b", 1),
        ("sm_80", "gemm.mma_sync", DType.F16, "chunk_a", 3),
        ("sm_80", "gemm.mma_sync", DType.F16, "chunk_a", 0),
    ],
)
def test_a_piece_that_is_no_whole_element_is_refused_by_the_size_of_one(
    target: str, variant: str | None, dtype: DType, name: str, chunk: int
) -> None:
    error = refused(target, square(dtype), variant, **{name: chunk})
    assert name in str(error)
    assert f"an element of {dtype.value} is {dtype.nbytes} bytes" in str(error)


@pytest.mark.parametrize("variant", ["gemm.wgmma", "gemm.mma_tma"])
@pytest.mark.parametrize("name", ["chunk_a", "chunk_b"])
def test_the_copy_engine_takes_pieces_of_16_bytes_only(variant: str, name: str) -> None:
    error = refused("sm_90a", square(DType.F16, transpose_b=True), variant, **{name: 2})
    assert f"use {name}=16" in str(error)


@pytest.mark.parametrize("variant", ["gemm.wgmma", "gemm.mma_tma"])
def test_the_depth_of_a_stage_is_looked_at_before_how_many_stages_fit(variant: str) -> None:
    error = refused("sm_90a", square(DType.F16, transpose_b=True), variant, bk=256, stages=8)
    assert "bk" in str(error)
    assert "one of [16, 32, 64]" in str(error)


@pytest.mark.parametrize("transpose_a", [False, True])
def test_warps_that_cannot_share_the_rows_of_a_tile_are_refused(transpose_a: bool) -> None:
    op = GemmOp.of(m=384, n=128, k=64, dtype=DType.F16, transpose_a=transpose_a)
    error = refused("sm_80", op, "gemm.mma_sync", bm=192, warps_m=3, warps_n=2, bk=32, swizzle=0)
    assert "warps_m * warps_n" in str(error)
    assert "a divisor of 32" in str(error)
