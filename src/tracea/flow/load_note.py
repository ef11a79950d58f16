"""Load note: a search says once in a while, through ``logging``, that other programs use the cores it times on.

Not a Python warning: where warnings are errors, what others do on the machine must not end a search.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from tracea.doctor import diagnose_load
from tracea.flow.phases import is_told
from tracea.profiler.load import measure_load

__all__ = ["note_load"]

_LOGGER: Final = logging.getLogger("tracea")
_SECONDS_BETWEEN: Final = 60.0  # a graph's ops are searched one after the other: one look serves them all
_looked: Final[list[float]] = []  # when, on the monotonic clock: the last look


def note_load() -> None:
    """Log a warning with the numbers where others use this process's cores; looking takes a third of a second.

    Silent where an outer call hears of what goes on: the command line has looked itself.
    """
    now = time.monotonic()
    if is_told() or (_looked and now - _looked[-1] < _SECONDS_BETWEEN):
        return
    _looked[:] = [now]
    if busy := diagnose_load(measure_load()):
        _LOGGER.warning("%s", busy)
