"""Whole numbers as users give them: one, or one for each axis. Arrays and tensors of more than one are none."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, Final, cast

from tracea.errors import InvalidOp, InvalidShape

__all__ = ["axis_number", "pair", "read_whole", "single", "triple", "whole_number"]

_LARGEST: Final = 2**31 - 1


def read_whole(value: Any) -> int | None:
    """Return a whole number; None where it is none.

    Every array and tensor has an ``__index__``, which those of one whole number in this machine's memory answer.
    """
    try:
        return None if isinstance(value, bool) else index(value)
    except (TypeError, RuntimeError):
        return None


def whole_number(name: str, value: Any, least: int, most: int = _LARGEST, *, remedy: str | None = None) -> int:
    """Return a whole number from ``least`` to ``most``.

    Raises:
        InvalidOp: it is none.
    """
    number = read_whole(value)
    if number is None or not least <= number <= most:
        raise InvalidOp(
            field=name,
            got=value,
            expected=f"whole numbers from {least} " + (f"to {most}" if number is not None and number > most else "on"),
            remedy=remedy or f"{name}={max(1, least)}",
        )
    return number


def axis_number(name: str, value: Any) -> int:
    """Return the number of an axis, counted from the first or from the last.

    Raises:
        InvalidShape: it is no whole number.
    """
    number = read_whole(value)
    if number is None or abs(number) > _LARGEST:
        raise InvalidShape(field=name, got=value, expected="an axis, a whole number", remedy=f"{name}=-1 is the last")
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
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        values = tuple(cast("Sequence[Any]", value))
        if len(values) in (1, axes):
            return tuple(whole_number(name, each, least) for each in (values * axes)[:axes])
    elif read_whole(value) is not None:
        return (whole_number(name, value, least),) * axes
    raise InvalidOp(field=name, got=value, expected=f"a whole number, or {several}", remedy=f"{name}={max(1, least)}")
