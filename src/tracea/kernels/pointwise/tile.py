"""The tile of elementwise work: a block of rows through one chain."""

from __future__ import annotations

from typing import Any

from tracea.core.arithmetic import computed_in
from tracea.core.dtype import DType
from tracea.semantic.access import Intrinsic

__all__ = ["compute_type", "map_tile"]


def map_tile(compute: DType, *, streaming: bool, prefetch: int = 0, together: int = 1) -> Intrinsic:
    """Return the routine that maps a block of rows.

    ``streaming`` stores past the caches, for larger results; ``prefetch`` is how many vectors ahead operands are asked
    for, and ``together`` how many rows it goes along at once, 1 or 2.
    """
    return Intrinsic(
        name="map_rows",
        meaning=_copy,
        source="emitters/cpu/include/tracea/row_tiles.h",
        attributes=(
            ("compute", compute.value),
            ("prefetch", prefetch),
            ("streaming", int(streaming)),
            ("together", together),
        ),
    )


def compute_type(*dtypes: DType) -> DType:
    """Return what a chain over these element types is computed in: f64 where f32 would lose bits of one of them."""
    return computed_in(dtypes)


def _copy(value: Any) -> Any:
    return value
