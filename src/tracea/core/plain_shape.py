"""A shape as messages show it: numbers as numbers, a symbolic extent by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracea.core.tensor_type import Dim

__all__ = ["plain_shape"]


def plain_shape(shape: Sequence[Dim]) -> tuple[int | str, ...]:
    """Return the extents as plain values."""
    return tuple(dim if isinstance(dim, int) else dim.name for dim in shape)
