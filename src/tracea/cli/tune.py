"""``tracea tune``: search the schedules of one op on this machine."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tracea.cli.console import counted, print_json, print_table, printable
from tracea.cli.problem import parse_constants, parse_op
from tracea.cli.problem_flags import Kind, ProblemFlags
from tracea.flow.progress import shown_progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracea.doctor.policy import Guidance
    from tracea.flow.final import FinalTime
    from tracea.flow.tuning import Tuned
    from tracea.optimizer.study import Progress as StudyProgress
    from tracea.optimizer.trial import Trial

__all__ = ["tune"]

_SHOWN_TRIALS = 5


def tune(
    kind: Kind,
    /,
    *,
    problem: ProblemFlags = ProblemFlags(),  # noqa: B008  # frozen
    trials: int = 50,
    seconds: float | None = None,
    sampler: str = "default",
    threads: int = 1,
    variant: str | None = None,
    seed: int = 0,
    policy: bool = True,
    log: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Search the schedules of one op: each is proved, judged and only then timed; every trial is kept.

    Example: tracea tune gemm -m 2048 -n 2048 -k 2048 --dtype f32

    Parameters
    ----------
    trials
        Trials at most; those of earlier runs count. Each variant that fits tries its first schedule in any case.
    seconds
        Seconds at most.
    sampler
        default, gp, evolution, random, grid, or tpe, which needs the extra ``tune``.
    threads
        Threads that the op will run on: at most the cores that this process may use.
    variant
        Search this variant only.
    seed
        Seed of the sampler.
    policy
        Leave out schedules that rules rule out, and begin with what won for similar shapes; --no-policy searches all.
    log
        Write each trial of this run here as it ends: a .csv file, or JSON lines (.jsonl).
    json
        Print the result as JSON.
    """
    op = parse_op(kind, problem, target="host")
    from tracea.cli.budget import budget_given
    from tracea.cli.trial_log import TrialLog
    from tracea.flow.asked import check_timeable
    from tracea.flow.load_note import load_noted_once
    from tracea.flow.phases import telling
    from tracea.flow.tuning import check_timed_threads
    from tracea.flow.tuning import tune as search
    from tracea.optimizer.samplers import check_sampler

    check_timed_threads(threads)
    check_sampler(sampler)
    check_timeable(op)  # before a log is begun
    budget = budget_given(trials, seconds)
    logged = nullcontext() if log is None else TrialLog(log, op.key)
    with logged as written, shown_progress() as progress, telling(progress.phase):

        def warn(busy: object) -> None:
            progress.note(f"warning: {busy}")

        progress.phase(f"tune {op.key}")

        def guided(guidance: Guidance) -> None:
            if guidance.narrowings:
                progress.note(guidance.reasons[0])
            for reason in guidance.dropped:
                progress.note(f"note: {reason}")
            if written is not None:
                written.guided(guidance)

        def listen(variant: str, heard: StudyProgress) -> None:
            progress(variant, heard)
            if written is not None:
                written(variant, heard)

        with load_noted_once(warn):
            tuned = search(
                op,
                budget=budget,
                sampler=sampler,
                threads=threads,
                constants=parse_constants(problem),
                variant=variant,
                seed=seed,
                listener=listen,
                policy=policy,
                on_guidance=guided,
            )
    if json:
        print_json(_as_dict(tuned))
    else:
        _print(tuned, trials)
    return 0 if tuned.best is not None else 1


def _as_dict(tuned: Tuned) -> dict[str, Any]:
    return {
        "op": tuned.op.to_dict(),
        "trials": {name: [_trial_dict(trial) for trial in found] for name, found in tuned.trials.items()},
        "best": None if tuned.best is None else _trial_dict(tuned.best),
        "final": [
            {
                "variant": each.variant,
                "schedule": dict(each.schedule),
                "latency_ms": each.latency_ms,
                "ranked_ms": each.ranked_ms,
                "standing": each.standing if index else "first",
                "first_over_it": each.interval,
                "rounds": each.comparison.get("rounds"),
                "rounds_disturbed": each.comparison.get("rounds_disturbed"),
                "busy_cores": each.comparison.get("busy_cores"),
            }
            for index, each in enumerate(tuned.final)
        ],
        "decision": tuned.decision.to_dict(),
        "policy": {name: guidance.to_dict() for name, guidance in tuned.guidance.items()},
        "fresh": tuned.fresh,
        "seconds": tuned.seconds,
    }


def _trial_dict(trial: Trial) -> dict[str, Any]:
    outcome = trial.outcome
    return {
        "number": trial.number,
        "schedule": dict(trial.schedule),
        "latency_ms": trial.measured_ms,
        "outcome": None if outcome is None else outcome.kind.value,
        "detail": "" if outcome is None else outcome.detail,
        "is_resumed": trial.is_resumed,
    }


def _print(tuned: Tuned, asked: int) -> None:
    from tracea.profiler.duration import shown_us

    found = [(name, trial) for name, trials in tuned.trials.items() for trial in trials]
    good = sorted((item for item in found if item[1].is_ok), key=lambda item: item[1].measured_ms or 0.0)
    print(
        f"{tuned.op.key}: {counted(len(found), 'trial')}, {tuned.fresh} of them now, {len(good)} verified, "
        f"{len(found) - len(good)} refused, {tuned.seconds:.1f} s"
    )
    for name, trial in found:
        if (outcome := trial.outcome) is not None and not trial.is_ok:
            judged, later = ("not judged", "; a later run tries it") if outcome.was_killed else ("refused", "")
            said = f"{_schedule_text(trial.schedule)}: {outcome.kind}: {outcome.detail}{later}"
            print(printable(f"  {judged} {name} {said}"))
    variants = sum(bool(trials) for trials in tuned.trials.values())
    if len(found) == variants > asked:
        print(f"more than the {asked} asked for: each of the {variants} variants that fit tries its first schedule")
    if tuned.is_used_up and len(found) < asked:
        print(f"fewer than the {asked} asked for: every schedule of the {variants} variants that may be tried was")
    rate = tuned.op.flops / 1e6
    first = "" if len(good) <= _SHOWN_TRIALS else f", the first {_SHOWN_TRIALS} of {len(good)}"
    how = "each timed by itself, or as its last final timed it: the fastest go into a final"
    print(f"the search, fastest first{first}, {how}:")
    print_table(
        ("variant", "schedule", "time", "GFLOP/s"),
        [
            (name, _schedule_text(trial.schedule), shown_us(1e3 * latency_ms), f"{rate / latency_ms:.1f}")
            for name, trial in good[:_SHOWN_TRIALS]
            if (latency_ms := trial.measured_ms) is not None
        ],
        numbers=(2, 3),
    )
    if tuned.final:
        print("the final, best first, judged by all gates and timed in turns; these times decide:")
        print_table(
            ("variant", "schedule", "time", "GFLOP/s", ""),
            [
                (
                    each.variant,
                    _schedule_text(each.schedule),
                    shown_us(1e3 * each.latency_ms),
                    f"{rate / each.latency_ms:.1f}",
                    _tie(each, tuned.final),
                )
                for each in tuned.final
            ],
            numbers=(2, 3),
        )
        times = [each.latency_ms for each in tuned.final]
        if times != sorted(times):
            print("where times are out of order, the race could not tell them apart: its rule for ties has the order")
        _print_disturbed(tuned.final[0])
    _print_decision(tuned)


def _print_disturbed(first: FinalTime) -> None:
    """Say so where most rounds of the final are those of a busy machine; they are counted for all at once."""
    if first.is_disturbed:
        rounds, disturbed, busy = (first.comparison.get(key) for key in ("rounds", "rounds_disturbed", "busy_cores"))
        used = "" if busy is None else f", and others used {busy:.1f} cores meanwhile"
        print(f"in doubt: {disturbed:.0f} of the final's {rounds:.0f} rounds were disturbed by other programs{used}")


def _tie(each: FinalTime, final: Sequence[FinalTime]) -> str:
    """Say with whom a candidate ties, and where nobody can tell."""
    from tracea.profiler.duration import shown_us

    if each.is_unclear:
        return "too noisy to tell"
    if each is final[0] or not each.is_tie:
        return ""
    if each.ties_with_first:
        return "a tie with the first"
    ahead = [other for other in final if not other.is_behind and other.latency_ms <= each.ranked_ms]
    if not ahead:
        return "a tie"
    if ahead[-1] is final[0]:
        return "a tie with the first"
    alike = [other for other in final if other.variant == ahead[-1].variant and other is not each]
    which = f" at {shown_us(1e3 * ahead[-1].latency_ms)}" if len(alike) > 1 else ""
    return f"a tie with {ahead[-1].variant}{which}"


def _print_decision(tuned: Tuned) -> None:
    """Print what will run; a library that took part in the final without being loaded here is not rejected for that."""
    from tracea.flow.explanation_text import tie_of_choice

    timed = [each.variant for each in tuned.final]
    absent = sorted({each.variant for each in tuned.decision.rejections} & set(timed))
    judged = {*absent, *tuned.refused_libraries}
    left = tuple(each for each in tuned.decision.rejections if each.variant not in judged)
    reason = tie_of_choice(tuned.decision, tuned.final) or tuned.decision.reason
    if timed and timed[0] in absent:  # which is faster, or ties: two are not the fastest
        reason = reason.replace("the fastest measured", "the first of those that run here", 1)
    print(replace(tuned.decision, rejections=left, reason=reason).explain())
    for name in absent:
        print(f"  {name} was timed in a process of its own; it competes where its library is loaded, and", end=" ")
        print(_there(name, tuned.final))
    for name, because in tuned.refused_libraries.items():
        print(f"  {name} was not timed: in the final it failed: {because}")


def _there(name: str, final: Sequence[FinalTime]) -> str:
    """Say how a library stands where it is loaded."""
    first, *others = final
    if name != first.variant:
        (found,) = (each for each in others if each.variant == name)
        if found.is_unclear:
            return f"is behind there: too noisy to tell it from {first.variant}"
        return "is behind there, by the race's rule for ties" if found.is_tie else "loses there"
    if any(each.is_unclear for each in others):
        return "runs there: it was first, in doubt"
    return f"runs there: it was {'first, in a tie' if any(each.is_tie for each in others) else 'the fastest'}"


def _schedule_text(schedule: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(schedule.items())) or "its own"
