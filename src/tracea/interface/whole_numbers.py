"""Whole numbers as users give them: one, or one for each axis. Arrays and tensors of more than one are none."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, Final, cast

from tracea.core.names import as_given
from tracea.errors import InvalidOp, InvalidShape, TraceaError
from tracea.runtime.buffers import view

__all__ = ["axis_number", "each_axis", "pair", "read_whole", "read_wholes", "single", "triple", "whole_number"]

_LARGEST: Final = 2**31 - 1
_SEVERAL: Final = {1: "a sequence of one", 2: "two: rows and columns", 3: "three: planes, rows and columns"}
_USUAL: Final = {"kernel_size": 2}  # where the least is no use: a window of one is its element
_TRUTH: Final = ("bool", "torch.bool")  # element types whose one element torch takes for 1


def read_whole(value: Any) -> int | None:
    """Return a whole number; None where it is none, as True and False are not, nor arrays and tensors of them.

    Every array and tensor has an ``__index__``, which those of one whole number in this machine's memory answer.
    """
    if type(value) is int:
        return value
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) in _TRUTH:
        return None
    try:
        return index(value)
    except Exception:  # whatever an __index__ of the caller's own raises: it names no number
        return None


def read_wholes(values: Any) -> tuple[int, ...] | None:
    """Return the whole numbers of a sequence, an array or a tensor of one axis; None where it is none of them."""
    try:
        if str(getattr(values, "dtype", "")).startswith("torch."):
            values = _in_place(values)
        each: tuple[Any, ...] = tuple(values.tolist() if hasattr(values, "tolist") else values)
    except Exception:  # a number, a tensor that has no data, or whatever the caller's own sequence raises
        return None
    numbers = [read_whole(value) for value in each]
    return None if None in numbers else tuple(number for number in numbers if number is not None)


def _in_place(tensor: Any) -> Any:
    """Return the array that a tensor's elements are, which reads them without a call of torch's, or else the tensor."""
    try:
        return view(tensor).numpy()
    except TraceaError:  # elements or memory of another kind, which torch may still read
        return tensor


def whole_number(name: str, value: Any, least: int, most: int = _LARGEST, *, remedy: str | None = None) -> int:
    """Return a whole number from ``least`` to ``most``.

    Raises:
        InvalidOp: it is none.
    """
    number = read_whole(value)
    if number is None or not least <= number <= most:
        raise InvalidOp(
            field=name,
            got=as_given(value),
            expected=f"whole numbers from {least} " + (f"to {most}" if number is not None and number > most else "on"),
            remedy=remedy or f"{name}={least}",
        )
    return number


def axis_number(name: str, value: Any) -> int:
    """Return the number of an axis, counted from the first or from the last.

    Raises:
        InvalidShape: it is no whole number.
    """
    number = read_whole(value)
    if number is None or abs(number) > _LARGEST:
        raise InvalidShape(
            field=name, got=as_given(value), expected="an axis, a whole number", remedy=f"{name}=-1 is the last"
        )
    return number


def single(name: str, value: Any, least: int) -> int:
    """Return a whole number, which may be given as a sequence of one.

    Raises:
        InvalidOp: it is neither, or less than ``least``.
    """
    return each_axis(name, value, least, 1)[0]


def pair(name: str, value: Any, least: int) -> tuple[int, int]:
    """Return one whole number, or two, as (rows, columns).

    Raises:
        InvalidOp: it is neither, or less than ``least``.
    """
    rows, columns = each_axis(name, value, least, 2)
    return rows, columns


def triple(name: str, value: Any, least: int) -> tuple[int, int, int]:
    """Return one whole number, or three, as (planes, rows, columns).

    Raises:
        InvalidOp: it is neither, or less than ``least``.
    """
    planes, rows, columns = each_axis(name, value, least, 3)
    return planes, rows, columns


def each_axis(name: str, value: Any, least: int, axes: int) -> tuple[int, ...]:
    """Return a whole number for each of one to three axes, given as one or as a sequence of so many.

    Raises:
        InvalidOp: it is neither, or less than ``least``.
    """
    # What nearly every call gives, in a fifth of the time.
    if type(value) is int and least <= value <= _LARGEST:
        return (value,) * axes
    example = f"{name}={_USUAL.get(name, least)}"
    several = isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)
    if several:
        values = tuple(cast("Sequence[Any]", value))
        if len(values) in (1, axes):
            return tuple(whole_number(name, each, least, remedy=example) for each in (values * axes)[:axes])
    elif read_whole(value) is not None:
        return (whole_number(name, value, least, remedy=example),) * axes
    sided = name == "padding" and several and len(cast("Sequence[Any]", value)) == 2 * axes
    remedy = "pad each side of x first: torch.nn.functional.pad (a maximum with -inf)" if sided else example
    raise InvalidOp(field=name, got=as_given(value), expected=f"a whole number, or {_SEVERAL[axes]}", remedy=remedy)
