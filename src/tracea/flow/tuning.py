"""Tuning: every variant's default schedule, a search of the fastest variants' spaces, and a final with the library.

What was best before the toolchain changed, or elsewhere, is measured again first: it says what to try, and decides
nothing by itself. Candidates run in a child process under limits. Each is judged before it is timed; every trial is
recorded before the sampler hears of it. The final times the three fastest schedules and the library in one interleaved
run, after all gates: that is what later decisions use.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tracea.core.op import Op
from tracea.doctor import Decision
from tracea.doctor.policy import Guidance
from tracea.errors import InvalidOption
from tracea.flow.asked import check_constants, check_guided, check_listener, check_op, check_timeable
from tracea.flow.compile import decision_for
from tracea.flow.final import FinalTime, final_times, has_final, rivals, run_final
from tracea.flow.history import failure, refused, schedule_of
from tracea.flow.progress import Listener, shown_unless_heard
from tracea.flow.room import require_room
from tracea.flow.search import GuidanceListener, Search
from tracea.kernels.variant import Variant
from tracea.optimizer.budget import Budget, check_budget
from tracea.optimizer.isolation import IsolatedEvaluation, Limits
from tracea.optimizer.samplers import check_sampler
from tracea.optimizer.space import SearchSpace
from tracea.optimizer.trial import Trial
from tracea.profiler.machine import cores_allowed
from tracea.runtime.native import check_threads
from tracea.semantic.schedule import Schedule
from tracea.targets.target import Target

__all__ = ["Tuned", "check_timed_threads", "search_space", "tune"]

EVALUATE: Final = "tracea.flow.evaluate:evaluate"  # what the child runs

_LIMITS: Final = Limits(seconds=120.0)
_CLOSE: Final = 1.15  # a variant whose default is within this factor of the fastest default is searched as well,
_CLOSE_SHARE: Final = 4  # with this part of the trials: 1 / 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What a search found: trials by variant, and the decision that follows from all measurements.

    ``final`` is the last comparison in turns, best first: its times decide, those of ``trials`` say what to compare.
    ``guidance`` says of each variant that was searched what the policy left out and put first, and why. ``is_used_up``:
    every schedule that may be tried was. ``refused_libraries``: those without a time in the final, each with why.
    ``refused`` are schedules of which the last word was a failure, such as the final's.
    """

    op: Op
    trials: Mapping[str, tuple[Trial, ...]]
    decision: Decision
    fresh: int
    seconds: float
    guidance: Mapping[str, Guidance] = field(default_factory=dict[str, Guidance])
    final: tuple[FinalTime, ...] = ()
    is_used_up: bool = False
    refused_libraries: Mapping[str, str] = field(default_factory=dict[str, str])
    refused: frozenset[tuple[str, Schedule]] = frozenset()

    @property
    def best(self) -> Trial | None:
        """The fastest verified trial of ours that no final refused, or None."""
        good = [
            trial
            for variant, trials in self.trials.items()
            for trial in trials
            if trial.is_ok and (variant, schedule_of(trial.schedule)) not in self.refused
        ]
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
    policy: bool = True,
    on_guidance: GuidanceListener | None = None,
) -> Tuned:
    """Search schedules of ``op`` on this machine within ``budget``; earlier trials of the same search count.

    ``listener(variant, progress)`` hears of each trial: how many there were of how many, over all variants, and the
    fastest so far. Without one, progress is shown on standard error. ``policy`` False searches every schedule of a
    variant, and begins with none that won for similar shapes; ``on_guidance`` hears, before a variant's
    first trial, what the policy says of it. Each variant that fits tries its first schedule, however few trials are
    allowed: what was never timed could not be compared.

    Raises:
        InvalidInput: the op is none, or has nothing to time; the constants, the budget or the listener are none.
        InvalidOption: no variant fits, or the stated one does not; more threads than this process may use cores: a
        search times, and threads that wait for each other's core have no time of their own. RunError: the child cannot
        load the evaluation. ResourceExceeded: the child may not hold the problem's arrays.
    """
    check_op(op, "tune")
    known = check_constants(op, constants)
    allowed = check_budget(budget, without=f"{Budget().trials} trials") or Budget()
    check_listener(listener)
    check_guided(on_guidance)
    check_timed_threads(threads)
    check_sampler(sampler)
    check_timeable(op)
    require_room(op, "tuning", process_bytes=_LIMITS.memory_bytes)
    with shown_unless_heard(listener) as heard:
        search = Search(
            op=op,
            budget=allowed,
            sampler=sampler,
            threads=threads,
            constants=known,
            seed=seed,
            listener=heard,
            started=time.monotonic(),
            policy=policy,
            on_guidance=on_guidance,
        )
        return _searched(search, search.variants(variant), library=library)


def _searched(search: Search, variants: Sequence[Variant], *, library: bool) -> Tuned:
    """Try every variant's first schedules, search the fastest ones, and let the best three meet in a final."""
    trials: dict[str, tuple[Trial, ...]] = {}
    with IsolatedEvaluation(EVALUATE, _LIMITS, request=search.request) as evaluation:
        search.compile_first(variants, evaluation)
        for each in variants:
            if trials and search.is_out_of_time:
                break
            trials[each.id] = search.run(each, evaluation, trials=search.first_trials(each))
        begun = [each for each in variants if each.id in trials]
        close = _worth_searching(begun, trials)
        # Where the spaces of those are used up, the others have the rest: a search ends by its budget or with all
        # tried, so that the same one again finds nothing left to do, whatever a final made of the order.
        slower = sorted(begun, key=lambda each: _first_latency(trials[each.id]))
        for place, each in enumerate((*close, *slower)):
            if search.is_out_of_time:
                break
            left = search.budget.trials - sum(len(found) for found in trials.values())
            part = left // _CLOSE_SHARE if place < len(close) - 1 else left
            if part > 0:
                trials[each.id] = search.run(each, evaluation, trials=len(trials[each.id]) + part)
    op, threads, constants = search.op, search.threads, search.constants
    if search.fresh or not has_final(op, threads, constants):  # one that was interrupted before its final gets it now
        search.note_load()
        run_final(op, search.target, constants=constants, threads=threads, seed=search.seed)
    return Tuned(
        op=op,
        trials=trials,
        refused=refused(op, threads, constants),
        decision=decision_for(op, search.target, threads=threads, constants=constants, library=library),
        fresh=search.fresh,
        seconds=time.monotonic() - search.started,
        guidance={name: found for name, found in search.guidance.items() if name in trials},
        final=final_times(op, threads, constants),
        is_used_up=all(each.id in trials and search.is_used_up(each, trials[each.id]) for each in variants),
        refused_libraries={
            name: because
            for name in rivals(op, search.target, constants)
            if (because := failure(op, name, threads, constants))
        },
    )


def check_timed_threads(threads: int) -> None:
    """Refuse a number of threads at which nothing can be timed here; to run on more threads than cores is allowed.

    Raises:
        InvalidOption: it is none from 1 on, or more than the cores that this process may use.
    """
    check_threads(threads)
    cores = len(cores_allowed())
    if threads > cores:
        raise InvalidOption(
            field="threads",
            got=threads,
            expected=f"1 to {cores}, the cores that this process may use",
            remedy=f"threads={cores}, or allow it more cores (taskset, cpuset)",
        )


def search_space(op: Op, variant: Variant, target: Target) -> SearchSpace:
    """Return a variant's valid schedules for an op as the optimizer's space, whole."""
    assert variant.space is not None  # not a library's
    space = variant.space(op, target)
    return SearchSpace.enumerated(space.names, space.values, space.rows)


def _worth_searching(variants: Sequence[Variant], trials: Mapping[str, tuple[Trial, ...]]) -> list[Variant]:
    """Return the variants whose default is close to the fastest, which comes last: it gets what the others leave.

    So are those whose default was killed from outside: nothing is known of how fast they are.
    """
    fastest = _first_latency(trials[_fastest(variants, trials)])
    close = [
        each
        for each in variants
        if _first_latency(trials[each.id]) <= _CLOSE * fastest or any(map(_was_killed, trials[each.id]))
    ]
    return sorted(close, key=lambda each: -_first_latency(trials[each.id]))


def _fastest(variants: Sequence[Variant], trials: Mapping[str, tuple[Trial, ...]]) -> str:
    """Return the variant whose first trials are the fastest; where all failed, the most promising one."""
    return min((each.id for each in variants if each.id in trials), key=lambda name: _first_latency(trials[name]))


def _was_killed(trial: Trial) -> bool:
    return trial.outcome is not None and trial.outcome.was_killed


def _first_latency(trials: tuple[Trial, ...]) -> float:
    latencies = [trial.latency_ms for trial in trials if trial.latency_ms is not None]
    return min(latencies, default=float("inf"))
