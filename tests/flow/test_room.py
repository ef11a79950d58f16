"""A problem that no trial could hold is refused before the first, and a model with one goes on without its search."""

from __future__ import annotations

import pytest

import tracea
from tracea.cli import main as cli
from tracea.core.op import GemmOp
from tracea.errors import ResourceExceeded
from tracea.flow.completed import tuned_once
from tracea.flow.history import store
from tracea.flow.room import require_room
from tracea.optimizer import Budget

HUGE = GemmOp.of(m=1_000_000, n=1_000_000, k=1_000_000)


def test_a_search_of_what_cannot_be_held_is_bad_usage_and_leaves_no_trial(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(["tune", "gemm", *["-m", "1000000", "-n", "1000000", "-k", "1000000"], "--trials", "2"])
        == cli.BAD_USAGE
    )
    assert f"tuning {HUGE.key}: " in capsys.readouterr().err
    with pytest.raises(ResourceExceeded):
        tracea.tune(HUGE, budget=Budget(trials=2), listener=lambda *_: None)
    assert store().find(op_key=HUGE.key) == []


def test_the_process_of_a_search_may_hold_less_than_the_machine() -> None:
    op = GemmOp.of(m=1024, n=1024, k=1024)  # 4 MiB each, 8 of the float64 reference
    require_room(op, "tuning", process_bytes=20 * 2**20)
    with pytest.raises(ResourceExceeded) as caught:
        require_room(op, "tuning", process_bytes=20 * 2**20 - 1)
    assert (caught.value.needed_bytes, caught.value.limit_bytes) == (20 * 2**20, 20 * 2**20 - 1)


def test_a_model_goes_on_without_the_search_of_such_an_op() -> None:
    found = tuned_once(HUGE, budget=Budget(trials=2), threads=1, constants=(), library=False, listener=lambda *_: None)
    assert (found.trials, found.fresh, found.decision.op) == ({}, 0, HUGE.key)
