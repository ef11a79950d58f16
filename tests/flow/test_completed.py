"""A complete search is not walked through again; anything that it depended on makes it another search."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import PointwiseOp
from tracea.core.tensor_type import TensorType
from tracea.flow import completed
from tracea.flow.completed import tuned_once
from tracea.flow.phases import telling
from tracea.flow.progress import silent
from tracea.flow.tuning import Tuned
from tracea.optimizer.budget import Budget


def op(rows: int = 16) -> PointwiseOp:
    return PointwiseOp(expr=Input(0) * 2.0, inputs=(TensorType((rows, 48), DType.F32),), out_dtype=DType.F32)


@pytest.mark.costly
def test_a_complete_search_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEA_CACHE_DIR", str(tmp_path))
    searched: list[int] = []
    monkeypatch.setattr(
        completed, "tune", lambda each, tune=completed.tune, **how: searched.append(1) or tune(each, **how)
    )

    def ask(budget: Budget = Budget(trials=1)) -> Tuned:  # noqa: B008 - frozen
        return tuned_once(
            op(), budget=budget, threads=1, constants=(), library=False, listener=silent, label="kernel 1/1"
        )

    said: list[str] = []
    with telling(said.append):
        first = ask()
        assert first.fresh >= 1
        again = ask()
    assert (said[0], said[-1]) == ("tune kernel 1/1", "searched before: kernel 1/1")
    assert searched == [1]
    assert (again.fresh, again.decision) == (0, first.decision)
    assert ask(Budget(trials=1, seconds=100.0)).fresh == 0  # may have ended early: always walked through
    assert ask(Budget(trials=2)).fresh == 1
    assert len(searched) == 3
    monkeypatch.setattr(completed, "code_digest", lambda packages: "another release")
    ask()
    assert len(searched) == 4
    monkeypatch.setattr(completed, "has_final", lambda *given: False)  # the trials went, or the final was interrupted
    ask()
    assert len(searched) == 5
