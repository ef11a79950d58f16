"""Study: ask, evaluate, record, tell, until the budget is spent; then re-time the best few side by side.

Everything is injected: the evaluation (a function from a Trial to an Outcome), the comparison, the store and the
listener. Each outcome is recorded before the sampler hears of it, so that a study that is killed at any moment
resumes with every finished trial.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from tracea.errors import CacheError, InvalidOption
from tracea.optimizer.budget import Budget
from tracea.optimizer.samplers import Sampler
from tracea.optimizer.space import Row
from tracea.optimizer.storage import StoredTrial, StudyKey, TrialRecord, TrialStore
from tracea.optimizer.trial import NotStarted, Outcome, OutcomeKind, Trial

# One-shot timings mis-rank near-equals by 20 to 40 % on a shared machine: this many leaders meet in one interleaved
# run.
FINALISTS: Final = 3

Evaluate: TypeAlias = Callable[[Trial], Outcome]
Prepare: TypeAlias = Callable[[Sequence[Trial]], object]
Compare: TypeAlias = Callable[[Sequence[Trial]], Sequence[float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a listener is told after each trial; ``total`` is the smaller of the budget's trials and the space."""

    trial: Trial
    best: Trial | None
    done: int
    total: int
    seconds: float


class Study:
    """One search, resumable.

    ``compare`` times the finalists interleaved and returns a latency in milliseconds for each, None for one that
    failed this time. With ``store`` and ``key``, earlier trials of the same key count towards the budget's trials,
    and new ones are recorded as they end. ``target_ms`` ends the search early. ``prepare`` hears of up to ``together``
    trials before the first of them is evaluated: what it does for all at once, such as compiling, they need not wait
    for one by one. The sampler has then been asked for each before it knows of the others.
    """

    def __init__(
        self,
        sampler: Sampler,
        evaluate: Evaluate,
        budget: Budget | None = None,
        *,
        compare: Compare | None = None,
        store: TrialStore | None = None,
        key: StudyKey | None = None,
        on_trial: Callable[[Progress], None] | None = None,
        target_ms: float | None = None,
        prepare: Prepare | None = None,
        together: int = 1,
    ) -> None:
        if (store is None) != (key is None):
            raise InvalidOption(
                field="store and key",
                got="store without key" if key is None else "key without store",
                expected="both or neither",
                remedy="a stored trial needs the identity of what it measured: pass key=, a tracea.optimizer.StudyKey",
            )
        if target_ms is not None and not (math.isfinite(target_ms) and target_ms > 0.0):
            raise InvalidOption(
                field="target_ms", got=target_ms, expected="a positive finite number", remedy="target_ms=None"
            )
        self.sampler = sampler
        self.budget = budget if budget is not None else Budget()
        self._evaluate = evaluate
        self._compare = compare
        self._store = store
        self._key = key
        self._on_trial = on_trial
        self._target_ms = target_ms
        self._prepare = prepare
        self._together = 1 if prepare is None else together
        self._asked: list[Row] = []  # which are to be evaluated, in turn
        self._trials: list[Trial] = []
        self._record_ids: dict[int, int] = {}
        self._is_resumed = False

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Return all trials so far, resumed ones first."""
        return tuple(self._trials)

    @property
    def best(self) -> Trial | None:
        """Return the fastest verified trial, or None; after the final comparison, the fastest of that."""
        good = [trial for trial in self._trials if trial.is_ok]
        compared = [trial for trial in good if trial.retimed_ms is not None]
        return min(compared or good, key=_latency, default=None)

    @property
    def outcomes(self) -> dict[OutcomeKind, int]:
        """Count the trials by how they ended."""
        return dict(Counter(trial.outcome.kind for trial in self._trials if trial.outcome is not None))

    def run(self) -> Trial | None:
        """Search until the budget, the space or the target ends it; return the best trial, None if none succeeded.

        Raises: NotStarted: the process that evaluates does not start. CacheError: what it makes has no place, as on a
            full disk. The trials that ended are kept.
        """
        self._resume()
        started = time.monotonic()
        total = min(self.budget.trials, len(self.sampler.space))
        fresh = 0
        while (self._asked or self.sampler.remaining) and not self._is_target_met():
            if not self.budget.allows(trials=len(self._trials), seconds=time.monotonic() - started):
                break
            row = self._next_row()
            best = self.best
            trial = Trial(
                number=len(self._trials),
                row=row,
                schedule=self.sampler.space.decode(row),
                incumbent=replace(best, incumbent=None) if best is not None else None,
            )
            trial = self._evaluated(trial)
            self._record(trial)
            self._trials.append(trial)
            self.sampler.tell(row, trial.latency_ms)
            fresh += 1
            if self._on_trial is not None:
                self._on_trial(
                    Progress(
                        trial=trial,
                        best=self.best,
                        done=len(self._trials),
                        total=total,
                        seconds=time.monotonic() - started,
                    )
                )
        if fresh:
            self._compare_finalists()
        return self.best

    def _next_row(self) -> Row:
        """Return the row to evaluate, asking for as many as are prepared together where none is left."""
        if not self._asked:
            count = min(self._together, self.budget.trials - len(self._trials), self.sampler.remaining)
            self._asked = [self.sampler.ask() for _ in range(max(1, count))]
            if self._prepare is not None and count > 1:
                decode, first = self.sampler.space.decode, len(self._trials)
                self._prepare(
                    [
                        Trial(number=number, row=row, schedule=decode(row))
                        for number, row in enumerate(self._asked, start=first)
                    ]
                )
        return self._asked.pop(0)

    def _is_target_met(self) -> bool:
        best = self.best
        return self._target_ms is not None and best is not None and _latency(best) <= self._target_ms

    def _evaluated(self, trial: Trial) -> Trial:
        started = time.monotonic()
        try:
            outcome = self._evaluate(trial)
        except (NotStarted, CacheError):  # of the machine or the disk, and so of every other schedule
            raise
        except Exception as error:  # a candidate must not end the search, and what it raised is recorded
            outcome = Outcome.of_error(error)
        return replace(trial, outcome=outcome, seconds=time.monotonic() - started)

    def _record(self, trial: Trial) -> None:
        if self._store is None or self._key is None or trial.outcome is None or trial.outcome.was_killed:
            return
        self._record_ids[trial.number] = self._store.add(
            TrialRecord(
                key=self._key,
                schedule=dict(trial.schedule),
                outcome=trial.outcome,
                seconds=trial.seconds,
                sampler=self.sampler.name,
                seed=self.sampler.seed,
                recorded_at=time.time(),
            )
        )

    def _resume(self) -> None:
        if self._store is None or self._key is None or self._is_resumed:
            return
        self._is_resumed = True
        latest: dict[Row, StoredTrial] = {}  # the last word on a row: a final may have refused what passed as a trial
        for stored in self._store.find(study=self._key):
            row = self.sampler.space.encode(stored.record.schedule)
            if row is not None:  # else the space has changed since
                latest[row] = stored
        for row, stored in latest.items():
            if any(trial.row == row for trial in self._trials):
                continue
            trial = Trial(
                number=len(self._trials),
                row=row,
                schedule=stored.record.schedule,
                outcome=stored.record.outcome,
                seconds=stored.record.seconds,
                retimed_ms=stored.retimed_ms,
                median_ms=None if stored.retimed_ms is None else stored.median_ms,
                is_resumed=True,
            )
            self._record_ids[trial.number] = stored.id
            self._trials.append(trial)
            self.sampler.tell(row, stored.record.outcome.latency_ms)

    def _compare_finalists(self) -> None:
        """Re-time the leaders side by side; what an earlier comparison said no longer counts."""
        if self._compare is None:
            return
        leaders = sorted((trial for trial in self._trials if trial.is_ok), key=_measured)[:FINALISTS]
        if not leaders:
            return
        timings = self._compare(leaders)
        if len(timings) != len(leaders):
            raise InvalidOption(
                field="compare",
                got=len(timings),
                expected=f"{len(leaders)} timings",
                remedy="return one timing for each finalist",
            )
        for latency in timings:
            if latency is not None and not (math.isfinite(latency) and latency > 0.0):
                raise InvalidOption(
                    field="compare",
                    got=latency,
                    expected="a positive finite latency, or None",
                    remedy="None for a failure",
                )
        compared = {
            leader.number: latency for leader, latency in zip(leaders, timings, strict=True) if latency is not None
        }
        self._keep_comparison(compared)
        self._trials = [replace(trial, retimed_ms=compared.get(trial.number), median_ms=None) for trial in self._trials]

    def _keep_comparison(self, compared: Mapping[int, float]) -> None:
        """Store what the comparison said by the trial's number, all of it or nothing, and of earlier ones nothing."""
        if self._store is None or self._key is None:
            return
        with self._store.at_once():  # else a later run resumes two comparisons, of which the lower times decide
            for stored in self._store.find(study=self._key):
                if stored.retimed_ms is not None:
                    self._store.retime(stored.id, None)
            for number, latency in compared.items():
                self._store.retime(self._record_ids[number], latency)


def _latency(trial: Trial) -> float:
    return trial.latency_ms if trial.latency_ms is not None else math.inf


def _measured(trial: Trial) -> float:
    latency = trial.outcome.latency_ms if trial.outcome is not None else None
    return latency if latency is not None else math.inf
