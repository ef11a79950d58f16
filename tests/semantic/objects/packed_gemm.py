"""Packed CPU GEMM: B packed by the team, A by the task that uses it, K in blocks, fused bias and ReLU."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracea.core.dtype import DType
from tracea.core.expr import Input, activation
from tracea.semantic.index import Param, Var, ceil_div
from tracea.semantic.intrinsics import packed_depth_first_product
from tracea.semantic.nodes import (
    Barrier,
    EpilogueCall,
    For,
    Intrinsic,
    Level,
    MicroKernel,
    Pack,
    Parallel,
    block,
)
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel

__all__ = ["arguments", "build", "expected"]

M, N, K = Param("M", 1), Param("N", 1), Param("K", 1)
LDA, LDB, LDC = Param("lda", 1), Param("ldb", 1), Param("ldc", 1)


def build(*, mc: int = 6, nc: int = 8, kc: int = 4, mr: int = 3, nr: int = 4) -> TileKernel:
    """Return the kernel for one schedule."""
    schedule = Schedule(mc=mc, nc=nc, kc=kc, mr=mr, nr=nr)
    f32 = DType.F32
    a = Buffer(name="A", dtype=f32, space=MemorySpace.GLOBAL, shape=(M, K), strides=(LDA, 1), role=BufferRole.INPUT)
    b = Buffer(name="B", dtype=f32, space=MemorySpace.GLOBAL, shape=(K, N), strides=(LDB, 1), role=BufferRole.INPUT)
    bias = Buffer(name="bias", dtype=f32, space=MemorySpace.GLOBAL, shape=(N,), role=BufferRole.INPUT)
    c = Buffer(name="C", dtype=f32, space=MemorySpace.GLOBAL, shape=(M, N), strides=(LDC, 1), role=BufferRole.OUTPUT)
    a_panels = Buffer(
        name="a_panels", dtype=f32, space=MemorySpace.THREAD, shape=(ceil_div(mc, mr), kc, mr), role=BufferRole.SCRATCH
    )
    b_panels = Buffer(
        name="b_panels", dtype=f32, space=MemorySpace.TEAM, shape=(ceil_div(nc, nr), kc, nr), role=BufferRole.SCRATCH
    )
    jc, n_block = Var("jc"), Var("n_block")
    pc, k_block = Var("pc"), Var("k_block")
    jp, n_panel = Var("jp"), Var("n_panel")
    ic, m_block = Var("ic"), Var("m_block")
    jr, n_tile = Var("jr"), Var("n_tile")
    ir, m_tile = Var("ir"), Var("m_tile")
    row, column = ic + ir, jc + jr
    micro = MicroKernel(
        intrinsic=Intrinsic(
            name="micro_gemm",
            meaning=packed_depth_first_product,
            source="definition",
            attributes=(("mr", mr), ("nr", nr)),
        ),
        a=a_panels.region((ir // mr, 0, 0), (1, k_block, mr)),
        b=b_panels.region((jr // nr, 0, 0), (1, k_block, nr)),
        c=c.region((row, column), (m_tile, n_tile)),
        accumulate=pc > 0,
        finish=pc + k_block >= K,
        epilogue=EpilogueCall(
            expr=activation("relu").substitute({0: Input(0) + Input(1)}), operands=(bias.region((column,), (n_tile,)),)
        ),
    )
    pack_b = Parallel(
        level=Level.TASK,
        var=jp,
        extent=n_block,
        step=nr,
        length=n_panel,
        body=block(
            Pack(
                source=b.region((pc, jc + jp), (k_block, n_panel)),
                target=b_panels.region((jp // nr, 0, 0), (1, k_block, nr)),
                panel=nr,
                axis=1,
            )
        ),
    )
    tiles = For(
        var=jr,
        extent=n_block,
        step=nr,
        length=n_tile,
        body=block(For(var=ir, extent=m_block, step=mr, length=m_tile, body=block(micro))),
    )
    rows = Parallel(
        level=Level.TASK,
        var=ic,
        extent=M,
        step=mc,
        length=m_block,
        body=block(
            Pack(
                source=a.region((ic, pc), (m_block, k_block)),
                target=a_panels.region((0, 0, 0), (ceil_div(m_block, mr), k_block, mr)),
                panel=mr,
                axis=0,
            ),
            tiles,
        ),
    )
    body = block(
        For(
            var=jc,
            extent=N,
            step=nc,
            length=n_block,
            body=block(For(var=pc, extent=K, step=kc, length=k_block, body=block(pack_b, Barrier(), rows, Barrier()))),
        )
    )
    return TileKernel(
        name="packed_gemm",
        op=None,
        variant="gemm.packed",
        schedule=schedule,
        target="cpu",
        params=(M, N, K, LDA, LDB, LDC),
        buffers=(a, b, bias, c, a_panels, b_panels),
        body=body,
    )


def arguments(*, m: int = 13, n: int = 11, k: int = 9, seed: int = 0) -> tuple[dict[str, Any], dict[str, int]]:
    """Return arrays with padded rows, and the parameters that describe them."""
    rng = np.random.default_rng(seed)
    arrays = {
        "A": rng.standard_normal((m, k + 2), dtype=np.float32)[:, :k],
        "B": rng.standard_normal((k, n + 3), dtype=np.float32)[:, :n],
        "bias": rng.standard_normal(n, dtype=np.float32),
        "C": np.zeros((m, n + 1), dtype=np.float32)[:, :n],
    }
    return arrays, {"M": m, "N": n, "K": k, "lda": k + 2, "ldb": n + 3, "ldc": n + 1}


def expected(arrays: dict[str, Any], params: dict[str, int]) -> dict[str, Any]:
    """Return the outputs in float64."""
    del params
    a, b, bias = (arrays[name].astype(np.float64) for name in ("A", "B", "bias"))
    return {"C": np.maximum(a @ b + bias, 0.0)}
