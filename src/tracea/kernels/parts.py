"""Sums made in parts: what several tasks left in scratch of the team, added behind a barrier in the order of the parts.

The parts are the schedule's, so the bits of a result do not depend on how many threads made them.
"""

from __future__ import annotations

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.ops.rows import ReduceKind
from tracea.semantic.access import Intrinsic, Region, as_given
from tracea.semantic.index import Const, Index, as_index
from tracea.semantic.nodes import EpilogueCall, ReduceTile
from tracea.semantic.tile_kernel import Buffer

__all__ = ["sum_of_parts"]


def sum_of_parts(
    parts: Buffer,
    row: int | Index | tuple[Index, ...],
    start: int | Index,
    width: Index,
    *,
    target: Region,
    compute: DType,
    epilogue: EpilogueCall | None = None,
) -> ReduceTile:
    """Return the node that adds ``width`` columns from ``start`` of one row of every part.

    Shapes: ``parts`` (parts, rows, columns), or with several axes of rows, of which ``row`` has an index each;
    ``target`` takes ``width`` elements, what ``epilogue`` makes of the sums.
    """
    row = row if isinstance(row, tuple) else (as_index(row),)
    shape = (parts.shape[0], *(Const(1) for _ in row), width)
    return ReduceTile(
        kind=ReduceKind.SUM,
        intrinsic=Intrinsic(
            name="reduce_columns",
            meaning=as_given,
            source="emitters/cpu/include/tracea/row_tiles.h",
            attributes=(("compute", compute.value),),
        ),
        inputs=(parts.region((0, *row, start), shape),),
        prologue=Input(0),
        shape=shape,
        axes=(0,),
        target=target,
        epilogue=epilogue,
    )
