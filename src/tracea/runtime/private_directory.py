"""A temporary directory of one process and of those it forks, which does not stay when they are gone.

The owner keeps a lock on the directory itself, which the kernel gives up with the last process that holds it, however
that ends. Whoever makes the next such directory removes those on which there is no lock.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import re
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["hold_directory", "is_held", "make_private_directory", "remove_abandoned"]

_PREFIX: Final = "tracea-private-"
_NAME: Final = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}")  # as tempfile.mkdtemp ends a name
_ATTEMPTS: Final = 100
_held: Final[list[int]] = []  # descriptors of the directories of this process: open as long as it lives


def make_private_directory(base: Path) -> Path:
    """Return a new directory below ``base`` that goes with this process, and remove those of killed ones.

    Raises: OSError: there is no place for it.
    """
    remove_abandoned(base, _NAME)
    for _ in range(_ATTEMPTS):
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        descriptor = hold_directory(path)
        if descriptor is not None:
            _held.append(descriptor)
            _remove_at_the_end(path, os.getpid())
            return path
    raise FileExistsError(f"{base}: {_ATTEMPTS} new directories were removed by others at once")


def hold_directory(path: Path) -> int | None:
    """Lock a new directory and return the descriptor that keeps the lock, until it is closed or this process ends.

    None: another process took it for abandoned before.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except (BlockingIOError, FileNotFoundError):
        held = False
    except OSError:  # a file system without locks: nobody can take it for abandoned either
        held = True
    if held:
        return descriptor
    os.close(descriptor)
    return None


def is_held(path: Path) -> bool:
    """Tell whether a living process holds a directory; a file system without locks does not say so of any."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # it is no directory, or is gone
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(descriptor)
    return False


def remove_abandoned(base: Path, names: re.Pattern[str]) -> None:
    """Remove the directories of such names below ``base`` that are this user's and that no process holds any more."""
    with contextlib.suppress(OSError):  # it is another's room that is made
        for name in os.listdir(base):
            if names.fullmatch(name):
                with contextlib.suppress(OSError):
                    _remove_unless_held(base / name)


def _remove_unless_held(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)  # a link of this name stays as it is
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its owner, or a child of it, lives
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)


def _remove_at_the_end(path: Path, owner: int) -> None:
    def remove() -> None:
        if os.getpid() == owner:  # a forked child must not take its parent's libraries away
            shutil.rmtree(path, ignore_errors=True)

    atexit.register(remove)
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None:  # whose forked children end without Python's exit handlers
        multiprocessing.Finalize(None, remove, exitpriority=-100)
