"""The roof: from measured ceilings here, with the cache that holds the operands, and from what vendors state."""

from __future__ import annotations

import msgspec
import pytest

from tracea import targets
from tracea.core.dtype import DType
from tracea.core.op import GemmOp, MatrixMath, RowKind, RowOp
from tracea.core.tensor_type import TensorType
from tracea.doctor import Bandwidth, Candidate, Ceilings, Peak
from tracea.doctor.ceilings import CacheBandwidth
from tracea.doctor.roof import NoRoof, Roof, measured_roof, stated_roof

AMX = targets.load("amx")
CEILINGS = Ceilings(
    fingerprint="f",
    peaks=tuple(Peak(isa="avx512", dtype="f32", threads=n, gflops=240.0 * n) for n in (1, 2)),
    bandwidths=tuple(Bandwidth(pattern="copy", threads=n, gbytes=20.0 * n, working_set_bytes=2**28) for n in (1, 2)),
    date="2026-01-01T00:00:00+00:00",
    seconds=5.0,
    load=0.0,
    caches=(
        CacheBandwidth(level=1, gbytes=280.0, working_set_bytes=24 * 1024),
        CacheBandwidth(level=2, gbytes=170.0, working_set_bytes=2**20),
        CacheBandwidth(level=3, gbytes=15.0, working_set_bytes=2**24),
    ),
)


def softmax(rows: int) -> RowOp:
    return RowOp(kind=RowKind.SOFTMAX, x=(TensorType((rows, 256), DType.F32),))


@pytest.mark.parametrize(
    ("rows", "threads", "gbytes", "holder"),
    [
        (16, 1, 280.0, "L1 cache"),  # 32 KiB in and out
        (512, 1, 170.0, "L2 cache"),
        (512, 2, 340.0, "L2 cache"),
        (4096, 1, 20.0, ""),  # a third cache that is slower than memory is no better place
        (65536, 2, 40.0, ""),
    ],
)
def test_operands_come_from_the_smallest_cache_that_holds_them(
    rows: int, threads: int, gbytes: float, holder: str
) -> None:
    found = measured_roof(softmax(rows), AMX, CEILINGS, "rows.normalize", threads=threads)
    assert isinstance(found, Roof)
    assert (found.ceilings.bandwidth_gbytes, found.holder) == (gbytes, holder)
    assert found.least_us == max(found.arithmetic_us, found.moving_us)
    assert (holder or "copying memory") in found.bandwidth_from


def test_matrix_tiles_are_not_held_to_the_peak_of_vectors() -> None:
    op = GemmOp.of(m=512, n=512, k=512)
    on_tiles, on_vectors = (measured_roof(op, AMX, CEILINGS, name, threads=1) for name in ("gemm.amx", "gemm.packed"))
    assert isinstance(on_tiles, Roof)
    assert isinstance(on_vectors, Roof)
    assert "matrix tiles multiply faster" in on_tiles.note
    assert on_vectors.note == ""


def test_matrix_tiles_are_held_to_a_sixth_of_their_own_peak() -> None:
    op = GemmOp.of(m=2048, n=2048, k=2048)
    tiles = tuple(Peak(isa="amx", dtype="bf16", threads=n, gflops=3_600.0 * n) for n in (1, 2))
    measured = msgspec.structs.replace(CEILINGS, tiles=tiles)
    for threads in (1, 2):
        on_tiles = measured_roof(op, AMX, measured, "gemm.amx", threads=threads)
        on_vectors = measured_roof(op, AMX, measured, "gemm.packed", threads=threads)
        assert isinstance(on_tiles, Roof)
        assert isinstance(on_vectors, Roof)
        assert (on_tiles.ceilings.peak_gflops, on_tiles.note) == (600.0 * threads, "")
        assert f"{3_600 * threads} GFLOP/s of bf16 on matrix tiles, 6 products for one of f32" in on_tiles.peak_from
        assert on_vectors.ceilings.peak_gflops == 240.0 * threads
        below = 0.9 * on_tiles.least_us
        assert on_tiles.beaten_by([Candidate(variant="gemm.amx", score=1.0, latency_us=below)]) is not None
        assert on_vectors.beaten_by([Candidate(variant="gemm.amx", score=1.0, latency_us=below)]) is None
        assert on_tiles.beaten_by([Candidate(variant="library.gemm", score=1.0, latency_us=below)]) is None


def test_what_was_not_measured_is_no_roof() -> None:
    op = softmax(64)
    for ceilings, threads, because in ((None, 1, "not measured"), (CEILINGS, 3, "1 and 2 threads, not 3")):
        found = measured_roof(op, AMX, ceilings, "rows.normalize", threads=threads)
        assert isinstance(found, NoRoof)
        assert because in found.because
        assert found.remedy


@pytest.mark.parametrize(
    ("dtype", "math", "variant", "gflops"),
    [
        (DType.F16, MatrixMath.IEEE, "gemm.mma_cp_async", 312_000.0),
        (DType.BF16, MatrixMath.IEEE, "gemm.mma_cp_async", 312_000.0),
        (DType.F32, MatrixMath.TF32, "gemm.mma_cp_async", 156_000.0),
        (DType.F32, MatrixMath.IEEE, "gemm.simt", 19_500.0),
        (DType.F64, MatrixMath.IEEE, "gemm.simt", 9_700.0),
    ],
)
def test_a_gpus_peak_is_that_of_the_units_that_the_variant_uses(
    dtype: DType, math: MatrixMath, variant: str, gflops: float
) -> None:
    op = GemmOp.of(m=512, n=512, k=512, dtype=dtype, math=math)
    found = stated_roof(op, targets.load_gpu("sm_80"), variant)
    assert isinstance(found, Roof)
    assert found.ceilings.peak_gflops == gflops
    assert found.ceilings.bandwidth_gbytes == 2039.0


@pytest.mark.parametrize(
    ("target", "variant", "gflops", "said"),
    [
        ("h100", "gemm.wgmma", 989_000.0, "f16 on its matrix units"),
        ("h100", "gemm.mma_tma", 989_000.0, "matrix units by wgmma; mma.sync, which this kernel multiplies by, may"),
        ("h100", "gemm.simt", 67_000.0, "f32 on its vector units"),
        ("h100", "library.cublas", 989_000.0, "f16 on its matrix units"),
        ("b200", "gemm.mma_tma", 2_250_000.0, "by tcgen05; mma.sync, which this kernel multiplies by, may reach less"),
        ("b200", "gemm.mma_cp_async", 2_250_000.0, "by tcgen05; mma.sync"),
        ("sm_80", "gemm.mma_cp_async", 312_000.0, "f16 on its matrix units"),
    ],
)
def test_a_chips_peak_names_the_instruction_that_reaches_it_where_a_kernel_has_another(
    target: str, variant: str, gflops: float, said: str
) -> None:
    op = GemmOp.of(m=512, n=512, k=512, dtype=DType.F16, transpose_b=True)
    found = stated_roof(op, targets.load_gpu(target), variant)
    assert isinstance(found, Roof)
    assert found.ceilings.peak_gflops == gflops
    assert said in found.peak_from
    assert ("mma.sync" in found.peak_from) == ("mma.sync" in said)


def test_a_product_whose_memory_nobody_states_has_no_roof() -> None:
    found = stated_roof(softmax(64), targets.load("graviton3"), "rows.normalize")
    assert isinstance(found, NoRoof)
    assert "memory bandwidth of AWS Graviton 3" in found.because


def test_ceilings_that_were_measured_under_load_say_so_in_the_roof() -> None:
    calm = measured_roof(softmax(512), AMX, CEILINGS, "rows.normalize", threads=1)
    loaded = msgspec.structs.replace(CEILINGS, busy_cores=1.2)
    found = measured_roof(softmax(512), AMX, loaded, "rows.normalize", threads=1)
    assert isinstance(calm, Roof)
    assert isinstance(found, Roof)
    assert (calm.doubt, calm.threads) == ("", 1)
    assert found.doubt == "they were measured while other programs used 1.2 of 2 cores"
