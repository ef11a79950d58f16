"""A lock that a forked child finds free, whoever held it in the parent."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType
from typing import Final

__all__ = ["ProcessLock"]


class ProcessLock:
    """A re-entrant lock, of a module or of one object.

    The child of a fork has only the thread that forked. What another thread was doing under the lock is lost there, so
    whatever the lock guards must be sound before its last assignment.

    Units: ``fork_waits_s`` is how long a fork waits for the thread that has the lock: more than 0 where what it calls
    has locks of its own, which a child could not free. That it waits for ever is not worth it: a child may never ask.
    """

    def __init__(self, *, fork_waits_s: float = 0.0) -> None:
        self._lock = threading.RLock()
        self._fork_waits_s = fork_waits_s
        with _forks.listing:
            _forks.locks.add(self)

    def hold_for_fork(self) -> bool:
        """Take the lock before a fork, if it is to be waited for and can be had in time."""
        return self._fork_waits_s > 0 and self._lock.acquire(timeout=self._fork_waits_s)

    def renew(self) -> None:
        """Make the lock free, in a process that has no other thread yet."""
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        """Wait for the lock."""
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """Let the next one in."""
        self._lock.release()


class _Forks(threading.local):
    """What the forks of this process have to do with its locks; ``held`` are those of the fork under way, by thread."""

    locks: Final[weakref.WeakSet[ProcessLock]] = weakref.WeakSet()  # one handler for all, which keeps none of them
    listing = threading.Lock()

    def __init__(self) -> None:
        self.held: list[ProcessLock] = []

    def before(self) -> None:
        with self.listing:
            locks = list(self.locks)
        self.held = [lock for lock in locks if lock.hold_for_fork()]

    def after_in_parent(self) -> None:
        while self.held:
            self.held.pop().__exit__()

    def after_in_child(self) -> None:
        self.held = []
        _Forks.listing = threading.Lock()
        for lock in self.locks:
            lock.renew()


_forks: Final = _Forks()
os.register_at_fork(before=_forks.before, after_in_parent=_forks.after_in_parent, after_in_child=_forks.after_in_child)
