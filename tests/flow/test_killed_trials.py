"""What is killed from outside is no fault of a schedule: its variant is searched, and a later search tries it again."""

from __future__ import annotations

import pytest
from tests.flow import planted

import tracea
from tracea.core.op import GemmOp
from tracea.doctor import host
from tracea.flow import completed, final, tuning
from tracea.flow.evaluate import Candidate
from tracea.flow.history import schedule_of, store, verified
from tracea.kernels.registry import find
from tracea.optimizer import Budget, Outcome, OutcomeKind
from tracea.targets.target import for_threads

TARGET = for_threads(host(), 1)
KILLED = Outcome(kind=OutcomeKind.KILLED, detail="ended by SIGKILL from outside")
WELL = Outcome(kind=OutcomeKind.OK, latency_ms=0.005)  # near its trials': another is refused


def default_of(op: GemmOp, variant: str) -> str:
    made = find(variant).default_schedule
    assert made is not None
    return schedule_of(made(op, TARGET).values_).key


@pytest.mark.slow
def test_a_variant_whose_first_schedule_was_killed_is_searched_by_its_others(monkeypatch: pytest.MonkeyPatch) -> None:
    op = GemmOp.of(m=23, n=34, k=26)
    killed = default_of(op, "gemm.direct")
    monkeypatch.setattr(tuning, "EVALUATE", "tests.flow.planted:evaluate_with_one_killed")
    monkeypatch.setenv(planted.CRASHING, killed)
    monkeypatch.setattr(final, "_ranked", lambda function, request: [WELL for _ in request.candidates])
    tuned = completed.tuned_once(
        op, budget=Budget(trials=7), threads=1, constants=(), library=True, listener=lambda *_: None
    )
    direct = {schedule_of(trial.schedule).key: trial.outcome for trial in tuned.trials["gemm.direct"]}
    assert direct[killed] is not None
    assert direct[killed].kind is OutcomeKind.KILLED
    assert sum(outcome is not None and outcome.is_ok for outcome in direct.values()) >= 1
    assert killed not in [schedule_of(trial.record.schedule).key for trial in store().find(op_key=op.key)]
    # Nor does the search count as complete: the same one, undisturbed, tries what was killed.
    monkeypatch.setattr(tuning, "EVALUATE", "tracea.flow.evaluate:evaluate")
    again = completed.tuned_once(
        op, budget=Budget(trials=7), threads=1, constants=(), library=True, listener=lambda *_: None
    )
    found = {schedule_of(trial.schedule).key: trial.outcome for trial in again.trials["gemm.direct"]}
    assert found[killed] is not None
    assert found[killed].is_ok


def test_a_final_that_is_killed_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    op = GemmOp.of(m=20, n=28, k=24)
    monkeypatch.setattr(final, "_ranked", lambda function, request: [WELL for _ in request.candidates])
    tracea.tune(op, budget=Budget(trials=1), variant="gemm.direct", listener=lambda *_: None)
    before = store().find(op_key=op.key)
    monkeypatch.setattr(final, "_ranked", lambda function, request: [KILLED for _ in request.candidates])
    final.run_final(op, TARGET, constants=(), threads=1, seed=1)
    assert store().find(op_key=op.key) == before

    def one_killed(function: object, request: final.Request) -> list[Outcome]:
        return [
            KILLED if candidate == Candidate(variant="gemm.direct", schedule=default_of(op, "gemm.direct")) else WELL
            for candidate in request.candidates
        ]

    monkeypatch.setattr(final, "_ranked", one_killed)
    final.run_final(op, TARGET, constants=(), threads=1, seed=1)
    assert [trial for trial in verified(op, 1) if trial.record.key.variant == "gemm.direct"]
