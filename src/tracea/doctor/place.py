"""The cache directory as the doctor sees it: whether compiled kernels can be kept there, and run from there."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tracea.doctor.diagnosis import Problem
from tracea.errors import CacheError
from tracea.runtime.cache import CacheStore, cache_root

__all__ = ["CachePlace", "diagnose_place", "probe_place"]

_LEAST_FREE: Final = 256 * 1024**2  # kernels are some hundred KiB each, a tuned model's are tens of MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlace:
    """Where compiled kernels and trials are kept.

    ``refused`` is why the directory cannot be used, empty where it can. ``runs`` tells whether the file system lets a
    program load libraries from it; None where the system does not say. ``is_read`` tells of one that is refused whether
    only writing fails, so that what is there is still used. Units: bytes.
    """

    path: str
    refused: str
    remedy: str
    runs: bool | None
    free_bytes: int | None
    is_read: bool = False


def probe_place(root: Callable[[], Path] = cache_root) -> CachePlace:
    """Look at the directory that the cache belongs in, and make it where it is not there yet."""
    path = ""
    try:
        place = root()
        path = str(place)
        CacheStore(place).prepare()
    except CacheError as error:
        return CachePlace(
            path=path or str(error.path),
            refused=error.detail,
            remedy=error.remedy,
            runs=None,
            free_bytes=None,
            is_read=_is_read(path),
        )
    except OSError as error:
        return CachePlace(
            path=path,
            refused=error.strerror or str(error),
            remedy="TRACEA_CACHE_DIR names another directory",
            runs=None,
            free_bytes=None,
            is_read=_is_read(path),
        )
    return _of_directory(place)


def diagnose_place(place: CachePlace) -> tuple[Problem, ...]:
    """Return what keeps the cache from being of use."""
    if place.refused and place.is_read:
        return (
            Problem(
                what=f"The cache directory {place.path} cannot be written: {place.refused}. Sound kernels and trials "
                "that are there are used; what is new is compiled and measured again in every process",
                remedy=place.remedy,
            ),
        )
    if place.refused:
        return (
            Problem(
                what=f"The cache directory {place.path} cannot be used: {place.refused}. Kernels are compiled again in "
                "every process, and nothing that was measured is kept",
                remedy=place.remedy,
            ),
        )
    found: list[Problem] = []
    if place.runs is False:
        found.append(
            Problem(
                what=f"The file system of the cache directory {place.path} is mounted noexec: kernels cannot be loaded",
                remedy="TRACEA_CACHE_DIR names a directory on a file system without noexec",
            )
        )
    if place.free_bytes is not None and place.free_bytes < _LEAST_FREE:
        found.append(
            Problem(
                what=f"The file system of the cache directory {place.path} has {place.free_bytes / 1024**2:.0f} MiB "
                f"left, less than {_LEAST_FREE // 1024**2} MiB",
                remedy="tracea cache gc, or TRACEA_CACHE_DIR on another disk",
            )
        )
    return tuple(found)


def _is_read(path: str) -> bool:
    """Tell whether kernels were kept there and are used, though no more can be kept."""
    return bool(path) and Path(path, "v1", "objects").is_dir() and CacheStore(Path(path)).refusal() is None


def _of_directory(path: Path) -> CachePlace:
    runs: bool | None = None
    free: int | None = None
    if hasattr(os, "statvfs"):
        status = os.statvfs(path)
        free = status.f_bavail * status.f_frsize
        runs = not status.f_flag & os.ST_NOEXEC if hasattr(os, "ST_NOEXEC") else None
    return CachePlace(path=str(path), refused="", remedy="", runs=runs, free_bytes=free)
