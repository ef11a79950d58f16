"""Schedule: the values chosen for one kernel, as frozen and ordered data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tracea.errors import InvalidSchedule

__all__ = ["MOST_OF_TILE", "Schedule"]

MOST_OF_TILE: Final = 2**24  # of what tiles are made of: beyond every cache, and no product of two overflows
_MOST: Final = 2**40  # of any number: a block may be a whole axis, and addresses do not overflow

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_WORD = re.compile(r"[A-Za-z0-9_.+-]+")


@dataclass(frozen=True, slots=True, init=False)
class Schedule(Mapping[str, int | str]):
    """Chosen values by name, in name order: the same choices are equal, hash alike and print the same key."""

    items_: tuple[tuple[str, int | str], ...]

    def __init__(self, values: Mapping[str, int | str] | None = None, /, **named: int | str) -> None:
        merged = {**(values or {}), **named}
        for name, value in merged.items():
            _check(name, value)
        object.__setattr__(self, "items_", tuple(sorted((name, _plain(value)) for name, value in merged.items())))

    @property
    def values_(self) -> dict[str, int | str]:
        """The values as a new dictionary, in name order: plain JSON."""
        return dict(self.items_)

    @property
    def key(self) -> str:
        """The schedule as one word per value: ``kc=512,mc=280``; parsed back by :meth:`parse`."""
        return ",".join(f"{name}={value}" for name, value in self.items_)

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Return the schedule that ``key`` or a command line wrote: ``kc=512,mc=280``.

        Raises:
            InvalidSchedule: an entry is not ``name=value``, or a name comes twice.
        """
        values: dict[str, int | str] = {}
        for entry in filter(None, text.split(",")):
            name, separator, value = entry.partition("=")
            if not separator or name in values:
                raise InvalidSchedule(
                    field="schedule", got=entry, expected="name=value, each name once", remedy="kc=512,mc=280"
                )
            values[name] = int(value) if re.fullmatch(r"-?\d{1,18}", value) else value
        return cls(values)

    def integer(self, name: str) -> int:
        """Return a value that must be an integer.

        Raises:
            InvalidSchedule: there is no such value, or it is text.
        """
        value = self.get(name)
        if not isinstance(value, int):
            raise InvalidSchedule(
                field=name, got=value, expected="an integer", remedy=f"schedule has {self.key or 'no values'}"
            )
        return value

    def word(self, name: str) -> str:
        """Return a value that must be text.

        Raises:
            InvalidSchedule: there is no such value, or it is an integer.
        """
        value = self.get(name)
        if not isinstance(value, str):
            raise InvalidSchedule(
                field=name, got=value, expected="a word", remedy=f"schedule has {self.key or 'no values'}"
            )
        return value

    def choice(self, name: str, *words: str) -> str:
        """Return a value that must be one of the words.

        Raises:
            InvalidSchedule: it is none of them; the message lists them.
        """
        value = self.get(name)
        if not isinstance(value, str) or value not in words:
            raise InvalidSchedule(field=name, got=value, expected=" | ".join(words), remedy=f"{name}={words[0]}")
        return value

    def check_range(self, least: int, *names: str, most: int = _MOST) -> None:
        """Check that the named values are whole numbers from ``least`` on, and at most ``most``.

        Raises:
            InvalidSchedule: one is not; the message states the limit.
        """
        for name in names:
            value = self.integer(name)
            if not least <= value <= most:
                nearest = least if value < least else most
                raise InvalidSchedule(
                    field=name, got=value, expected=f"{least} to {most}", remedy=f"{name}={nearest}, the nearest"
                )

    def with_values(self, **named: int | str) -> Schedule:
        """Return this schedule with values replaced or added."""
        return Schedule({**self.values_, **named})

    def __getitem__(self, name: str) -> int | str:
        for known, value in self.items_:
            if known == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.items_)

    def __len__(self) -> int:
        return len(self.items_)

    def __str__(self) -> str:
        return self.key


def _plain(value: int | str) -> int | str:
    return value if isinstance(value, str) else int(value)


def _check(name: object, value: object) -> None:
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise InvalidSchedule(
            field="schedule", got=name, expected="a lower-case name", remedy="name values such as mc, kc, stages"
        )
    if isinstance(value, str) and not _WORD.fullmatch(value):
        raise InvalidSchedule(
            field=name, got=value, expected="a word of letters, digits and _.+-", remedy="use such a word"
        )
    if isinstance(value, bool):
        raise InvalidSchedule(field=name, got=value, expected="an integer or a word", remedy=f"{name}={int(value)}")
    if not isinstance(value, str) and (isinstance(value, float) or not hasattr(value, "__index__")):
        raise InvalidSchedule(field=name, got=value, expected="an integer or a word", remedy="round the value first")
