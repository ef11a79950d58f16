"""The programs of a module for other inputs than its first: a few, of which the one that rested longest makes room."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from tracea.errors import TraceaWarning

__all__ = ["Other", "Others"]

_MAX_PROGRAMS: Final = 16  # with the first, which stays; each holds its packed weights

_Program = TypeVar("_Program")


@dataclass(slots=True, kw_only=True)
class Other(Generic[_Program]):
    """A program for other inputs than the first, by a key of theirs; ``used`` rises with each use."""

    program: _Program
    key: Hashable
    used: int


class Others(Generic[_Program]):
    """The programs that were added and used last; ``added`` counts all that ever were.

    Threads may walk through them while one adds: a walk goes through the list that it began with.
    """

    def __init__(self) -> None:
        self._kept: list[Other[_Program]] = []
        self._by_key: dict[Hashable, Other[_Program]] = {}
        self._uses = itertools.count()  # next() is one step for all threads
        self.added = 0

    def __iter__(self) -> Iterator[Other[_Program]]:
        return iter(self._kept)

    def find(self, key: Hashable) -> Other[_Program] | None:
        """Return the program that was added last under a key."""
        return self._by_key.get(key)

    def __len__(self) -> int:
        return len(self._kept)

    def use(self, other: Other[_Program]) -> None:
        """Note that a program was used now."""
        other.used = next(self._uses)

    def add(self, program: _Program, key: Hashable) -> None:
        """Keep one more, in place of the one that rested longest where there are 16: warned of once."""
        kept = sorted(self._kept, key=lambda each: each.used)[-(_MAX_PROGRAMS - 2) :]
        self._keep([*kept, Other(program=program, key=key, used=next(self._uses))])
        self.added += 1
        if self.added == _MAX_PROGRAMS:
            text = f"{_MAX_PROGRAMS + 1} shapes or types of inputs have come, and {_MAX_PROGRAMS} programs are kept"
            again = "one that was dropped is compiled again when its inputs come: pad them to fewer shapes"
            warnings.warn(TraceaWarning(f"{text}: {again}"), stacklevel=2)

    def copy(self) -> Others[_Program]:
        """Return the same programs with a history of their own."""
        copied: Others[_Program] = Others()
        copied._keep([replace(each, used=next(copied._uses)) for each in self._kept])
        copied.added = len(copied._kept)
        return copied

    def _keep(self, kept: list[Other[_Program]]) -> None:
        self._kept, self._by_key = kept, {each.key: each for each in kept}
