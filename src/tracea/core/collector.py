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
    exporting and compiling a model from a warm cache takes (benchmarks/NOTES.md).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
