"""IndexRange: what the whole numbers of an input of a program may be, checked before anything is read by them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from tracea.errors import InvalidIndex

if TYPE_CHECKING:
    import numpy as np

    from tracea.runtime.buffers import ArrayView

__all__ = ["IndexRange", "Named", "unknown_index"]


class Named(Enum):
    """What an index names, in the plural."""

    ROWS = "rows"
    CLASSES = "classes"
    PLACES = "places"


_ONE: Final = {Named.ROWS: "row", Named.CLASSES: "class", Named.PLACES: "place"}
_REMEDIES: Final = {
    Named.ROWS: "count from 0; give the table a row for each index",
    Named.CLASSES: "count from 0; give the logits a class for each target, or name by ignore_index what does not count",
    Named.PLACES: "count from 0; give the table, or the axis, a place for each index",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRange:
    """The program's input ``input``, int64 or int32, holds numbers from 0 to ``count - 1``, or the ``ignored`` one.

    The extension checks it natively (launcher/index_range.cpp); ``name`` is what the error calls the input.
    """

    input: int
    count: int
    name: str
    what: Named
    ignored: int | None = None

    def check(self, found: ArrayView) -> None:
        """Check every number.

        Raises: InvalidIndex: one names nothing; the error says it, and how many there are.
        """
        numbers = found.numpy()
        wrong: np.ndarray[Any, Any] = numbers[(numbers < 0) | (numbers >= self.count)]
        if self.ignored is not None:
            wrong = wrong[wrong != self.ignored]
        if wrong.size:
            low, high = int(wrong.min()), int(wrong.max())
            raise unknown_index(self.name, low if low < 0 else high, self.count, self.what)


def unknown_index(name: str, got: int, count: int, what: Named) -> InvalidIndex:
    """Return the error of an index that names none of ``count``, with the remedy for what it should name."""
    named = _ONE[what] if count == 1 else what.value
    return InvalidIndex(
        field=name,
        got=got,
        expected=f"0 to {count - 1}, of {count} {named}" if count else f"none: there are no {what.value}",
        remedy=_REMEDIES[what],
    )
