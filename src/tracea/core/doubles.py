"""Numbers as users write them into expressions."""

from __future__ import annotations

from typing import Any

from tracea.core.names import as_given
from tracea.errors import InvalidOp

__all__ = ["double_of"]


def double_of(value: Any) -> float:
    """Return a number, or an array of one element, as a double.

    Raises:
        InvalidOp: it is text, an array of several elements, or larger than doubles are.
    """
    try:
        if not isinstance(value, str | bytes):  # of which float makes a number where one is written
            return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: of a tensor of several elements
        pass
    raise InvalidOp(
        field="expr",
        got=as_given(value),
        expected="an expression, or a number that a double holds",
        remedy="stand for an array by Input(i), and give it among the operands",
    )
