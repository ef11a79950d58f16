"""sm_90a GEMM: a producer moves boxes by TMA, two consumers multiply by wgmma, rings of mbarriers between them.

``full[slot]`` completes when the bytes of a stage have landed; ``empty[slot]`` when both consumers are done with it.
A consumer leaves one matrix operation in flight, so it frees the stage of the step before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from objects.declare import argument, scratch, variables
from tracea.core.dtype import DType
from tracea.semantic.index import Const, Index, Param, as_index, ceil_div, equal, minimum
from tracea.semantic.instructions import WGMMA_M64N8K16, WGMMA_STORE_M64N8
from tracea.semantic.nodes import Barrier, For, If, Let, Level, Parallel, block
from tracea.semantic.nodes_async import (
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
    WgmmaWait,
)
from tracea.semantic.schedule import Schedule
from tracea.semantic.swizzle import TMA_MODES
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel

__all__ = ["arguments", "build", "expected"]

M, N, K = Param("M", 1), Param("N", 1), Param("K", 1)
LDA, LDB, LDC = Param("lda", 1), Param("ldb", 1), Param("ldc", 1)
CONSUMERS, BM, BN, BK = 2, 128, 8, 16


def build(stages: int | Param = 3, *, in_flight: int | None = None) -> TileKernel:
    """Return the kernel; ``stages`` may be a parameter. One stage leaves no room for an operation ``in_flight``."""
    count: Index = as_index(stages)
    in_flight = (0 if count == Const(1) else 1) if in_flight is None else in_flight

    a = replace(argument("A", DType.F16, (M, K), BufferRole.INPUT, LDA), aligned_bytes=16)
    b = replace(argument("B", DType.F16, (K, N), BufferRole.INPUT, LDB), aligned_bytes=16)
    c = argument("C", DType.F32, (M, N), BufferRole.OUTPUT, LDC)
    a_tiles = replace(scratch("a_tiles", DType.F16, MemorySpace.TEAM, count, BM, BK), swizzle=TMA_MODES[32])
    b_tiles = scratch("b_tiles", DType.F16, MemorySpace.TEAM, count, BK, BN)
    full = scratch("full", DType.I64, MemorySpace.TEAM, count)
    empty = scratch("empty", DType.I64, MemorySpace.TEAM, count)
    sums = scratch("sums", DType.F32, MemorySpace.REGISTER, 128, 4)

    tile, row, column, s, producer, consumer, kp, kc = variables("tile row column s producer consumer kp kc")
    steps, columns_of_tiles = ceil_div(K, BK), ceil_div(N, BN)
    stage_bytes = Const((BM * BK + BK * BN) * DType.F16.nbytes)

    produce = For(
        var=kp,
        extent=steps,
        body=block(
            MbarrierWait(barrier="empty", slot=kp % count, parity=(kp // count + 1) % 2),
            MbarrierExpect(barrier="full", slot=kp % count, nbytes=stage_bytes),
            TmaCopy(
                descriptor=TmaDescriptor(buffer="A", box=(BM, BK), swizzle_bytes=32),
                origin=(row, kp * BK),
                target=a_tiles.region((kp % count, 0, 0), (1, BM, BK)),
                barrier="full",
                slot=kp % count,
            ),
            TmaCopy(
                descriptor=TmaDescriptor(buffer="B", box=(BK, BN)),
                origin=(kp * BK, column),
                target=b_tiles.region((kp % count, 0, 0), (1, BK, BN)),
                barrier="full",
                slot=kp % count,
            ),
        ),
    )
    release = (
        If(predicate=kc > 0, then=block(MbarrierArrive(barrier="empty", slot=(kc - 1) % count)))
        if in_flight
        else MbarrierArrive(barrier="empty", slot=kc % count)
    )
    consume = For(
        var=kc,
        extent=steps,
        body=block(
            MbarrierWait(barrier="full", slot=kc % count, parity=(kc // count) % 2),
            Wgmma(
                intrinsic=WGMMA_M64N8K16,
                a=a_tiles.region((kc % count, consumer * 64, 0), (1, 64, BK)),
                b=b_tiles.region((kc % count, 0, 0), (1, BK, BN)),
                c=sums.whole(),
                accumulate=kc > 0,
            ),
            WgmmaCommit(),
            WgmmaWait(pending=Const(in_flight)),
            release,
        ),
    )
    store = If(
        predicate=(row + consumer * 64 < M) & (column < N),
        then=block(
            StoreFragment(
                intrinsic=WGMMA_STORE_M64N8,
                source=sums.whole(),
                target=c.region(
                    (row + consumer * 64, column), (minimum(64, M - row - consumer * 64), minimum(BN, N - column))
                ),
            )
        ),
    )
    grid = Parallel(
        level=Level.BLOCK,
        var=tile,
        extent=ceil_div(M, BM) * columns_of_tiles,
        body=block(
            Let(var=row, value=tile // columns_of_tiles * BM),
            Let(var=column, value=tile % columns_of_tiles * BN),
            For(
                var=s,
                extent=count,
                body=block(
                    MbarrierInit(barrier="full", slot=s, count=Const(1)),
                    MbarrierInit(barrier="empty", slot=s, count=Const(CONSUMERS)),
                ),
            ),
            Barrier(level=Level.BLOCK),
            Roles(
                roles=(
                    Role(name="producer", executors=1, index=producer, body=block(produce)),
                    Role(
                        name="consumer",
                        executors=CONSUMERS,
                        lanes=128,
                        index=consumer,
                        body=block(consume, WgmmaWait(pending=Const(0)), store),
                    ),
                )
            ),
        ),
    )
    symbolic = (stages,) if isinstance(stages, Param) else ()
    return TileKernel(
        name="sm90_gemm",
        op=None,
        variant="gemm.wgmma",
        schedule=Schedule(bm=BM, bn=BN, bk=BK, stages=str(stages)),
        target="sm_90a",
        params=(M, N, K, LDA, LDB, LDC, *symbolic),
        buffers=(a, b, c, a_tiles, b_tiles, full, empty, sums),
        body=block(grid),
        assumptions=equal(LDA % 8, 0) & equal(LDB % 8, 0),
    )


def arguments(*, m: int = 150, n: int = 11, k: int = 70, seed: int = 0) -> tuple[dict[str, Any], dict[str, int]]:
    """Return arrays with padded rows, and the parameters that describe them."""
    rng = np.random.default_rng(seed)
    lda, ldb = k // 8 * 8 + 8, n // 8 * 8 + 16
    arrays = {
        "A": rng.standard_normal((m, lda)).astype(np.float16)[:, :k],
        "B": rng.standard_normal((k, ldb)).astype(np.float16)[:, :n],
        "C": np.zeros((m, n + 1), dtype=np.float32)[:, :n],
    }
    return arrays, {"M": m, "N": n, "K": k, "lda": lda, "ldb": ldb, "ldc": n + 1}


def expected(arrays: dict[str, Any], params: dict[str, int]) -> dict[str, Any]:
    """Return the outputs in float64."""
    del params
    return {"C": arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64)}
