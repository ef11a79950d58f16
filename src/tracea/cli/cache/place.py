"""Where the cache is: its directory, and the trial store in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracea.optimizer.storage import StoredTrial

__all__ = ["TRIALS", "OpTried", "check_trials", "count_trials", "directory", "ops_tried", "trials_file"]

TRIALS: Final = "trials.sqlite"


def directory() -> Path:
    """Return the cache's directory, which need not be there yet.

    Raises:
        InvalidOption: something else is there.
    """
    from tracea.errors import InvalidOption
    from tracea.runtime.cache import cache_root

    root = cache_root()
    if os.path.exists(root) and not os.path.isdir(root):
        raise InvalidOption(
            field="TRACEA_CACHE_DIR",
            got=str(root),
            expected="a directory, or a path where nothing is yet",
            remedy="unset TRACEA_CACHE_DIR",
        )
    return root


def count_trials(root: Path) -> tuple[int, int]:
    """Return how many trials were measured here, and how many were imported."""
    path = root / TRIALS
    if not _is_readable(path):
        return 0, 0
    from tracea.optimizer.storage import TrialStore

    with TrialStore(path) as store:
        found = store.find(imported=None)
    imported = sum(trial.is_imported for trial in found)
    return len(found) - imported, imported


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTried:
    """One op of the trial store: how many trials were made here or elsewhere, and the best one, if any.

    That is the fastest of the last final, before there was one of the search.
    """

    op_key: str
    where: str
    trials: int
    verified: int
    fastest: str
    variant: str


def ops_tried(root: Path) -> list[OpTried]:
    """Return the ops that were searched here, and those of imported trials, in the order of their first trial."""
    path = root / TRIALS
    if not _is_readable(path):
        return []
    from tracea.optimizer.storage import TrialStore
    from tracea.profiler.duration import shown_us

    with TrialStore(path) as store:
        found = store.find(imported=None)
    by_op: dict[tuple[str, bool], list[StoredTrial]] = {}
    for trial in found:
        by_op.setdefault((trial.record.key.op_key, trial.is_imported), []).append(trial)
    listed: list[OpTried] = []
    for (op_key, is_imported), trials in by_op.items():
        best = _fastest(trials)
        listed.append(
            OpTried(
                op_key=op_key,
                where="elsewhere, imported" if is_imported else "here",
                trials=len(trials),
                verified=sum(trial.record.outcome.is_ok for trial in trials),
                fastest="" if best is None else shown_us(1e3 * best[0]),
                variant="" if best is None else best[1].record.key.variant,
            )
        )
    return listed


def _fastest(trials: Sequence[StoredTrial]) -> tuple[float, StoredTrial] | None:
    """Return the fastest of an op's trials, oldest first: by each machine and number of threads the latest toolchain's.

    What an earlier toolchain made is not what runs, and its times are of another day.
    """
    from tracea.optimizer.records import fastest

    latest: dict[tuple[object, ...], str] = {}
    studies: dict[tuple[object, ...], list[StoredTrial]] = {}
    for trial in trials:
        key = trial.record.key
        place = key.constants, key.hardware_fingerprint, "torch" in key.toolchain  # a library's has its version
        latest[place] = key.toolchain_fingerprint
        studies.setdefault((*place, key.toolchain_fingerprint), []).append(trial)
    found = [fastest(studies[*place, toolchain]) for place, toolchain in latest.items()]
    return min((each for each in found if each is not None), key=lambda each: each[0], default=None)


def check_trials(root: Path) -> tuple[int, str | None]:
    """Return how many trials can be read, and what is wrong with the others."""
    import warnings

    from tracea.errors import CacheCorrupt, CacheError
    from tracea.optimizer.storage import TrialStore

    path = root / TRIALS
    if not os.path.isfile(path):
        return 0, "is no regular file; move it away" if os.path.lexists(path) else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CacheCorrupt)
        try:
            with TrialStore(path) as store:
                store.check()
                found = store.find(imported=None)
        except CacheError as error:
            return 0, error.detail
    problems = [each.message.detail for each in caught if isinstance(each.message, CacheCorrupt)]
    return len(found), "; ".join(problems) or None


def trials_file(root: Path) -> Path | None:
    """Return the trial store's file, None where there is none.

    Raises:
        CacheUnwritable: the directory is another's, who alone may look into it.
    """
    import stat

    from tracea.errors import CacheUnwritable

    path = root / TRIALS
    try:
        return path if stat.S_ISREG(path.stat().st_mode) else None
    except PermissionError as error:
        raise CacheUnwritable(path=root, detail=str(error)) from error
    except OSError:
        return None


def _is_readable(path: Path) -> bool:
    """Tell whether there is a file that this user may read; the refusal of another's directory is told by who asks."""
    return os.path.isfile(path) and os.access(path, os.R_OK)
