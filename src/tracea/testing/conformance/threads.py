"""Where a thread is, shuffles, barriers of the block, the warp and by name, the elected lane."""

from __future__ import annotations

import numpy as np

from tracea.core.dtype import DType
from tracea.emitters.cuda.primitives import sm_of
from tracea.testing.conformance.case import ConformanceCase
from tracea.testing.conformance.source import OUT, kernel

__all__ = ["thread_cases"]


def thread_cases(architecture: str) -> tuple[ConformanceCase, ...]:
    """Return the cases of indices and of what threads do together."""
    cases = [_indices(architecture), _shuffles(architecture), _warps(architecture), _named_barriers(architecture)]
    sm, _ = sm_of(architecture)
    if sm >= 80:
        cases.append(_mbarrier(architecture))
    if sm >= 90:
        cases.append(_elected(architecture))
    return tuple(cases)


def _indices(architecture: str) -> ConformanceCase:
    body = """
    const uint32_t i = block_index() * 96 + thread_index();
    st_global<uint32_t>(args.c + 5 * i, thread_index());
    st_global<uint32_t>(args.c + 5 * i + 1, block_index());
    st_global<uint32_t>(args.c + 5 * i + 2, block_count());
    st_global<uint32_t>(args.c + 5 * i + 3, warp_index());
    st_global<uint32_t>(args.c + 5 * i + 4, lane_index());
"""
    block, thread = np.divmod(np.arange(3 * 96), 96)
    rows = np.stack([thread, block, np.full_like(block, 3), thread // 32, thread % 32], axis=1)
    return ConformanceCase(
        name="indices",
        source=kernel(body, pointers={"c": (DType.I32, OUT)}, threads=96, blocks=3, isa=architecture, name="indices"),
        inputs={},
        expected={"c": rows.astype(np.int32).reshape(-1)},
    )


def _shuffles(architecture: str) -> ConformanceCase:
    body = """
    const uint32_t t = thread_index();
    const uint32_t mine = t * 0x01010101U + 1;
    for (int mask = 1; mask < 32; ++mask) {
        st_global<uint32_t>(args.c + mask * 32 + t, shuffle_xor(mine, mask));
    }
    for (int lane = 0; lane < 32; ++lane) {
        st_global<uint32_t>(args.d + lane * 32 + t, shuffle(mine, lane));
    }
    const int any = static_cast<int>((7 * t + 3) % 32);
    st_global<float>(args.c + t, shuffle(bits_as<float>(mine), any));
"""
    lanes = np.arange(32)
    mine = lanes * 0x01010101 + 1
    exchanged = np.stack([mine[lanes ^ mask] for mask in range(32)])
    exchanged[0] = mine[(7 * lanes + 3) % 32]
    return ConformanceCase(
        name="shuffles",
        source=kernel(body, pointers={"c": (DType.I32, OUT), "d": (DType.I32, OUT)}, isa=architecture, name="shuffles"),
        inputs={},
        expected={
            "c": exchanged.astype(np.int32).reshape(-1),
            "d": np.repeat(mine, 32).astype(np.int32),
        },
    )


def _warps(architecture: str) -> ConformanceCase:
    body = """
    const uint32_t t = thread_index();
    const uint32_t base = shared_base();
    for (uint32_t round = 0; round < 5; ++round) {
        st_shared<uint32_t>(base + 4 * t, 100 * round + t);
        sync_warp();
        st_global<uint32_t>(args.c + 64 * round + t, ld_shared<uint32_t>(base + 4 * (t ^ (1U << round))));
        sync_warp();
    }
"""
    rows = [100 * turn + (np.arange(64) ^ (1 << turn)) for turn in range(5)]
    return ConformanceCase(
        name="sync_warp",
        source=kernel(
            body, pointers={"c": (DType.I32, OUT)}, threads=64, shared_bytes=256, isa=architecture, name="warps"
        ),
        inputs={},
        expected={"c": np.concatenate(rows).astype(np.int32)},
    )


def _named_barriers(architecture: str) -> ConformanceCase:
    # Warp 0 hands a row to warps 1 to 3 in turn through barriers 1 to 3; each tells it through 4 to 6 that it has read.
    body = """
    const uint32_t t = thread_index();
    const uint32_t base = shared_base();
    const uint32_t warp = warp_index();
    for (uint32_t turn = 1; turn < 4; ++turn) {
        if (warp == 0) {
            st_shared<uint32_t>(base + 4 * t, 1000 * turn + t);
            named_barrier_arrive(turn, 64);
            named_barrier_sync(turn + 3, 64);
        } else if (warp == turn) {
            named_barrier_sync(turn, 64);
            st_global<uint32_t>(args.c + t, ld_shared<uint32_t>(base + 4 * (31 - t % 32)));
            named_barrier_arrive(turn + 3, 64);
        }
    }
    if (warp == 0) {
        st_global<uint32_t>(args.c + t, t);
    }
"""
    lanes = np.arange(32)
    rows = [lanes, *(1000 * turn + 31 - lanes for turn in (1, 2, 3))]
    return ConformanceCase(
        name="named_barriers",
        source=kernel(
            body,
            pointers={"c": (DType.I32, OUT)},
            threads=128,
            shared_bytes=128,
            isa=architecture,
            name="named_barriers",
        ),
        inputs={},
        expected={"c": np.concatenate(rows).astype(np.int32)},
    )


def _mbarrier(architecture: str) -> ConformanceCase:
    # Two warps hand a row back and forth over four phases.
    body = """
    const uint32_t t = thread_index();
    const uint32_t base = shared_base();
    if (t == 0) {
        mbarrier_init(base + 256, 32);
        mbarrier_init(base + 264, 32);
    }
    sync_block();
    for (uint32_t phase = 0; phase < 4; ++phase) {
        if (t < 32) {
            mbarrier_wait(base + 264, (phase & 1) ^ 1);
            st_shared<uint32_t>(base + 4 * t, 100 * phase + t);
            mbarrier_arrive(base + 256);
        } else {
            mbarrier_wait(base + 256, phase & 1);
            st_global<uint32_t>(args.c + 32 * phase + t - 32, ld_shared<uint32_t>(base + 4 * (63 - t)));
            mbarrier_arrive(base + 264);
        }
    }
"""
    rows = [100 * phase + 31 - np.arange(32) for phase in range(4)]
    return ConformanceCase(
        name="mbarrier",
        source=kernel(
            body,
            pointers={"c": (DType.I32, OUT)},
            threads=64,
            shared_bytes=272,
            isa=architecture,
            name="mbarrier_phases",
        ),
        inputs={},
        expected={"c": np.concatenate(rows).astype(np.int32)},
    )


def _elected(architecture: str) -> ConformanceCase:
    body = """
    const bool first = elect_one();
    const bool second = elect_one();
    const float told = (first ? 1.0F : 0.0F) + (second ? 100.0F : 0.0F) + (first != second ? 9.0F : 0.0F);
    atomic_add(args.c + warp_index(), told);
"""
    return ConformanceCase(
        name="elect_one",
        source=kernel(body, pointers={"c": (DType.F32, OUT)}, threads=96, isa=architecture, name="elected"),
        inputs={},
        expected={"c": np.full(3, 101.0, np.float32)},
        zeroed=("c",),
    )
