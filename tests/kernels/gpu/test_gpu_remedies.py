"""A refused schedule is refused by name and number, and its remedy is a schedule that is built."""

from __future__ import annotations

import numpy as np
import pytest
from tests.drawn import drawn

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.errors import InvalidSchedule, ResourceExceeded
from tracea.kernels.gemm.gpu.remedies import changes_of
from tracea.kernels.registry import find
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.gpu import load_gpu

KERNELS = (
    ("gemm.simt", "sm_75", DType.F32),
    ("gemm.mma_sync", "sm_75", DType.F16),
    ("gemm.mma_sync", "sm_75", DType.I8),
    ("gemm.mma_cp_async", "sm_80", DType.F16),
    ("gemm.mma_cp_async", "sm_86", DType.I8),
    ("gemm.mma_cp_async", "sm_89", DType.E4M3),
    ("gemm.mma_tma", "sm_120a", DType.F16),
    ("gemm.wgmma", "sm_90a", DType.F16),
    ("gemm.wgmma", "sm_90a", DType.I8),
)
SMALL = (-(2**31), -4, -1, *range(6), 7, 8, 12, 16, 24, 31, 32, 33, 40, 48, 64, 65, 96, 100)
NUMBERS = (*SMALL, 128, 160, 192, 256, 320, 512, 1000, 1024, 4096, 2**31, 2**40)


def product(dtype: DType, m: int = 4096, n: int = 4096, k: int = 4096, batch: tuple[int, ...] = ()) -> GemmOp:
    result = DType.I32 if dtype is DType.I8 else DType.F32
    return GemmOp.of(m=m, n=n, k=k, batch=batch, dtype=dtype, transpose_b=True, out_dtype=result)


def made(variant: str, target: str, op: GemmOp, schedule: Schedule) -> TileKernel:
    build = find(variant).build
    assert build is not None
    return build(op, schedule, load_gpu(target))


def default(variant: str, target: str, op: GemmOp, **changes: int | str) -> Schedule:
    of = find(variant).default_schedule
    assert of is not None
    return of(op, load_gpu(target)).with_values(**changes)


def refusal(variant: str, target: str, op: GemmOp, schedule: Schedule) -> InvalidSchedule | ResourceExceeded | None:
    """Return why a schedule is refused; None where it is built."""
    try:
        made(variant, target, op, schedule)
    except (InvalidSchedule, ResourceExceeded) as error:
        return error
    return None


def follows(variant: str, target: str, op: GemmOp, schedule: Schedule) -> InvalidSchedule | ResourceExceeded | None:
    """Return the refusal of a schedule, whose remedy is followed once and must lead to a kernel."""
    error = refusal(variant, target, op, schedule)
    if error is not None:
        advised = changes_of(error, schedule)
        assert advised, error
        made(variant, target, op, schedule.with_values(**advised))
    return error


@pytest.mark.parametrize(
    ("variant", "target", "dtype"), drawn(4, (pytest.param(*each) for each in KERNELS), of="remedies")
)
def test_following_a_remedy_leads_to_a_kernel(
    variant: str, target: str, dtype: DType, rng: np.random.Generator
) -> None:
    op = product(dtype)
    schedule = default(variant, target, op)
    names = [name for name, value in schedule.items() if isinstance(value, int)]
    refused = 0
    for _ in range(12):
        wrong = rng.choice(names, size=int(rng.choice([1, 1, 1, 2, 2, 3])), replace=False)
        changes = {str(name): int(rng.choice(NUMBERS)) for name in wrong}
        refused += follows(variant, target, op, schedule.with_values(**changes)) is not None
    assert refused


# Each of these was answered by a crash, a remedy that is refused, or one that is given again and again.
@pytest.mark.parametrize(
    ("variant", "target", "dtype", "changes", "field"),
    [
        ("gemm.simt", "sm_75", DType.F32, {"lane_rows": 0}, "lane_rows"),
        ("gemm.simt", "sm_75", DType.F32, {"lane_columns": 0}, "lane_columns"),
        ("gemm.simt", "sm_75", DType.F32, {"lane_columns": -4}, "lane_columns"),
        ("gemm.simt", "sm_75", DType.F32, {"lane_rows": 3}, "lane_rows"),
        ("gemm.simt", "sm_75", DType.F32, {"bk": 64}, ""),
        ("gemm.mma_sync", "sm_75", DType.F16, {"bk": 100}, "bk"),
        ("gemm.mma_cp_async", "sm_80", DType.F16, {"warps_m": 33}, ""),
        ("gemm.mma_cp_async", "sm_80", DType.F16, {"warps_n": 256}, ""),
        ("gemm.mma_cp_async", "sm_80", DType.F16, {"chunk_a": 32}, "chunk_a"),
        ("gemm.mma_cp_async", "sm_80", DType.F16, {"stream_k": 2**31}, "stream_k"),
        ("gemm.mma_cp_async", "sm_80", DType.F16, {"stream_k": 2**31 - 1}, "stream_k"),
        ("gemm.mma_cp_async", "sm_80", DType.F16, {"stream_k": -1}, "stream_k"),
        ("gemm.mma_tma", "sm_120a", DType.F16, {"stages": 1}, "stages"),
        ("gemm.mma_tma", "sm_120a", DType.F16, {"stages": 0}, "stages"),
        ("gemm.wgmma", "sm_90a", DType.F16, {"groups": 0}, "groups"),
        ("gemm.wgmma", "sm_90a", DType.F16, {"groups": -1}, "groups"),
        ("gemm.wgmma", "sm_90a", DType.F16, {"groups": 12}, "groups"),
        ("gemm.wgmma", "sm_90a", DType.F16, {"bm": 320}, ""),
        ("gemm.wgmma", "sm_90a", DType.F16, {"stages": 1}, "stages"),
    ],
)
def test_what_no_kernel_can_be_is_refused_by_name_and_mended(
    variant: str, target: str, dtype: DType, changes: dict[str, int], field: str
) -> None:
    op = product(dtype)
    error = follows(variant, target, op, default(variant, target, op, **changes))
    assert error is not None
    assert field in str(error).split(": got")[0]
    assert "Remedy: use " in str(error)


@pytest.mark.parametrize(
    ("variant", "target", "changes", "remedy"),
    [
        ("gemm.wgmma", "sm_90a", {"bn": 120}, "use bn=128"),
        ("gemm.wgmma", "sm_90a", {"stages": 1}, "use stages=2"),
        ("gemm.mma_cp_async", "sm_80", {"bm": 192}, "use bm=160"),
        ("gemm.mma_cp_async", "sm_80", {"bm": 208}, "use bm=160"),
        ("gemm.mma_cp_async", "sm_80", {"bm": 512}, "use bm=160"),
        ("gemm.mma_cp_async", "sm_80", {"bn": 192}, "use bn=128"),  # swizzle=0 has it too, with conflicts
        ("gemm.mma_cp_async", "sm_80", {"bk": 64}, "use bk=32"),
        ("gemm.mma_cp_async", "sm_80", {"warps_n": 2}, "use warps_n=4"),
        ("gemm.mma_tma", "sm_120a", {"bn": 256}, "use bn=192"),
        ("gemm.mma_tma", "sm_120a", {"bm": 448}, "use bm=192"),
        ("gemm.mma_tma", "sm_120a", {"warps_m": 3}, "use warps_m=2"),
        ("gemm.simt", "sm_75", {"bk": 28}, "use bk=32"),
        ("gemm.simt", "sm_75", {"lane_rows": 16}, "use lane_rows=8"),
    ],
)
def test_the_nearest_value_of_what_was_asked_for_is_advised_before_other_changes(
    variant: str, target: str, changes: dict[str, int], remedy: str
) -> None:
    dtype, along_k = DType.F32 if variant == "gemm.simt" else DType.F16, variant in ("gemm.wgmma", "gemm.mma_tma")
    op = GemmOp.of(m=4096, n=4096, k=4096, dtype=dtype, transpose_b=along_k)
    error = follows(variant, target, op, default(variant, target, op, **changes))
    assert error is not None
    assert error.remedy == remedy


def test_workers_that_were_asked_for_are_kept_where_the_default_splits() -> None:
    op = product(DType.F16, 64, 64, 4096)
    schedule = default("gemm.mma_cp_async", "sm_80", op)
    assert schedule.integer("split_k") > 1
    error = follows("gemm.mma_cp_async", "sm_80", op, schedule.with_values(stream_k=40))
    assert error is not None
    assert error.remedy == "use split_k=1"


def test_an_order_that_there_is_not_is_mended_by_one_that_there_is() -> None:
    op = product(DType.F16)
    error = follows("gemm.mma_tma", "sm_120a", op, default("gemm.mma_tma", "sm_120a", op, order="zigzag"))
    assert error is not None
    assert error.remedy in ("use order=row", "use order=wavefront")


def test_an_uneven_piece_is_refused_by_the_name_that_the_schedule_has() -> None:
    op = GemmOp.of(m=33, n=47, k=21, dtype=DType.F16)
    schedule = default("gemm.mma_cp_async", "sm_80", op, chunk_a=16)
    error = follows("gemm.mma_cp_async", "sm_80", op, schedule)
    assert isinstance(error, InvalidSchedule)
    assert error.field == "chunk_a"


def test_more_uses_of_a_ring_than_are_counted_are_refused_when_the_kernel_is_built() -> None:
    op = product(DType.F16, 2**20, 2**20, 2**20)
    error = follows("gemm.wgmma", "sm_90a", op, default("gemm.wgmma", "sm_90a", op, persistent=1))
    assert error is not None
    assert "549755813888 > 2147479552" in str(error)
    assert error.remedy == "use persistent=0"


def test_more_workers_than_steps_are_refused_when_the_kernel_is_built() -> None:
    op = product(DType.F16, 64, 64, 64)
    schedule = default("gemm.mma_cp_async", "sm_80", op, split_k=1, stream_k=50)
    error = follows("gemm.mma_cp_async", "sm_80", op, schedule)
    assert error is not None
    assert error.remedy == "use stream_k=8"


@pytest.mark.parametrize("variant", ["gemm.simt", "gemm.mma_cp_async", "gemm.mma_tma", "gemm.wgmma"])
def test_matrices_that_lie_too_far_apart_are_rejected_with_their_distance(variant: str) -> None:
    op = product(DType.F16, 2**16, 2**16, 64, batch=(4,))
    found = [unmet for _, unmet in find(variant).unmet(op, load_gpu("sm_90a"))]
    assert [unmet.found for unmet in found] == [f"a stride of {2**32} elements"]
    assert "part of the batch" in found[0].remedy
    assert not find(variant).unmet(product(DType.F16, 2**15, 2**15, 64, batch=(4,)), load_gpu("sm_90a"))
