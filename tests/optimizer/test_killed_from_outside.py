"""A child that another program or the machine ends, or that does not start, is no fault of the schedule in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tracea.errors import RunError
from tracea.optimizer import (
    Budget,
    IsolatedEvaluation,
    Limits,
    Outcome,
    OutcomeKind,
    SearchSpace,
    Study,
    StudyKey,
    TrialRecord,
    TrialStore,
    sampler,
)
from tracea.optimizer.isolation import IsolatedFunction

LIMITS = Limits(seconds=30.0, startup_seconds=60.0)
SPACE = SearchSpace.constrained({"tile": (8, 16, 32)})
KEY = StudyKey(op_key="gemm 64x64x64 f32", variant="packed")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what a signal does to a child is asserted for Linux")


@pytest.fixture(autouse=True)
def candidates_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def searched(place: Path, kills: dict[int, int], *, target: str = "isolated_candidates:time_or_be_killed") -> Study:
    """Search three tiles, of which some are killed so many times, with a store of their own."""
    place.mkdir(exist_ok=True)
    for tile, times in kills.items():
        (place / str(tile)).write_text(str(times))
    with (
        TrialStore(place / "trials.sqlite") as store,
        IsolatedEvaluation(target, LIMITS, environment={"KILLS": str(place)}) as evaluate,
    ):
        study = Study(sampler("grid", SPACE), evaluate, Budget(trials=3), store=store, key=KEY)
        study.run()
    return study


def kinds(study: Study) -> dict[object, tuple[OutcomeKind | None, bool]]:
    return {
        trial.schedule["tile"]: (trial.outcome.kind if trial.outcome else None, trial.is_resumed)
        for trial in study.trials
    }


@pytest.mark.parametrize(("times", "kind"), [(1, OutcomeKind.OK), (2, OutcomeKind.KILLED)])
def test_a_call_that_was_killed_is_tried_once_more_in_a_fresh_child(
    tmp_path: Path, times: int, kind: OutcomeKind
) -> None:
    request = {"act": "killed_from_outside", "note": str(tmp_path / "note"), "times": times}
    with IsolatedFunction("isolated_candidates:misbehave", LIMITS) as function:
        answer = function.call(request)
    assert (answer.kind, len((tmp_path / "note").read_text())) == (kind, 2)
    assert kind is OutcomeKind.OK or "SIGKILL from outside" in answer.detail


def test_a_schedule_killed_twice_is_not_kept_and_the_next_run_tries_it_again(tmp_path: Path) -> None:
    well = OutcomeKind.OK
    assert kinds(searched(tmp_path, {8: 2})) == {
        8: (OutcomeKind.KILLED, False),
        16: (well, False),
        32: (well, False),
    }
    with TrialStore(tmp_path / "trials.sqlite") as store:
        assert [trial.record.schedule["tile"] for trial in store.find()] == [16, 32]
    again = searched(tmp_path, {})
    assert kinds(again) == {16: (well, True), 32: (well, True), 8: (well, False)}
    assert again.best is not None
    assert again.best.schedule == {"tile": 8}


@pytest.mark.parametrize(
    ("detail", "counts"),
    [
        ("RunError: tracea.flow.evaluate:evaluate: ended by SIGKILL. Remedy: import it in a Python session", False),
        ("RunError: tracea.flow.evaluate:evaluate: not ready within 120 s. Remedy: import it", False),
        ("ended by SIGKILL", False),
        ("ended by SIGSEGV: Fatal Python error", True),
        ("RunError: gemm.direct: ended by SIGKILL", True),
    ],
)
def test_what_earlier_releases_kept_of_it_does_not_count(tmp_path: Path, detail: str, counts: bool) -> None:
    blamed = TrialRecord(
        key=KEY,
        schedule={"tile": 8},
        outcome=Outcome(kind=OutcomeKind.CRASHED, detail=detail),
        seconds=1.0,
        sampler="grid",
        seed=0,
        recorded_at=1.0,
    )
    with TrialStore(tmp_path / "trials.sqlite") as store:
        store.add(blamed)
        store.merge([(replace(blamed, seconds=2.0), None)])
        assert len(store.find(imported=None)) == 2 * counts
    assert kinds(searched(tmp_path, {}))[8] == ((OutcomeKind.CRASHED, True) if counts else (OutcomeKind.OK, False))


def search_started(tmp_path: Path, store: TrialStore, how: str, times: int, *, seconds: float) -> Study:
    """A search whose child is killed, or takes too long, at its first so many starts."""
    (tmp_path / "starts").write_text(str(times))
    environment = {"STARTS": str(tmp_path / "starts"), "STARTS_BY": how}
    limits = Limits(seconds=30.0, startup_seconds=seconds)
    evaluate = IsolatedEvaluation("starting_badly:run", limits, environment=environment)
    return Study(sampler("grid", SPACE), evaluate, Budget(trials=3), store=store, key=KEY)


@pytest.mark.parametrize(
    ("how", "seconds", "said"), [("kill", 60.0, "SIGKILL from outside"), ("sleep", 3.0, "not ready within 3 s")]
)
def test_a_child_that_starts_at_neither_try_ends_the_search_with_no_schedule_to_blame(
    tmp_path: Path, how: str, seconds: float, said: str
) -> None:
    with TrialStore(tmp_path / "trials.sqlite") as store:
        with pytest.raises(RunError, match=said):
            search_started(tmp_path, store, how, 2, seconds=seconds).run()
        assert store.find() == []


def test_a_child_that_was_killed_while_it_started_is_started_again(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "trials.sqlite") as store:
        study = search_started(tmp_path, store, "kill", 1, seconds=60.0)
        study.run()
    assert study.outcomes == {OutcomeKind.OK: 3}


@pytest.mark.slow
def test_time_in_which_the_search_itself_was_stopped_does_not_count(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path[:] = __import__('json').loads(sys.argv[1])\n"
        "from tracea.optimizer.isolation import IsolatedFunction\n"
        "isolated = IsolatedFunction('isolated_candidates:misbehave')\n"
        "isolated.start(); print('ready', flush=True)\n"
        "answer = isolated.call({'act': 'sleep', 'seconds': 1.0}, seconds=6.0)\n"
        "isolated.close(); print(answer.kind.value, answer.detail, flush=True)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, json.dumps(sys.path)], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        time.sleep(0.5)
        os.kill(parent.pid, signal.SIGSTOP)  # as Ctrl-Z does: the child, in a session of its own, goes on
        time.sleep(8.0)
        os.kill(parent.pid, signal.SIGCONT)
        assert parent.stdout.readline() == "ok \n"
    finally:
        parent.kill()
        parent.wait()
        if parent.stdout is not None:
            parent.stdout.close()
