"""A search from end to end: recorded, resumed, judged, compared with the library, and used afterwards."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
import torch
from tests.flow import planted

import tracea
from tracea.core.expr import activation
from tracea.core.op import GemmOp, PointwiseOp, RowKind, RowOp
from tracea.core.tensor_type import TensorType
from tracea.doctor import host
from tracea.errors import InvalidOption, TraceaWarning
from tracea.flow import final, history, search, tuning
from tracea.flow.compile import compile_op, decision_for
from tracea.flow.history import known_variants, store, study_key, verified
from tracea.flow.phases import phase, telling
from tracea.kernels.registry import VARIANTS
from tracea.optimizer import Budget
from tracea.optimizer.storage import TrialRecord
from tracea.optimizer.trial import Outcome, OutcomeKind
from tracea.profiler.machine import cores_allowed
from tracea.targets.target import for_threads

TARGET = for_threads(host(), 1)
CORES = len(cores_allowed())


def records(op):
    return store().find(op_key=op.key)


def decided(op, **options):
    return decision_for(op, TARGET, threads=1, **options)


@pytest.mark.costly
def test_a_search_is_recorded_used_and_resumed(monkeypatch):
    looks = []
    monkeypatch.setattr(search, "note_load", lambda: looks.append("a look"))
    op = GemmOp.of(m=24, n=32, k=20, bias=True, activation="relu")
    heard = []
    tuned = tracea.tune(op, budget=Budget(trials=4), listener=lambda variant, progress: heard.append(progress))
    assert looks == ["a look"]
    kept = records(op)
    ours = [trial for trial in kept if trial.record.key.variant != "library.gemm"]
    assert len(ours) == tuned.fresh == len(heard) == sum(map(len, tuned.trials.values())) == 4
    assert {variant for variant in tuned.trials} >= {"gemm.direct", "gemm.packed"}
    # What is told counts the trials of all variants, and the fastest of them only ever falls.
    assert [progress.done for progress in heard] == [1, 2, 3, 4]
    assert {progress.total for progress in heard} == {4}
    fastest = [progress.best.latency_ms for progress in heard]
    assert fastest == sorted(fastest, reverse=True)
    assert fastest[-1] == tuned.best.latency_ms
    assert tuned.best is not None
    assert all(trial.record.outcome.is_ok for trial in kept)
    # The final: the three fastest, the best of a variant that is not among them, and the library, in one comparison;
    # its winner is what runs from now on.
    compared = {trial.id: trial for trial in kept if trial.retimed_ms is not None}
    measured = sorted(ours, key=lambda trial: trial.record.outcome.latency_ms)
    others = {trial.record.key.variant for trial in measured} - {trial.record.key.variant for trial in measured[:3]}
    assert len(compared) == 3 + len(others) + 1
    assert [trial for trial in compared.values() if trial.record.key.variant == "library.gemm"]
    winner = min(compared.values(), key=lambda trial: trial.retimed_ms)
    assert tuned.decision.variant == winner.record.key.variant
    assert tuned.decision.measurement.latency_us == pytest.approx(1e3 * winner.retimed_ms)
    assert decided(op) == tuned.decision
    fastest_of_ours = min(
        (trial for trial in compared.values() if trial.id in {each.id for each in ours}), key=lambda t: t.retimed_ms
    )
    assert dict(decided(op, library=False).schedule) == fastest_of_ours.record.schedule
    again = tracea.tune(op, budget=Budget(trials=4))
    assert again.fresh == 0
    assert looks == ["a look"]  # where nothing is searched, nothing is chosen wrongly
    assert again.decision == tuned.decision
    assert records(op) == kept
    x, w, bias = torch.randn(24, 20), torch.randn(20, 32), torch.randn(32)
    torch.testing.assert_close(compile_op(op, threads=1).run(x, w, bias), torch.relu(x @ w + bias))


@pytest.mark.slow
def test_more_trials_continue_and_compare_anew():
    op = GemmOp.of(m=20, n=24, k=28)
    tried = tracea.tune(op, budget=Budget(trials=2)).fresh  # at least one of every variant that fits this machine
    first = {trial.id for trial in records(op)}
    tuned = tracea.tune(op, budget=Budget(trials=tried + 1))
    assert tuned.fresh == 1
    compared = [trial for trial in records(op) if trial.retimed_ms is not None]
    libraries = [trial for trial in compared if trial.record.key.variant == "library.gemm"]
    assert len(libraries) == 1  # the earlier comparison no longer counts
    assert libraries[0].id not in first


@pytest.mark.costly
def test_one_trial_of_one_variant_is_compared_with_the_library():
    op = GemmOp.of(m=12, n=16, k=12)
    tuned = tracea.tune(op, budget=Budget(trials=1), variant="gemm.packed")
    assert tuned.fresh == 1
    assert {"gemm.packed", "library.gemm"} <= set(known_variants(op, 1))
    assert {each.variant for each in tuned.final} == {"gemm.packed", "library.gemm"}
    ranked = [each.ranked_ms for each in tuned.final]
    assert ranked == sorted(ranked)
    known = {name: each.latency_us for name, each in known_variants(op, 1).items()}
    assert {each.variant: pytest.approx(1e3 * each.latency_ms) for each in tuned.final} == known


def test_candidates_that_crash_or_are_wrong_are_outcomes(monkeypatch):
    monkeypatch.setattr(tuning, "EVALUATE", "tests.flow.planted:misbehave")
    op = GemmOp.of(m=28, n=36, k=20)
    tuned = tracea.tune(op, budget=Budget(trials=9), variant="gemm.direct", library=False, sampler="random")
    outcomes = [trial.outcome for trial in tuned.trials["gemm.direct"]]
    assert len(outcomes) == 9
    assert outcomes[0].is_ok
    bad = outcomes[1:]
    assert {outcome.kind for outcome in bad} <= {OutcomeKind.CRASHED, OutcomeKind.WRONG}
    assert not any(outcome.is_ok for outcome in bad)
    assert all(outcome.detail for outcome in bad)
    assert dict(tuned.decision.schedule) == dict(tuned.trials["gemm.direct"][0].schedule)
    assert decided(op, library=False).variant == "gemm.direct"


def test_a_schedule_that_fails_the_final_no_longer_counts(monkeypatch):
    op = GemmOp.of(m=20, n=36, k=24)
    before = tracea.tune(op, budget=Budget(trials=3), variant="gemm.direct").trials["gemm.direct"]
    fastest = min(before, key=lambda trial: trial.outcome.latency_ms)
    monkeypatch.setattr(final, "RANK", "tests.flow.planted:rank")
    monkeypatch.setenv(planted.CRASHING, ",".join(f"{k}={v}" for k, v in sorted(fastest.schedule.items())))
    final.run_final(op, TARGET, constants=(), threads=1, seed=1)
    last = [trial for trial in records(op) if trial.record.schedule == dict(fastest.schedule)][-1]
    assert last.record.outcome.kind is OutcomeKind.CRASHED
    assert dict(fastest.schedule) not in [trial.record.schedule for trial in verified(op, 1)]
    assert dict(decided(op, library=False).schedule) != dict(fastest.schedule)
    again = tracea.tune(op, budget=Budget(trials=3), variant="gemm.direct").best
    assert again is not None
    assert dict(again.schedule) != dict(fastest.schedule)
    assert len([trial for trial in verified(op, 1) if trial.retimed_ms is not None]) == 3  # two of ours, the library


@pytest.mark.costly
def test_seconds_end_a_search():
    op = GemmOp.of(m=16, n=36, k=12)
    tuned = tracea.tune(op, budget=Budget(trials=500, seconds=1e-3))
    assert tuned.fresh == 1  # the one that was under way
    assert tuned.decision.measurement is not None


def test_a_recorded_schedule_that_is_none_any_more_is_passed_over():
    op = GemmOp.of(m=36, n=20, k=12)
    store().add(
        TrialRecord(
            key=study_key(op, "gemm.packed", 1),
            schedule={"mr": 9999},
            outcome=Outcome(kind=OutcomeKind.OK, latency_ms=1e-6),
            seconds=0.0,
            sampler="random",
            seed=0,
            recorded_at=time.time(),
        )
    )
    with pytest.warns(TraceaWarning, match="passed over"):
        decision = decided(op, library=False)
    assert decision.measurement is None


@pytest.mark.costly
def test_a_constant_operand_opens_a_variant_and_only_there():
    op = GemmOp.of(m=8, n=40, k=24)
    packed = tracea.tune(op, budget=Budget(trials=3), constants=(1,), library=False)
    assert "gemm.prepacked" in packed.trials
    kept = {trial.id: trial.retimed_ms for trial in records(op)}
    assert {trial.record.key.constants for trial in records(op)} == {(1,)}
    free = tracea.tune(op, budget=Budget(trials=3), library=False)
    assert "gemm.prepacked" not in free.trials
    assert free.decision.variant != "gemm.prepacked"
    assert free.decision.measurement is not None
    assert decided(op, constants=(1,), library=False).measurement is not None
    # Nothing of the other search counts here, and this one left its final alone; each variant has a trial at least.
    assert free.fresh == max(3, len(free.trials))
    assert {trial.id: trial.retimed_ms for trial in records(op) if trial.id in kept} == kept


@pytest.mark.costly
@pytest.mark.parametrize(
    "op",
    [
        RowOp(kind=RowKind.LAYER_NORM, x=(TensorType((6, 40), tracea.DType.F32),), eps=1e-5),
        PointwiseOp(
            expr=activation("gelu"), inputs=(TensorType((9, 41), tracea.DType.F32),), out_dtype=tracea.DType.F32
        ),
    ],
    ids=["rows", "pointwise"],
)
def test_other_ops_are_searched_likewise(op):
    tuned = tracea.tune(op, budget=Budget(trials=2))
    assert tuned.decision.measurement is not None


def test_more_threads_than_cores_are_not_timed_but_may_run():
    op = GemmOp.of(m=8, n=8, k=8)
    with pytest.raises(InvalidOption, match=rf"got {CORES + 1}, expected 1 to {CORES}, the cores"):
        tracea.tune(op, budget=Budget(trials=1), threads=CORES + 1)
    x = torch.eye(8)
    torch.testing.assert_close(compile_op(op, threads=CORES + 1).run(x, x, threads=CORES + 1), x)


@pytest.mark.costly
def test_every_step_of_a_search_is_told():
    heard = []
    with telling(heard.append):
        tracea.tune(GemmOp.of(m=12, n=20, k=12), budget=Budget(trials=1), variant="gemm.packed")
    assert heard
    assert heard[-2].startswith("final: judge and time 2 kernels side by side")
    assert re.fullmatch(
        r"final: (fastest|first) [a-z.]+, [\d.]+ (µs|ms) a call, judged and timed; near times are ties", heard[-1]
    )
    phase("nobody hears this")
    assert heard[-1] != "nobody hears this"


def test_what_cannot_be_searched_is_refused():
    op = GemmOp.of(m=8, n=8, k=8)
    for options in ({"variant": "no such"}, {"variant": "gemm.empty"}, {"sampler": "no such"}, {"threads": 0}):
        with pytest.raises(InvalidOption):
            tracea.tune(op, budget=Budget(trials=1), **options)


@pytest.mark.slow
def test_after_a_toolchain_change_the_best_schedules_are_measured_again_first(monkeypatch):
    op = GemmOp.of(m=24, n=40, k=28)
    before = tracea.tune(op, budget=Budget(trials=6), variant="gemm.direct")
    earlier = {trial.id for trial in records(op)}
    winner = before.best.schedule
    identity = replace(history._identity(), toolchain="another compiler")
    monkeypatch.setattr(history, "_identity", lambda: identity)
    assert known_variants(op, 1) == {}
    again = tracea.tune(op, budget=Budget(trials=4), variant="gemm.direct")
    new = [trial for trial in records(op) if trial.id not in earlier]
    measured = [trial.record.schedule for trial in new if trial.record.key.variant == "gemm.direct"]
    assert dict(winner) in measured[:4]  # the default, then the three best of before
    assert {trial.record.key.toolchain_fingerprint for trial in new} == {study_key(op, "", 1).toolchain_fingerprint}
    assert again.fresh == 4
    assert any(trial.retimed_ms is not None for trial in new)  # a final under the new toolchain decides
    assert decided(op).measurement is not None


@pytest.mark.costly
def test_the_policy_narrows_a_search_keeps_what_was_tried_and_can_be_turned_off():
    op = GemmOp.of(m=52, n=320, k=160)
    heard = []
    options = {"variant": "gemm.packed", "library": False, "sampler": "random"}
    tuned = tracea.tune(op, budget=Budget(trials=3), on_guidance=heard.append, **options)
    (guidance,) = heard
    assert tuned.guidance == {"gemm.packed": guidance}
    assert guidance.factor > 2
    searched = {guidance.space.schedule(row) for row in guidance.rows}
    assert {history.schedule_of(trial.schedule) for trial in tuned.trials["gemm.packed"]} <= searched
    whole = tracea.tune(op, budget=Budget(trials=3), policy=False, on_guidance=heard.append, **options)
    assert (whole.fresh, len(heard)) == (0, 1)
    assert whole.guidance["gemm.packed"].factor == 1.0
    # A schedule that the rules leave out, once it was tried, is a trial of the guided search as well.
    left_out = next(s for s in map(guidance.space.schedule, guidance.space.rows) if s not in searched)
    record = records(op)[0].record
    store().add(replace(record, schedule=dict(left_out), outcome=Outcome(kind=OutcomeKind.INVALID, detail="planted")))
    again = tracea.tune(op, budget=Budget(trials=4), **options)
    assert (again.fresh, len(again.trials["gemm.packed"])) == (0, 4)


@pytest.mark.slow
def test_what_won_for_a_similar_shape_is_tried_before_the_sampler_chooses():
    near, op = GemmOp.of(m=52, n=352, k=160), GemmOp.of(m=52, n=336, k=160)
    options = {"variant": "gemm.packed", "library": False, "sampler": "random"}
    tracea.tune(near, budget=Budget(trials=4), **options)
    tuned = tracea.tune(op, budget=Budget(trials=2), **options)
    (seed, *_) = tuned.guidance["gemm.packed"].seeds
    tried = [history.schedule_of(trial.schedule) for trial in tuned.trials["gemm.packed"]]
    assert seed in tried
    assert near.key in " ".join(tuned.guidance["gemm.packed"].reasons)


def with_rows(variant, count):
    """Return a variant whose space is its default schedule and the first few others."""

    def space(op, target):
        whole, default = variant.space(op, target), variant.default_schedule(op, target)
        kept = [row for row in whole.rows if whole.schedule(row) == default]
        others = [row for row in whole.rows if whole.schedule(row) != default]
        return replace(whole, rows=(*kept, *others)[:count])

    return replace(variant, space=space)


@pytest.mark.slow
def test_trials_that_a_used_up_space_leaves_go_to_slower_variants_and_the_same_search_runs_none(monkeypatch):
    monkeypatch.setattr(tuning, "_CLOSE", 1.0)  # the fastest alone is close
    small = {each.id: with_rows(each, 2) for each in VARIANTS if not each.is_library}
    monkeypatch.setattr(search, "find", lambda name: small[name])
    op = GemmOp.of(m=20, n=28, k=44)
    count = len(tuning.decide(op, TARGET, exclude=tuning.excluded(op, (), library=False)).candidates)
    assert count >= 2
    asked = count + 2  # one of the fastest, which has no more, and one of the next
    tuned = tracea.tune(op, budget=Budget(trials=asked), policy=False)
    assert sorted(map(len, tuned.trials.values()))[-2:] == [2, 2]
    assert sum(map(len, tuned.trials.values())) == asked
    assert tuned.is_used_up == (asked == 2 * count)
    # Whatever a final says of the order, there is nothing left to do.
    monkeypatch.setattr(tuning, "_fastest", lambda variants, trials: min(trials))
    assert tracea.tune(op, budget=Budget(trials=asked), policy=False).fresh == 0
    whole = tracea.tune(op, budget=Budget(trials=60), policy=False)
    assert whole.is_used_up
    assert {len(found) for found in whole.trials.values()} == {2}
