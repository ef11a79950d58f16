"""A lock on a file between processes, for whose holder who wants it waits only as long as somebody waits for him."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

import filelock

from tracea.runtime.at_once import check_wanted

__all__ = ["held_lock"]

_LOOK_SECONDS: Final = 0.5
_WITHOUT_LOCKS: Final = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_LOCK_SECONDS: Final = 360.0  # longer than a compilation takes, but for units of many kernels on a busy machine


@contextlib.contextmanager
def held_lock(path: Path) -> Generator[None]:
    """Hold the lock of a file while the block runs, or go on without it.

    A stuck holder or a file system without locks costs a second compilation, never a wrong entry: publishing is atomic.
    Raises: GivenUp.
    """
    lock = filelock.FileLock(path, timeout=_LOOK_SECONDS, mode=0o600)
    if not _acquired(lock):
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _acquired(lock: filelock.BaseFileLock) -> bool:
    end = time.monotonic() + _LOCK_SECONDS
    while time.monotonic() < end:
        check_wanted()
        try:
            lock.acquire()
        except filelock.Timeout:
            continue
        except NotImplementedError:
            return False
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                raise
            return False
        return True
    return False
