"""A final decides by its own times: where the search's do not hold, those whom they kept out are timed as well."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

import tracea
from tracea.core.op import GemmOp, Op
from tracea.doctor import host
from tracea.flow import final, history
from tracea.flow.compile import decision_for
from tracea.flow.evaluate import Candidate, Request
from tracea.flow.final import final_times, is_in_doubt, run_final
from tracea.flow.history import schedule_of, store, study_key
from tracea.flow.tuning import search_space
from tracea.interface import optimized
from tracea.interface.optimized import optimize_graph
from tracea.kernels.registry import find
from tracea.optimizer.storage import TrialRecord
from tracea.optimizer.trial import Outcome, OutcomeKind
from tracea.targets.target import for_threads

TARGET = for_threads(host(), 1)
VARIANT = "gemm.direct"
LIBRARY_MS = 9.0


class Races:
    """Stands in for the child: each schedule takes what it truly takes; remembers who met whom."""

    def __init__(
        self,
        true_ms: Mapping[str, float],
        metrics: Mapping[str, float] | None = None,
        ranks: Mapping[str, float] | None = None,
    ) -> None:
        self.true_ms = true_ms
        self.metrics = dict(metrics or {})
        self.ranks = dict(ranks or {})
        self.met: list[list[str]] = []

    def __call__(self, function: object, request: Request) -> list[Outcome]:
        self.met.append([candidate.schedule for candidate in request.candidates if not is_library(candidate)])
        return [self.outcome(each) for each in request.candidates]

    def outcome(self, each: Candidate) -> Outcome:
        ms = LIBRARY_MS if is_library(each) else self.true_ms[each.schedule]
        metrics = {"rank_ms": self.ranks.get(each.schedule, ms), "is_unclear": 0.0, **self.metrics}
        return Outcome(kind=OutcomeKind.OK, latency_ms=ms, metrics=metrics)


def is_library(candidate: Candidate) -> bool:
    return find(candidate.variant).is_library


def searched(op: GemmOp, times: list[float]) -> list[str]:
    """Record a search that found these times for the first schedules of a variant; returns the schedules."""
    space = search_space(op, find(VARIANT), TARGET)
    schedules = [schedule_of(space.decode(row)) for row in list(space.rows)[: len(times)]]
    for schedule, ms in zip(schedules, times, strict=True):
        store().add(
            TrialRecord(
                key=study_key(op, VARIANT, 1),
                schedule=dict(schedule),
                outcome=Outcome(kind=OutcomeKind.OK, latency_ms=ms),
                seconds=0.1,
                sampler="grid",
                seed=1,
                recorded_at=time.time(),
            )
        )
    return [schedule.key for schedule in schedules]


def test_where_the_search_was_wrong_the_next_fastest_are_timed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    op = GemmOp.of(m=21, n=38, k=27)
    schedules = searched(op, [1.0, 1.1, 1.2, 1.5, 1.7, 6.0])
    races = Races(dict(zip(schedules, [4.0, 4.2, 4.4, 1.6, 1.8, 6.0], strict=True)))
    monkeypatch.setattr(final, "_ranked", races)
    run_final(op, TARGET, constants=(), threads=1, seed=1)
    # The best of the first heat meets those of whom the search said less than it took; 6.0 was never promising.
    assert races.met == [schedules[:3], [schedules[0], *schedules[3:5]]]
    times = {schedule_of(each.schedule).key: each.latency_ms for each in final_times(op, 1) if each.variant == VARIANT}
    assert times == {schedules[3]: 1.6, schedules[4]: 1.8, schedules[0]: 4.0}
    chosen = decision_for(op, TARGET, threads=1, library=False).schedule
    assert chosen is not None
    assert chosen.key == schedules[3]


def test_a_search_that_is_wrong_throughout_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    op = GemmOp.of(m=22, n=38, k=27)
    schedules = searched(op, [1.0 + step / 100 for step in range(20)])
    races = Races(dict.fromkeys(schedules, 4.0))
    monkeypatch.setattr(final, "_ranked", races)
    run_final(op, TARGET, constants=(), threads=1, seed=1)
    # Twice all took four times as long: the others, which the search found slower, will as well.
    assert [len(schedules) for schedules in races.met] == [3, 4]


def test_a_search_that_was_wrong_of_some_more_than_of_others_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    op = GemmOp.of(m=28, n=38, k=27)
    schedules = searched(op, [1.0 + step / 100 for step in range(20)])
    races = Races({schedule: 4.0 if step < 3 else 2.0 - step / 50 for step, schedule in enumerate(schedules)})
    monkeypatch.setattr(final, "_ranked", races)
    run_final(op, TARGET, constants=(), threads=1, seed=1)
    assert [len(schedules) for schedules in races.met] == [3, 4, 4]


@pytest.mark.parametrize("slower", [1.0, 1.2])
def test_times_that_hold_need_one_heat(monkeypatch: pytest.MonkeyPatch, slower: float) -> None:
    op = GemmOp.of(m=23, n=38, k=27)
    schedules = searched(op, [1.0, 1.1, 1.2, 1.21])
    races = Races(dict(zip(schedules, [1.0 * slower, 1.1 * slower, 1.2 * slower, 1.0], strict=True)))
    monkeypatch.setattr(final, "_ranked", races)
    run_final(op, TARGET, constants=(), threads=1, seed=1)
    assert races.met == [schedules[:3]]


@pytest.mark.parametrize(("disturbed", "unclear", "expected"), [(4.0, 0.0, False), (6.0, 0.0, True), (0.0, 1.0, True)])
def test_a_final_is_in_doubt_where_it_was_disturbed_or_could_not_tell(
    monkeypatch: pytest.MonkeyPatch, disturbed: float, unclear: float, expected: bool
) -> None:
    op = GemmOp.of(m=24, n=38, k=27 + int(disturbed) + 10 * int(unclear))
    assert not is_in_doubt(op, 1)
    schedules = searched(op, [1.0, 1.1])
    metrics = {"rounds": 10.0, "rounds_disturbed": disturbed, "is_unclear": unclear}
    monkeypatch.setattr(final, "_ranked", Races(dict(zip(schedules, [1.0, 1.1], strict=True)), metrics))
    run_final(op, TARGET, constants=(), threads=1, seed=1)
    assert is_in_doubt(op, 1) is expected
    reason = decision_for(op, TARGET, threads=1, library=False).reason
    assert ("other programs disturbed most rounds of its final" in reason) is (disturbed > 5.0)


def test_the_winner_of_a_tie_meets_the_next_though_another_had_the_lower_median(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    op = GemmOp.of(m=25, n=38, k=27)
    schedules = searched(op, [1.0, 1.1, 1.2, 1.5])
    races = Races(dict(zip(schedules, [2.01, 2.0, 4.4, 1.9], strict=True)), ranks={schedules[0]: 1.99})
    monkeypatch.setattr(final, "_ranked", races)
    run_final(op, TARGET, constants=(), threads=1, seed=1)
    assert races.met == [schedules[:3], [schedules[0], schedules[3]]]


@pytest.mark.parametrize("killed", [1, 2])
def test_a_later_heat_that_was_killed_leaves_the_first_ones_times(monkeypatch: pytest.MonkeyPatch, killed: int) -> None:
    op = GemmOp.of(m=26, n=38, k=26 + killed)
    schedules = searched(op, [1.0, 1.1, 1.2, 1.5])
    races = Races(dict(zip(schedules, [4.0, 4.2, 4.4, 1.6], strict=True)))

    def once(function: object, request: Request) -> list[Outcome]:
        outcomes = races(function, request)
        if len(races.met) > 1:
            outcomes[:killed] = [Outcome(kind=OutcomeKind.KILLED, detail="ended by SIGKILL from outside")] * killed
        return outcomes

    monkeypatch.setattr(final, "_ranked", once)
    run_final(op, TARGET, constants=(), threads=1, seed=1)
    times = {schedule_of(each.schedule).key: each.latency_ms for each in final_times(op, 1) if each.variant == VARIANT}
    assert times == dict(zip(schedules[:3], [4.0, 4.2, 4.4], strict=True))


def test_where_all_fail_later_the_ones_that_finished_before_keep_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    op = GemmOp.of(m=27, n=38, k=27)
    schedules = searched(op, [1.0, 1.1, 1.2, 1.5])
    races = Races(dict(zip(schedules, [4.0, 4.2, 4.4, 1.6], strict=True)))

    def once(function: object, request: Request) -> list[Outcome]:
        outcomes = races(function, request)
        failed = Outcome(kind=OutcomeKind.CRASHED, detail="planted")
        return outcomes if len(races.met) == 1 else [failed for _ in outcomes]

    monkeypatch.setattr(final, "_ranked", once)
    run_final(op, TARGET, constants=(), threads=1, seed=1)
    times = {schedule_of(each.schedule).key: each.latency_ms for each in final_times(op, 1) if each.variant == VARIANT}
    assert times == dict(zip(schedules[1:3], [4.2, 4.4], strict=True))  # what failed once no longer counts


def test_only_the_finals_in_doubt_take_place_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = tracea.Graph()
    x, w, v = graph.add_input((6, 8)), graph.add_input((8, 10)), graph.add_input((10, 4))
    graph.add_gemm(graph.add_gemm(x, w), v, name="y")
    made = optimize_graph(graph, threads=1, library=False)
    again: list[str] = []
    doubtful: set[str] = set()

    def raced(op: Op, *_: object, **__: object) -> None:
        again.append(op.key)

    def in_doubt(op: Op, *_: object) -> bool:
        return op.key in doubtful

    monkeypatch.setattr(optimized, "run_final", raced)
    monkeypatch.setattr(optimized, "is_in_doubt", in_doubt)
    assert not made.repeat_doubtful_finals()
    assert again == []
    wide = next(node.op.key for node in graph.nodes if node.type.shape == (6, 10))
    doubtful.add(wide)
    assert made.repeat_doubtful_finals()
    assert again == [wide]


def test_a_final_that_is_killed_while_it_is_written_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    op = GemmOp.of(m=29, n=38, k=27)
    schedules = searched(op, [1.0, 1.1, 1.2])
    monkeypatch.setattr(final, "_ranked", Races(dict.fromkeys(schedules, 1.0)))
    written, retime = [], final._retime

    def killed(*given: object) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(given)
        retime(*given)

    monkeypatch.setattr(final, "_retime", killed)
    with pytest.raises(KeyboardInterrupt):
        run_final(op, TARGET, constants=(), threads=1, seed=1)
    assert not final.has_final(op, 1)
    monkeypatch.setattr(final, "_retime", retime)
    run_final(op, TARGET, constants=(), threads=1, seed=1)
    assert final.has_final(op, 1)


def tied_in_a_final(op: GemmOp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search two schedules, and hold a final in which they tie."""
    schedules = searched(op, [2.0, 2.1])
    monkeypatch.setattr(final, "_ranked", Races(dict.fromkeys(schedules, 2.0)))
    run_final(op, TARGET, constants=(), threads=1, seed=1)
    assert final.has_final(op, 1)


def test_trials_that_no_final_knew_get_one_though_there_was_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    op = GemmOp.of(m=34, n=38, k=27)
    tied_in_a_final(op, monkeypatch)
    more = searched(op, [2.0, 2.1, 1.0])  # and Ctrl-C in the final
    assert not final.has_final(op, 1)
    monkeypatch.setattr(final, "_ranked", Races({**dict.fromkeys(more, 2.0), more[2]: 1.0}))
    run_final(op, TARGET, constants=(), threads=1, seed=1)
    assert final.has_final(op, 1)
    chosen = decision_for(op, TARGET, threads=1, library=False).schedule
    assert chosen is not None
    assert chosen.key == more[2]


@pytest.mark.skipif(not final.rivals(GemmOp.of(m=8, n=8, k=8), TARGET), reason="no library is installed")
def test_another_version_of_a_library_gets_a_final(monkeypatch: pytest.MonkeyPatch) -> None:
    op = GemmOp.of(m=35, n=38, k=27)
    tied_in_a_final(op, monkeypatch)
    assert set(history.known_variants(op, 1)) == {VARIANT, "library.gemm"}
    monkeypatch.setattr(history, "torch_version", lambda: "another")
    assert set(history.known_variants(op, 1)) == {VARIANT}
    assert not final.has_final(op, 1)
    assert history.recalled(op, 1) == ()
