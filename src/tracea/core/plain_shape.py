"""A shape as messages show it, and what they say of one that has too few axes or too many."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracea.core.tensor_type import Dim

__all__ = ["axes_remedy", "plain_shape"]


def plain_shape(shape: Sequence[Dim]) -> tuple[int | str, ...]:
    """Return the extents as plain values, a symbolic one as its name."""
    return tuple(dim if isinstance(dim, int) else dim.name for dim in shape)


def axes_remedy(name: str, rank: int, axes: int, one: str = "one") -> str:
    """Return what mends an operand of ``rank`` axes where ``axes`` are needed; the first counts what ``one`` is one of.

    The same number of axes needs no mending: the answer is empty.
    """
    if rank == axes:
        return ""
    if rank == axes - 1:
        return f"{name}[None] is a batch of {one}"
    if rank < axes:
        return f"add the {axes - rank} axes that {name} lacks"
    return f"join the first {rank - axes + 1} axes: {name}.flatten(0, {rank - axes})"
