"""Implicit-GEMM convolution: A's rows are pixels, its columns taps, gathered under a predicate by fast division."""

from __future__ import annotations

from typing import Any

import numpy as np

from objects.declare import argument, scratch, variables
from tracea.core.dtype import DType
from tracea.semantic.index import INT32_MAX, Const, Index, Param, Var, as_index, ceil_div, equal, minimum
from tracea.semantic.instructions import LDMATRIX_A, LDMATRIX_B, MMA_M16N8K16, STORE_M16N8
from tracea.semantic.nodes import Barrier, For, If, Let, Level, Node, Parallel, block
from tracea.semantic.nodes_async import AsyncCopy, CommitGroup, Gather, LoadMatrix, Mma, StoreFragment, WaitGroup
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel

__all__ = ["arguments", "build", "expected"]

IMAGES, CO = Param("images", 1, 2**16), Param("co", 1, 2**20)
H, W, OH, OW = (Param(name, 1, 2**15) for name in ("h", "w", "oh", "ow"))
R, S, C = Param("r", 1, 64), Param("s", 1, 64), Param("c", 1, 2**18)
STRIDE, PAD = Param("stride", 1, 64), Param("pad", 0, 64)
IMAGE = Param("image_pixels", 1, 2**30)  # oh · ow
TAP = Param("row_taps", 1, 2**24)  # s · c
PIXELS = Param("pixels", 1, INT32_MAX - 64)  # images · oh · ow
DEPTH = Param("depth", 1, 2**30)  # r · s · c
BM, BN, BK, WARPS = 32, 16, 16, 2


def build(stages: int | Param = 3) -> TileKernel:
    """Return the kernel; ``stages`` (at least 2) may be a parameter."""
    count: Index = as_index(stages)
    f16, f32, team, register = DType.F16, DType.F32, MemorySpace.TEAM, MemorySpace.REGISTER
    x = argument("x", f16, (IMAGES, H, W, C), BufferRole.INPUT)
    weights = argument("weights", f16, (DEPTH, CO), BufferRole.INPUT)
    y = argument("y", f32, (PIXELS, CO), BufferRole.OUTPUT)
    a_tiles = scratch("a_tiles", f16, team, count, BM, BK)
    b_tiles = scratch("b_tiles", f16, team, count, BK, BN)
    a_fragment = scratch("a_fragment", f16, register, 32, 8)
    b_fragment = scratch("b_fragment", f16, register, 32, 4)
    sums = scratch("sums", f32, register, BN // 8, 32, 4)
    tile, row, column, warp, p, k, following, j, j_out = variables("tile row column warp p k following j j_out")
    steps, columns_of_tiles = ceil_div(DEPTH, BK), ceil_div(CO, BN)

    def fetch(use: Index, tag: str) -> Node:
        line, lane = Var(f"line_{tag}"), Var(f"lane_{tag}")
        pixel, depth = row + warp * 16 + line, use * BK + lane
        in_image = pixel % IMAGE
        height = in_image // OW * STRIDE + depth // TAP - PAD
        width = in_image % OW * STRIDE + depth % TAP // C - PAD
        inside = (height >= 0) & (height < H) & (width >= 0) & (width < W)
        return If(
            predicate=use < steps,
            then=block(
                Gather(
                    source="x",
                    points=(Var(f"stage_{tag}"), line, lane),
                    coordinates=(pixel // IMAGE, height, width, depth % C),
                    predicate=(pixel < PIXELS) & (depth < DEPTH) & inside,
                    target=a_tiles.region((use % count, warp * 16, 0), (1, 16, BK)),
                    asynchronous=True,
                ),
                AsyncCopy(
                    source=weights.region((use * BK + warp * 8, column), (8, BN)),
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
    store = StoreFragment(
        intrinsic=STORE_M16N8,
        source=sums.region((j_out, 0, 0), (1, 32, 4)),
        target=y.region(
            (row + warp * 16, column + j_out * 8),
            (minimum(16, PIXELS - row - warp * 16), minimum(8, CO - column - j_out * 8)),
        ),
    )
    program = Parallel(
        level=Level.SUBGROUP,
        var=warp,
        extent=Const(WARPS),
        body=block(
            For(var=p, extent=count - 1, body=block(fetch(p, "first"), CommitGroup())),
            For(
                var=k,
                extent=steps,
                body=block(
                    WaitGroup(pending=count - 2),
                    Barrier(level=Level.BLOCK),
                    Let(var=following, value=k + count - 1),
                    fetch(following, "next"),
                    CommitGroup(),
                    *multiply,
                ),
            ),
            For(
                var=j_out,
                extent=Const(BN // 8),
                body=block(If(predicate=(row + warp * 16 < PIXELS) & (column + j_out * 8 < CO), then=block(store))),
            ),
        ),
    )
    grid = Parallel(
        level=Level.BLOCK,
        var=tile,
        extent=ceil_div(PIXELS, BM) * columns_of_tiles,
        body=block(
            Let(var=row, value=tile // columns_of_tiles * BM),
            Let(var=column, value=tile % columns_of_tiles * BN),
            program,
        ),
    )
    symbolic = (stages,) if isinstance(stages, Param) else ()
    return TileKernel(
        name="implicit_conv",
        op=None,
        variant="conv2d.implicit_gemm",
        schedule=Schedule(bm=BM, bn=BN, bk=BK, stages=str(stages)),
        target="sm_80",
        params=(IMAGES, CO, H, W, OH, OW, R, S, C, STRIDE, PAD, IMAGE, TAP, PIXELS, DEPTH, *symbolic),
        buffers=(x, weights, y, a_tiles, b_tiles, a_fragment, b_fragment, sums),
        body=block(grid),
        assumptions=equal(IMAGE, OH * OW) & equal(TAP, S * C) & equal(PIXELS, IMAGES * IMAGE) & equal(DEPTH, R * TAP),
    )


def arguments(
    *,
    images: int = 2,
    size: tuple[int, int] = (6, 7),
    c: int | None = None,
    taps: tuple[int, int] = (3, 3),
    co: int = 11,
    stride: int = 2,
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return arrays for padding 1, and the parameters with the products that the guards check.

    Odd seeds have so few channels that the ring is filled once, even ones more steps than stages.
    """
    rng = np.random.default_rng(seed)
    c = (7, 3)[seed % 2] if c is None else c
    (h, w), (r, s), pad = size, taps, 1
    oh, ow = (h + 2 * pad - r) // stride + 1, (w + 2 * pad - s) // stride + 1
    params = {
        "images": images,
        "co": co,
        "h": h,
        "w": w,
        "oh": oh,
        "ow": ow,
        "r": r,
        "s": s,
        "c": c,
        "stride": stride,
        "pad": pad,
    }
    params |= {"image_pixels": oh * ow, "row_taps": s * c, "pixels": images * oh * ow, "depth": r * s * c}
    arrays = {
        "x": rng.standard_normal((images, h, w, c)).astype(np.float16),
        "weights": rng.standard_normal((r * s * c, co)).astype(np.float16),
        "y": np.zeros((images * oh * ow, co), dtype=np.float32),
    }
    return arrays, params


def expected(arrays: dict[str, Any], params: dict[str, int]) -> dict[str, Any]:
    """Return the outputs in float64."""
    x, flat = arrays["x"].astype(np.float64), arrays["weights"].astype(np.float64)
    r, s, stride, pad = (params[name] for name in ("r", "s", "stride", "pad"))
    weights = flat.reshape(r, s, x.shape[3], -1)
    wide = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    result = np.zeros((x.shape[0], params["oh"], params["ow"], flat.shape[1]))
    for i in range(params["oh"]):
        for j in range(params["ow"]):
            taken = wide[:, i * stride : i * stride + r, j * stride : j * stride + s]
            result[:, i, j] = np.einsum("nrsc,rsco->no", taken, weights)
    return {"y": result.reshape(arrays["y"].shape)}
