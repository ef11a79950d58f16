"""What comes from another machine is proved, judged and timed here before it counts, whatever it claims."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.flow import planted

import tracea
from tracea.core.op import GemmOp
from tracea.doctor import host
from tracea.flow import tuning
from tracea.flow.compile import decision_for
from tracea.flow.history import schedule_of, store, study_key
from tracea.flow.tuning import search_space
from tracea.kernels.registry import find
from tracea.optimizer import Budget
from tracea.optimizer.exchange import export_trials, import_trials
from tracea.optimizer.storage import TrialRecord, TrialStore
from tracea.optimizer.trial import Outcome, OutcomeKind
from tracea.targets.target import for_threads

OP = GemmOp.of(m=24, n=40, k=28)
TARGET = for_threads(host(), 1)
CLAIMED_MS = 1e-6


@pytest.fixture
def claimed(empty_cache: Path, tmp_path: Path) -> dict[str, int | str]:
    """Import a schedule that is said to take a nanosecond on another machine; it is not the default."""
    variant = find("gemm.direct")
    assert variant.default_schedule is not None
    space = search_space(OP, variant, TARGET)
    schedule = space.decode(space.row(len(space) - 1))
    assert schedule != dict(variant.default_schedule(OP, TARGET))
    key = replace(study_key(OP, variant.id, 1), hardware={"fingerprint": "another machine", "threads": 1})
    record = TrialRecord(
        key=key,
        schedule=schedule,
        outcome=Outcome(kind=OutcomeKind.OK, latency_ms=CLAIMED_MS),
        seconds=0.1,
        sampler="random",
        seed=0,
        recorded_at=time.time(),
    )
    with TrialStore(tmp_path / "elsewhere.sqlite") as elsewhere:
        elsewhere.add(record)
        export_trials(elsewhere.find(), tmp_path / "trials.jsonl")
    empty_cache.mkdir(mode=0o700)
    assert import_trials(store(), tmp_path / "trials.jsonl").added == 1
    return schedule


@pytest.mark.costly
def test_an_imported_schedule_decides_nothing_until_it_was_judged_and_timed_here(claimed: dict[str, int | str]) -> None:
    assert decision_for(OP, TARGET, threads=1, library=False).measurement is None
    tuned = tracea.tune(OP, budget=Budget(trials=2), variant="gemm.direct", library=False)
    default, retried = tuned.trials["gemm.direct"]  # before any search
    assert dict(default.schedule) != dict(retried.schedule) == claimed
    assert not retried.is_resumed
    assert retried.latency_ms is not None
    assert retried.latency_ms > 10 * CLAIMED_MS
    assert tuned.decision.measurement is not None
    assert tuned.decision.measurement.latency_us > 1e4 * CLAIMED_MS


def test_an_imported_schedule_that_is_wrong_here_cannot_win(
    claimed: dict[str, int | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "EVALUATE", "tests.flow.planted:evaluate_one_wrong")
    monkeypatch.setenv(planted.CRASHING, schedule_of(claimed).key)
    tuned = tracea.tune(OP, budget=Budget(trials=2), variant="gemm.direct", library=False)
    default, retried = tuned.trials["gemm.direct"]
    assert dict(retried.schedule) == claimed
    assert retried.outcome is not None
    assert retried.outcome.kind is OutcomeKind.WRONG
    assert dict(tuned.decision.schedule or {}) == dict(default.schedule)


@pytest.mark.costly
def test_an_explanation_says_that_there_are_imported_schedules_until_one_is_measured_here(
    claimed: dict[str, int | str],
) -> None:
    found = tracea.explain(OP, library=False, measure=False)
    assert (found.imported, found.to_dict()["imported"]) == (1, 1)
    assert "Imported         1 schedule of this op, none measured here yet: tracea tune tries" in str(found)
    assert tracea.explain(GemmOp.of(m=25, n=40, k=28), library=False, measure=False).imported == 0
    tracea.tune(OP, budget=Budget(trials=1), variant="gemm.direct", library=False)
    assert "Imported" not in str(tracea.explain(OP, library=False, measure=False))
