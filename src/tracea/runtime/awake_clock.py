"""A clock of the time in which this process ran: while it is stopped, so is what it waits for.

What stops a process (Ctrl-Z, a debugger, a measurement that wants the machine to itself, a suspended system) stops its
children too, and nobody has used the time that passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["AwakeClock"]


class AwakeClock:
    """Seconds since its making, of which those between two looks count at most as ``pause_s``.

    Who looks more often than every ``pause_s`` while it runs sees no difference to any other clock.
    """

    def __init__(self, pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause_s, self._clock = pause_s, clock
        self._waited, self._seen = 0.0, clock()

    def look(self) -> float:
        """Return the seconds until now."""
        now = self._clock()
        self._waited, self._seen = self._waited + min(now - self._seen, self._pause_s), now
        return self._waited
