"""IndexRange: what the whole numbers of an input of a program may be, checked before anything is read by them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from tracea.errors import InvalidIndex, InvalidInput

if TYPE_CHECKING:
    import numpy as np

    from tracea.runtime.buffers import ArrayView

__all__ = ["EXACT_INTEGERS", "IndexRange", "Named", "too_large", "unknown_index"]

EXACT_INTEGERS: Final = 2**53  # f64, in which kernels compute with integers, tells those apart


class Named(Enum):
    """What an index names, in the plural; numbers name nothing, and are computed with."""

    ROWS = "rows"
    CLASSES = "classes"
    PLACES = "places"
    NUMBERS = "numbers"


_ONE: Final = {Named.ROWS: "row", Named.CLASSES: "class", Named.PLACES: "place"}
_REMEDIES: Final = {
    Named.ROWS: "count from 0; give the table a row for each index",
    Named.CLASSES: "count from 0; give the logits a class for each target, or name by ignore_index what does not count",
    Named.PLACES: "count from 0; give the table, or the axis, a place for each index",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRange:
    """The program's input ``input``, int64 or int32, holds ``count`` numbers from ``least`` on, or the ``ignored`` one.

    The extension checks it natively (launcher/index_range.cpp); ``name`` is what the error calls the input.
    """

    input: int
    count: int
    name: str
    what: Named
    ignored: int | None = None
    least: int = 0

    @classmethod
    def within(cls, limit: int, *, input: int, name: str) -> IndexRange:
        """Return the range of numbers that are at most so large, whatever their sign."""
        return cls(input=input, count=2 * limit + 1, name=name, what=Named.NUMBERS, least=-limit)

    def check(self, found: ArrayView) -> None:
        """Check every number.

        Raises: InvalidIndex: one names nothing; the error says it, and how many there are. InvalidInput: one is larger
            than what is computed of it allows.
        """
        numbers = found.numpy()
        last = self.least + self.count - 1
        wrong: np.ndarray[Any, Any] = numbers[(numbers < self.least) | (numbers > last)]
        if self.ignored is not None:
            wrong = wrong[wrong != self.ignored]
        if wrong.size:
            low, high = int(wrong.min()), int(wrong.max())
            got = low if low < self.least else high
            raise (
                too_large(self.name, got, last)
                if self.what is Named.NUMBERS
                else unknown_index(self.name, got, self.count, self.what)
            )


def too_large(name: str, got: int, limit: int) -> InvalidInput:
    """Return the error of a number beyond what a program's results are exact to."""
    power = limit.bit_length() - 1
    exact = limit == EXACT_INTEGERS
    why = "which f64 tells apart" if exact else "forward computes with them"
    return InvalidInput(
        field=name,
        got=got,
        expected=f"{'i64 values' if exact else 'integers'} within ±{limit} (2^{power}){',' if exact else ':'} {why}",
        remedy="keep this part of the model eager, or use smaller integers",
    )


def unknown_index(name: str, got: int, count: int, what: Named) -> InvalidIndex:
    """Return the error of an index that names none of ``count``, with the remedy for what it should name."""
    named = _ONE[what] if count == 1 else what.value
    return InvalidIndex(
        field=name,
        got=got,
        expected=f"0 to {count - 1}, of {count} {named}" if count else f"none: there are no {what.value}",
        remedy=_REMEDIES[what],
    )
