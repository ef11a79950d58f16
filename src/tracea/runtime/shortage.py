"""Shortages: what the machine or a limit was out of when a call failed, how much there is, and what to do about it."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from typing import Final

__all__ = [
    "DISK_REMEDY",
    "disk_message",
    "disk_remedy",
    "free_bytes",
    "is_full",
    "is_of_the_place",
    "memory_bytes",
    "starved_remedy",
]

DISK_REMEDY: Final = "free space there, or set TRACEA_CACHE_DIR to a private directory on a disk with 100 MiB of room"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# The reasons for which a directory that looked usable turns out not to be: another place may still work.
_OF_THE_PLACE: Final = frozenset(
    {
        errno.EEXIST,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENOENT,
        errno.EFBIG,
        errno.EIO,
        errno.ENAMETOOLONG,
        errno.ELOOP,
    }
)
_STARVED: Final = {
    errno.EMFILE: "close files that this process holds open, or raise its limit (ulimit -n)",
    errno.ENFILE: "close files that other programs hold open, or raise the machine's limit (fs.file-max)",
    errno.EAGAIN: "end processes of this user, or raise the limit of them (ulimit -u, pids.max of a container)",
    errno.ENOMEM: "end programs that hold memory, or raise the limit of this process or container",
}


def is_full(error: OSError) -> bool:
    """Tell whether the disk, or this user's part of it, is full, or a file may not grow as large as it needs to."""
    return error.errno in _FULL


def is_of_the_place(error: OSError) -> bool:
    """Tell whether the directory is what cannot be used, so that another place may still work."""
    return error.errno in _OF_THE_PLACE


def starved_remedy(error: OSError) -> str | None:
    """Return what to do where this process, not a place on disk, was out of something; None where it was not."""
    return _STARVED.get(error.errno or 0)


def disk_remedy(error: OSError) -> str:
    """Return what to do where a place on disk has no room."""
    if error.errno == errno.EFBIG:
        return "raise the limit of a file's size (ulimit -f): 100 MiB are enough"
    return DISK_REMEDY


def free_bytes(path: Path) -> int | None:
    """Return what this user may still write on the disk of ``path``; None where the file system does not say."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize if found.f_blocks else None


def memory_bytes() -> int:
    """Return the memory that this machine has, or that this process may address where that is less."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    return machine if allowed == resource.RLIM_INFINITY else min(machine, allowed)


def disk_message(error: OSError, path: Path) -> str:
    """Return what a full disk is told by: the call's own words, and the bytes that are free, or allowed in a file."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if error.errno == errno.EFBIG and most != resource.RLIM_INFINITY:
        return f"{error}; a file of this process may have {most:_} bytes"
    free = free_bytes(path)
    return str(error) if free is None else f"{error}; {free:_} bytes are free there"
