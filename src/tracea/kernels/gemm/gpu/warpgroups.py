"""GEMM of warpgroups that multiply by wgmma, fed by the copy engine (``tma``), with one step of k in flight.

Consumers free a stage one step later, when its products are over, and take the registers that the producers give back.

A persistent block walks tiles (``TileLoop``), and uses are numbered on from one tile to the next: the copies of the
next tile begin while the sums of this one are stored. Its groups share each tile, or take turns (``pingpong``): one
multiplies while the other stores, in an order that batons keep: each group waits at its own, where only the warps of
the other arrive. One baton for both would not do, since a warp may be two turns ahead of another one of its group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracea.core.dtype import DType
from tracea.kernels.gemm.gpu.group_tiling import GROUP_ROWS, STRIP_COLUMNS, GroupTiling
from tracea.kernels.gemm.gpu.operands import MULTIPROCESSORS, GpuOperands, M, N
from tracea.kernels.gemm.gpu.program import COLUMN, ROW, STORE_ROWS, staging_swizzle, swept
from tracea.kernels.gemm.gpu.tma import TmaRing
from tracea.kernels.operands import scratch
from tracea.semantic.index import TRUE, Const, Index, Predicate, Var, minimum
from tracea.semantic.nodes import Barrier, Block, For, If, Level, Node, Parallel, PointwiseTile, block
from tracea.semantic.nodes_async import (
    MOST_USES,
    Clear,
    MbarrierArrive,
    MbarrierInit,
    MbarrierWait,
    Role,
    Roles,
    StoreFragment,
    TileLoop,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.gpu import GpuTarget

__all__ = ["build_with_groups"]

_BATON: Final = "baton"
_TAKERS: Final = 2  # groups that take turns, each with a baton of its own
_WORKER: Final = Var("worker")
_NO_USES: Final = Const(0)


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
        swizzle=staging_swizzle(operands.op, STRIP_COLUMNS),
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
    set_up = ring.set_up(1 if tiling.pingpong else tiling.groups)
    if tiling.pingpong:
        held = (scratch(_BATON, DType.I64, MemorySpace.TEAM, _TAKERS), *held)
        s = Var("s_baton")
        init = MbarrierInit(barrier=_BATON, slot=s, count=Const(1))
        set_up = (For(var=s, extent=Const(_TAKERS), body=block(init)), *set_up)
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
    take = MbarrierWait(barrier=_BATON, slot=turn % _TAKERS, parity=((turn + 1) // _TAKERS + 1) % 2)
    hand_on = MbarrierArrive(barrier=_BATON, slot=(turn + 1) % _TAKERS)
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
