"""ProcessBound: what holds native code never changes, and cannot leave its process."""

from __future__ import annotations

from typing import Any, Self

from tracea.errors import InvalidOption

__all__ = ["ProcessBound"]


class ProcessBound:
    """A program that is its own copy, and refuses to be pickled: native code is no value another process could read."""

    __slots__ = ()

    def __copy__(self) -> Self:
        """Return the program itself, which never changes."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the program itself, which never changes."""
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse.

        Raises: InvalidOption: always.
        """
        raise InvalidOption(
            field="program",
            got="pickle",
            expected="a program of this process",
            remedy="program.save(path), and tracea.load(path) in the other process",
        )
