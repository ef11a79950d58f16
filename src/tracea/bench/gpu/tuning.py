"""Stage ``tuning``: a search of the hero problems; each schedule is proved, compiled, judged and only then timed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec

from tracea import __version__
from tracea.bench.gpu.candidates import fitting, tried_schedules, tried_space
from tracea.bench.gpu.compile_ahead import dry_problems
from tracea.bench.gpu.correctness import judge_on_device
from tracea.bench.gpu.problems import GpuProblem, hero_problems
from tracea.bench.gpu.session import Item, Session, closing
from tracea.bench.gpu.settings import ItemOutcome, Status
from tracea.bench.gpu.timed import TimedProblem
from tracea.flow.gpu import compile_for_gpu
from tracea.flow.history import schedule_of
from tracea.flow.verify import reduced
from tracea.kernels.variant import Variant
from tracea.optimizer.budget import Budget
from tracea.optimizer.priors import Hero, Provenance
from tracea.optimizer.samplers import sampler
from tracea.optimizer.study import Study
from tracea.optimizer.trial import Outcome, OutcomeKind, Trial
from tracea.profiler.environment import capture
from tracea.profiler.gpu_timer import DeviceTimed, compare_on_device
from tracea.semantic.schedule import Schedule

__all__ = ["items"]

_PAIRS = 5
_DRY_TRIALS = 2
_TOO_LATE = 3.0  # seconds left in which no further problem is begun


def items(session: Session) -> Iterator[Item]:
    """Yield an item for each hero problem; what the stage has left is shared by the problems to come."""
    chosen = dry_problems(session, hero_problems())
    for number, problem in enumerate(chosen):
        left = len(chosen) - number
        yield Item(name=problem.name, run=lambda problem=problem, left=left: _tuned(session, problem, left))


def _tuned(session: Session, problem: GpuProblem, problems_left: int) -> ItemOutcome:
    seconds = session.seconds_left / problems_left
    if seconds < _TOO_LATE:
        return ItemOutcome(status=Status.SKIPPED, detail=f"the stage has {session.seconds_left:.0f} s left")
    timed = TimedProblem(session, problem)
    with closing(timed.close) as refused:
        outcome = _Search(session, timed, seconds).run()
    return session.failed_after(outcome, refused)


class _Search:
    def __init__(self, session: Session, timed: TimedProblem, seconds: float) -> None:
        self.session = session
        self.timed = timed
        self.op = timed.op
        self.end = time.monotonic() + seconds
        self.environment = capture(threads=1)
        self.calls: dict[tuple[str, str], DeviceTimed] = {}

    def run(self) -> ItemOutcome:
        """Search the variants, the most promising one longest; return the best with its record."""
        studies: dict[str, Study] = {}
        variants = fitting(self.op, self.session.target)
        for number, variant in enumerate(variants):
            share = (self.end - time.monotonic()) * (1.0 if number == len(variants) - 1 else 0.7)
            studies[variant.id] = self._study(variant, max(0.5, share))
            studies[variant.id].run()
        trials = {name: study.trials for name, study in studies.items()}
        counts = {name: {kind.value: n for kind, n in study.outcomes.items()} for name, study in studies.items()}
        wrong = [
            f"{name} {schedule_of(trial.schedule).key}: {trial.outcome.detail}"
            for name, found in trials.items()
            for trial in found
            if trial.outcome is not None and trial.outcome.kind is OutcomeKind.WRONG
        ]
        best = {name: study.best for name, study in studies.items() if study.best is not None}
        if not best:
            details = [t.outcome.detail for found in trials.values() for t in found if t.outcome is not None]
            if self.session.is_dry and not wrong:
                return self.session.outcome([], outcomes=counts, up_to=details[:1])
            return self.session.outcome(wrong or [f"no schedule could be timed: {details[:1]}"], outcomes=counts)
        variant, trial = min(best.items(), key=lambda each: each[1].latency_ms or float("inf"))
        hero = self._hero(variant, trial, sum(map(len, trials.values())))
        log = [
            {"variant": name, "schedule": schedule_of(t.schedule).key, "ms": t.latency_ms, "was": t.outcome.kind.value}
            for name, found in trials.items()
            for t in found
            if t.outcome is not None
        ]
        return self.session.outcome(wrong, outcomes=counts, hero=msgspec.to_builtins(hero), trials=log)

    def _study(self, variant: Variant, seconds: float) -> Study:
        settings = self.session.settings
        trials = _DRY_TRIALS if self.session.is_dry else settings.trials
        schedules = tried_schedules(self.op, variant, self.session.target, trials=settings.trials, seed=settings.seed)
        space = tried_space(schedules)
        first = space.encode(schedules[0].values_)
        return Study(
            sampler("default", space, seed=settings.seed, seeds=[] if first is None else [first]),
            lambda trial: self._evaluate(variant, schedule_of(trial.schedule)),
            Budget(trials, seconds),
            compare=None if self.session.is_dry else lambda leaders: self._compare(variant, leaders),
        )

    def _evaluate(self, variant: Variant, schedule: Schedule) -> Outcome:
        name = f"{variant.id} {schedule.key}"
        if name in self.session.avoid:
            return Outcome(kind=OutcomeKind.CRASHED, detail=f"in an earlier process: {self.session.avoid[name]}")
        self.session.note(name)
        try:
            return self._verified_and_timed(variant, schedule, name)
        except Exception as error:
            self.session.require_sound(f"{name}: {error}")
            raise

    def _verified_and_timed(self, variant: Variant, schedule: Schedule, name: str) -> Outcome:
        compiled = self.session.know_compiled(compile_for_gpu(self.op, variant.id, schedule, self.session.target))
        if not self.session.is_dry:
            failed = judge_on_device(self.session, compiled, reduced(self.op, schedule), runs=2, hashes=2)
            if failed:
                self.session.require_sound(f"{name}: {failed[0]}")
                return Outcome(kind=OutcomeKind.WRONG, detail=failed[0])
        call = self.timed.ours(compiled)
        if not self.session.is_dry and (wrong := self.timed.check(call)):
            return Outcome(kind=OutcomeKind.WRONG, detail=wrong)
        self.calls[variant.id, schedule.key] = call
        measured = self._times({name: call})[name]
        return Outcome(kind=OutcomeKind.OK, latency_ms=measured / 1e3)

    def _compare(self, variant: Variant, leaders: Any) -> list[float | None]:
        keys = [(variant.id, schedule_of(leader.schedule).key) for leader in leaders]
        timed = self._times({f"{name} {key}": self.calls[name, key] for name, key in keys})
        return [timed[f"{name} {key}"] / 1e3 for name, key in keys]

    def _times(self, calls: dict[str, DeviceTimed]) -> dict[str, float]:
        """Return microseconds of each call, timed in turns."""
        if self.session.emulated is not None:
            self.session.emulated.forget()  # no results from here on: the null driver refuses to tell a time
        found = compare_on_device(
            self.session.driver,
            calls,
            stream=self.session.stream,
            environment=self.environment,
            input_sets=self.timed.input_sets,
            flush=self.timed.flush,
            pairs=_PAIRS,
        )
        return {name: measurement.median_us for name, measurement in found.items()}

    def _hero(self, variant: str, trial: Trial, trials: int) -> Hero:
        facts = self.session.driver.facts()
        assert trial.latency_ms is not None  # the best one succeeded
        return Hero(
            op_key=self.op.key,
            variant=variant,
            schedule=dict(trial.schedule),
            record=Provenance(
                hardware={"gpu": facts.name, "target": self.session.target.name, "sm_count": facts.sm_count},
                toolchain={"driver": facts.driver_version, "tracea": __version__},
                latency_ms=trial.latency_ms,
                trials=trials,
                recorded_at=time.time(),
            ),
        )
