"""The garbage collector at rest while much is built that stays."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["collector_paused"]


@contextmanager
def collector_paused() -> Generator[None]:
    """Let the garbage collector rest for seconds in which nearly all that is made is kept.

    Every so many objects it walks through all of them, PyTorch's half a million among them: a sixth of the time that
    exporting and compiling a model from a warm cache takes (benchmarks/NOTES.md). What was made meanwhile counts as old
    at the end: walking through all of it at once would take a twentieth. The next full collection sees it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            _promote()
            gc.enable()


def _promote() -> None:
    """Move all objects to the oldest generation, as if collections had run and found them alive.

    Objects that the process itself has frozen stay so: nothing is moved then.
    """
    if gc.get_freeze_count() == 0:
        gc.freeze()
        gc.unfreeze()
