"""Whole numbers as users give them to convolutions and pools: one, or one for each axis."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, Final, cast

from tracea.errors import InvalidOp

__all__ = ["pair", "single", "triple", "whole_number"]

_END: Final = 2**31


def whole_number(name: str, value: Any, least: int) -> int:
    """Return a whole number from ``least`` on.

    Raises:
        InvalidOp: it is none.
    """
    try:
        number = least - 1 if isinstance(value, bool) else index(value)
    except TypeError:  # arrays and tensors have an __index__, which only those of one whole number answer
        number = least - 1
    if not least <= number < _END:
        raise InvalidOp(
            field=name, got=value, expected=f"whole numbers from {least} on", remedy=f"{name}={max(1, least)}"
        )
    return number


def single(name: str, value: Any, least: int) -> int:
    """Return a whole number, which may be given as a sequence of one.

    Raises:
        InvalidOp: it is neither, or less than ``least``.
    """
    given = tuple(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else (value,)
    return whole_number(name, given[0] if len(given) == 1 else value, least)


def pair(name: str, value: Any, least: int) -> tuple[int, int]:
    """Return one whole number, or two, as (rows, columns).

    Raises:
        InvalidOp: it is neither, or less than ``least``.
    """
    rows, columns = _each(name, value, least, 2, "two: rows and columns")
    return rows, columns


def triple(name: str, value: Any, least: int) -> tuple[int, int, int]:
    """Return one whole number, or three, as (planes, rows, columns).

    Raises:
        InvalidOp: it is neither, or less than ``least``.
    """
    planes, rows, columns = _each(name, value, least, 3, "three: planes, rows and columns")
    return planes, rows, columns


def _each(name: str, value: Any, least: int, axes: int, several: str) -> tuple[int, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        values = tuple(cast("Sequence[Any]", value))
        if len(values) in (1, axes):
            return tuple(whole_number(name, each, least) for each in (values * axes)[:axes])
    elif hasattr(value, "__index__"):
        return (whole_number(name, value, least),) * axes
    raise InvalidOp(field=name, got=value, expected=f"a whole number, or {several}", remedy=f"{name}={max(1, least)}")
