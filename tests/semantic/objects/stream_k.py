"""Stream-K GEMM: each worker takes an equal share of all (tile, step) pairs; a tile's owner adds what others left.

A worker that begins in the middle of a tile leaves its sums in the workspace and sets a flag; a worker has at most
one such segment, its first. The owner waits for the workers behind it whose shares reach into its tile. Guard: every
worker has a share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from objects.declare import argument, scratch, variables
from tracea.core.dtype import DType
from tracea.semantic.index import Const, Param, ceil_div, equal, minimum
from tracea.semantic.instructions import LDMATRIX_A, LDMATRIX_B, MMA_M16N8K16, STORE_M16N8
from tracea.semantic.nodes import Barrier, For, If, Intrinsic, Let, Level, Parallel, block
from tracea.semantic.nodes_async import (
    AsyncCopy,
    AwaitFlag,
    CommitGroup,
    FragmentOp,
    LoadMatrix,
    Mma,
    SegmentLoop,
    SignalFlag,
    StoreFragment,
    WaitGroup,
)
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel

__all__ = ["arguments", "build", "expected"]

M, N, K = Param("M", 1), Param("N", 1), Param("K", 1)
LDA, LDB, LDC, WORKERS = Param("lda", 1), Param("ldb", 1), Param("ldc", 1), Param("workers", 1, 2**16)
BM, BN, BK, WARPS = 32, 8, 16, 2


def build() -> TileKernel:
    """Return the kernel."""
    f16, f32, register = DType.F16, DType.F32, MemorySpace.REGISTER
    a = argument("A", f16, (M, K), BufferRole.INPUT, LDA)
    b = argument("B", f16, (K, N), BufferRole.INPUT, LDB)
    c = argument("C", f32, (M, N), BufferRole.OUTPUT, LDC)
    workspace = argument("workspace", f32, (WORKERS, WARPS, 32, 4), BufferRole.SCRATCH)
    flags = argument("flags", DType.I32, (WORKERS, WARPS), BufferRole.SCRATCH)
    a_tile = scratch("a_tile", f16, MemorySpace.TEAM, 1, BM, BK)
    b_tile = scratch("b_tile", f16, MemorySpace.TEAM, 1, BK, BN)
    a_fragment = scratch("a_fragment", f16, register, 32, 8)
    b_fragment = scratch("b_fragment", f16, register, 32, 4)
    sums = scratch("sums", f32, register, 32, 4)
    names = "worker warp tile first count row column k step last behind peer"
    worker, warp, tile, first, count, row, column, k, step, last, behind, peer = variables(names)
    steps, columns_of_tiles = ceil_div(K, BK), ceil_div(N, BN)
    tiles = ceil_div(M, BM) * columns_of_tiles

    multiply = For(
        var=k,
        extent=count,
        body=block(
            Let(var=step, value=first + k),
            Barrier(level=Level.BLOCK),
            AsyncCopy(
                source=a.region((row + warp * 16, step * BK), (16, BK)),
                target=a_tile.region((0, warp * 16, 0), (1, 16, BK)),
                masked=True,
                chunk_bytes=2,  # strides are arbitrary
            ),
            AsyncCopy(
                source=b.region((step * BK + warp * 8, column), (8, BN)),
                target=b_tile.region((0, warp * 8, 0), (1, 8, BN)),
                masked=True,
                chunk_bytes=2,  # strides are arbitrary
            ),
            CommitGroup(),
            WaitGroup(pending=Const(0)),
            Barrier(level=Level.BLOCK),
            LoadMatrix(
                intrinsic=LDMATRIX_A, source=a_tile.region((0, warp * 16, 0), (1, 16, BK)), target=a_fragment.whole()
            ),
            LoadMatrix(intrinsic=LDMATRIX_B, source=b_tile.whole(), target=b_fragment.whole()),
            Mma(intrinsic=MMA_M16N8K16, a=a_fragment.whole(), b=b_fragment.whole(), c=sums.whole(), accumulate=k > 0),
        ),
    )
    fix_up = For(
        var=behind,
        extent=last - worker,
        body=block(
            Let(var=peer, value=worker + 1 + behind),
            AwaitFlag(flag=flags.region((peer, warp), (1, 1))),
            FragmentOp(
                intrinsic=_ADD, inputs=(workspace.region((peer, warp, 0, 0), (1, 1, 32, 4)),), updates=(sums.whole(),)
            ),
        ),
    )
    store = If(
        predicate=(row + warp * 16 < M) & (column < N),
        then=block(
            StoreFragment(
                intrinsic=STORE_M16N8,
                source=sums.whole(),
                target=c.region((row + warp * 16, column), (minimum(16, M - row - warp * 16), minimum(BN, N - column))),
            )
        ),
    )
    leave = (
        FragmentOp(
            intrinsic=_MOVE, inputs=(sums.whole(),), outputs=(workspace.region((worker, warp, 0, 0), (1, 1, 32, 4)),)
        ),
        SignalFlag(flag=flags.region((worker, warp), (1, 1))),
    )
    segments = SegmentLoop(
        worker=worker,
        workers=WORKERS,
        tiles=tiles,
        steps=steps,
        tile=tile,
        first=first,
        count=count,
        last=last,
        body=block(
            Let(var=row, value=tile // columns_of_tiles * BM),
            Let(var=column, value=tile % columns_of_tiles * BN),
            multiply,
            If(predicate=equal(first, 0), then=block(fix_up, store), otherwise=block(*leave)),
        ),
    )
    grid = Parallel(
        level=Level.BLOCK,
        var=worker,
        extent=WORKERS,
        body=block(Parallel(level=Level.SUBGROUP, var=warp, extent=Const(WARPS), body=block(segments))),
    )
    return TileKernel(
        name="stream_k",
        op=None,
        variant="gemm.stream_k",
        schedule=Schedule(bm=BM, bn=BN, bk=BK),
        target="sm_80",
        params=(M, N, K, LDA, LDB, LDC, WORKERS),
        buffers=(a, b, c, workspace, flags, a_tile, b_tile, a_fragment, b_fragment, sums),
        body=block(grid),
        assumptions=tiles * steps >= WORKERS,
    )


def _add(partial: Any, sums: Any) -> Any:
    return sums + partial.reshape(sums.shape)


def _move(sums: Any) -> Any:
    return sums


_ADD = Intrinsic(name="add", meaning=_add, source="definition")
_MOVE = Intrinsic(name="move", meaning=_move, source="definition")


def arguments(
    *, m: int = 50, n: int = 11, k: int = 70, workers: int = 7, seed: int = 0
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return arrays with padded rows, and the parameters that describe them."""
    rng = np.random.default_rng(seed)
    arrays = {
        "A": rng.standard_normal((m, k + 2)).astype(np.float16)[:, :k],
        "B": rng.standard_normal((k, n + 3)).astype(np.float16)[:, :n],
        "C": np.zeros((m, n + 1), dtype=np.float32)[:, :n],
    }
    return arrays, {"M": m, "N": n, "K": k, "lda": k + 2, "ldb": n + 3, "ldc": n + 1, "workers": workers}


def expected(arrays: dict[str, Any], params: dict[str, int]) -> dict[str, Any]:
    """Return the outputs in float64."""
    del params
    return {"C": arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64)}
