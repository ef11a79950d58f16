"""What a name may have meant that is none of the known ones, and how what was given in its place is shown."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["as_given", "meant", "near"]

_NEAR: Final = 6  # names of a message
_ALIKE: Final = 3  # of those that are only spelled alike: more would be no guess
_LIKENESS: Final = 0.75  # share of the letters in common, difflib's ratio
_ALSO: Final = {"swish": "silu", "logistic": "sigmoid"}  # what others call them
_LONGEST: Final = 32  # characters of a name that is compared; the longest there is has 15


def as_given(value: Any) -> Any:
    """Return a value as an error shows it where no string may stand: '2' in quotes, which the number 2 has not."""
    return repr(value) if isinstance(value, str) else value


def near(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the known names that begin as this one does, or contain it, or else the few spelled most like it.

    Of a name that differs in its capitals alone it is the one that is meant.
    """
    asked, listed = name.lower()[:_LONGEST], sorted(known)
    if not asked:
        return ()
    if asked != name and asked in listed:
        return (asked,)
    if _ALSO.get(asked) in listed:
        return (_ALSO[asked],)
    found = [each for each in listed if each.startswith(asked)] or [each for each in listed if asked in each]
    return tuple((found or get_close_matches(asked, listed, n=_ALIKE, cutoff=_LIKENESS))[:_NEAR])


def meant(close: tuple[str, ...]) -> str:
    """Return the beginning of a remedy that names what may have been meant, nothing where nothing is near."""
    return f"use {' or '.join(close)}, if that was meant; " if close else ""
