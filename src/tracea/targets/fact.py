"""Facts: the numbers of a target, each with the figure that was read and its address, or with why it is assumed.

Worked example: ``vector_registers`` of the generic AVX-512 entry is 32, read as «… if (Vector && ST->hasAVX512())
return 32; …» in a file of LLVM whose address the source has; its ``cores`` are 1 by assumption.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tracea.targets.product import Reading, Source, check_sources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracea.targets.product import Product

__all__ = ["Fact", "Number", "fact_of", "facts_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One number: the source it was read in and the figure that stands there, or ``assumption``: why it is taken.

    ``note`` is the calculation from the figure to the value, where it took one.
    """

    value: int
    source: Source | None = None
    figure: str = ""
    note: str = ""
    assumption: str = ""

    @property
    def origin(self) -> str:
        """Where the number comes from, in one line."""
        if self.source is None:
            return f"assumed: {self.assumption}"
        return f"{self.source.title}, {self.source.url}: «{self.figure}»"


class Number(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One number of a catalogue file: the key of a source and the figure read there, or an assumption."""

    value: int
    source: str | None = None
    figure: str = ""
    note: str = ""
    assumption: str | None = None

    def __post_init__(self) -> None:
        # A ValueError here becomes a msgspec.ValidationError that names the field's path.
        if (self.source is None) == (self.assumption is None):
            raise ValueError("give exactly one of source and assumption")
        if self.source is not None:
            Reading(value=self.value, source=self.source, figure=self.figure, note=self.note)
        elif self.figure or self.note or not (self.assumption or "").strip():
            raise ValueError("an assumption is a reason, without figure and note")


def facts_of(numbers: Mapping[str, Number], sources: Mapping[str, Source]) -> dict[str, Fact]:
    """Return the numbers of a file as facts.

    Raises:
        ValueError: a number's source is not described, or a source has no number.
    """
    check_sources({number.source for number in numbers.values() if number.source is not None}, sources)
    return {
        field: Fact(
            value=number.value,
            source=None if number.source is None else sources[number.source],
            figure=number.figure,
            note=number.note,
            assumption=number.assumption or "",
        )
        for field, number in numbers.items()
    }


def fact_of(product: Product, path: str, value: int | None = None) -> Fact:
    """Return a product's number as a fact; ``value`` is the number in the unit of the field that takes it.

    Raises:
        InvalidOption: the product does not state it.
    """
    stated = product.value(path)
    reading = product.readings[path]
    return Fact(
        value=stated if value is None else value,
        source=product.sources[reading.source],
        figure=reading.figure,
        note=reading.note,
    )
