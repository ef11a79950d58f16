"""What a node touches: rectangles of buffers, how it touches them, and the routine or instruction inside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tracea.errors import InvalidSchedule
from tracea.semantic.index import Index, as_index

__all__ = ["Access", "AccessMode", "Attribute", "ImageArea", "Intrinsic", "Region", "as_given", "reads", "writes"]

Attribute = int | float | str


class AccessMode(Enum):
    """What a node does to a region."""

    READ = "read"
    WRITE = "write"
    UPDATE = "update"  # reads and writes: an accumulator


@dataclass(frozen=True, slots=True, kw_only=True)
class Intrinsic:
    """A routine of a device header or an instruction: its meaning in NumPy, and the text that defines it.

    ``attributes`` are compile-time facts of the routine, in name order (``mr``, ``nv``, ``isa``); the meaning does
    not depend on them unless its node's documentation says so.
    """

    name: str
    meaning: Callable[..., Any] = field(compare=False, repr=False)
    source: str
    attributes: tuple[tuple[str, Attribute], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(sorted(self.attributes)))

    def attribute(self, name: str) -> Attribute:
        """Return the attribute of that name.

        Raises:
            InvalidSchedule: there is none.
        """
        for known, value in self.attributes:
            if known == name:
                return value
        raise InvalidSchedule(
            field=f"{self.name}.{name}",
            got="no value",
            expected=[known for known, _ in self.attributes],
            remedy="add it",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageArea:
    """Where in an image a window begins, and the image's ``extent``: (row,), or (row, column); outside of it are zeros.

    ``first`` is below zero where the window begins above or left of the image.
    """

    first: tuple[Index, ...]
    extent: tuple[Index, ...]


def as_given(value: Any) -> Any:
    """Return a value as it is: the meaning of a routine whose node says all that it does."""
    return value


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle of a buffer in logical coordinates: ``offset[d] <= i[d] < offset[d] + extent[d]`` for each axis."""

    buffer: str
    offset: tuple[Index, ...]
    extent: tuple[Index, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "offset", tuple(map(as_index, self.offset)))
        object.__setattr__(self, "extent", tuple(map(as_index, self.extent)))
        if len(self.offset) != len(self.extent):
            raise InvalidSchedule(
                field=f"region of {self.buffer}",
                got=f"{len(self.offset)} offsets, {len(self.extent)} extents",
                expected="one of each per axis",
                remedy="give an extent of 1 on the axes that the region does not span",
            )

    def __str__(self) -> str:
        spans = ", ".join(f"{start} : +{size}" for start, size in zip(self.offset, self.extent, strict=True))
        return f"{self.buffer}[{spans}]"


@dataclass(frozen=True, slots=True)
class Access:
    """One region that a node touches; ``masked``: the node itself skips what lies outside the buffer."""

    region: Region
    mode: AccessMode
    masked: bool = False

    @property
    def reads(self) -> bool:
        """Whether the contents matter to the node."""
        return self.mode is not AccessMode.WRITE

    @property
    def writes(self) -> bool:
        """Whether the node changes the contents."""
        return self.mode is not AccessMode.READ


def reads(*regions: Region | None) -> tuple[Access, ...]:
    """Return a reading access of each region that there is."""
    return tuple(Access(region, AccessMode.READ) for region in regions if region is not None)


def writes(*regions: Region | None) -> tuple[Access, ...]:
    """Return a writing access of each region that there is."""
    return tuple(Access(region, AccessMode.WRITE) for region in regions if region is not None)
