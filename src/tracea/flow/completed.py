"""Searches that are complete: one that ended within its trials need not be walked through again to find that out.

What a search found is in the trial store, and decisions are made from there whatever is noted here. The note says only
that a search of this op by this code on this machine with these trials has nothing left to try.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tracea.core.op import Op
from tracea.doctor import host
from tracea.errors import ResourceExceeded
from tracea.flow.certificates import code_digest
from tracea.flow.compile import decision_for
from tracea.flow.final import has_final
from tracea.flow.history import recalled, study_key
from tracea.flow.phases import phase
from tracea.flow.progress import Listener
from tracea.flow.tuning import Tuned, tune
from tracea.optimizer.budget import Budget
from tracea.runtime.cache import content_key, default_store
from tracea.targets.target import for_threads

__all__ = ["tuned_once"]

_SEARCHING: Final = ("core", "doctor", "emitters", "flow", "kernels", "optimizer", "semantic", "targets")


def tuned_once(
    op: Op,
    *,
    budget: Budget,
    threads: int,
    constants: Sequence[int],
    library: bool,
    listener: Listener,
    label: str = "",
) -> Tuned:
    """Return what a search of ``op`` found, without one where it is complete; its trials are then not listed.

    A budget with seconds is always searched: it may have ended before its trials did. What is too large to be searched
    runs as it would without a search. ``label`` is what the steps call it; without one they are not told.

    Raises: as ``tracea.flow.tuning.tune``.
    """
    started = time.monotonic()
    if budget.seconds is None and has_final(op, threads, constants):
        ingredients = _ingredients(op, budget, threads, constants)
        if default_store().contains(content_key(ingredients)):
            if label:
                phase(f"searched before: {label}")
            return _unsearched(op, threads, constants, library=library, started=started)
    if label:
        phase(f"tune {label}")
    try:
        found = tune(op, budget=budget, threads=threads, constants=constants, library=library, listener=listener)
    except ResourceExceeded as too_large:
        phase(f"no search: {too_large.statement()}")
        return _unsearched(op, threads, constants, library=library, started=started)
    if budget.seconds is None and not _is_cut(found):
        ingredients = _ingredients(op, budget, threads, constants)
        default_store().entry(content_key(ingredients), lambda place: _note(place, found), ingredients)
    return found


def _unsearched(op: Op, threads: int, constants: Sequence[int], *, library: bool, started: float) -> Tuned:
    decision = decision_for(op, for_threads(host(), threads), threads=threads, constants=constants, library=library)
    return Tuned(op=op, trials={}, decision=decision, fresh=0, seconds=time.monotonic() - started)


def _is_cut(found: Tuned) -> bool:
    """Whether a trial was ended from outside: it is left to try."""
    outcomes = (trial.outcome for trials in found.trials.values() for trial in trials)
    return any(outcome is not None and outcome.was_killed for outcome in outcomes)


def _note(place: Path, found: Tuned) -> None:
    lines = [f"{variant}: {len(trials)} trials\n" for variant, trials in sorted(found.trials.items())]
    (place / "search.txt").write_text("".join(lines), encoding="utf-8")


def _ingredients(op: Op, budget: Budget, threads: int, constants: Sequence[int]) -> dict[str, Any]:
    key = study_key(op, "", threads, constants)
    earlier = recalled(op, threads, constants) if budget.trials > 1 else ()
    return {
        "kind": "search",
        "code": code_digest(_SEARCHING),
        "op": op.key,
        "constants": list(constants),
        "threads": threads,
        "trials": budget.trials,
        "hardware": key.hardware_fingerprint,
        "toolchain": key.toolchain_fingerprint,
        "recalled": [[variant, sorted(schedule.items())] for variant, schedule in earlier],
    }
