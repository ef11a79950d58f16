"""Wrong kernels of every op are refused by the check meant for them, whatever is drawn; the right ones pass."""

from __future__ import annotations

import numpy as np
import pytest
from tests.gates.planted_ops import PLANTED, RIGHT, as_run

from tracea.core.op import Op
from tracea.gates import Distribution, judge
from tracea.gates.inputs import RULES


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_kernel_is_refused_by_the_check_meant_for_it(name: str, rng: np.random.Generator) -> None:
    planted = PLANTED[name]
    for _ in range(3):
        verdict = judge(as_run(planted.make()), planted.op, subject=name, seed=int(rng.integers(2**32)))
        assert planted.check in [failure.name for failure in verdict.failures], str(verdict)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_of_the_same_op_passes(name: str, rng: np.random.Generator) -> None:
    op, kernel = RIGHT[name]
    for _ in range(3):
        verdict = judge(as_run(kernel), op, subject=name, seed=int(rng.integers(2**32)))
        assert verdict.passed, str(verdict)


def test_every_planted_kernel_has_its_right_one_and_every_op_that_is_shaped_has_one() -> None:
    right = {op for op, _ in RIGHT.values()}
    assert {planted.op for planted in PLANTED.values()} <= right
    shaped: set[type[Op]] = {kind for rules in RULES.values() for kind in rules}
    moved = {"view", "join"}  # no kernel of their own: they are copies, or strides
    assert {kind.name for kind in shaped} - moved <= {op.name for op in right}


def test_each_distribution_of_some_ops_finds_what_no_other_does() -> None:
    found = {planted.check for planted in PLANTED.values()}
    assert {
        f"correct on {kind.value}" for kind in (Distribution.OFFSET, Distribution.EXTREME, Distribution.SPECIAL)
    } <= found
