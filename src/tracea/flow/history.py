"""History: what earlier measurements on this machine say, kept in the trial store of the cache directory."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from filelock import FileLock

from tracea import __version__
from tracea.core.op import Op
from tracea.doctor import Fingerprint, Known, identify, probe_machine
from tracea.doctor.installed import torch_version
from tracea.doctor.policy import Winner, similarity
from tracea.errors import CacheCorrupt, CacheError, CacheUnwritable, InvalidSchedule
from tracea.kernels.registry import VARIANTS
from tracea.optimizer.priors import Hero, load_heroes
from tracea.optimizer.records import fingerprint
from tracea.optimizer.space import Value
from tracea.optimizer.storage import StoredTrial, StudyKey, TrialStore
from tracea.runtime.cache import default_store, private_root
from tracea.runtime.process_lock import ProcessLock
from tracea.semantic.schedule import Schedule

__all__ = [
    "imported",
    "known_variants",
    "packable",
    "recalled",
    "refused",
    "schedule_of",
    "store",
    "study_key",
    "tried",
    "verified",
    "winners",
]

_RECALLED: Final = 3  # as many as meet in a final
_LIBRARIES: Final = {variant.id: variant for variant in VARIANTS if variant.is_library}


@lru_cache(maxsize=8)
def _store_at(path: str) -> TrialStore:
    try:
        return TrialStore(path)
    except CacheCorrupt:
        return _renewed(path, TrialStore.check)
    except CacheError as error:  # it cannot be opened, or a newer release wrote it, whose file stays as it is
        return _private(path, error)


def _renewed(path: str, ask: Callable[[TrialStore], object]) -> TrialStore:
    """Move a damaged store aside and return a new one, with one warning in the first process that finds it so.

    It is damaged where it cannot be opened, checked or asked: a column may be missing in a sound database.
    """
    try:
        with FileLock(f"{path}.lock"):
            try:
                opened = TrialStore(path)
                opened.check()
                ask(opened)
                return opened  # another process was first
            except CacheCorrupt as error:
                aside = f"{path}.damaged-{time.time_ns()}"
                os.replace(path, aside)
                warnings.warn(
                    CacheCorrupt(path=path, detail=error.detail, remedy=f"nothing: earlier trials are in {aside}"),
                    stacklevel=4,
                )
                for side_file in (f"{path}-wal", f"{path}-shm"):
                    Path(side_file).unlink(missing_ok=True)
                return TrialStore(path)
    except OSError as error:  # damaged, and where nothing can be moved
        return _private(path, error if isinstance(error, CacheError) else CacheUnwritable(path=path, detail=str(error)))


_copies: Final[dict[str, TrialStore]] = {}  # of stores that cannot be written
_copying: Final = ProcessLock()


def _private(path: str, reason: CacheError, readable: TrialStore | None = None) -> TrialStore:
    """Return this process's own store instead of one that cannot be used, with what can be read of it.

    Trials of this process serve this process, as its kernels do.
    """
    with _copying:
        place = private_root(reason) / f"trials-{fingerprint({'path': path})}.sqlite"
        kept = _copies.get(path)
        if kept is None or kept.path != place:
            if readable is not None and not place.exists():
                readable.copy_to(place)
            kept = _copies[path] = TrialStore(place)
        return kept


@lru_cache(maxsize=1)
def _identity() -> Fingerprint:
    return identify(probe_machine())


def store() -> TrialStore:
    """Return the trial store of the current cache directory, to add to: where it cannot be, a copy for this process."""
    path = _path()
    opened = _store_at(path)
    return opened if opened.unwritable is None else _private(path, opened.unwritable, opened)


def _asked(ask: Callable[[TrialStore], list[StoredTrial]]) -> list[StoredTrial]:
    """Return what the store answers; a damaged one is moved aside, since history is advice and never in the way."""
    path = _path()
    try:
        opened = _store_at(path)
        return ask(opened if opened.unwritable is None else _copies.get(path, opened))
    except CacheCorrupt:  # a page that was not read before, or a column that is gone
        _store_at.cache_clear()
        return ask(_renewed(path, ask))


def _path() -> str:
    return str(default_store().root / "trials.sqlite")


def packable(op: Op, constants: Iterable[int]) -> tuple[int, ...]:
    """Return the constant operands that some variant packs ahead; the others, such as a bias, change nothing."""
    packed = {variant.constant_operand for variant in VARIANTS if isinstance(op, variant.op_type)}
    return tuple(sorted(index for index in set(constants) if index in packed))


def study_key(op: Op, variant: str, threads: int, constants: Iterable[int] = ()) -> StudyKey:
    """Return the identity of one op's search of one variant on this machine with this toolchain.

    With a constant operand that can be packed ahead it is another search: other variants compete, and what was
    measured without the constant says nothing of them. A library of another version is another one.
    """
    identity = _identity()
    library = {"torch": torch_version()} if variant in _LIBRARIES else {}
    return StudyKey(
        op_key=op.key,
        variant=variant,
        constants=packable(op, constants),
        hardware={"fingerprint": identity.hardware, "threads": threads},
        toolchain={"fingerprint": identity.toolchain, "tracea": __version__, **library},
    )


def verified(op: Op, threads: int, constants: Iterable[int] = ()) -> list[StoredTrial]:
    """Return the trials of ``op`` that ended well here, oldest first, without schedules that failed later."""
    found = _trials(op, threads, constants)
    last = _last_said(found)
    return [trial for trial in found if trial.record.outcome.is_ok and last[_tried(trial)]]


def refused(op: Op, threads: int, constants: Iterable[int] = ()) -> frozenset[tuple[str, Schedule]]:
    """Return the variants of ``op`` with the schedule of which the last that was said here is a failure."""
    last = _last_said(_trials(op, threads, constants))
    return frozenset(schedule for schedule, is_ok in last.items() if not is_ok)


def _trials(op: Op, threads: int, constants: Iterable[int]) -> list[StoredTrial]:
    """Return what was tried of ``op`` here, oldest first: ours, and the libraries' installed versions."""
    key = study_key(op, "", threads, constants)
    keys = [
        study_key(op, name, threads, constants) for name, each in _LIBRARIES.items() if isinstance(op, each.op_type)
    ]

    def ask(kept: TrialStore) -> list[StoredTrial]:
        found = kept.find(
            op_key=key.op_key,
            constants=key.constants,
            hardware=key.hardware_fingerprint,
            toolchain=key.toolchain_fingerprint,
        )
        ours = (trial for trial in found if trial.record.key.variant not in _LIBRARIES)
        theirs = (trial for each in keys for trial in kept.find(study=each))
        return sorted((*ours, *theirs), key=lambda trial: trial.id)

    return _asked(ask)


def recalled(op: Op, threads: int, constants: Iterable[int] = ()) -> tuple[tuple[str, Mapping[str, Value]], ...]:
    """Return the best few schedules, each with its variant, of measurements that do not count here: to measure again.

    They were made under another toolchain or another release, on this hardware or imported. Their latencies are not
    comparable with today's, nor with those of another toolchain or machine: the latest here come first, then what was
    imported from such hardware, then the rest.
    """
    key = study_key(op, "", threads, constants)
    groups: dict[tuple[bool, bool, str, str], list[StoredTrial]] = {}
    for trial in _asked(lambda kept: kept.find(op_key=key.op_key, constants=key.constants, imported=None)):
        hardware, toolchain = trial.record.key.hardware_fingerprint, trial.record.key.toolchain_fingerprint
        is_here = hardware == key.hardware_fingerprint
        counts_already = is_here and toolchain == key.toolchain_fingerprint and not trial.is_imported
        if not counts_already and (is_here or trial.is_imported) and _is_sayable(trial):
            groups.setdefault((trial.is_imported, not is_here, hardware, toolchain), []).append(trial)
    found: dict[tuple[str, Schedule], Mapping[str, Value]] = {}
    for _, group in sorted(groups.items(), key=lambda item: (*item[0][:2], -item[1][-1].record.recorded_at)):
        for trial in _best_first(group):
            found.setdefault((trial.record.key.variant, schedule_of(trial.record.schedule)), trial.record.schedule)
    return tuple((variant, schedule) for (variant, _), schedule in found.items())[:_RECALLED]


def tried(op: Op, variant: str, threads: int, constants: Iterable[int] = ()) -> tuple[Schedule, ...]:
    """Return the schedules of a variant that were tried for ``op`` here: a search goes on from them."""
    key = study_key(op, variant, threads, constants)
    found = _asked(lambda kept: kept.find(study=key))
    return tuple(dict.fromkeys(schedule_of(trial.record.schedule) for trial in found if _is_sayable(trial)))


def failure(op: Op, variant: str, threads: int, constants: Iterable[int] = ()) -> str:
    """Return why the last trial of a variant without schedules, which a library's is, failed here; "" if it did not."""
    from tracea.gates.verdict import failed_checks

    key = study_key(op, variant, threads, constants)
    found = _asked(lambda kept: kept.find(study=key))
    if not found or found[-1].record.outcome.is_ok:
        return ""
    outcome = found[-1].record.outcome
    return next(iter(failed_checks(outcome.detail)), f"{outcome.kind}: {outcome.detail}")


def imported(op: Op, constants: Iterable[int] = ()) -> int:
    """Return how many schedules of ``op`` came from elsewhere: a search tries the best first, no run uses one."""
    key = op.key, packable(op, constants)
    found = _asked(lambda kept: kept.find(op_key=key[0], constants=key[1], imported=True))
    return len({_tried(trial) for trial in found if _is_sayable(trial) and trial.record.outcome.is_ok})


def winners(op: Op, variant: str, threads: int, constants: Iterable[int] = ()) -> tuple[Winner, ...]:
    """Return the fastest schedule of a variant for each other op of this kind and type: what a search may begin with.

    Measured on this hardware with as many threads, under whatever toolchain, or shipped with Tracea for any hardware:
    they say where to look, and nothing of how fast it is here.
    """
    key = study_key(op, variant, threads, constants)
    found: dict[str, Winner] = {}

    def offer(op_key: str, schedule: Mapping[str, Value], latency_ms: float | None, shipped: str = "") -> None:
        if latency_ms is None or op_key == op.key or similarity(op.key, op_key) is None:
            return
        best = found.get(op_key)
        if best is None or 1e3 * latency_ms < best.latency_us:
            plain = dict(schedule_of(schedule))
            found[op_key] = Winner(
                op_key=op_key, variant=variant, schedule=plain, latency_us=1e3 * latency_ms, shipped=shipped
            )

    hardware = key.hardware_fingerprint
    for trial in _asked(lambda kept: kept.find(variant=variant, constants=key.constants, hardware=hardware)):
        if trial.record.outcome.is_ok and _is_sayable(trial):
            offer(trial.record.key.op_key, trial.record.schedule, trial.retimed_ms or trial.record.outcome.latency_ms)
    for hero in _heroes():
        same = (hero.variant, hero.constants, hero.record.hardware.get("threads")) == (variant, key.constants, threads)
        if same and hero.op_key not in found:
            offer(hero.op_key, hero.schedule, hero.record.latency_ms, hero.record.where_and_when)
    return tuple(found[name] for name in sorted(found))


def _is_sayable(trial: StoredTrial) -> bool:
    """Tell whether a record's schedule could be one: what is imported was written by others."""
    try:
        schedule_of(trial.record.schedule)
    except InvalidSchedule:
        return False
    return True


def _best_first(trials: list[StoredTrial]) -> list[StoredTrial]:
    """Return what ended well, those of a comparison first, without what failed later and without libraries."""
    last = {_tried(trial): trial.record.outcome.is_ok for trial in trials}
    ours = {variant.id for variant in VARIANTS if not variant.is_library}
    good = [trial for trial in trials if last[_tried(trial)] and trial.record.key.variant in ours]
    return sorted(
        good, key=lambda trial: (trial.retimed_ms is None, trial.retimed_ms or trial.record.outcome.latency_ms)
    )


def _last_said(found: Iterable[StoredTrial]) -> dict[tuple[str, Schedule], bool]:
    """Return of each schedule whether its latest trial ended well."""
    return {_tried(trial): trial.record.outcome.is_ok for trial in found}


def _tried(trial: StoredTrial) -> tuple[str, Schedule]:
    return trial.record.key.variant, schedule_of(trial.record.schedule)


def schedule_of(values: Mapping[str, Value]) -> Schedule:
    """Return the optimizer's values as a schedule; kernels have integers and words only."""
    return Schedule({name: value for name, value in values.items() if isinstance(value, int | str)})


def known_variants(op: Op, threads: int, constants: Iterable[int] = ()) -> dict[str, Known]:
    """Return the best verified schedule of each variant measured for ``op`` here, or, as we ship it, on such hardware.

    Only what was measured with the same ``constants`` counts. A latency of a final interleaved comparison outranks one
    of a search: where a variant took part in one, only those count.
    """
    key = study_key(op, "", threads, constants)
    found = verified(op, threads, constants)
    compared = [trial for trial in found if trial.retimed_ms is not None]
    best: dict[str, Known] = {}
    for trial in compared or found:
        latency_ms = trial.rank_ms if trial.rank_ms is not None else trial.record.outcome.latency_ms
        assert latency_ms is not None  # a verified outcome has one
        variant, schedule = trial.record.key.variant, trial.record.schedule
        _keep(best, variant, schedule, latency_ms, trial.median_ms, of=trial)
    if not found:
        for hero in _heroes():
            if (hero.op_key, hero.constants) != (key.op_key, key.constants):
                continue
            if fingerprint(hero.record.hardware) == key.hardware_fingerprint:
                shipped = hero.record.where_and_when
                _keep(best, hero.variant, hero.schedule, hero.record.latency_ms, shipped=shipped)
    return best


@cache
def _heroes() -> tuple[Hero, ...]:
    return load_heroes()


def _keep(
    best: dict[str, Known],
    variant: str,
    schedule: Mapping[str, Value],
    rank_ms: float,
    median_ms: float | None = None,
    *,
    shipped: str = "",
    of: StoredTrial | None = None,
) -> None:
    known = best.get(variant)
    if known is None or 1e3 * rank_ms < known.rank_us:
        measured_us = 1e3 * (rank_ms if median_ms is None else median_ms)
        best[variant] = Known(
            schedule=schedule_of(schedule),
            latency_us=measured_us,
            ranked_us=1e3 * rank_ms,
            shipped=shipped,
            is_unclear=of is not None and of.is_unclear,
            is_disturbed=of is not None and of.is_disturbed,
        )
