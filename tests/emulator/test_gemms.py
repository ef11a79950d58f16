"""Whole kernels: the originals are clean and right under every schedule, and each mechanical mistake is reported."""

from __future__ import annotations

import pytest
from tests.emulator.kernels import edited, ring_gemm, roles_gemm, run_ring, run_roles

from tracea.testing.conformance.source import line_of

EPS = 2.0**-24


def test_ring_gemm_is_clean_and_right_under_sixteen_schedules() -> None:
    report, error = run_ring(ring_gemm(), 256, 128, 192, schedules=range(16))
    assert report.clean, str(report)
    assert error < 64 * EPS
    assert report.deterministic


def test_roles_gemm_is_clean_and_right_under_sixteen_schedules() -> None:
    report, error = run_roles(roles_gemm(), 128, 64, 200, schedules=range(16))  # K ends inside of a tile
    assert report.clean, str(report)
    assert error < 64 * EPS
    assert report.deterministic


def test_swizzled_ring_has_no_bank_conflict_and_whole_sectors() -> None:
    source = ring_gemm()
    report, _ = run_ring(source, schedules=(0,))
    assert report.bank_ways() == 1
    assert report.conflicts() == 0
    copies = [cost for cost in report.accesses if cost.space == "global" and cost.place.primitive == "cp_async"]
    assert copies
    assert all(cost.actual == cost.ideal for cost in copies)


@pytest.mark.parametrize(("mask", "ways"), [(7, 1), (6, 2), (4, 4), (0, 8)])
def test_weaker_swizzle_shows_its_number_of_ways(mask: int, ways: int) -> None:
    source = edited(ring_gemm(), "r * 128 + ((c ^ (r & 7)) * 16)", f"r * 128 + ((c ^ (r & {mask})) * 16)")
    report, error = run_ring(source, schedules=(0,))
    assert report.clean
    assert error < 64 * EPS
    line = line_of(source, "ldmatrix_x4(a[i]")
    assert report.bank_ways(line=line) == ways
    assert report.bank_ways(line=line_of(source, "ldmatrix_x4_trans")) == 1


def test_tiles_that_wgmma_reads_are_priced_core_matrix_by_core_matrix() -> None:
    report, _ = run_roles(roles_gemm(), 128, 64, 200, schedules=(0,))
    (read,) = [cost for cost in report.accesses if cost.space == "shared" and cost.place.primitive == "wgmma"]
    assert read.worst == 1
    assert read.actual == read.ideal
    assert read.bytes == 128 * read.actual


RING_MISTAKES = [
    ("cp_async_wait<STAGES - 2>();", "cp_async_wait<STAGES - 1>();", "lax wait"),
    ("        cp_async_wait<STAGES - 2>();\n", "", "lax wait"),
    ("        sync_block();\n", "", "race"),
    ("const int next = step + STAGES - 1;", "const int next = step + STAGES;", "uninitialised read"),
    ("base + next % STAGES * STAGE_BYTES", "base + (next + 1) % STAGES * STAGE_BYTES", "race: write after read"),
    ("const int steps = args.K / 64;", "const int steps = args.K / 64 + 1;", "global out of bounds"),
    (
        "constexpr uint32_t STAGE_BYTES = A_BYTES + 64 * 128 * 2;",
        "constexpr uint32_t STAGE_BYTES = A_BYTES;",
        "lax wait",
    ),
    ("const int wm = (warp & 1) * 64;", "const int wm = (warp & 1) * 128;", "out of bounds"),
    (
        "const int c = bn + wn + j * 8 + (lane & 3) * 2;",
        "const int c = bn + wn + j * 8 + (lane & 3) * 2 + 128;",
        "global out of bounds",
    ),
    ("s + swizzle_a(q >> 3, q & 7)", "s + 4 + swizzle_a(q >> 3, q & 7)", "misaligned"),
]


@pytest.mark.parametrize(("before", "after", "kind"), RING_MISTAKES)
def test_mistake_in_the_ring_is_reported(before: str, after: str, kind: str) -> None:
    report, _ = run_ring(edited(ring_gemm(), before, after), schedules=(0,))
    assert any(kind in found for found in report.kinds), str(report)


ROLES_MISTAKES = [
    ("                mbarrier_wait(empty + 8 * s, phase ^ 1);\n", "", "lax wait"),
    ("mbarrier_wait(empty + 8 * s, phase ^ 1);", "mbarrier_wait(empty + 8 * s, phase);", "deadlock"),
    ("full + 8 * s, STAGE_BYTES);", "full + 8 * s, STAGE_BYTES / 2);", "lax wait: read of a copy's destination"),
    ("full + 8 * s, STAGE_BYTES);", "full + 8 * s, STAGE_BYTES + 16);", "deadlock"),
    ("            mbarrier_wait(full + 8 * s, k / STAGES & 1);\n", "", "lax wait"),
    ("            mbarrier_arrive(empty + 8 * s);\n", "", "deadlock"),
    ("mbarrier_init(empty + 8 * s, 128);", "mbarrier_init(empty + 8 * s, 64);", "mbarrier overrun"),
    ("        mbarrier_fence_init();\n", "", "missing mbarrier_fence_init"),
    ("    sync_block();\n", "", "race: mbarrier used before its initialisation is visible"),
    ("            wgmma_fence();\n", "", "missing wgmma_fence"),
    ("            wgmma_wait<0>();\n", "", "lax wait: write to what an asynchronous operation still reads"),
    ("wgmma_wait<0>();", "wgmma_wait<1>();", "lax wait: write to what an asynchronous operation still reads"),
    ("            wgmma_accumulators(d);\n", "", "missing wgmma_accumulators"),
    ("            wgmma_commit();\n", "", "thread ends with a matrix operation under way"),
    ("constexpr uint32_t STAGES = 2;", "constexpr uint32_t STAGES = 3;", "out of bounds"),
]


@pytest.mark.parametrize(("before", "after", "kind"), ROLES_MISTAKES)
def test_mistake_in_the_roles_is_reported(before: str, after: str, kind: str) -> None:
    report, _ = run_roles(edited(roles_gemm(), before, after), schedules=(0, 1))
    assert any(kind in found for found in report.kinds), str(report)


def test_wrong_descriptor_within_the_stage_shows_in_the_numbers_only() -> None:
    source = edited(roles_gemm(), "tile + 32 * kk, 16, 1024, 128", "tile + 32 * kk, 16, 2048, 128")
    report, error = run_roles(source, schedules=(0,))
    assert report.clean
    assert error > 0.01


def test_early_arrival_is_seen_though_the_numbers_are_right() -> None:
    source = roles_gemm()
    wait = "            wgmma_wait<0>();\n            wgmma_accumulators(d);\n"
    arrive = "            mbarrier_arrive(empty + 8 * s);\n"
    report, error = run_roles(edited(source, wait + arrive, arrive + wait), schedules=(0,))
    assert error < 64 * EPS
    assert report.kinds == {"race: write after read"}


def test_every_ordering_call_of_the_gemms_is_necessary() -> None:
    ring, _ = run_ring(ring_gemm(), find_superfluous=True)
    assert not ring.superfluous
    assert {place.primitive for place in ring.necessary} == {"cp_async_wait", "sync_block"}
    roles, _ = run_roles(roles_gemm(), find_superfluous=True)
    assert not roles.superfluous
    assert {place.primitive for place in roles.necessary} == {
        "mbarrier_fence_init",
        "mbarrier_wait",
        "sync_block",
        "wgmma_fence",
        "wgmma_wait",
    }


def test_superfluous_barrier_and_wait_are_named() -> None:
    source = edited(ring_gemm(), "        sync_block();\n", "        sync_block();\n        sync_warp();\n")
    epilogue = "            const int r = bm + wm"
    source = edited(source, epilogue, "            cp_async_wait<0>();\n" + epilogue)
    report, _ = run_ring(source, find_superfluous=True, schedules=(0, 2))
    assert report.clean, str(report)
    assert {place.text for place in report.superfluous} == {"sync_warp();", "cp_async_wait<0>();"}


def test_accumulator_that_is_written_in_flight() -> None:
    commit = "            wgmma_commit();\n"
    report, _ = run_roles(edited(roles_gemm(), commit, commit + "            d[3] += 1.0F;\n"), schedules=(0,))
    assert "accumulator touched before wgmma_wait" in report.kinds
