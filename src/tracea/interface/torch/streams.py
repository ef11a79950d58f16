"""What one thread writes to the standard streams, kept until it is known whether it counts."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Generator, Iterable
from typing import Any

from tracea.flow.progress import is_open

__all__ = ["kept_apart", "tell"]


class _OfOneThread:
    """A stream that keeps what the thread which made it writes; what others write goes on to ``below`` at once."""

    def __init__(self, below: Any) -> None:
        self._below = below
        self._thread: int | None = threading.get_ident()
        self._kept = io.StringIO()

    def write(self, text: str, /) -> int:
        """Keep the text, or hand it on."""
        if threading.get_ident() == self._thread:
            return self._kept.write(text)
        return len(text) if self._below is None else self._below.write(text)

    def writelines(self, lines: Iterable[str], /) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    def end(self) -> str:
        """Return what was kept; from now on all is handed on, if someone still has the stream."""
        self._thread = None
        return self._kept.getvalue()

    def __getattr__(self, name: str) -> Any:
        """Return what the stream below has."""
        return getattr(self._below, name)


@contextlib.contextmanager
def kept_apart(*names: str) -> Generator[dict[str, str]]:
    """Keep what this thread writes to the streams of these names of ``sys``; the texts are there at the end."""
    texts: dict[str, str] = {}
    streams = {name: (getattr(sys, name), _OfOneThread(getattr(sys, name))) for name in names}
    for name, (_, stream) in streams.items():
        setattr(sys, name, stream)
    try:
        yield texts
    finally:
        for name, (before, stream) in streams.items():
            texts[name] = stream.end()
            if getattr(sys, name) is stream:  # else someone put another there, which is theirs to take away
                setattr(sys, name, before)


def tell(name: str, text: str) -> None:
    """Write a text that was kept to the stream of this name, if the program has it and it is open."""
    stream = getattr(sys, name)
    if text and is_open(stream):
        stream.write(text)
