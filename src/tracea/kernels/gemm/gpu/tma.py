"""GEMM whose tiles the copy engine brings: one warp asks, mbarriers announce, the others multiply.

``full[slot]`` completes when both tiles of a stage have landed, ``empty[slot]`` when every consumer is done with them;
use number k of the ring takes slot ``k mod stages`` in phase ``k div stages``. Consumers are warps that multiply by
mma.sync (``gemm.mma_tma``), or warpgroups that multiply by wgmma with one step of k in flight (``gemm.wgmma``), which
free a stage one step later and take the registers that the producers give back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tracea.core.dtype import DType
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.gpu.group_tiling import GROUP_ROWS, STRIP_COLUMNS, GroupTiling
from tracea.kernels.gemm.gpu.operands import GpuOperands, K, M, N
from tracea.kernels.gemm.gpu.program import COLUMN, ROW, STORE_ROWS, WARP, WARP_COLUMN, WARP_ROW, GpuProgram, swept
from tracea.kernels.gemm.gpu.tiling import GpuTiling
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, scratch
from tracea.semantic.index import TRUE, Const, Index, Predicate, Var, ceil_div
from tracea.semantic.nodes import (
    Barrier,
    Block,
    For,
    If,
    Let,
    Level,
    Node,
    Parallel,
    PointwiseTile,
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
    StoreFragment,
    TmaCopy,
    TmaDescriptor,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)
from tracea.semantic.schedule import Schedule
from tracea.semantic.swizzle import TMA_MODES, Swizzle
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.gpu import GpuTarget

__all__ = ["TmaRing", "build_with_groups", "build_with_warps"]

_STAGING_SWIZZLE: Final = Swizzle(2, 5, 2)


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
        row_bytes = bk * operands.a.dtype.nbytes
        if row_bytes not in TMA_MODES:
            legal = [mode // operands.a.dtype.nbytes for mode in TMA_MODES]
            raise InvalidSchedule(
                field="bk",
                got=bk,
                expected=f"one of {legal}: rows of 32, 64 or 128 bytes",
                remedy=f"use {min(legal, key=lambda value: abs(value - bk))}",
            )

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

    def produce(self) -> Node:
        """Return the producer's loop: wait for an empty slot, announce the bytes, ask for both tiles."""
        k = Var("k_fetch")
        slot = k % self.stages
        tiles = ((self.operands.a, self.a_tiles, ROW), (self.operands.b, self.b_tiles, COLUMN))
        nbytes = sum(int(t.shape[1].constant or 0) * self.bk * t.dtype.nbytes for _, t, _ in tiles)
        copies = (self._copy(buffer, into, first, k, slot) for buffer, into, first in tiles)
        body = (
            MbarrierWait(barrier="empty", slot=slot, parity=(k // self.stages + 1) % 2),
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

    def arrived(self, k: Index) -> Node:
        """Return the consumers' wait for use ``k``."""
        return MbarrierWait(barrier="full", slot=k % self.stages, parity=k // self.stages % 2)

    def kernel(
        self,
        variant: str,
        schedule: Schedule,
        target: GpuTarget,
        *,
        scratch: Sequence[Buffer],
        body: Node,
        blocks: Index,
    ) -> TileKernel:
        """Return the kernel of this ring and that body."""
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
            params=params_of(buffers),
            buffers=buffers,
            body=block(body),
            tables=self.operands.tables(bm, bn),
            assumptions=self.operands.assumptions(blocks) & present,
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


def build_with_groups(
    variant: str, operands: GpuOperands, schedule: Schedule, tiling: GroupTiling, target: GpuTarget, *, swizzled: bool
) -> TileKernel:
    """Return the GEMM whose consumers are warpgroups that multiply by wgmma."""
    product = tiling.product
    ring = TmaRing.of(operands, bm=tiling.bm, bn=tiling.bn, bk=tiling.bk, stages=tiling.stages, swizzled=swizzled)
    sums = scratch("sums", product.accumulator, MemorySpace.REGISTER, tiling.fragments, *product.c_shape)
    staging = Buffer(
        name="staging",
        dtype=product.accumulator,
        space=MemorySpace.TEAM,
        shape=(Const(tiling.groups), Const(GROUP_ROWS), Const(STRIP_COLUMNS)),
        role=BufferRole.SCRATCH,
        swizzle=_STAGING_SWIZZLE,
    )
    group, producer, k = Var("group"), Var("producer"), Var("k_step")
    row = ROW + group * tiling.rows_of_group
    consume = block(
        Clear(target=sums.whole()),
        For(
            var=k,
            extent=ring.steps,
            body=block(
                ring.arrived(k),
                WgmmaFence(),
                _multiply(ring, tiling, sums, group, k % tiling.stages),
                WgmmaCommit(),
                WgmmaWait(pending=Const(1)),
                If(predicate=k > 0, then=block(MbarrierArrive(barrier="empty", slot=(k - 1) % tiling.stages))),
            ),
        ),
        WgmmaWait(pending=Const(0)),
        If(predicate=row < M, then=block(_store(operands, tiling, sums, staging, origin=(group, row)))),
    )
    roles = Roles(
        roles=(
            Role(
                name="consumer",
                executors=tiling.groups,
                index=group,
                body=consume,
                lanes=128,
                registers=tiling.consumer_role_registers,
            ),
            Role(
                name="producer",
                executors=1,
                index=producer,
                body=block(ring.produce()),
                lanes=128,
                registers=tiling.producer_role_registers,
            ),
        )
    )
    tile = Var("tile")
    blocks = operands.blocks(tiling.bm, tiling.bn)
    place = operands.place(tile, ROW, COLUMN, bm=tiling.bm, bn=tiling.bn)
    body = Block(nodes=(*place, *ring.set_up(tiling.groups), roles))
    grid = Parallel(level=Level.BLOCK, var=tile, extent=blocks, body=body)
    return ring.kernel(variant, schedule, target, scratch=(staging, sums), body=grid, blocks=blocks)


def _multiply(ring: TmaRing, tiling: GroupTiling, sums: Buffer, group: Index, slot: Index) -> Node:
    product = tiling.product
    kk, i = Var("kk"), Var("i")
    first = group * tiling.rows_of_group + i * GROUP_ROWS
    multiply = Wgmma(
        intrinsic=product.multiply,
        a=ring.a_tiles.region((slot, first, kk * product.k), (1, GROUP_ROWS, product.k)),
        b=ring.b_tiles.region((slot, 0, kk * product.k), (1, tiling.bn, product.k)),
        c=sums.region((i, 0, 0), (1, *product.c_shape)),
        accumulate=TRUE,
    )
    fragments = For(var=i, extent=Const(tiling.fragments), body=block(multiply))
    return For(var=kk, extent=Const(tiling.bk // product.k), body=block(fragments))


def _store(
    operands: GpuOperands, tiling: GroupTiling, sums: Buffer, staging: Buffer, *, origin: tuple[Index, Index]
) -> Node:
    product, (group, row) = tiling.product, origin

    def rows(i_out: Index, here: Index) -> Node:
        def strip(number: Index, column: Index) -> Node:
            j = Var("j_out")
            stage = StoreFragment(
                intrinsic=product.store,
                source=sums.region((i_out, 0, (number * (STRIP_COLUMNS // 8) + j) * 4), (1, 128, 4)),
                target=staging.region((group, 0, j * 8), (1, GROUP_ROWS, 8)),
            )
            target = operands.clipped(operands.c, here, column, GROUP_ROWS, STRIP_COLUMNS)
            extras = tuple(operands.clipped(b, here, column, GROUP_ROWS, STRIP_COLUMNS) for b in operands.extras)
            finish = PointwiseTile(
                intrinsic=STORE_ROWS,
                expr=operands.op.epilogue.expr,
                inputs=(staging.region((group, 0, 0), (1, *target.extent[-2:])), *extras),
                target=target,
            )
            return block(
                For(var=j, extent=Const(STRIP_COLUMNS // 8), body=block(stage)),
                Barrier(level=Level.SUBGROUP),
                finish,
                Barrier(level=Level.SUBGROUP),
            )

        return swept(Var("strip"), tiling.bn // STRIP_COLUMNS, strip, first=COLUMN, step=STRIP_COLUMNS, limit=N)

    return swept(Var("i_out"), tiling.fragments, rows, first=row, step=GROUP_ROWS, limit=M)
