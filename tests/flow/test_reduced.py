"""The problems that stand for a large one in the emulator: rings wrap, blocks take several tiles, tails stay tails.

Each fault is one that a smaller problem does not show: where it is planted, verify must not pass.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod

import pytest
from tests.drawn import drawn

from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.core.tensor_type import static
from tracea.flow import verify as verifying
from tracea.flow.kernel import Built, build, choose_for_gpu
from tracea.flow.reduced import LARGEST, reduction
from tracea.flow.verify import verify_op
from tracea.semantic.schedule import Schedule
from tracea.targets.gpu import load_gpu

LARGE = GemmOp.of(m=4096, n=4096, k=4096, dtype=DType.F16, transpose_b=True)
TAILS = GemmOp.of(m=200, n=100, k=300, dtype=DType.F16)
TURNS = {"bm": 64, "bn": 64, "groups": 2, "stages": 3, "persistent": 1, "pingpong": 1}
TOGETHER = {"bm": 128, "bn": 64, "groups": 2, "stages": 3, "persistent": 1}
SMALL = {"bm": 32, "bn": 64, "bk": 32, "stages": 3, "warps_m": 2, "warps_n": 2, "split_k": 1, "stream_k": 0}


def schedule_of(op: GemmOp, target: str, values: dict[str, int], variant: str | None = None) -> tuple[str, Schedule]:
    return choose_for_gpu(op, load_gpu(target), variant=variant, schedule=dict(values))


@lru_cache
def built(op: GemmOp, target: str, values: tuple[tuple[str, int], ...]) -> Built:
    variant, schedule = schedule_of(op, target, dict(values))
    return build(op, variant, schedule, load_gpu(target))


# What is replaced in the text, everywhere; of a single string the lines go.
FAULTS = {
    "the main loop copies nothing": (LARGE, "sm_80", {}, (("if (following < ", "if (false && following < "),)),
    "the producer waits for no empty slot": (LARGE, "sm_90a", {}, ("mbarrier_wait(empty",)),
    "full never turns": (LARGE, "sm_90a", {}, (("k_step / 4 % 2", "0"),)),
    "no slot is released": (LARGE, "sm_90a", {}, ("release_slot(empty",)),
    "the producer waits for no empty slot, with warps": (LARGE, "sm_120a", {}, ("mbarrier_wait(empty",)),
    "no slot is released, with warps": (LARGE, "sm_120a", {}, ("release_slot(empty",)),
    "a block takes one tile": (LARGE, "sm_90a", TOGETHER, (("turns.next();)", "turns.next() && turns.turn < 1;)"),)),
    "phases begin anew with a tile": (
        LARGE,
        "sm_90a",
        TOGETHER,
        (("mbarrier_wait(full + (first + k_step) % 3 * 8, (first + k_step) / 3 % 2)",
          "mbarrier_wait(full + (first + k_step) % 3 * 8, k_step / 3 % 2)"),),
    ),
    "groups in turns stage in one place": (LARGE, "sm_90a", TURNS, (("staging + group * 8192", "staging"),)),
    "the baton passes before the products": (
        LARGE,
        "sm_90a",
        TURNS,
        ("release_slot(baton", ("clear(sums);\n", "clear(sums);\n      release_slot(baton + (turn + 1) % 2 * 8);\n")),
    ),
    "the last rows are stored where 16 are left": (
        TAILS, "sm_80", SMALL, (("if (row + warp_row * 16 < m", "if (row + 16 < m"),)
    ),
}  # fmt: skip


def planted(text: str, edits: tuple[str | tuple[str, str], ...]) -> str:
    for edit in edits:
        old, new = edit if isinstance(edit, tuple) else (edit, None)
        assert old in text
        if new is None:  # lines with this go
            text = "".join(line for line in text.splitlines(keepends=True) if old not in line)
        else:
            text = text.replace(old, new)
    return text


@pytest.mark.costly
@pytest.mark.parametrize("fault", drawn(6, FAULTS, of="faults of many steps"))
def test_a_fault_that_only_many_steps_or_tiles_show_is_rejected(fault: str) -> None:
    op, target, values, edits = FAULTS[fault]
    good = built(op, target, tuple(values.items()))
    text = planted(good.source.text, edits)
    assert text != good.source.text
    checks = verifying._emulated(op, replace(good, source=replace(good.source, text=text)), (0, 2), 5).checks
    assert not all(check.passed for check in checks)
    assert not checks[0].passed


@pytest.mark.parametrize(("target", "values"), [("sm_90a", TURNS), ("sm_90a", TOGETHER)])
def test_kernels_that_walk_tiles_pass(target: str, values: dict[str, int]) -> None:
    checks = verifying._emulated(LARGE, built(LARGE, target, tuple(values.items())), (0, 2), 5).checks
    assert [str(check) for check in checks if not check.passed] == []


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_86", "sm_90a", "sm_100a", "sm_120a"])
def test_the_ring_of_a_default_schedule_wraps(target: str) -> None:
    _, schedule = schedule_of(LARGE, target, {})
    found = reduction(LARGE, schedule)
    assert found.unseen == ()
    assert max(problem.steps for problem in found.problems) >= schedule.integer("stages") + 2
    assert all(problem.work <= LARGEST for problem in found.problems)
    wide = found.problems[0].op
    assert static(wide.m) > schedule.integer("bm")
    assert static(wide.n) > schedule.integer("bn")


def test_blocks_take_several_tiles_and_groups_in_turns_a_second() -> None:
    _, schedule = schedule_of(LARGE, "sm_90a", TURNS)
    wide, long = reduction(LARGE, schedule).problems
    tiles = prod(-(-static(extent) // 64) for extent in (wide.op.m, wide.op.n))
    assert tiles >= 3 * (wide.multiprocessors or tiles)
    assert (long.multiprocessors, static(long.op.n)) == (1, 128)
    assert long.steps == 7  # each of three stages twice, then one


def test_the_last_tile_has_the_problems_shape() -> None:
    _, schedule = schedule_of(TAILS, "sm_80", SMALL)
    small = reduction(TAILS, schedule).problems[0].op
    assert [static(small.m) % 32, static(small.n) % 64, static(small.k) % 32] == [200 % 32, 100 % 64, 300 % 32]
    whole = reduction(LARGE, schedule_of(LARGE, "sm_80", {})[1]).problems[0].op
    assert (static(whole.m) % 128, static(whole.n) % 256) == (0, 0)


def test_workers_of_stream_k_take_whole_tiles_and_their_rings_wrap() -> None:
    _, schedule = schedule_of(LARGE, "sm_80", {**SMALL, "stream_k": 7})
    wide, long = reduction(LARGE, schedule).problems
    assert static(wide.op.m) // 32 * (static(wide.op.n) // 64) > 2 * 7
    assert long.steps >= 5
    _, split = schedule_of(LARGE, "sm_80", {**SMALL, "split_k": 4})
    assert max(problem.steps for problem in reduction(LARGE, split).problems) == 7


@pytest.mark.costly
def test_a_ring_that_cannot_wrap_within_the_limit_is_not_checked() -> None:
    values = {**SMALL, "bm": 64, "stream_k": 108}
    found = verify_op(LARGE, target="sm_80", variant="gemm.mma_cp_async", schedule=dict(values), seed=3)
    (missing,) = [text for text in found.not_checked if text.startswith("ring reuse:")]
    assert "3 stages are used again from step 4 of k on, of which the problem has 128" in missing
    assert any(text.startswith("second tiles:") for text in found.not_checked)


@pytest.mark.parametrize(
    ("old", "new", "buffer"),
    [
        ("ATile = SharedTile<f16, 32, Swizzle<2, 4, 3>>", "ATile = SharedTile<f16, 32, Swizzle<2, 4, 4>>", "a_tiles"),
        (
            "Staging = SharedTile<float, 32, Swizzle<2, 5, 2, Swizzle<1, 4, 3>>>",
            "Staging = SharedTile<float, 32>",
            "staging",
        ),
    ],
)
def test_more_ways_than_are_certified_are_rejected(old: str, new: str, buffer: str) -> None:
    good = built(TAILS, "sm_80", tuple(SMALL.items()))
    assert old in good.source.text
    text = good.source.text.replace(old, new)
    checks = verifying._emulated(TAILS, replace(good, source=replace(good.source, text=text)), (0,), 5).checks
    (failed,) = [check for check in checks if not check.passed]  # it is right, only slower
    assert failed.name == "bank conflicts"
    assert failed.limit == 1
    assert isinstance(failed.figure, int)
    assert failed.figure >= 2
    assert buffer in failed.detail
