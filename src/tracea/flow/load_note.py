"""Load note: a call that searches says once that other programs use the cores it times on, by ``logging`` from Python.

Not a Python warning: where warnings are errors, what others do on the machine must not end a search.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from tracea.doctor import diagnose_load
from tracea.profiler.load import measure_load

__all__ = ["load_noted_once", "note_load"]

_LOGGER: Final = logging.getLogger("tracea")
_SECONDS_BETWEEN: Final = 60.0  # a graph's ops are searched one after the other: one look serves several
_looked: Final[list[float]] = []  # when, on the monotonic clock: the last look


@dataclass(slots=True)
class _Call:
    """One call of a face, which may search many ops: how it says that the machine is busy, and whether it has."""

    say: Callable[[str], object]
    is_said: bool


_call: Final[ContextVar[_Call | None]] = ContextVar("tracea.flow.load_note", default=None)


def _log(text: str) -> None:
    _LOGGER.warning("%s", text)


@contextmanager
def load_noted_once(say: Callable[[str], object] = _log) -> Generator[None]:
    """Have the searches within a ``with`` block say once among them that the machine is busy.

    Within another such block this one changes nothing.
    """
    if _call.get() is not None:
        yield
        return
    token = _call.set(_Call(say=say, is_said=False))
    try:
        yield
    finally:
        _call.reset(token)


def note_load() -> None:
    """Warn with the numbers where others use this process's cores; looking takes a third of a second.

    Silent where the call that searches has said it: see :func:`load_noted_once`.
    """
    call, now = _call.get(), time.monotonic()
    if (call is not None and call.is_said) or (_looked and now - _looked[-1] < _SECONDS_BETWEEN):
        return
    _looked[:] = [now]
    if busy := diagnose_load(measure_load()):
        (_log if call is None else call.say)(str(busy))
        if call is not None:
            call.is_said = True
