"""The fields of errors: plain, bounded values that hold no memory alive, pickle, and print as short text."""

from __future__ import annotations

import enum
import numbers
import os
from collections.abc import Mapping, Sequence, Set
from typing import Any, Final, cast

__all__ = ["MAX_TEXT", "clipped", "plain_field", "shortened", "shown"]

MAX_TEXT: Final = 200
_MAX_ITEMS: Final = 32
_MAX_COMMAND: Final = 80
_MAX_DEPTH: Final = 4


def plain_field(value: Any, depth: int = 0) -> Any:
    """Reduce a field to numbers, text and bounded containers of them."""
    match value:
        case enum.Enum():
            return value.value if isinstance(value.value, str) else value.name
        case None | bool():
            return value
        case numbers.Integral():
            return int(value)
        case numbers.Real():
            return float(value)
        case str() | os.PathLike():
            return clipped(os.fspath(cast("str | os.PathLike[str]", value)), MAX_TEXT)
        case Mapping() if depth < _MAX_DEPTH:
            items = list(cast("Mapping[Any, Any]", value).items())[:_MAX_ITEMS]
            return {clipped(str(key), MAX_TEXT): plain_field(item, depth + 1) for key, item in items}
        case tuple() | list() | Set() if depth < _MAX_DEPTH:
            every = list(cast("Sequence[Any]", value))
            was_cut = len(every) == _MAX_ITEMS + 1 and str(every[-1]).startswith("… (")  # and pickled since
            plain = tuple(plain_field(item, depth + 1) for item in (every if was_cut else every[:_MAX_ITEMS]))
            return plain if len(plain) == len(every) else (*plain, f"… ({len(every)} in all)")
        case type():
            return clipped(value.__name__, MAX_TEXT)
        case _ if hasattr(cast("type[Any]", type(value)), "__dlpack__"):
            return clipped(_array_text(value), MAX_TEXT)
        case _:
            return clipped(repr(value), MAX_TEXT)


def _array_text(array: Any) -> str:
    """Return what a tensor or an array is: its elements tell nobody which argument was meant, and may be on a GPU."""
    try:
        return f"{type(array).__name__} of shape {tuple(array.shape)} and dtype {array.dtype}"
    except Exception:  # of the array's own code
        return type(array).__name__


def clipped(text: str, limit: int) -> str:
    """Return the first ``limit`` characters of a text, and the number of all where there are more."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def shortened(command: Sequence[str]) -> str:
    """Return a command as it is, or where it is long its first and last word: the field has all of it."""
    text = " ".join(command)
    return text if len(text) <= _MAX_COMMAND else f"{command[0]} … {command[-1]} ({len(command)} words)"


def shown(value: Any, between: str = ", ") -> str:
    """Return a field's plain value as text: names as they are, several of them with ``between``, the rest as Python."""
    if isinstance(value, str) and value.isprintable() and value:
        return value
    if isinstance(value, tuple) and value and all(map(_is_name, items := cast("tuple[Any, ...]", value))):
        return between.join(items)
    if isinstance(value, dict) and value and all(map(_is_flat, pairs := cast("dict[str, Any]", value).items())):
        return ", ".join(f"{name} {shown(item)}" for name, item in pairs)
    return repr(cast("object", value))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable() and not set(value) & set(",|")


def _is_flat(pair: tuple[str, Any]) -> bool:  # told apart from its neighbours without brackets
    return _is_name(pair[0]) and not isinstance(pair[1], dict) and (not isinstance(pair[1], str) or _is_name(pair[1]))
