"""FA2 forward: row state in registers, K and V in rings, the accumulator of Q·Kᵀ becomes the operand of P·V.

One block does 32 query rows of one head, each of its two warps 16 of them. The head dimension is 16: the schedule's
choice, and a guard.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from objects.declare import argument, scratch, variables
from tracea.core.dtype import DType
from tracea.semantic.index import TRUE, Const, Index, Param, as_index, ceil_div, minimum
from tracea.semantic.instructions import (
    ACCUMULATOR_TO_OPERAND,
    LDMATRIX_A,
    LDMATRIX_B,
    LDMATRIX_B_TRANSPOSED,
    MMA_M16N8K16,
    STORE_M16N8,
    fragment_of_accumulator,
    matrix_of_accumulator,
)
from tracea.semantic.nodes import Barrier, For, If, Intrinsic, Let, Level, Node, Parallel, block
from tracea.semantic.nodes_async import AsyncCopy, CommitGroup, FragmentOp, LoadMatrix, Mma, StoreFragment, WaitGroup
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel

__all__ = ["arguments", "build", "expected"]

HEADS, ROWS, KEYS = Param("heads", 1, 2**16), Param("rows", 1, 2**24), Param("keys", 1, 2**24)
DIM, BQ, BK, WARPS = 16, 32, 16, 2
SCALE = DIM**-0.5


def build(stages: int | Param = 2) -> TileKernel:
    """Return the kernel; ``stages`` (at least 2) may be a parameter."""
    count: Index = as_index(stages)
    f16, f32, team, register = DType.F16, DType.F32, MemorySpace.TEAM, MemorySpace.REGISTER
    q = argument("Q", f16, (HEADS, ROWS, DIM), BufferRole.INPUT)
    k = argument("K", f16, (HEADS, KEYS, DIM), BufferRole.INPUT)
    v = argument("V", f16, (HEADS, KEYS, DIM), BufferRole.INPUT)
    o = argument("O", f32, (HEADS, ROWS, DIM), BufferRole.OUTPUT)
    q_tile = scratch("q_tile", f16, team, 1, BQ, DIM)
    k_tiles = scratch("k_tiles", f16, team, count, BK, DIM)
    v_tiles = scratch("v_tiles", f16, team, count, BK, DIM)
    q_fragment = scratch("q_fragment", f16, register, 32, 8)
    k_fragment = scratch("k_fragment", f16, register, 32, 4)
    v_fragment = scratch("v_fragment", f16, register, 32, 4)
    scores = scratch("scores", f32, register, 2, 32, 4)
    weights = scratch("weights", f16, register, 32, 8)
    row_max = scratch("row_max", f32, register, 16)
    row_sum = scratch("row_sum", f32, register, 16)
    sums = scratch("sums", f32, register, 2, 32, 4)

    task, head, row, warp, p, t, following, j, i, j_out = variables("task head row warp p t following j i j_out")
    steps, row_blocks = ceil_div(KEYS, BK), ceil_div(ROWS, BQ)

    def fetch(use: Index) -> Node:
        part = BK // WARPS
        copies = (
            AsyncCopy(
                source=source.region((head, use * BK + warp * part, 0), (1, part, DIM)),
                target=ring.region((use % count, warp * part, 0), (1, part, DIM)),
                masked=True,
                chunk_bytes=2,  # strides are arbitrary
            )
            for source, ring in ((k, k_tiles), (v, v_tiles))
        )
        return If(predicate=use < steps, then=block(*copies))

    load_q = (
        AsyncCopy(
            source=q.region((head, row + warp * 16, 0), (1, 16, DIM)),
            target=q_tile.region((0, warp * 16, 0), (1, 16, DIM)),
            masked=True,
            chunk_bytes=2,  # strides are arbitrary
        ),
        CommitGroup(),
        WaitGroup(pending=Const(0)),
        Barrier(level=Level.BLOCK),
        LoadMatrix(
            intrinsic=LDMATRIX_A, source=q_tile.region((0, warp * 16, 0), (1, 16, DIM)), target=q_fragment.whole()
        ),
        FragmentOp(intrinsic=_START, outputs=(row_max.whole(), row_sum.whole(), sums.whole())),
    )
    attend = (
        For(
            var=j,
            extent=Const(2),
            body=block(
                LoadMatrix(
                    intrinsic=LDMATRIX_B_TRANSPOSED,
                    source=k_tiles.region((t % count, j * 8, 0), (1, 8, DIM)),
                    target=k_fragment.whole(),
                ),
                Mma(
                    intrinsic=MMA_M16N8K16,
                    a=q_fragment.whole(),
                    b=k_fragment.whole(),
                    c=scores.region((j, 0, 0), (1, 32, 4)),
                ),
            ),
        ),
        FragmentOp(
            intrinsic=_ONLINE_SOFTMAX,
            updates=(scores.whole(), row_max.whole(), row_sum.whole(), sums.whole()),
            indices=(t * BK, KEYS),
        ),
        FragmentOp(intrinsic=ACCUMULATOR_TO_OPERAND, inputs=(scores.whole(),), outputs=(weights.whole(),)),
        For(
            var=i,
            extent=Const(2),
            body=block(
                LoadMatrix(
                    intrinsic=LDMATRIX_B,
                    source=v_tiles.region((t % count, 0, i * 8), (1, BK, 8)),
                    target=v_fragment.whole(),
                ),
                Mma(
                    intrinsic=MMA_M16N8K16,
                    a=weights.whole(),
                    b=v_fragment.whole(),
                    c=sums.region((i, 0, 0), (1, 32, 4)),
                    accumulate=TRUE,
                ),
            ),
        ),
    )
    pipeline = (
        WaitGroup(pending=count - 2),
        Barrier(level=Level.BLOCK),
        Let(var=following, value=t + count - 1),
        fetch(following),
        CommitGroup(),
    )
    store = If(
        predicate=row + warp * 16 < ROWS,
        then=block(
            FragmentOp(intrinsic=_NORMALISE, inputs=(row_sum.whole(),), updates=(sums.whole(),)),
            For(
                var=j_out,
                extent=Const(2),
                body=block(
                    StoreFragment(
                        intrinsic=STORE_M16N8,
                        source=sums.region((j_out, 0, 0), (1, 32, 4)),
                        target=o.region(
                            (head, row + warp * 16, j_out * 8), (1, minimum(16, ROWS - row - warp * 16), 8)
                        ),
                    )
                ),
            ),
        ),
    )
    program = Parallel(
        level=Level.SUBGROUP,
        var=warp,
        extent=Const(WARPS),
        body=block(
            *load_q,
            For(var=p, extent=count - 1, body=block(fetch(p), CommitGroup())),
            For(var=t, extent=steps, body=block(*pipeline, *attend)),
            store,
        ),
    )
    grid = Parallel(
        level=Level.BLOCK,
        var=task,
        extent=HEADS * row_blocks,
        body=block(Let(var=head, value=task // row_blocks), Let(var=row, value=task % row_blocks * BQ), program),
    )
    symbolic = (stages,) if isinstance(stages, Param) else ()
    return TileKernel(
        name="flash_attention",
        op=None,
        variant="attention.flash2",
        schedule=Schedule(bq=BQ, bk=BK, dim=DIM, stages=str(stages)),
        target="sm_80",
        params=(HEADS, ROWS, KEYS, *symbolic),
        buffers=(
            q,
            k,
            v,
            o,
            q_tile,
            k_tiles,
            v_tiles,
            q_fragment,
            k_fragment,
            v_fragment,
            scores,
            weights,
            row_max,
            row_sum,
            sums,
        ),
        body=block(grid),
    )


def _start() -> Any:
    return np.full(16, -np.inf), np.zeros(16), np.zeros((2, 32, 4))


def _tile(fragments: Any) -> Any:
    return np.concatenate([matrix_of_accumulator(part) for part in fragments], axis=1)


def _fragments(tile: Any) -> Any:
    return np.stack([fragment_of_accumulator(part) for part in np.split(tile, 2, axis=1)])


def _online_softmax(scores: Any, row_max: Any, row_sum: Any, sums: Any, *indices: int) -> Any:
    """Turn scores into weights relative to the new row maximum, and rescale the sums to it."""
    first_key, keys = indices
    tile = _tile(scores) * np.float32(SCALE)
    tile[:, first_key + np.arange(tile.shape[1]) >= keys] = -np.inf
    new_max = np.maximum(row_max, tile.max(axis=1))
    rescale = np.exp(row_max - new_max)
    tile = np.exp(tile - new_max[:, None])
    return _fragments(tile), new_max, row_sum * rescale + tile.sum(axis=1), _fragments(_tile(sums) * rescale[:, None])


def _normalise(row_sum: Any, sums: Any) -> Any:
    return _fragments(_tile(sums) / row_sum[:, None])


_START = Intrinsic(name="start_rows", meaning=_start, source="definition")
_ONLINE_SOFTMAX = Intrinsic(
    name="online_softmax", meaning=_online_softmax, source="Dao 2023, FlashAttention-2, algorithm 1"
)
_NORMALISE = Intrinsic(name="normalise_rows", meaning=_normalise, source="Dao 2023, FlashAttention-2, algorithm 1")


def arguments(
    *, heads: int = 2, rows: int = 37, keys: int = 45, seed: int = 0
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return arrays and parameters."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {
        name: rng.standard_normal((heads, size, DIM)).astype(np.float16)
        for name, size in (("Q", rows), ("K", keys), ("V", keys))
    }
    arrays["O"] = np.zeros((heads, rows, DIM), dtype=np.float32)
    return arrays, {"heads": heads, "rows": rows, "keys": keys}


def expected(arrays: dict[str, Any], params: dict[str, int]) -> dict[str, Any]:
    """Return the outputs in float64."""
    del params
    q, k, v = (arrays[name].astype(np.float64) for name in ("Q", "K", "V"))
    scores = q @ k.transpose(0, 2, 1) * SCALE
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return {"O": weights / weights.sum(axis=-1, keepdims=True) @ v}
