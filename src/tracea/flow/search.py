"""One op's search as it goes on: the candidates of each variant, what the child is asked, and what is heard of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from tracea.core.op import Op
from tracea.doctor import decide, host
from tracea.doctor.policy import Guidance, guide
from tracea.errors import InvalidOption
from tracea.flow.compile import decision_for, excluded
from tracea.flow.evaluate import Candidate, Request
from tracea.flow.history import packable, recalled, schedule_of, store, study_key, tried, winners
from tracea.flow.load_note import note_load
from tracea.flow.progress import Listener
from tracea.kernels.registry import find
from tracea.kernels.variant import Variant
from tracea.optimizer.budget import Budget
from tracea.optimizer.isolation import IsolatedEvaluation
from tracea.optimizer.priors import load_heroes, seeds_for
from tracea.optimizer.samplers import Sampler
from tracea.optimizer.samplers import sampler as make_sampler
from tracea.optimizer.space import Row, SearchSpace
from tracea.optimizer.study import Progress, Study
from tracea.optimizer.trial import Trial
from tracea.profiler.machine import cores_allowed
from tracea.targets.target import for_threads

__all__ = ["GuidanceListener", "Search"]

_TOGETHER: Final = 4  # schedules that are compiled at once at most: each is chosen before the others are known

GuidanceListener = Callable[[Guidance], None]


class Search:
    """One op's search: what stays the same from trial to trial."""

    def __init__(
        self,
        *,
        op: Op,
        budget: Budget,
        sampler: str,
        threads: int,
        constants: tuple[int, ...],
        seed: int,
        listener: Listener,
        started: float,
        policy: bool,
        on_guidance: GuidanceListener | None,
    ) -> None:
        self.op = op
        self.budget = budget
        self.sampler = sampler
        self.threads = threads
        self.constants = constants
        self.seed = seed
        self.listener = listener
        self.started = started
        self.target = for_threads(host(), threads)
        self.fresh = 0
        self.policy = policy
        self.guidance: dict[str, Guidance] = {}
        self._on_guidance = on_guidance
        self._spaces: dict[str, SearchSpace] = {}
        self._recalled = recalled(op, threads, constants) if budget.trials > 1 else ()
        self._variant = ""
        self._found: dict[str, tuple[int, Trial | None]] = {}  # trials and the best one, by variant
        self._total = self.budget.trials
        self._reference: Candidate | None = None
        self._has_looked = False
        self._together = min(_TOGETHER, len(cores_allowed()))

    def variants(self, stated: str | None) -> list[Variant]:
        """Return the variants of ours that fit, most promising first."""
        refused = excluded(self.op, self.constants, library=False)
        made = decide(self.op, self.target, exclude=refused)
        fitting = [find(candidate.variant) for candidate in made.candidates]
        if stated is not None:
            if find(stated, of=type(self.op)).is_library:
                raise InvalidOption(
                    field="variant",
                    got=stated,
                    expected="one of ours, which has schedules",
                    remedy="leave it out: a library takes part in the final of every search",
                )
            decision_for(self.op, self.target, threads=self.threads, constants=self.constants, variant=stated)
            fitting = [find(stated)]
        self._total = max(self.budget.trials, len(fitting))
        return fitting

    def first_trials(self, variant: Variant) -> int:
        """Return how many schedules of a variant come before any search: the default, and what was best before.

        All that were tried count, and those of the first ones that are left: a default that was killed has no record.
        """
        space = self._space(variant)
        return max(1, len(self._tried_rows(variant, space).union(self._known_rows(variant, space))))

    @property
    def is_out_of_time(self) -> bool:
        """Whether the budget's seconds are spent."""
        return self.budget.seconds is not None and self._seconds_left() <= 0.0

    def is_used_up(self, variant: Variant, trials: Sequence[Trial]) -> bool:
        """Whether every schedule of a variant that may be tried was."""
        return len(trials) >= len(self._space(variant))

    def note_load(self) -> None:
        """Look once whether others use the cores; a search that takes all from its records asks for nothing."""
        if not self._has_looked:
            self._has_looked = True
            note_load()

    def request(self, trial: Trial) -> Any:
        """Return what the child is asked about a trial, which is timed beside the first schedule that was verified."""
        self.note_load()
        return self._asked([Candidate(variant=self._variant, schedule=schedule_of(trial.schedule).key)])

    def compile_first(self, variants: Sequence[Variant], evaluation: IsolatedEvaluation) -> None:
        """Compile the first schedules of all variants at once, where they are not tried yet and there are cores."""
        first: list[Candidate] = []
        for each in variants:
            space = self._space(each)
            done = self._tried_rows(each, space)
            rows = (row for row in self._known_rows(each, space) if row not in done)
            first += [Candidate(variant=each.id, schedule=schedule_of(space.decode(row)).key) for row in rows]
        if self.budget.seconds is not None:  # as many as take no longer than the first trial alone
            first = first[: self._together]
        if len(first) > 1 and self._together > 1:
            evaluation.prepare(self._asked(first, ahead=True))

    def _asked(self, candidates: Sequence[Candidate], *, ahead: bool = False) -> Any:
        """Return a request of the child: to judge and time one candidate, or to compile all of them ``ahead``."""
        return msgspec.to_builtins(
            Request(
                op=self.op.to_dict(),
                constants=self.constants,
                threads=self.threads,
                seed=self.seed,
                candidates=tuple(candidates),
                reference=self._reference,
                ahead=ahead,
            )
        )

    def run(self, variant: Variant, evaluation: IsolatedEvaluation, *, trials: int) -> tuple[Trial, ...]:
        """Search one variant's space up to ``trials`` in all; earlier trials count."""
        self._variant = variant.id
        study = Study(
            self._sampler(variant, self._space(variant)),
            evaluation,
            Budget(trials, None if self.budget.seconds is None else max(1e-3, self._seconds_left())),
            store=store(),
            key=study_key(self.op, variant.id, self.threads, self.constants),
            on_trial=lambda progress: self._tell(variant.id, progress),
            prepare=lambda ahead: evaluation.prepare(
                self._asked(
                    [Candidate(variant=variant.id, schedule=schedule_of(trial.schedule).key) for trial in ahead],
                    ahead=True,
                )
            ),
            together=self._together,
        )
        study.run()
        self.fresh += sum(not trial.is_resumed for trial in study.trials)
        self._found[variant.id] = (len(study.trials), study.best)
        if self._reference is None and study.trials and study.trials[0].is_ok:
            schedule = schedule_of(study.trials[0].schedule)
            self._reference = Candidate(variant=variant.id, schedule=schedule.key)
        return study.trials

    def _space(self, variant: Variant) -> SearchSpace:
        """Return what is left of a variant's space; what was measured before always is."""
        if variant.id not in self._spaces:
            heroes = [
                hero.schedule for hero in load_heroes() if (hero.op_key, hero.variant) == (self.op.key, variant.id)
            ]
            before = [schedule for name, schedule in self._recalled if name == variant.id]
            guidance = guide(
                self.op,
                self.target,
                variant,
                history=winners(self.op, variant.id, self.threads, self.constants) if self.policy else (),
                keep=[
                    *(schedule_of(values) for values in (*self._default(variant), *heroes, *before)),
                    *tried(self.op, variant.id, self.threads, self.constants),
                ],
                prune=self.policy,
            ).with_advice(map(schedule_of, before))
            self.guidance[variant.id] = guidance
            self._spaces[variant.id] = SearchSpace.enumerated(
                guidance.space.names, guidance.space.values, guidance.rows
            )
            if self._on_guidance is not None and self.policy:
                self._on_guidance(guidance)
        return self._spaces[variant.id]

    def _default(self, variant: Variant) -> tuple[Mapping[str, Any], ...]:
        assert variant.default_schedule is not None  # not a library's
        return (variant.default_schedule(self.op, self.target).values_,)

    def _tell(self, variant: str, progress: Progress) -> None:
        """Tell the listener of a trial; what it hears counts the trials of all variants, and knows their best."""
        self._found[variant] = (progress.done, progress.best)
        done = sum(count for count, _ in self._found.values())
        verified = [best for _, best in self._found.values() if best is not None]
        best = min(verified, key=lambda trial: trial.latency_ms or float("inf"), default=None)
        seconds = time.monotonic() - self.started
        self.listener(variant, replace(progress, best=best, done=done, total=max(self._total, done), seconds=seconds))

    def _sampler(self, variant: Variant, space: SearchSpace) -> Sampler:
        heroes = seeds_for(
            space,
            op_key=self.op.key,
            variant=variant.id,
            constants=packable(self.op, self.constants),
            heroes=load_heroes(),
        )
        similar = (space.encode(seed.values_) for seed in self.guidance[variant.id].seeds)
        seeds = list(dict.fromkeys((*self._known_rows(variant, space), *heroes, *(row for row in similar if row))))
        return make_sampler(self.sampler, space, seed=self.seed, seeds=seeds)

    def _tried_rows(self, variant: Variant, space: SearchSpace) -> set[Row]:
        """Return what was tried before, as far as the space has it."""
        before = tried(self.op, variant.id, self.threads, self.constants)
        return {row for schedule in before if (row := space.encode(schedule.values_)) is not None}

    def _known_rows(self, variant: Variant, space: SearchSpace) -> list[Row]:
        """Return the default, and what was best before the toolchain changed or elsewhere, where the space has it."""
        before = [schedule for name, schedule in self._recalled if name == variant.id]
        rows = (space.encode(schedule) for schedule in (*self._default(variant), *before))
        return list(dict.fromkeys(row for row in rows if row is not None))

    def _seconds_left(self) -> float:
        assert self.budget.seconds is not None  # asked only where there is a limit
        return self.budget.seconds - (time.monotonic() - self.started)
