"""A thin factor of a low-rank product: read where it lies, or in panels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tracea.core.dtype import DType
from tracea.kernels.operands import scratch
from tracea.semantic.access import Region
from tracea.semantic.index import Const, Index, Var, ceil_div
from tracea.semantic.nodes import Level, Node, Pack, Parallel, block
from tracea.semantic.tile_kernel import Buffer, MemorySpace

__all__ = ["ThinFactor"]

_SWEEP: Final = 8  # panels that one task packs


@dataclass(frozen=True, slots=True)
class ThinFactor:
    """A factor of ``depth`` by ``width`` as tiles read it: in place, or in panels, which the team packs first.

    Panels with several ``steps`` in a vector are packed by each task, as a whole.
    """

    buffer: Buffer
    panels: Buffer | None
    columns: int  # of a tile
    steps: int = 1  # of a vector

    @classmethod
    def of(cls, buffer: Buffer, accumulator: DType, columns: int, *, packed: bool, steps: int = 1) -> ThinFactor:
        """Return a factor whose tiles have ``columns``; ``packed`` says where they read it."""
        depth, width = buffer.shape
        whole = ceil_div(depth, steps) * steps if steps > 1 else depth
        space = MemorySpace.TEAM if steps == 1 else MemorySpace.THREAD
        panels = scratch(f"{buffer.name}_panels", accumulator, space, ceil_div(width, columns), whole, columns)
        return cls(buffer, panels if packed else None, columns, steps)

    def region(self, step: Index, column: Index, steps: Index, wide: Index) -> Region:
        """Return what a tile reads from a step and a column on."""
        if self.panels is None:
            return self.buffer.region((step, column), (steps, wide))
        return self.panels.region((column // self.columns, step, 0), (1, steps, self.columns))

    def packing(self, column: Var, wide: Var) -> tuple[Node, ...]:
        """Return the loop by which the team packs it; not what each task packs."""
        if self.panels is None or self.steps > 1:
            return ()
        depth, width = self.buffer.shape
        pack = Pack(
            source=self.buffer.region((0, column), (depth, wide)),
            target=self.panels.region(
                (column // self.columns, 0, 0), (ceil_div(wide, self.columns), depth, self.columns)
            ),
            panel=self.columns,
            axis=1,
        )
        step = Const(_SWEEP * self.columns)
        return (Parallel(level=Level.TASK, var=column, extent=width, step=step, length=wide, body=block(pack)),)

    def packed_by_task(self) -> tuple[Node, ...]:
        """Return the packing of all of it, which costs less than a barrier where it is narrow."""
        if self.panels is None or self.steps == 1:
            return ()
        depth, width = self.buffer.shape
        pack = Pack(
            source=self.buffer.region((0, 0), (depth, width)),
            target=self.panels.region((0, 0, 0), (ceil_div(width, self.columns), depth, self.columns)),
            panel=self.columns,
            axis=1,
            granule=self.steps,
        )
        return (pack,)
