"""What a cache no longer needs: damaged entries, what killed builders left, and what was not used for long."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tracea.runtime.cache import CacheEntry, CacheStore
from tracea.runtime.private_directory import is_held

__all__ = ["Collected", "collect_garbage"]

# For what is left by earlier releases, and on file systems without locks. No build takes that long awake: a compiler is
# stopped after half an hour at most. Process numbers would not do, since a cache may be shared by containers that do
# not see each other's processes.
ABANDONED_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What was removed. ``leftovers`` are what killed builders left; ``recent`` were kept, since one may be at work."""

    entries: tuple[CacheEntry, ...]
    leftovers: int
    bytes: int
    recent: int = 0


def collect_garbage(
    store: CacheStore, *, unused_seconds: float | None = None, limit_bytes: int | None = None
) -> Collected:
    """Remove damaged entries and leftovers; what was not used for so long; and the longest unused beyond a size.

    A process that has an entry loaded keeps running; whoever needs it again builds it again.

    Raises: CacheUnwritable: the directory is not ours alone.
    """
    if not store.root.is_dir():
        return Collected(entries=(), leftovers=0, bytes=0)
    left = _sizes(store.building)
    store.prepare()  # removes what killed builders of this release left, who held a lock on it
    now = time.time()
    for path in _abandoned(store.building, now):
        shutil.rmtree(path, ignore_errors=True)
    gone_sizes = [size for path, size in left.items() if not os.path.lexists(path)]
    leftovers, freed = len(gone_sizes), sum(gone_sizes)
    entries = list(store.entries(check=True))
    gone = [entry for entry in entries if entry.problem is not None]
    sound = sorted((entry for entry in entries if entry.problem is None), key=lambda entry: entry.used)
    if unused_seconds is not None:
        gone += [entry for entry in sound if now - entry.used > unused_seconds]
    if limit_bytes is not None:
        kept = [entry for entry in sound if entry not in gone]
        total = sum(entry.bytes for entry in kept)
        for entry in kept:
            if total <= limit_bytes:
                break
            gone.append(entry)
            total -= entry.bytes
    for entry in gone:
        store.discard(entry)
    freed += sum(entry.bytes for entry in gone)
    recent = sum(1 for _ in store.building.iterdir())
    return Collected(entries=tuple(gone), leftovers=leftovers, bytes=freed, recent=recent)


def _sizes(building: Path) -> dict[Path, int]:
    found: dict[Path, int] = {}
    with contextlib.suppress(OSError):  # there is none yet, or it is another's: preparing says so
        for path in building.iterdir():
            found[path] = sum(file.lstat().st_size for file in path.rglob("*") if file.is_file())
    return found


def _abandoned(building: Path, now: float) -> Iterator[Path]:
    for path in sorted(building.iterdir()):
        with contextlib.suppress(OSError):  # its builder finished meanwhile
            # A builder that was stopped, or the whole machine, still holds its lock. New ones are not asked: to ask
            # takes the lock for a moment.
            if now - os.lstat(path).st_mtime > ABANDONED_SECONDS and not is_held(path):
                yield path
