"""A lock that a forked child finds free, whoever held it in the parent."""

from __future__ import annotations

import os
import threading
from types import TracebackType

__all__ = ["ProcessLock"]


class ProcessLock:
    """A re-entrant lock for the life of the process; made by modules, never per object, since it stays registered.

    The child of a fork has only the thread that forked. What another thread was doing under the lock is lost there, so
    whatever the lock guards must be sound before its last assignment.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        """Wait for the lock."""
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the next one in."""
        self._lock.release()
