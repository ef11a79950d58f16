"""GEMM whose tiles the copy engine brings: one warp asks, mbarriers announce, the others multiply by mma.sync.

``full[slot]`` completes when both tiles of a stage have landed, ``empty[slot]`` when every consumer is done with them;
use number k of the ring takes slot ``k mod stages`` in phase ``k div stages``. ``warpgroups`` has the consumers that
multiply by wgmma.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tracea.core.dtype import DType
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.gpu.operands import GpuOperands, K
from tracea.kernels.gemm.gpu.program import COLUMN, ROW, WARP, WARP_COLUMN, WARP_ROW, GpuProgram
from tracea.kernels.gemm.gpu.tiling import GpuTiling
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, scratch
from tracea.semantic.index import Const, Index, Param, Predicate, Var, ceil_div
from tracea.semantic.nodes import (
    Barrier,
    For,
    Let,
    Level,
    Node,
    Parallel,
    block,
)
from tracea.semantic.nodes_async import (
    Clear,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierWait,
    Role,
    Roles,
    TmaCopy,
    TmaDescriptor,
)
from tracea.semantic.schedule import Schedule
from tracea.semantic.swizzle import TMA_MODES
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.gpu import GpuTarget

__all__ = ["TmaRing", "build_with_warps", "check_rows"]

_NO_USES: Final = Const(0)
_PIECE: Final = 16  # bytes, of which the strides of a tensor map are multiples


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaRing:
    """The shared tiles and mbarriers of a ring of stages that the copy engine fills, rows along k."""

    operands: GpuOperands
    a_tiles: Buffer
    b_tiles: Buffer
    full: Buffer
    empty: Buffer
    bk: int
    stages: int

    @classmethod
    def of(cls, operands: GpuOperands, *, bm: int, bn: int, bk: int, stages: int, swizzled: bool) -> TmaRing:
        """Return the buffers of a ring; rows are as long as the copy engine's swizzle."""
        check_rows(bk, operands.a.dtype.nbytes)
        for name, chunk in (("chunk_a", operands.a_chunk_bytes), ("chunk_b", operands.b_chunk_bytes)):
            if chunk != _PIECE:
                raise InvalidSchedule(
                    field=name,
                    got=chunk,
                    expected=f"{_PIECE}: the copy engine wants rows at multiples of {_PIECE} bytes",
                    remedy=f"use {name}={_PIECE}; gemm.mma_cp_async copies smaller pieces",
                )
        row_bytes = bk * operands.a.dtype.nbytes

        def tiles(name: str, rows: int, dtype: DType) -> Buffer:
            return Buffer(
                name=name,
                dtype=dtype,
                space=MemorySpace.TEAM,
                shape=(Const(stages), Const(rows), Const(bk)),
                role=BufferRole.SCRATCH,
                swizzle=TMA_MODES[row_bytes] if swizzled else None,
            )

        return cls(
            operands=operands,
            a_tiles=tiles("a_tiles", bm, operands.a.dtype),
            b_tiles=tiles("b_tiles", bn, operands.b.dtype),
            full=scratch("full", DType.I64, MemorySpace.TEAM, stages),
            empty=scratch("empty", DType.I64, MemorySpace.TEAM, stages),
            bk=bk,
            stages=stages,
        )

    @property
    def steps(self) -> Index:
        """Steps of k."""
        return ceil_div(K, self.bk)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Tiles and barriers."""
        return (self.a_tiles, self.b_tiles, self.full, self.empty)

    def set_up(self, consumers: int) -> tuple[Node, ...]:
        """Return the set-up of all barriers, before the roles part."""
        s = Var("s")
        inits = (
            MbarrierInit(barrier="full", slot=s, count=Const(1)),
            MbarrierInit(barrier="empty", slot=s, count=Const(consumers)),
        )
        return (For(var=s, extent=Const(self.stages), body=block(*inits)), Barrier(level=Level.BLOCK))

    def produce(self, row: Index = ROW, column: Index = COLUMN, *, first: Index = _NO_USES) -> Node:
        """Return the producer's loop: wait for an empty slot, announce the bytes, ask for both tiles.

        ``first`` is the number of the loop's first use.
        """
        k = Var("k_fetch")
        use = (first + k).simplify()
        slot = use % self.stages
        tiles = ((self.operands.a, self.a_tiles, row), (self.operands.b, self.b_tiles, column))
        nbytes = sum(int(t.shape[1].constant or 0) * self.bk * t.dtype.nbytes for _, t, _ in tiles)
        copies = (self._copy(buffer, into, start, k, slot) for buffer, into, start in tiles)
        body = (
            MbarrierWait(barrier="empty", slot=slot, parity=(use // self.stages + 1) % 2),
            MbarrierExpect(barrier="full", slot=slot, nbytes=Const(nbytes)),
            *copies,
        )
        return For(var=k, extent=self.steps, body=block(*body))

    def _copy(self, buffer: Buffer, tiles: Buffer, first: Index, k: Index, slot: Index) -> TmaCopy:
        rows = int(tiles.shape[1].constant or 0)
        source = self.operands.at(buffer, first, k * self.bk, rows, self.bk)
        box = (*(1 for _ in source.offset[:-2]), rows, self.bk)
        swizzle = 0 if tiles.swizzle is None else self.bk * tiles.dtype.nbytes
        return TmaCopy(
            descriptor=TmaDescriptor(buffer=buffer.name, box=box, swizzle_bytes=swizzle),
            origin=source.offset,
            target=tiles.region((slot, 0, 0), (1, rows, self.bk)),
            barrier="full",
            slot=slot,
        )

    def arrived(self, use: Index) -> Node:
        """Return the consumers' wait for a use."""
        return MbarrierWait(barrier="full", slot=use % self.stages, parity=use // self.stages % 2)

    def of_second_program(self) -> TmaRing:
        """Return this ring for a program that names batch indices itself."""
        return replace(self, operands=self.operands.renamed("_fetch"))

    def kernel(
        self,
        variant: str,
        schedule: Schedule,
        target: GpuTarget,
        *,
        scratch: Sequence[Buffer],
        body: Node,
        blocks: Index,
        launch: tuple[Param, ...] = (),
        more: Predicate | None = None,
    ) -> TileKernel:
        """Return the kernel of this ring and that body.

        ``launch`` are parameters that no buffer has, ``more`` guards beside those of the operands.
        """
        op = self.operands.op
        buffers = (*self.operands.buffers, *self.buffers, *scratch)
        bm, bn = (int(tiles.shape[1].constant or 0) for tiles in (self.a_tiles, self.b_tiles))
        present: Predicate = K >= 1  # a tensor without elements has no map
        return TileKernel(
            name=kernel_name(op.key, variant, schedule, target),
            op=op,
            variant=variant,
            schedule=schedule,
            target=target.name,
            params=(*params_of(buffers), *launch),
            buffers=buffers,
            body=block(body),
            tables=self.operands.tables(bm, bn),
            assumptions=self.operands.assumptions(blocks) & (present if more is None else present & more),
        )


def check_rows(bk: int, nbytes: int) -> None:
    """Check that rows of ``bk`` elements of ``nbytes`` each are as long as one of the copy engine's swizzles.

    Raises:
        InvalidSchedule: they are not; the remedy is the nearest that is.
    """
    if bk * nbytes not in TMA_MODES:
        legal = [mode // nbytes for mode in TMA_MODES]
        raise InvalidSchedule(
            field="bk",
            got=bk,
            expected=f"one of {legal}: rows of 32, 64 or 128 bytes",
            remedy=f"use {min(legal, key=lambda value: abs(value - bk))}",
        )


def build_with_warps(
    variant: str, operands: GpuOperands, schedule: Schedule, tiling: GpuTiling, target: GpuTarget, *, swizzled: bool
) -> TileKernel:
    """Return the GEMM whose consumers are warps that multiply by mma.sync."""
    program = GpuProgram.of(operands, tiling, swizzled=swizzled)
    ring = TmaRing.of(operands, bm=tiling.bm, bn=tiling.bn, bk=tiling.bk, stages=tiling.stages, swizzled=swizzled)
    k, producer = Var("k_step"), Var("producer")
    release = MbarrierArrive(barrier="empty", slot=k % tiling.stages)
    main = For(var=k, extent=ring.steps, body=block(ring.arrived(k), *program.multiply(k % tiling.stages), release))
    consume = block(
        Let(var=WARP_ROW, value=WARP // tiling.warps_n, bits=32),
        Let(var=WARP_COLUMN, value=WARP % tiling.warps_n, bits=32),
        Clear(target=program.sums.whole()),
        main,
        program.store(),
    )
    roles = Roles(
        roles=(
            Role(name="consumer", executors=tiling.warps, index=WARP, body=consume),
            Role(name="producer", executors=1, index=producer, body=block(ring.produce())),
        )
    )
    tile = Var("tile")
    blocks = operands.blocks(tiling.bm, tiling.bn)
    place = operands.place(tile, ROW, COLUMN, bm=tiling.bm, bn=tiling.bn)
    grid = Parallel(level=Level.BLOCK, var=tile, extent=blocks, body=block(*place, *ring.set_up(tiling.warps), roles))
    registers = (program.staging, program.a_fragment, program.b_fragment, program.sums)
    held = [buffer for buffer in registers if buffer is not None]
    return ring.kernel(variant, schedule, target, scratch=held, body=grid, blocks=blocks)
