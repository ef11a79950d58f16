"""The thread's rounding and flushing: who changes them is refused, and the judge computes on as before."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tracea.core.op import GemmOp
from tracea.gates import QUICK, Bench, Poison, Run, build_cases, judge
from tracea.gates.control import read_control

Array = np.ndarray[Any, Any]
OP = GemmOp.of(m=21, n=53, k=100)
LIBRARY = ctypes.CDLL(None)
UPWARD = {"x86_64": 0x800, "aarch64": 0x400000}.get(platform.machine(), 0)

if not read_control().registers or not UPWARD:
    pytest.skip("this system's control of rounding is not known", allow_module_level=True)


def rounding_upward_from(number: int) -> Run:
    """A right product that leaves another rounding mode from its ``number``-th run on."""
    runs: list[None] = []

    def run(inputs: Sequence[Array], out: Array) -> None:
        np.matmul(inputs[0], inputs[1], out=out)
        runs.append(None)
        if len(runs) >= number:
            LIBRARY.fesetround(UPWARD)

    return run


def test_another_rounding_mode_is_seen_and_taken_back() -> None:
    before = read_control()
    assert LIBRARY.fesetround(UPWARD) == 0
    assert read_control().registers != before.registers
    before.restore()
    assert read_control().registers == before.registers


def test_flags_of_what_happened_are_no_control() -> None:
    before = read_control()
    with np.errstate(all="ignore"):
        np.ones(64, np.float32) / np.zeros(64, np.float32)
    assert read_control().registers == before.registers


def test_a_kernel_that_leaves_another_rounding_mode_is_refused_and_the_judge_keeps_its_own(seed: int) -> None:
    before = read_control().registers
    verdict = judge(rounding_upward_from(1), OP, seed=seed)
    assert [check.name for check in verdict.failures] == ["rounding and flushing as before"]
    assert read_control().registers == before


def test_one_that_does_so_later_is_not_right_every_time(seed: int) -> None:
    verdict = judge(rounding_upward_from(45), OP, seed=seed)
    failure, *later = verdict.failures
    assert failure.name == "right every time"
    assert "rounding or flushing" in failure.detail
    # Callers of their own threads may then see sums that the other rounding moved beyond the bound.
    assert {check.name for check in later} <= {"right for two callers at once"}


def test_what_a_run_computes_is_judged_with_the_rounding_of_before(rng: np.random.Generator) -> None:
    (case, *_) = build_cases(OP, rng, QUICK)
    seen = Bench(OP).observe(rounding_upward_from(1), case, poison=Poison.NAN, fresh=False)
    assert seen.control_changed
    assert seen.comparison.passed
