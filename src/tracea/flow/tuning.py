"""Tuning: every variant's default schedule, then a search of the fastest variant's space, then a final with the library.

Candidates run in a child process under limits. Each is judged before it is timed; every trial is recorded before the sampler hears of it.
The final times the three fastest schedules and the library in one interleaved run, after all gates: that is what later decisions use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tracea.core.op import Op
from tracea.doctor import Decision, decide, host
from tracea.errors import RunError
from tracea.flow.compile import decision_for, excluded, for_threads
from tracea.flow.evaluate import Candidate, Request
from tracea.flow.history import store, study_key
from tracea.kernels.registry import find
from tracea.kernels.variant import Variant
from tracea.optimizer.budget import Budget
from tracea.optimizer.isolation import IsolatedEvaluation, IsolatedFunction, Limits
from tracea.optimizer.priors import load_heroes, seeds_for
from tracea.optimizer.samplers import Sampler
from tracea.optimizer.samplers import sampler as make_sampler
from tracea.optimizer.space import SearchSpace, Value
from tracea.optimizer.storage import StoredTrial, TrialRecord
from tracea.optimizer.study import Progress, Study
from tracea.optimizer.trial import Outcome, OutcomeKind, Trial
from tracea.semantic.schedule import Schedule
from tracea.targets.target import Target

__all__ = ["Tuned", "search_space", "tune"]

_FINALISTS: Final = 3
_LIMITS: Final = Limits(seconds=120.0)
_FINAL_LIMITS: Final = Limits(seconds=600.0)
_LIBRARY_MODULES: Final = ("torch",)  # what a child loads to have the library variants: see runtime/library.py
_CLOSE: Final = 1.15  # a variant whose default is within this factor of the fastest default is searched as well

Listener = Callable[[str, Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What a search found: trials by variant, and the decision that follows from all measurements."""

    op: Op
    trials: Mapping[str, tuple[Trial, ...]]
    decision: Decision
    fresh: int
    seconds: float

    @property
    def best(self) -> Trial | None:
        """The fastest verified trial of ours, or None."""
        good = [trial for trials in self.trials.values() for trial in trials if trial.is_ok]
        return min(good, key=lambda trial: trial.latency_ms or float("inf"), default=None)


def tune(
    op: Op,
    *,
    budget: Budget | None = None,
    sampler: str = "default",
    threads: int = 1,
    constants: Iterable[int] = (),
    variant: str | None = None,
    library: bool = True,
    listener: Listener | None = None,
    seed: int = 0,
) -> Tuned:
    """Search schedules of ``op`` on this machine within ``budget``; earlier trials of the same search count.

    Raises:
        InvalidOption: no variant fits, or the stated one does not. RunError: the child cannot load the evaluation.
    """
    started = time.monotonic()
    search = _Search(op, budget or Budget(), sampler, threads, tuple(constants), seed, listener)
    variants = search.variants(variant)
    trials: dict[str, tuple[Trial, ...]] = {}
    with search.evaluation(variants[0]) as evaluation:
        for each in variants:
            trials[each.id] = search.run(each, evaluation, trials=1, started=started)
        for each in _worth_searching(variants, trials):
            share = search.budget.trials - sum(len(found) for name, found in trials.items() if name != each.id)
            trials[each.id] = search.run(each, evaluation, trials=max(1, share), started=started)
    fresh = sum(not trial.is_resumed for found in trials.values() for trial in found)
    if fresh:
        search.final(with_library=library and variant is None)
    decision = decision_for(op, search.target, threads=threads, constants=constants, library=library)
    return Tuned(op=op, trials=trials, decision=decision, fresh=fresh, seconds=time.monotonic() - started)


def search_space(op: Op, variant: Variant, target: Target) -> SearchSpace:
    """Return a variant's valid schedules for an op as the optimizer's space."""
    assert variant.space is not None  # not a library's
    space = variant.space(op, target)
    return SearchSpace.enumerated(space.names, space.values, space.rows)


def _worth_searching(variants: list[Variant], trials: Mapping[str, tuple[Trial, ...]]) -> list[Variant]:
    """Return the variants whose first trial is close to the best one, fastest last: it gets what the others leave."""
    latencies = {each.id: _first_latency(trials[each.id]) for each in variants}
    found = [each for each in variants if latencies[each.id] < float("inf")]
    if not found:
        return variants[:1]
    fastest = min(latencies[each.id] for each in found)
    close = [each for each in found if latencies[each.id] <= _CLOSE * fastest]
    return [min(close, key=lambda each: latencies[each.id])]


def _first_latency(trials: tuple[Trial, ...]) -> float:
    latencies = [trial.latency_ms for trial in trials if trial.latency_ms is not None]
    return min(latencies, default=float("inf"))


class _Search:
    """One op's search: what stays the same from trial to trial."""

    def __init__(
        self,
        op: Op,
        budget: Budget,
        sampler: str,
        threads: int,
        constants: tuple[int, ...],
        seed: int,
        listener: Listener | None,
    ) -> None:
        self.op = op
        self.budget = budget
        self.sampler = sampler
        self.threads = threads
        self.constants = constants
        self.seed = seed
        self.listener = listener
        self.target = for_threads(host(), threads)

    def variants(self, stated: str | None) -> list[Variant]:
        """Return the variants of ours that fit, most promising first."""
        refused = excluded(self.op, self.constants, library=False)
        made = decide(self.op, self.target, exclude=refused)
        fitting = [find(candidate.variant) for candidate in made.candidates]
        if stated is None:
            return fitting
        decision_for(self.op, self.target, threads=self.threads, constants=self.constants, variant=stated)
        return [find(stated)]

    def default(self, variant: Variant) -> Candidate:
        """Return a variant under its default schedule."""
        assert variant.default_schedule is not None
        return Candidate(variant=variant.id, schedule=variant.default_schedule(self.op, self.target).key)

    def evaluation(self, reference: Variant) -> IsolatedEvaluation:
        """Return the evaluation in a child; each trial is timed beside the default schedule of ``reference``."""
        self.reference = self.default(reference)
        self.variant = reference

        def request(trial: Trial) -> Any:
            candidate = Candidate(variant=self.variant.id, schedule=_schedule(trial.schedule).key)
            return self._request((candidate,), self.reference)

        return IsolatedEvaluation("tracea.flow.evaluate:evaluate", _LIMITS, request=request)

    def run(
        self, variant: Variant, evaluation: IsolatedEvaluation, *, trials: int, started: float
    ) -> tuple[Trial, ...]:
        """Search one variant's space up to ``trials`` in all; earlier trials count."""
        self.variant = variant
        space = search_space(self.op, variant, self.target)
        listener = self.listener
        study = Study(
            self._sampler(variant, space),
            evaluation,
            Budget(trials, self._seconds_left(started)),
            store=store(),
            key=study_key(self.op, variant.id, self.threads),
            on_trial=None if listener is None else lambda progress: listener(variant.id, progress),
        )
        study.run()
        return study.trials

    def final(self, *, with_library: bool) -> None:
        """Judge the fastest schedules by all gates, time them beside the library, and record what came out."""
        identity = study_key(self.op, "", self.threads)
        found = store().find(
            op_key=self.op.key,
            hardware=identity.hardware_fingerprint,
            toolchain=identity.toolchain_fingerprint,
            kinds=(OutcomeKind.OK,),
        )
        ours = [trial for trial in found if not find(trial.record.key.variant).is_library]
        finalists = sorted(ours, key=lambda trial: trial.record.outcome.latency_ms or float("inf"))[:_FINALISTS]
        if not finalists:
            return
        libraries = self._libraries() if with_library else ()
        candidates = [_candidate_of(trial) for trial in finalists] + [Candidate(variant=name) for name in libraries]
        with IsolatedFunction("tracea.flow.evaluate:rank", _FINAL_LIMITS) as function:
            answer = function.call(self._request(tuple(candidates), None, _LIBRARY_MODULES if libraries else ()))
        if answer.kind is not OutcomeKind.OK:
            raise RunError(kernel=self.op.key, detail=f"the final comparison {answer.kind}: {answer.detail}")
        latencies = msgspec.json.decode(answer.value, type=list[float | None])
        for trial, latency_ms in zip(finalists, latencies, strict=False):
            if latency_ms is not None:
                store().retime(trial.id, latency_ms)
        for name, latency_ms in zip(libraries, latencies[len(finalists) :], strict=True):
            if latency_ms is not None:
                self._record_library(name, latency_ms)

    def _sampler(self, variant: Variant, space: SearchSpace) -> Sampler:
        assert variant.default_schedule is not None
        default = space.encode(variant.default_schedule(self.op, self.target).values_)
        heroes = seeds_for(space, op_key=self.op.key, variant=variant.id, heroes=load_heroes())
        seeds = [*([] if default is None else [default]), *(row for row in heroes if row != default)]
        return make_sampler(self.sampler, space, seed=self.seed, seeds=seeds)

    def _seconds_left(self, started: float) -> float | None:
        if self.budget.seconds is None:
            return None
        return max(1e-3, self.budget.seconds - (time.monotonic() - started))

    def _request(
        self, candidates: tuple[Candidate, ...], reference: Candidate | None, modules: tuple[str, ...] = ()
    ) -> Any:
        return msgspec.to_builtins(
            Request(
                op=self.op.to_dict(),
                constants=self.constants,
                threads=self.threads,
                seed=self.seed,
                candidates=candidates,
                reference=reference,
                modules=modules,
            )
        )

    def _libraries(self) -> tuple[str, ...]:
        refused = excluded(self.op, self.constants, library=True)
        made = decide(self.op, self.target, exclude=refused)
        return tuple(c.variant for c in made.candidates if find(c.variant).is_library)

    def _record_library(self, name: str, latency_ms: float) -> None:
        record = TrialRecord(
            key=study_key(self.op, name, self.threads),
            schedule={},
            outcome=Outcome(kind=OutcomeKind.OK, latency_ms=latency_ms),
            seconds=0.0,
            sampler="library",
            seed=self.seed,
            recorded_at=time.time(),
        )
        store().retime(store().add(record), latency_ms)


def _candidate_of(trial: StoredTrial) -> Candidate:
    return Candidate(variant=trial.record.key.variant, schedule=_schedule(trial.record.schedule).key)


def _schedule(values: Mapping[str, Value]) -> Schedule:
    return Schedule({name: value for name, value in values.items() if isinstance(value, int | str)})
