"""GEMM whose tiles the copy engine brings: one warp asks, mbarriers announce, the others multiply.

``full[slot]`` completes when both tiles of a stage have landed, ``empty[slot]`` when every consumer is done with them;
use number k of the ring takes slot ``k mod stages`` in phase ``k div stages``. Consumers are warps that multiply by
mma.sync (``gemm.mma_tma``), or warpgroups that multiply by wgmma with one step of k in flight (``gemm.wgmma``), which
free a stage one step later and take the registers that the producers give back.

A persistent block of ``gemm.wgmma`` walks tiles (``TileLoop``), and uses are numbered on from one tile to the next: the
copies of the next tile begin while the sums of this one are stored. Its groups share each tile, or take turns
(``pingpong``): one multiplies while the other stores, in an order that a baton keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tracea.core.dtype import DType
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.gpu.group_tiling import GROUP_ROWS, STRIP_COLUMNS, GroupTiling
from tracea.kernels.gemm.gpu.operands import MULTIPROCESSORS, GpuOperands, K, M, N
from tracea.kernels.gemm.gpu.program import COLUMN, ROW, STORE_ROWS, WARP, WARP_COLUMN, WARP_ROW, GpuProgram, swept
from tracea.kernels.gemm.gpu.tiling import GpuTiling
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, scratch
from tracea.semantic.index import TRUE, Const, Index, Param, Predicate, Var, ceil_div, minimum
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
    MOST_USES,
    Clear,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierWait,
    Role,
    Roles,
    StoreFragment,
    TileLoop,
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
from tracea.semantic.tile_order import TileOrder
from tracea.targets.gpu import GpuTarget

__all__ = ["TmaRing", "build_with_groups", "build_with_warps"]

_BATON: Final = "baton"
_WORKER: Final = Var("worker")
_NO_USES: Final = Const(0)
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
    group, producer = Var("group"), Var("producer")
    roles = _walking_roles if tiling.persistent else _roles
    consume, produce = roles(ring, tiling, sums, staging, group)
    split = Roles(
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
                body=produce,
                lanes=128,
                registers=tiling.producer_role_registers,
            ),
        )
    )
    blocks = operands.blocks(tiling.bm, tiling.bn)
    held = (staging, sums)
    if not tiling.persistent:
        tile = Var("tile")
        place = operands.place(tile, ROW, COLUMN, bm=tiling.bm, bn=tiling.bn)
        body = Block(nodes=(*place, *ring.set_up(tiling.groups), split))
        grid = Parallel(level=Level.BLOCK, var=tile, extent=blocks, body=body)
        return ring.kernel(variant, schedule, target, scratch=held, body=grid, blocks=blocks)
    if operands.order is not TileOrder.ROW:
        raise InvalidSchedule(
            field="order", got=operands.order.value, expected="row, in persistent blocks", remedy="use order=row"
        )
    set_up = ring.set_up(1 if tiling.pingpong else tiling.groups)
    if tiling.pingpong:
        held = (scratch(_BATON, DType.I64, MemorySpace.TEAM, 1), *held)
        s = Var("s_baton")
        init = MbarrierInit(barrier=_BATON, slot=s, count=Const(1))
        set_up = (For(var=s, extent=Const(1), body=block(init)), *set_up)
    body = Block(nodes=(*set_up, split))
    grid = Parallel(level=Level.BLOCK, var=_WORKER, extent=_workers(blocks), body=body)
    numbered: Predicate = blocks * ring.steps <= MOST_USES
    return ring.kernel(
        variant, schedule, target, scratch=held, body=grid, blocks=blocks, launch=(MULTIPROCESSORS,), more=numbered
    )


def _workers(tiles: Index) -> Index:
    return minimum(tiles, MULTIPROCESSORS)


def _roles(ring: TmaRing, tiling: GroupTiling, sums: Buffer, staging: Buffer, group: Var) -> tuple[Block, Block]:
    """Return what consumers and producer do in a block of one tile."""
    row = ROW + group * tiling.rows_of_group
    consume = block(
        Clear(target=sums.whole()),
        _sum(ring, tiling, sums, group, _NO_USES),
        WgmmaWait(pending=Const(0)),
        If(predicate=row < M, then=block(_store(ring.operands, tiling, sums, staging, origin=(group, row)))),
    )
    return consume, block(ring.produce())


def _walking_roles(
    ring: TmaRing, tiling: GroupTiling, sums: Buffer, staging: Buffer, group: Var
) -> tuple[Block, Block]:
    """Return what consumers and producer do in a persistent block.

    The last stage of a tile is freed, and the baton handed on, before the sums are stored: the other group and the
    copies of the next tile go on meanwhile.
    """
    first, turn = Var("first"), Var("turn")
    within: Index = Const(0) if tiling.pingpong else group
    row = (ROW + within * tiling.rows_of_group).simplify()
    take = MbarrierWait(barrier=_BATON, slot=Const(0), parity=(turn + 1) % 2)
    hand_on = MbarrierArrive(barrier=_BATON, slot=Const(0))
    turns = (take,) if tiling.pingpong else (), (hand_on,) if tiling.pingpong else ()
    steps = (
        *turns[0],
        Clear(target=sums.whole()),
        _sum(ring, tiling, sums, within, first),
        *turns[1],
        WgmmaWait(pending=Const(0)),
        MbarrierArrive(barrier="empty", slot=(first + ring.steps - 1) % ring.stages),
        If(predicate=row < M, then=block(_store(ring.operands, tiling, sums, staging, origin=(group, row)))),
    )
    shares = (group, tiling.groups) if tiling.pingpong else (Const(0), 1)
    consume = _walk(ring, tiling, (Var("tile"), turn, first), (ROW, COLUMN), steps, shares)
    theirs = ring.of_second_program()
    row, column, first = Var("row_fetch"), Var("column_fetch"), Var("first_fetch")
    names = (Var("tile_fetch"), Var("turn_fetch"), first)
    load = (theirs.produce(row, column, first=first),)
    return block(consume), block(_walk(theirs, tiling, names, (row, column), load, (Const(0), 1)))


def _walk(  # noqa: PLR0917 - what a walk over tiles is made from
    ring: TmaRing,
    tiling: GroupTiling,
    names: tuple[Var, Var, Var],
    origin: tuple[Var, Var],
    steps: Sequence[Node],
    shares: tuple[Index, int],
) -> Node:
    tiles = ring.operands.blocks(tiling.bm, tiling.bn)
    tile, turn, first = names
    share, count = shares
    return TileLoop(
        worker=_WORKER,
        workers=_workers(tiles),
        tiles=tiles,
        steps=ring.steps,
        share=share,
        shares=Const(count),
        tile=tile,
        turn=turn,
        first=first,
        body=Block(nodes=(*ring.operands.place(tile, *origin, bm=tiling.bm, bn=tiling.bn), *steps)),
    )


def _sum(ring: TmaRing, tiling: GroupTiling, sums: Buffer, group: Index, first: Index) -> Node:
    """Return the consumers' loop: wait, multiply, and free the stage of the step before, whose products are over."""
    k = Var("k_step")
    use = (first + k).simplify()
    before = (first + k - 1) if first != _NO_USES else k - 1
    return For(
        var=k,
        extent=ring.steps,
        body=block(
            ring.arrived(use),
            WgmmaFence(),
            _multiply(ring, tiling, sums, group, use % ring.stages),
            WgmmaCommit(),
            WgmmaWait(pending=Const(1)),
            If(predicate=k > 0, then=block(MbarrierArrive(barrier="empty", slot=before % ring.stages))),
        ),
    )


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
