"""The final of a search: the fastest few of all variants and the library, judged by all gates, timed in turns.

Where they take far longer than the search said, its times hold for nobody, and the next few are timed as well; once
these took longer in the same way, the search's times count as that much longer.
What came out is what later decisions use. Only the latest final counts: two comparisons an hour apart saw two
different machines. There is no decision inside the noise: the last final's winner keeps a tie; before there was one,
the library, which runs where nothing was measured, unless ours has the lower median. Where it is too noisy to tell
after many more rounds than usual, the lower median is taken, and the record says that it is in doubt.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final

import msgspec

from tracea.core.op import Op
from tracea.doctor import decide, host
from tracea.flow.compile import excluded
from tracea.flow.evaluate import Candidate, Request
from tracea.flow.history import schedule_of, store, study_key, tried, verified
from tracea.flow.phases import phase
from tracea.kernels.registry import find
from tracea.optimizer.isolation import IsolatedFunction, Limits
from tracea.optimizer.space import Value
from tracea.optimizer.storage import StoredTrial, StudyKey, TrialRecord
from tracea.optimizer.trial import Outcome, OutcomeKind
from tracea.profiler.duration import shown_us
from tracea.targets.target import Target, for_threads

__all__ = ["LIBRARY_MODULES", "FinalTime", "final_times", "has_final", "is_in_doubt", "rivals", "run_final"]

RANK: Final = "tracea.flow.evaluate:rank"  # what the child runs

_FINALISTS: Final = 3
_HEATS: Final = 3
_DISPROVED: Final = 1.25  # times what the search said: then its times hold for nobody
_LIMITS: Final = Limits(seconds=600.0)
_NEWEST: Final = "newest_trial"  # of a comparison: the latest trial that it knew; without one it is from before
LIBRARY_MODULES: Final = ("torch",)  # what a child loads to have the library variants: see runtime/library.py


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalTime:
    """What the last final says of one candidate: the time that was measured, and the one by which it ranks.

    The two differ where a tie was decided for another that is ahead. ``is_unclear``: it was too noisy to tell it from
    the winner. ``comparison`` is what that rests on, by name, empty in rows from before it was kept.
    """

    variant: str
    schedule: Mapping[str, Value]
    latency_ms: float
    ranked_ms: float
    is_unclear: bool = False
    comparison: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def is_tie(self) -> bool:
        """Whether it lost to one from which it does not differ beyond the noise."""
        return (self.ties_with_first or self.is_behind) and not self.is_unclear

    @property
    def ties_with_first(self) -> bool:
        """Whether the race found it as fast as its winner, within the resolution."""
        return bool(self.comparison.get("is_tie"))

    @property
    def is_behind(self) -> bool:
        """Whether one that was measured no faster is ahead of it."""
        return self.latency_ms < self.ranked_ms and not self.is_unclear

    @property
    def standing(self) -> str:
        """How it stands to those ahead of it: "unclear", a "tie", or "decided"."""
        return "unclear" if self.is_unclear else "tie" if self.is_tie else "decided"

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the first one's time over its own, None of the first and of old rows."""
        low, high = (self.comparison.get(name) for name in ("low", "high"))
        return None if low is None or high is None else (low, high)

    @property
    def is_disturbed(self) -> bool:
        """Whether other programs disturbed more than half of the rounds that count."""
        return self.comparison.get("rounds_disturbed", 0.0) > 0.5 * self.comparison.get("rounds", 0.0)


def final_times(op: Op, threads: int, constants: Sequence[int] = ()) -> tuple[FinalTime, ...]:
    """Return what the last final of ``op`` on this machine measured, best first; nothing where there was none."""
    found = [
        FinalTime(
            variant=trial.record.key.variant,
            schedule=trial.record.schedule,
            latency_ms=rank_ms if trial.median_ms is None else trial.median_ms,
            ranked_ms=rank_ms,
            is_unclear=trial.is_unclear,
            comparison=trial.comparison,
        )
        for trial in verified(op, threads, constants)
        if (rank_ms := trial.rank_ms) is not None
    ]
    return tuple(sorted(found, key=lambda each: each.ranked_ms))


def has_final(op: Op, threads: int, constants: Sequence[int] = ()) -> bool:
    """Whether schedules of ``op`` were compared in a final on this machine, and it knew all that compete now.

    One that was interrupted leaves trials that none knew, whatever an earlier one said; so does another version of a
    library.
    """
    found = verified(op, threads, constants)
    known = [trial.comparison.get(_NEWEST, math.inf) for trial in found if trial.retimed_ms is not None]
    if not known or max(known) < _newest(found):
        return False
    return all(tried(op, name, threads, constants) for name in rivals(op, for_threads(host(), threads), constants))


def is_in_doubt(op: Op, threads: int, constants: Sequence[int] = ()) -> bool:
    """Whether other programs disturbed the last final of ``op``, or it was too noisy to tell who is fastest."""
    found = final_times(op, threads, constants)
    return bool(found) and (found[0].is_disturbed or any(each.is_unclear for each in found))


def rivals(op: Op, target: Target, constants: Sequence[int] = ()) -> tuple[str, ...]:
    """Return the libraries' variants of ``op`` that a child process can run, whether or not this one loaded them."""
    if not all(find_spec(name) for name in LIBRARY_MODULES):
        return ()
    refused = excluded(op, constants, library=True)
    own = {name: reason for name, reason in refused.items() if not find(name).is_library}
    fitting = (find(candidate.variant) for candidate in decide(op, target, exclude=own).candidates)
    return tuple(variant.id for variant in fitting if variant.is_library)


def run_final(op: Op, target: Target, *, constants: Sequence[int], threads: int, seed: int) -> None:
    """Compare the fastest schedules of ``op``, the last final's winner and the library, and record what came out.

    The library takes part wherever it is there, whatever the search was about: else it could not be compared later.
    """
    refused = excluded(op, constants, library=True)
    usable = [candidate.variant for candidate in decide(op, target, exclude=refused).candidates]
    earlier = verified(op, threads, constants)
    searched = [trial for trial in earlier if trial.record.key.variant in usable]
    finalists = _finalists(searched)
    libraries = rivals(op, target, constants)
    if not finalists:
        return
    request = Request(
        op=op.to_dict(),
        constants=tuple(constants),
        threads=threads,
        seed=seed,
        candidates=(),
        incumbent=_incumbent(earlier, libraries),
        modules=LIBRARY_MODULES if libraries else (),
    )
    with IsolatedFunction(RANK, _LIMITS) as function:
        heats = _heats(function, request, finalists, searched, libraries)
    if not heats:
        return  # ended from outside: what the last final said still holds, and there will be another
    decisive = next((heat for heat in reversed(heats) if heat.has_finisher), heats[-1])
    newest = {_NEWEST: float(_newest(earlier))}
    with store().at_once():  # half a final would decide, and two at once would mix
        for trial in verified(op, threads, constants):  # another process may have had one meanwhile
            if trial.retimed_ms is not None:
                store().retime(trial.id, None)
        for heat in heats:
            for trial, outcome in heat.ours:
                if not outcome.is_ok:
                    _record(trial.record.key, trial.record.schedule, seed, outcome, newest)
        for trial, outcome in decisive.ours:
            if outcome.is_ok:
                _retime(trial.id, outcome, newest)
        for name, outcome in decisive.libraries:
            _record(study_key(op, name, threads, constants), {}, seed, outcome, newest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heat:
    """What one race said: of our trials, and of the libraries."""

    ours: tuple[tuple[StoredTrial, Outcome], ...]
    libraries: tuple[tuple[str, Outcome], ...]

    @property
    def fastest(self) -> tuple[float, str]:
        """The least latency of all who raced, and whose it is; inf where all failed."""
        outcomes = (*((trial.record.key.variant, outcome) for trial, outcome in self.ours), *self.libraries)
        times = ((outcome.latency_ms, name) for name, outcome in outcomes)
        return min(((ms, name) for ms, name in times if ms is not None), default=(math.inf, ""))

    @property
    def placed(self) -> list[tuple[float, str]]:
        """All who have a time, as the race placed them: the latency that was measured, and whose it is."""
        outcomes = (*((trial.record.key.variant, outcome) for trial, outcome in self.ours), *self.libraries)
        done = sorted((each for each in outcomes if each[1].is_ok), key=lambda each: _ranked_ms(each[1]))
        return [(outcome.latency_ms or math.inf, name) for name, outcome in done]

    @property
    def killed(self) -> list[bool]:
        """Of everyone whether it was ended from outside."""
        return [outcome.was_killed for _, outcome in (*self.ours, *self.libraries)]

    @property
    def has_finisher(self) -> bool:
        """Whether one of ours has a time."""
        return any(outcome.is_ok for _, outcome in self.ours)

    @property
    def slower(self) -> dict[str, float]:
        """By how much those of a variant took longer than the search said, where that is much the same for all of them.

        Matrix tiles wait for weights that a search has in a cache, and a final has not: 1.3 on a Xeon.
        """
        factors: dict[str, list[float]] = {}
        for trial, outcome in self.ours:
            if (ms := outcome.latency_ms) is not None:
                factors.setdefault(trial.record.key.variant, []).append(ms / _searched_ms(trial))
        alike = {variant: each for variant, each in factors.items() if max(each) <= _DISPROVED * min(each)}
        return {variant: max(1.0, min(each)) for variant, each in alike.items()}

    @property
    def disproved(self) -> tuple[tuple[StoredTrial, float], ...]:
        """The trials that took far longer than the search said, with their latency."""
        return tuple(
            (trial, ms)
            for trial, outcome in self.ours
            if (ms := outcome.latency_ms) is not None and ms > _DISPROVED * _searched_ms(trial)
        )


def _heats(
    function: IsolatedFunction,
    request: Request,
    finalists: list[StoredTrial],
    searched: Sequence[StoredTrial],
    libraries: Sequence[str],
) -> list[_Heat]:
    """Race until the search's times name nobody who may be faster than the winner; the last heat is what counts.

    Where others took a core, a search takes a kernel that uses one core for as fast as one that uses two: then those
    whose times do not hold keep better ones out of the final. Of what was ended from outside nothing is returned: the
    first heat where everyone was, a later one where anybody was.
    """
    heats: list[_Heat] = []
    raced: list[StoredTrial] = []
    while finalists:
        candidates = (*map(_candidate, finalists), *(Candidate(variant=name) for name in libraries))
        count = len(candidates)
        phase(f"final: judge and time {f'{count} kernels side by side' if count > 1 else 'one kernel'}")
        outcomes = _ranked(function, msgspec.structs.replace(request, candidates=candidates))
        ours, theirs = outcomes[: len(finalists)], outcomes[len(finalists) :]
        heat = _Heat(
            ours=tuple(zip(finalists, ours, strict=True)), libraries=tuple(zip(libraries, theirs, strict=True))
        )
        if any(heat.killed) if heats else all(heat.killed):
            break
        if placed := heat.placed:
            ms, name = placed[0]
            how = "fastest" if ms == heat.fastest[0] else "first"
            phase(f"final: {how} {name}, {shown_us(1e3 * ms)} a call, judged and timed; near times are ties")
        heats.append(heat)
        raced += finalists
        slower = heat.slower if len(heats) > 1 else {}
        finalists = _next_heat(heat, searched, raced, slower) if len(heats) < _HEATS else []
    return heats


def _next_heat(
    last: _Heat, searched: Iterable[StoredTrial], raced: Sequence[StoredTrial], slower: Mapping[str, float]
) -> list[StoredTrial]:
    """Return who meets next, where the search's times do not hold: the best of each variant, and who may be faster.

    Where those of a variant who met were ``slower`` than in the search, its others will be too.
    """
    if not last.disproved:
        return []
    known = set(map(_candidate, raced))
    distinct = {_candidate(trial): trial for trial in sorted(searched, key=_searched_ms, reverse=True)}
    others = [trial for candidate, trial in distinct.items() if candidate not in known and _is_ours(trial)]
    hopes = {trial.id: _searched_ms(trial) * slower.get(trial.record.key.variant, 1.0) for trial in others}
    promising = sorted((each for each in others if hopes[each.id] < last.fastest[0]), key=_searched_ms)
    if not promising:
        return []
    trial, ms = max(last.disproved, key=lambda pair: pair[1] / _searched_ms(pair[0]))
    before, now = (shown_us(1e3 * each) for each in (_searched_ms(trial), ms))
    phase(f"final: {trial.record.key.variant} took {before} in the search, here {now}: the next fastest are timed too")
    best: dict[str, StoredTrial] = {}
    for trial, outcome in sorted(last.ours, key=lambda pair: _ranked_ms(pair[1])):
        if outcome.is_ok:
            best.setdefault(trial.record.key.variant, trial)
    return [*best.values(), *promising[:_FINALISTS]]


def _ranked_ms(outcome: Outcome) -> float:
    """Return the latency by which one ranks, as the race decided; inf where it failed."""
    return math.inf if outcome.latency_ms is None else outcome.metrics.get("rank_ms", outcome.latency_ms)


def _searched_ms(trial: StoredTrial) -> float:
    """Return the latency that the search found."""
    return trial.record.outcome.latency_ms or math.inf


def _is_ours(trial: StoredTrial) -> bool:
    return not find(trial.record.key.variant).is_library


def _finalists(earlier: Iterable[StoredTrial]) -> list[StoredTrial]:
    """Return the fastest in the search, the best of each other variant, and the winner of the last final."""
    ours = [trial for trial in earlier if _is_ours(trial)]
    distinct: dict[Candidate, StoredTrial] = {}
    for trial in sorted(ours, key=_searched_ms):
        distinct.setdefault(_candidate(trial), trial)
    chosen = list(distinct.values())[:_FINALISTS]
    for trial in distinct.values():  # the best of each other variant: what lost shall have lost to something
        if trial.record.key.variant not in {other.record.key.variant for other in chosen}:
            chosen.append(trial)
    defended = [trial for trial in ours if trial.retimed_ms is not None]
    if defended:
        winner = min(defended, key=lambda trial: trial.rank_ms or float("inf"))
        if _candidate(winner) not in map(_candidate, chosen):
            chosen.append(winner)
    return chosen


def _incumbent(earlier: Iterable[StoredTrial], libraries: Sequence[str]) -> Candidate | None:
    """Return who keeps a tie: the last final's winner, else the library, else (None) the search's fastest."""
    compared = [trial for trial in earlier if trial.retimed_ms is not None]
    if compared:
        return _candidate(min(compared, key=lambda trial: trial.rank_ms or float("inf")))
    return Candidate(variant=libraries[0]) if libraries else None


def _ranked(function: IsolatedFunction, request: Request) -> list[Outcome]:
    """Return an outcome each; where one takes the child down, each is tried alone, then the sound ones meet again."""
    answer = function.call(msgspec.to_builtins(request))
    if answer.kind is OutcomeKind.OK:
        return msgspec.json.decode(answer.value, type=list[Outcome])
    if len(request.candidates) == 1:
        return [Outcome(kind=answer.kind, detail=answer.detail)]
    outcomes = [
        _ranked(function, msgspec.structs.replace(request, candidates=(candidate,)))[0]
        for candidate in request.candidates
    ]
    sound = [index for index, outcome in enumerate(outcomes) if outcome.is_ok]
    if 1 < len(sound) < len(outcomes):
        candidates = tuple(request.candidates[index] for index in sound)
        together = _ranked(function, msgspec.structs.replace(request, candidates=candidates))
        for index, outcome in zip(sound, together, strict=True):
            outcomes[index] = outcome
    return outcomes


def _newest(found: Iterable[StoredTrial]) -> int:
    """Return the number of the latest of our trials, 0 where there is none; a library's are made by finals."""
    return max((trial.id for trial in found if _is_ours(trial)), default=0)


def _record(
    key: StudyKey, schedule: Mapping[str, Value], seed: int, outcome: Outcome, newest: Mapping[str, float]
) -> None:
    """Keep what the final says of a library, or of a schedule that failed it, which no longer counts."""
    if outcome.was_killed:
        return
    record = TrialRecord(
        key=key,
        schedule=dict(schedule),
        outcome=outcome,
        seconds=0.0,
        sampler="final",
        seed=seed,
        recorded_at=time.time(),
    )
    number = store().add(record)
    if outcome.is_ok:
        _retime(number, outcome, newest)


def _retime(number: int, outcome: Outcome, newest: Mapping[str, float]) -> None:
    """Note by which latency a candidate ranks, as the race decided, which was measured, and what the final knew."""
    comparison = {**outcome.metrics, **newest}
    store().retime(number, _ranked_ms(outcome), median_ms=outcome.latency_ms, comparison=comparison)


def _candidate(trial: StoredTrial) -> Candidate:
    return Candidate(variant=trial.record.key.variant, schedule=schedule_of(trial.record.schedule).key)
