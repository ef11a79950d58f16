"""Two GEMMs written by hand over the primitives: a cp.async ring with mma.sync, and TMA with warp roles and wgmma."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from tracea.core.dtype import DType
from tracea.emitters.kernel_source import KernelSource, TensorMapSpec
from tracea.emulator import Report, emulate
from tracea.semantic.index import Const, Param
from tracea.testing.conformance.source import IN, OUT, kernel

M, N, K = Param("M", 1), Param("N", 1), Param("K", 1)

_RING_HEAD = """
constexpr int STAGES = 3;
constexpr uint32_t A_BYTES = 128 * 64 * 2;
constexpr uint32_t STAGE_BYTES = A_BYTES + 64 * 128 * 2;
TRACEA_DEVICE uint32_t swizzle_a(uint32_t r, uint32_t c) { return r * 128 + ((c ^ (r & 7)) * 16); }
TRACEA_DEVICE uint32_t swizzle_b(uint32_t r, uint32_t c) { return r * 256 + ((c ^ (r & 7)) * 16); }
TRACEA_DEVICE void load_stage(uint32_t s, const f16* A, const f16* B, int k0, int N, int K, int bm, int bn, int tid) {
    for (int i = 0; i < 4; i++) {
        const int q = tid + i * 256;
        cp_async<16>(s + swizzle_a(q >> 3, q & 7), A + (int64_t)(bm + (q >> 3)) * K + k0 + (q & 7) * 8);
    }
    for (int i = 0; i < 4; i++) {
        const int q = tid + i * 256;
        cp_async<16>(s + A_BYTES + swizzle_b(q >> 4, q & 15), B + (int64_t)(k0 + (q >> 4)) * N + bn + (q & 15) * 8);
    }
}
"""

_RING_BODY = """
    const uint32_t base = shared_base();
    const int tid = thread_index();
    const int lane = tid & 31;
    const int warp = tid >> 5;
    const int wm = (warp & 1) * 64;
    const int wn = (warp >> 1) * 32;
    const int tiles_n = args.N / 128;
    const int bm = block_index() / tiles_n * 128;
    const int bn = block_index() % tiles_n * 128;
    float acc[4][4][4];
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            for (int e = 0; e < 4; e++) {
                acc[i][j][e] = 0.f;
            }
        }
    }
    const int steps = args.K / 64;
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) {
            load_stage(base + s * STAGE_BYTES, args.a, args.b, s * 64, args.N, args.K, bm, bn, tid);
        }
        cp_async_commit();
    }
    for (int step = 0; step < steps; step++) {
        cp_async_wait<STAGES - 2>();
        sync_block();
        const int next = step + STAGES - 1;
        if (next < steps) {
            load_stage(base + next % STAGES * STAGE_BYTES, args.a, args.b, next * 64, args.N, args.K, bm, bn, tid);
        }
        cp_async_commit();
        const uint32_t sa = base + step % STAGES * STAGE_BYTES;
        const uint32_t sb = sa + A_BYTES;
        for (int kk = 0; kk < 4; kk++) {
            uint32_t a[4][4];
            uint32_t b[2][4];
            for (int i = 0; i < 4; i++) {
                ldmatrix_x4(a[i], sa + swizzle_a(wm + i * 16 + (lane & 15), kk * 2 + (lane >> 4)));
            }
            for (int j = 0; j < 2; j++) {
                ldmatrix_x4_trans(b[j], sb + swizzle_b(kk * 16 + (lane & 15), (wn + j * 16) / 8 + (lane >> 4)));
            }
            for (int i = 0; i < 4; i++) {
                for (int j = 0; j < 4; j++) {
                    const uint32_t pair[2] = {b[j >> 1][(j & 1) * 2], b[j >> 1][(j & 1) * 2 + 1]};
                    mma_m16n8k16<f16>(acc[i][j], a[i], pair);
                }
            }
        }
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            const int r = bm + wm + i * 16 + (lane >> 2);
            const int c = bn + wn + j * 8 + (lane & 3) * 2;
            const Words<2> upper = {bits_as<uint32_t>(acc[i][j][0]), bits_as<uint32_t>(acc[i][j][1])};
            const Words<2> lower = {bits_as<uint32_t>(acc[i][j][2]), bits_as<uint32_t>(acc[i][j][3])};
            st_global(args.c + (int64_t)r * args.N + c, upper);
            st_global(args.c + (int64_t)(r + 8) * args.N + c, lower);
        }
    }
"""

_ROLES_HEAD = """
constexpr uint32_t STAGES = 2;
constexpr uint32_t STAGE_BYTES = 2 * 64 * 128;
constexpr uint32_t BARRIERS = STAGES * STAGE_BYTES;
"""

_ROLES_BODY = """
    const uint32_t base = shared_base();
    const uint32_t thread = thread_index();
    const uint32_t full = base + BARRIERS;
    const uint32_t empty = full + 8 * STAGES;
    const int32_t tiles_n = static_cast<int32_t>(args.N / 64);
    const int32_t row = block_index() / tiles_n * 64;
    const int32_t column = block_index() % tiles_n * 64;
    const uint32_t steps = static_cast<uint32_t>((args.K + 63) / 64);
    if (thread == 0) {
        for (uint32_t s = 0; s < STAGES; ++s) {
            mbarrier_init(full + 8 * s, 1);
            mbarrier_init(empty + 8 * s, 128);
        }
        mbarrier_fence_init();
    }
    sync_block();
    if (thread < 128) {
        setmaxnreg_dec<40>();
        if (thread == 0) {
            for (uint32_t k = 0; k < steps; ++k) {
                const uint32_t s = k % STAGES;
                const uint32_t phase = k / STAGES & 1;
                mbarrier_wait(empty + 8 * s, phase ^ 1);
                mbarrier_arrive_expect(full + 8 * s, STAGE_BYTES);
                tma_load<2>(base + s * STAGE_BYTES, args.map_a, full + 8 * s, k * 64, row);
                tma_load<2>(base + s * STAGE_BYTES + 8192, args.map_b, full + 8 * s, k * 64, column);
            }
        }
    } else {
        setmaxnreg_inc<232>();
        float d[32];
        for (int i = 0; i < 32; ++i) {
            d[i] = 0.0F;
        }
        for (uint32_t k = 0; k < steps; ++k) {
            const uint32_t s = k % STAGES;
            mbarrier_wait(full + 8 * s, k / STAGES & 1);
            const uint32_t tile = base + s * STAGE_BYTES;
            wgmma_fence();
            for (uint32_t kk = 0; kk < 4; ++kk) {
                const uint64_t a = wgmma_descriptor(tile + 32 * kk, 16, 1024, 128);
                const uint64_t b = wgmma_descriptor(tile + 8192 + 32 * kk, 16, 1024, 128);
                wgmma_m64k16<64, bf16, false, false>(d, a, b, k > 0 || kk > 0);
            }
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_accumulators(d);
            mbarrier_arrive(empty + 8 * s);
        }
        const int32_t t = static_cast<int32_t>(thread) - 128;
        const int32_t r = row + t / 32 * 16 + t % 32 / 4;
        const int32_t c = column + t % 4 * 2;
        for (int j = 0; j < 8; ++j) {
            st_global<float>(args.c + r * args.N + c + 8 * j, d[4 * j]);
            st_global<float>(args.c + r * args.N + c + 8 * j + 1, d[4 * j + 1]);
            st_global<float>(args.c + (r + 8) * args.N + c + 8 * j, d[4 * j + 2]);
            st_global<float>(args.c + (r + 8) * args.N + c + 8 * j + 1, d[4 * j + 3]);
        }
    }
"""


def ring_gemm() -> KernelSource:
    """Return C[M,N] f32 = A[M,K] f16 · B[K,N] f16 for multiples of 128, 128 and 64: three stages of cp.async."""
    return kernel(
        _RING_BODY,
        head=_RING_HEAD,
        pointers={"a": (DType.F16, IN), "b": (DType.F16, IN), "c": (DType.F32, OUT)},
        integers=("M", "N", "K"),
        threads=256,
        blocks=M // 128 * (N // 128),
        shared_bytes=3 * 32768,
        name="ring_gemm",
    )


def roles_gemm() -> KernelSource:
    """Return C[M,N] f32 = A[M,K] bf16 · B[N,K]ᵀ bf16 for M and N of 64: a producer of TMA, a consumer of wgmma."""
    maps = tuple(
        TensorMapSpec(
            name=f"map_{name}",
            buffer=name,
            dtype=DType.BF16,
            shape=(rows, K),
            strides=(K, Const(1)),
            box=(64, 64),
            swizzle_bytes=128,
        )
        for name, rows in (("a", M), ("b", N))
    )
    return kernel(
        _ROLES_BODY,
        head=_ROLES_HEAD,
        pointers={"c": (DType.F32, OUT)},
        integers=("M", "N", "K"),
        threads=256,
        blocks=M // 64 * (N // 64),
        shared_bytes=2 * 16384 + 64,
        maps=maps,
        isa="sm_90a",
        mapped={"a": (DType.BF16, IN), "b": (DType.BF16, IN)},
        name="roles_gemm",
    )


def edited(source: KernelSource, before: str, after: str) -> KernelSource:
    """Return the source with one piece of its text replaced."""
    assert source.text.count(before) == 1, f"{before!r} occurs {source.text.count(before)} times"
    return replace(source, text=source.text.replace(before, after))


def run_ring(source: KernelSource, m: int = 128, n: int = 128, k: int = 256, **options: Any) -> tuple[Report, float]:
    """Emulate, and return the report with the largest relative error."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k)).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    c = np.zeros((m, n), np.float32)
    report = emulate(source, {"a": a, "b": b, "c": c}, {"M": m, "N": n, "K": k}, **options)
    return report, _error(c, a.astype(np.float64), b.astype(np.float64))


def run_roles(source: KernelSource, m: int = 64, n: int = 64, k: int = 320, **options: Any) -> tuple[Report, float]:
    """Emulate, and return the report with the largest relative error."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((n, k)).astype(ml_dtypes.bfloat16)
    c = np.zeros((m, n), np.float32)
    report = emulate(source, {"a": a, "b": b, "c": c}, {"M": m, "N": n, "K": k}, **options)
    return report, _error(c, a.astype(np.float64), b.astype(np.float64).T)


def _error(c: Any, a_MK: Any, b_KN: Any) -> float:
    return float(np.max(np.abs(c - a_MK @ b_KN) / (np.abs(a_MK) @ np.abs(b_KN))))
