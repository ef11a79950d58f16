"""sm_80 GEMM: a ring of cp.async stages, ldmatrix, mma.sync m16n8k16; two warps, one above the other.

The main loop waits, meets, and only then issues the copy that overwrites the slot read one step before: one barrier a
step. With a single stage there is no step before to hide the copy behind: the copy is issued and waited for within
its own step, between two barriers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracea.core.dtype import DType
from tracea.semantic.index import Const, Index, Param, Var, as_index, ceil_div, minimum
from tracea.semantic.instructions import LDMATRIX_A, LDMATRIX_B, MMA_M16N8K16, STORE_M16N8
from tracea.semantic.nodes import Barrier, For, If, Let, Level, Node, Parallel, block
from tracea.semantic.nodes_async import AsyncCopy, CommitGroup, LoadMatrix, Mma, StoreFragment, WaitGroup
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel

__all__ = ["arguments", "build", "expected"]

M, N, K = Param("M", 1), Param("N", 1), Param("K", 1)
LDA, LDB, LDC = Param("lda", 1), Param("ldb", 1), Param("ldc", 1)
BM, BN, BK, WARPS = 32, 16, 16, 2


def build(stages: int | Param = 3, *, single: bool | None = None) -> TileKernel:
    """Return the kernel; ``stages`` may be a parameter; ``single``: the two-barrier form, which one stage needs."""
    count: Index = as_index(stages)
    single = count == Const(1) if single is None else single
    a = Buffer(
        name="A", dtype=DType.F16, space=MemorySpace.GLOBAL, shape=(M, K), strides=(LDA, 1), role=BufferRole.INPUT
    )
    b = Buffer(
        name="B", dtype=DType.F16, space=MemorySpace.GLOBAL, shape=(K, N), strides=(LDB, 1), role=BufferRole.INPUT
    )
    c = Buffer(
        name="C", dtype=DType.F32, space=MemorySpace.GLOBAL, shape=(M, N), strides=(LDC, 1), role=BufferRole.OUTPUT
    )

    def scratch(name: str, dtype: DType, space: MemorySpace, *shape: Index | int) -> Buffer:
        return Buffer(name=name, dtype=dtype, space=space, shape=tuple(map(as_index, shape)), role=BufferRole.SCRATCH)

    a_tiles = scratch("a_tiles", DType.F16, MemorySpace.TEAM, count, BM, BK)
    b_tiles = scratch("b_tiles", DType.F16, MemorySpace.TEAM, count, BK, BN)
    a_fragment = scratch("a_fragment", DType.F16, MemorySpace.REGISTER, 32, 8)
    b_fragment = scratch("b_fragment", DType.F16, MemorySpace.REGISTER, 32, 4)
    sums = scratch("sums", DType.F32, MemorySpace.REGISTER, BN // 8, 32, 4)

    tile, row, column = Var("tile"), Var("row"), Var("column")
    warp, p, k, following, j, j_out = (Var(name) for name in ("warp", "p", "k", "following", "j", "j_out"))
    steps = ceil_div(K, BK)
    columns_of_tiles = ceil_div(N, BN)

    def fetch(use: Index) -> If:
        return If(
            predicate=use < steps,
            then=block(
                AsyncCopy(
                    source=a.region((row + warp * 16, use * BK), (16, BK)),
                    target=a_tiles.region((use % count, warp * 16, 0), (1, 16, BK)),
                    masked=True,
                    chunk_bytes=2,  # strides are arbitrary
                ),
                AsyncCopy(
                    source=b.region((use * BK + warp * 8, column), (8, BN)),
                    target=b_tiles.region((use % count, warp * 8, 0), (1, 8, BN)),
                    masked=True,
                    chunk_bytes=2,  # strides are arbitrary
                ),
            ),
        )

    multiply = (
        LoadMatrix(
            intrinsic=LDMATRIX_A,
            source=a_tiles.region((k % count, warp * 16, 0), (1, 16, BK)),
            target=a_fragment.whole(),
        ),
        For(
            var=j,
            extent=Const(BN // 8),
            body=block(
                LoadMatrix(
                    intrinsic=LDMATRIX_B,
                    source=b_tiles.region((k % count, 0, j * 8), (1, BK, 8)),
                    target=b_fragment.whole(),
                ),
                Mma(
                    intrinsic=MMA_M16N8K16,
                    a=a_fragment.whole(),
                    b=b_fragment.whole(),
                    c=sums.region((j, 0, 0), (1, 32, 4)),
                    accumulate=k > 0,
                ),
            ),
        ),
    )
    pipeline: tuple[Node, ...]
    if single:
        pipeline = (
            Barrier(level=Level.BLOCK),
            Let(var=following, value=k + count - 1),
            fetch(following),
            CommitGroup(),
        )
        pipeline += (WaitGroup(pending=count - 1), Barrier(level=Level.BLOCK))
    else:
        pipeline = (WaitGroup(pending=count - 2), Barrier(level=Level.BLOCK))
        pipeline += (Let(var=following, value=k + count - 1), fetch(following), CommitGroup())
    m_rows, m_columns = minimum(16, M - row - warp * 16), minimum(8, N - column - j_out * 8)
    store = For(
        var=j_out,
        extent=Const(BN // 8),
        body=block(
            If(
                predicate=(row + warp * 16 < M) & (column + j_out * 8 < N),
                then=block(
                    StoreFragment(
                        intrinsic=STORE_M16N8,
                        source=sums.region((j_out, 0, 0), (1, 32, 4)),
                        target=c.region((row + warp * 16, column + j_out * 8), (m_rows, m_columns)),
                    )
                ),
            )
        ),
    )
    program = Parallel(
        level=Level.SUBGROUP,
        var=warp,
        extent=Const(WARPS),
        body=block(
            For(var=p, extent=count - 1, body=block(fetch(p), CommitGroup())),
            For(var=k, extent=steps, body=block(*pipeline, *multiply)),
            store,
        ),
    )
    grid = Parallel(
        level=Level.BLOCK,
        var=tile,
        extent=ceil_div(M, BM) * columns_of_tiles,
        body=block(
            Let(var=row, value=tile // columns_of_tiles * BM),
            Let(var=column, value=tile % columns_of_tiles * BN),
            program,
        ),
    )
    symbolic = (stages,) if isinstance(stages, Param) else ()
    return TileKernel(
        name="sm80_gemm",
        op=None,
        variant="gemm.mma_sync",
        schedule=Schedule(bm=BM, bn=BN, bk=BK, stages=str(stages)),
        target="sm_80",
        params=(M, N, K, LDA, LDB, LDC, *symbolic),
        buffers=(a, b, c, a_tiles, b_tiles, a_fragment, b_fragment, sums),
        body=block(grid),
    )


def arguments(*, m: int = 37, n: int = 21, k: int = 50, seed: int = 0) -> tuple[dict[str, Any], dict[str, int]]:
    """Return arrays with padded rows, and the parameters that describe them."""
    rng = np.random.default_rng(seed)
    arrays = {
        "A": rng.standard_normal((m, k + 2)).astype(np.float16)[:, :k],
        "B": rng.standard_normal((k, n + 3)).astype(np.float16)[:, :n],
        "C": np.zeros((m, n + 1), dtype=np.float32)[:, :n],
    }
    return arrays, {"M": m, "N": n, "K": k, "lda": k + 2, "ldb": n + 3, "ldc": n + 1}


def expected(arrays: dict[str, Any], params: dict[str, int]) -> dict[str, Any]:
    """Return the outputs in float64."""
    del params
    return {"C": arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64)}
