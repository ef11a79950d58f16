from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tracea.errors import InvalidOption, ProofFailed, RunError, VerdictFailed
from tracea.optimizer import (
    Budget,
    Outcome,
    OutcomeKind,
    Progress,
    SearchSpace,
    Study,
    StudyKey,
    Trial,
    TrialStore,
    sampler,
)

SPACE = SearchSpace.constrained({"tile": (8, 16, 32, 64, 128), "unroll": (1, 2, 4)})
KEY = StudyKey(op_key="gemm 64x64x64 f32", variant="packed", hardware={"core": "zen"}, toolchain={"gcc": "12"})


def latency_of(trial: Trial) -> float:
    return abs(float(trial.schedule["tile"]) - 32.0) + float(trial.schedule["unroll"])  # type: ignore[arg-type]


def evaluate(trial: Trial) -> Outcome:
    return Outcome(kind=OutcomeKind.OK, latency_ms=latency_of(trial))


def test_a_study_ends_with_its_trials_and_knows_the_best() -> None:
    study = Study(sampler("grid", SPACE), evaluate, Budget(trials=8))
    best = study.run()
    assert len(study.trials) == 8
    assert best is study.best
    assert best is not None
    assert best.schedule == {"tile": 32, "unroll": 1}
    assert [trial.number for trial in study.trials] == list(range(8))


def test_each_trial_knows_the_best_so_far_to_be_timed_beside() -> None:
    study = Study(sampler("grid", SPACE), evaluate, Budget(trials=8))
    study.run()
    assert study.trials[0].incumbent is None
    for number, trial in enumerate(study.trials[1:], start=1):
        assert trial.incumbent is not None
        assert trial.incumbent.latency_ms == min(latency_of(earlier) for earlier in study.trials[:number])
        assert trial.incumbent.incumbent is None  # no chain of all trials


def test_a_study_ends_with_the_space() -> None:
    study = Study(sampler("default", SPACE), evaluate, Budget(trials=500))
    study.run()
    assert len({trial.row for trial in study.trials}) == len(study.trials) == len(SPACE)


def test_a_study_ends_with_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("tracea.optimizer.study.time.monotonic", lambda: clock[0])

    def slow(trial: Trial) -> Outcome:
        clock[0] += 2.0
        return evaluate(trial)

    study = Study(sampler("grid", SPACE), slow, Budget(trials=500, seconds=5.0))
    study.run()
    assert len(study.trials) == 3  # the one under way when the time runs out is finished
    assert [trial.seconds for trial in study.trials] == [2.0] * 3


def test_a_study_ends_at_its_target() -> None:
    study = Study(sampler("grid", SPACE), evaluate, Budget(trials=500), target_ms=18.0)
    best = study.run()
    assert best is not None
    assert best.latency_ms is not None
    assert best.latency_ms <= 18.0
    assert len(study.trials) < len(SPACE)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ProofFailed(proof="bounds", node="store", detail="row 64 of 64"), OutcomeKind.INVALID),
        (VerdictFailed(gate="correctness", kernel="gemm", got=1.0, limit=1e-5), OutcomeKind.WRONG),
        (RunError(kernel="gemm", detail="SIGSEGV"), OutcomeKind.CRASHED),
        (ZeroDivisionError("oops"), OutcomeKind.CRASHED),
        (MemoryError(), OutcomeKind.OUT_OF_MEMORY),
        (TimeoutError(), OutcomeKind.TIMED_OUT),
    ],
)
def test_what_an_evaluation_raises_is_its_outcome(error: Exception, kind: OutcomeKind) -> None:
    def failing(trial: Trial) -> Outcome:
        if trial.number % 2:
            raise error
        return evaluate(trial)

    study = Study(sampler("gp", SPACE), failing, Budget(trials=10))
    assert study.run() is not None
    assert study.outcomes == {OutcomeKind.OK: 5, kind: 5}
    assert all(trial.outcome is not None and trial.outcome.detail for trial in study.trials[1::2])


def test_an_interrupt_is_not_an_outcome() -> None:
    def interrupted(trial: Trial) -> Outcome:
        raise KeyboardInterrupt

    study = Study(sampler("grid", SPACE), interrupted, Budget(trials=3))
    with pytest.raises(KeyboardInterrupt):
        study.run()
    assert study.trials == ()


def test_a_study_in_which_everything_fails_has_no_best() -> None:
    study = Study(
        sampler("default", SPACE), lambda _: Outcome(kind=OutcomeKind.WRONG, detail="zero"), Budget(trials=12)
    )
    assert study.run() is None
    assert study.outcomes == {OutcomeKind.WRONG: 12}


def test_the_best_three_meet_again_and_the_comparison_decides() -> None:
    met: list[list[Trial]] = []

    def compare(trials: Sequence[Trial]) -> list[float | None]:
        met.append(list(trials))
        return [50.0, 40.0, None]

    study = Study(sampler("grid", SPACE), evaluate, Budget(trials=500), compare=compare)
    best = study.run()
    assert [[latency_of(trial) for trial in trials] for trials in met] == [[1.0, 2.0, 4.0]]
    assert best is not None
    assert (best.row, best.latency_ms) == (met[0][1].row, 40.0)


@pytest.mark.parametrize("timings", [[1.0], [1.0, 2.0, 0.0], [1.0, 2.0, float("nan")]])
def test_a_comparison_that_answers_nonsense_is_refused(timings: list[float]) -> None:
    study = Study(sampler("grid", SPACE), evaluate, Budget(trials=5), compare=lambda _: timings)
    with pytest.raises(InvalidOption):
        study.run()


def test_the_listener_hears_of_each_trial_and_the_best_so_far() -> None:
    heard: list[Progress] = []
    Study(sampler("grid", SPACE), evaluate, Budget(trials=6), on_trial=heard.append).run()
    assert [progress.done for progress in heard] == [1, 2, 3, 4, 5, 6]
    assert {progress.total for progress in heard} == {6}
    bests = [progress.best.latency_ms for progress in heard if progress.best is not None]
    assert len(bests) == 6
    assert bests == sorted(bests, reverse=True)  # type: ignore[type-var]


def run_stored(path: Path, trials: int, **options: Any) -> tuple[Study, list[int]]:
    evaluated: list[int] = []

    def counting(trial: Trial) -> Outcome:
        evaluated.append(trial.number)
        return evaluate(trial)

    with TrialStore(path) as store:
        study = Study(sampler("gp", SPACE), counting, Budget(trials=trials), store=store, key=KEY, **options)
        study.run()
    return study, evaluated


def test_a_second_run_resumes_where_the_first_ended(tmp_path: Path) -> None:
    first, evaluated = run_stored(tmp_path / "trials.db", 6)
    assert evaluated == [0, 1, 2, 3, 4, 5]
    second, evaluated = run_stored(tmp_path / "trials.db", 10)
    assert evaluated == [6, 7, 8, 9]
    assert [trial.row for trial in second.trials[:6]] == [trial.row for trial in first.trials]
    assert [trial.is_resumed for trial in second.trials] == [True] * 6 + [False] * 4
    assert len({trial.row for trial in second.trials}) == 10


def test_a_finished_study_answers_from_the_store_alone(tmp_path: Path) -> None:
    def compare(trials: Sequence[Trial]) -> list[float | None]:
        return [9.0, 8.0, 7.0]

    first, _ = run_stored(tmp_path / "trials.db", 15, compare=compare)
    again, evaluated = run_stored(tmp_path / "trials.db", 15, compare=compare)
    assert evaluated == []
    assert first.best is not None
    assert again.best is not None
    assert (again.best.row, again.best.latency_ms) == (first.best.row, 7.0)


def test_a_resumed_trial_has_the_time_that_was_measured_beside_the_one_by_which_it_ranks(tmp_path: Path) -> None:
    first, _ = run_stored(tmp_path / "trials.db", 1)
    with TrialStore(tmp_path / "trials.db") as store:
        (kept,) = store.find()
        measured = first.trials[0].latency_ms
        assert measured is not None
        store.retime(kept.id, 1.02 * measured, median_ms=measured)
    (again,) = run_stored(tmp_path / "trials.db", 1)[0].trials
    assert (again.latency_ms, again.measured_ms) == (1.02 * measured, measured)


def test_what_an_earlier_comparison_said_is_forgotten_in_the_store_too(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    slow, fast = [(4, 2), (4, 1), (4, 0)], [(2, 0), (2, 1), (2, 2)]  # of tiles of 128, and of 32

    def run(rows: list[tuple[int, int]], trials: int, timings: list[float | None]) -> Study:
        with TrialStore(path) as store:
            seeded = sampler("grid", SPACE, seeds=rows)
            study = Study(seeded, evaluate, Budget(trials=trials), compare=lambda _: timings, store=store, key=KEY)
            study.run()
        return study

    run(slow, 3, [5.0, 6.0, 7.0])  # on a day when the machine was fast
    run(fast, 6, [None, 13.0, 12.0])
    resumed = run([], 6, [])
    assert resumed.best is not None
    assert (resumed.best.row, resumed.best.latency_ms) == ((2, 2), 12.0)
    with TrialStore(path) as store:
        said = [trial.retimed_ms for trial in store.find(study=KEY)]
    assert said == [None, None, None, None, 13.0, 12.0]


def test_an_interrupted_study_keeps_what_was_finished(tmp_path: Path) -> None:
    def stop_at_four(trial: Trial) -> Outcome:
        if trial.number == 4:
            raise KeyboardInterrupt
        return evaluate(trial)

    with TrialStore(tmp_path / "trials.db") as store:
        study = Study(sampler("gp", SPACE), stop_at_four, Budget(trials=9), store=store, key=KEY)
        with pytest.raises(KeyboardInterrupt):
            study.run()
    _, evaluated = run_stored(tmp_path / "trials.db", 9)
    assert evaluated == [4, 5, 6, 7, 8]


def test_trials_of_another_machine_or_toolchain_are_not_resumed(tmp_path: Path) -> None:
    run_stored(tmp_path / "trials.db", 6)
    other = StudyKey(op_key=KEY.op_key, variant=KEY.variant, hardware={"core": "zen"}, toolchain={"gcc": "13"})
    with TrialStore(tmp_path / "trials.db") as store:
        study = Study(sampler("gp", SPACE), evaluate, Budget(trials=2), store=store, key=other)
        study.run()
    assert [trial.is_resumed for trial in study.trials] == [False, False]


def test_stored_trials_outside_of_a_changed_space_are_left_out(tmp_path: Path) -> None:
    run_stored(tmp_path / "trials.db", 15)
    narrower = SearchSpace.constrained({"tile": (8, 16, 256), "unroll": (1, 2, 4)})
    with TrialStore(tmp_path / "trials.db") as store:
        study = Study(sampler("grid", narrower), evaluate, Budget(trials=9), store=store, key=KEY)
        study.run()
    assert sum(trial.is_resumed for trial in study.trials) == 6
    assert len(study.trials) == 9


@pytest.mark.parametrize(
    "budget",
    [{"trials": 0}, {"trials": 1.5}, {"trials": True}, {"seconds": 0.0}, {"seconds": float("inf")}, {"seconds": "1"}],
)
def test_a_budget_must_be_positive(budget: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        Budget(**budget)


def test_store_and_key_come_together_and_a_target_is_positive(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption):
        Study(sampler("grid", SPACE), evaluate, key=KEY)
    with TrialStore(tmp_path / "trials.db") as store, pytest.raises(InvalidOption):
        Study(sampler("grid", SPACE), evaluate, store=store)
    with pytest.raises(InvalidOption):
        Study(sampler("grid", SPACE), evaluate, target_ms=0.0)


def test_a_success_has_a_latency_and_a_failure_has_none() -> None:
    for latency in (None, 0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidOption):
            Outcome(kind=OutcomeKind.OK, latency_ms=latency)
    with pytest.raises(InvalidOption):
        Outcome(kind=OutcomeKind.WRONG, latency_ms=1.0)


@pytest.mark.parametrize("name", ["grid", "random", "evolution", "gp"])
def test_several_trials_are_prepared_before_the_first_of_them_is_evaluated(name: str) -> None:
    heard: list[tuple[str, list[int]]] = []

    def noted(trial: Trial) -> Outcome:
        heard.append(("evaluate", [trial.number]))
        return evaluate(trial)

    study = Study(
        sampler(name, SPACE),
        noted,
        Budget(trials=8),
        prepare=lambda trials: heard.append(("prepare", [trial.number for trial in trials])),
        together=3,
    )
    study.run()
    batches = [numbers for what, numbers in heard if what == "prepare"]
    assert batches == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [numbers[0] for what, numbers in heard if what == "evaluate"] == list(range(8))
    assert [what for what, _ in heard] == ["prepare", *["evaluate"] * 3] * 2 + ["prepare", *["evaluate"] * 2]
    assert len({trial.row for trial in study.trials}) == 8


def test_one_trial_alone_is_not_prepared_and_none_is_lost_between_two_runs() -> None:
    prepared: list[int] = []
    study = Study(
        sampler("grid", SPACE),
        evaluate,
        Budget(trials=15),
        prepare=lambda trials: prepared.append(len(trials)),
        together=4,
        target_ms=1e9,
    )
    study.run()  # the first trial meets the target: three that were asked for wait
    assert (len(study.trials), prepared) == (1, [4])
    study._target_ms = None
    study.run()
    assert (len({trial.row for trial in study.trials}), prepared) == (15, [4, 4, 4, 3])
    alone = Study(sampler("grid", SPACE), evaluate, Budget(trials=1), prepare=lambda trials: 1 / 0, together=4)
    assert alone.run() is not None
