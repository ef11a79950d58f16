"""Stream-K and split-K: workers take equal shares of all (tile, step) pairs, and a tile's owner adds what others left.

``stream_k=W`` has W workers, as many as a target runs at once; ``split_k=S`` has S for each tile. A worker that begins
in the middle of a tile leaves its sums in the workspace and sets a flag: at most once, in its first segment, before it
waits for anybody, so that blocks that are not running yet are waited for by the last running one only. The owner of a
tile adds the others' sums in their order: results do not depend on time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.gpu.operands import K
from tracea.kernels.gemm.gpu.program import COLUMN, ROW, WARP, WARP_COLUMN, WARP_ROW, GpuProgram
from tracea.kernels.operands import scratch
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import Const, Index, Var, ceil_div, equal
from tracea.semantic.nodes import Barrier, Block, For, If, Let, Level, Node, Parallel, block
from tracea.semantic.nodes_async import AwaitFlag, Clear, FragmentOp, SegmentLoop, SignalFlag
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import MemorySpace, TileKernel
from tracea.targets.gpu import GpuTarget

__all__ = ["build_segments", "workers_of"]

_MOST_SHARES: Final = 2**31 - 1
_MOST_SPLITS: Final = 64
_MOST_WORKERS: Final = 2**16  # more than any machine runs at once

Pipeline = Callable[[GpuProgram, int, Index, Index], tuple[Node, ...]]


def workers_of(schedule: Schedule, tiles: Index) -> Index | None:
    """Return how many workers share the tiles' steps; None where every tile has a block of its own.

    Raises:
        InvalidSchedule: both kinds of sharing, or a number out of range.
    """
    split, stream = schedule.integer("split_k"), schedule.integer("stream_k")
    if not 0 <= stream <= _MOST_WORKERS:
        raise InvalidSchedule(
            field="stream_k",
            got=stream,
            expected=f"0 for a block of its own for each tile, or 1 to {_MOST_WORKERS} workers",
            remedy=f"use stream_k={0 if stream < 0 else _MOST_WORKERS}",
        )
    if not 1 <= split <= _MOST_SPLITS:
        raise InvalidSchedule(
            field="split_k",
            got=split,
            expected=f"1 to {_MOST_SPLITS} blocks for each tile",
            remedy=f"use split_k={1 if split < 1 else _MOST_SPLITS}",
        )
    if split > 1 and stream > 0:
        raise InvalidSchedule(
            field="split_k, stream_k",
            got=(split, stream),
            expected="split_k 1 where stream_k has workers, or stream_k 0",
            remedy="use split_k=1, stream_k=0 for one block a tile",
        )
    if stream > 0:
        return Const(stream)
    return tiles * split if split > 1 else None


def build_segments(  # noqa: PLR0917 - what a kernel is made from
    variant: str,
    op: GemmOp,
    schedule: Schedule,
    target: GpuTarget,
    program: GpuProgram,
    workers: Index,
    pipeline: Pipeline,
) -> TileKernel:
    """Return the GEMM whose blocks are workers; ``pipeline`` sums some steps of k from a first one on."""
    tiling, operands, sums = program.tiling, program.operands, program.sums
    tiles = operands.blocks(tiling.bm, tiling.bn)
    steps = ceil_div(K, tiling.bk)
    worker, tile, first, count, last = (Var(name) for name in ("worker", "tile", "first", "count", "last"))
    lanes = tiling.product.c_shape
    workspace = scratch(
        "workspace",
        tiling.product.accumulator,
        MemorySpace.GLOBAL,
        workers,
        tiling.warps,
        tiling.row_fragments,
        tiling.column_fragments,
        *lanes,
    )
    flags = scratch("flags", DType.I32, MemorySpace.GLOBAL, workers, tiling.warps)

    def each(suffix: str, node: Callable[[Var, Var], Node]) -> Node:
        i, j = Var(f"i_{suffix}"), Var(f"j_{suffix}")
        inner = For(var=j, extent=Const(tiling.column_fragments), body=block(node(i, j)))
        return For(var=i, extent=Const(tiling.row_fragments), body=block(inner))

    behind, peer = Var("behind"), Var("peer")
    take = each(
        "take",
        lambda i, j: FragmentOp(
            intrinsic=_ADD,
            inputs=(workspace.region((peer, WARP, i, j, 0, 0), (1, 1, 1, 1, *lanes)),),
            updates=(sums.region((i, j, 0, 0), (1, 1, *lanes)),),
        ),
    )
    fix_up = For(
        var=behind,
        extent=last - worker,
        body=block(
            Let(var=peer, value=worker + 1 + behind, bits=32),
            AwaitFlag(flag=flags.region((peer, WARP), (1, 1))),
            take,
        ),
    )
    leave = each(
        "leave",
        lambda i, j: FragmentOp(
            intrinsic=_MOVE,
            inputs=(sums.region((i, j, 0, 0), (1, 1, *lanes)),),
            outputs=(workspace.region((worker, WARP, i, j, 0, 0), (1, 1, 1, 1, *lanes)),),
        ),
    )
    signal = SignalFlag(flag=flags.region((worker, WARP), (1, 1)))
    body = (
        *operands.place(tile, ROW, COLUMN, bm=tiling.bm, bn=tiling.bn),
        Barrier(level=Level.BLOCK),  # the stages of the segment before are no longer read
        Clear(target=sums.whole()),
        *pipeline(program, tiling.stages, count, first),
        If(predicate=equal(first, 0), then=block(fix_up, program.store()), otherwise=block(leave, signal)),
    )
    segments = SegmentLoop(
        worker=worker,
        workers=workers,
        tiles=tiles,
        steps=steps,
        tile=tile,
        first=first,
        count=count,
        last=last,
        body=Block(nodes=body),
    )
    warps = Parallel(
        level=Level.SUBGROUP,
        var=WARP,
        extent=Const(tiling.warps),
        body=block(
            Let(var=WARP_ROW, value=WARP // tiling.warps_n, bits=32),
            Let(var=WARP_COLUMN, value=WARP % tiling.warps_n, bits=32),
            segments,
        ),
    )
    grid = Parallel(level=Level.BLOCK, var=worker, extent=workers, body=block(warps))
    shares = (tiles * steps >= workers) & (tiles * steps <= _MOST_SHARES) & (workers <= _MOST_SHARES)
    return program.kernel(
        variant,
        op,
        schedule,
        target,
        (grid,),
        more=(workspace, flags),
        assumptions=operands.assumptions(tiles) & shares,
    )


def _add(partial: Any, sums: Any) -> Any:
    return sums + partial.reshape(sums.shape)


def _move(sums: Any) -> Any:
    return sums


_TILES: Final = "emitters/cuda/include/tracea/tiles.h"
_ADD = Intrinsic(name="take_sums", meaning=_add, source=_TILES)
_MOVE = Intrinsic(name="leave_sums", meaning=_move, source=_TILES)
