"""Loads, stores and cp.async of every width; atomics, flags and the fence."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.emitters.cuda.primitives import sm_of
from tracea.testing.conformance.case import ConformanceCase
from tracea.testing.conformance.source import IN, OUT, kernel

__all__ = ["memory_cases"]

Array = np.ndarray[Any, Any]

_TYPES: Final = {1: "int8_t", 2: "f16", 4: "float", 8: "Words<2>", 16: "Words<4>"}


def memory_cases(architecture: str) -> tuple[ConformanceCase, ...]:
    """Return the cases of global and shared memory."""
    cases = [_through_shared(size, name, architecture) for size, name in _TYPES.items()]
    cases += [_atomics(architecture), _flags(architecture)]
    if sm_of(architecture)[0] >= 80:
        cases += [_copies(size, architecture) for size in (4, 8, 16)]
    return tuple(cases)


def unique_bytes(count: int, seed: int = 0) -> Array:
    """Return bytes whose 32-bit words are all different: a lost or doubled access shows."""
    words = np.arange(-(-count // 4), dtype=np.uint32) * np.uint32(2654435761) + np.uint32(seed * 7919 + 1)
    return words.view(np.uint8)[:count].copy()


def _through_shared(size: int, name: str, architecture: str) -> ConformanceCase:
    body = f"""
    const uint32_t t = thread_index();
    const uint32_t base = shared_base();
    const {name} value = ld_global<{name}>(args.a + {size} * t);
    st_shared<{name}>(base + {size} * t, value);
    sync_block();
    st_global<{name}>(args.c + {size} * t, ld_shared<{name}>(base + {size} * (t ^ 37)));
    if (t == 0) {{
        st_global<float>(args.aligned, base % 1024 == 0 ? 1.0F : 0.0F);
    }}
"""
    data = unique_bytes(64 * size)
    return ConformanceCase(
        name=f"memory<{name}>",
        source=kernel(
            body,
            pointers={"a": (DType.U8, IN), "c": (DType.U8, OUT), "aligned": (DType.F32, OUT)},
            threads=64,
            shared_bytes=1024,
            isa=architecture,
            name=f"memory_{8 * size}",
        ),
        inputs={"a": data},
        expected={"c": data.reshape(64, size)[np.arange(64) ^ 37].reshape(-1), "aligned": np.ones(1, np.float32)},
    )


def _atomics(architecture: str) -> ConformanceCase:
    body = (
        "atomic_add(args.c + thread_index() % 7, to_float(static_cast<int32_t>(block_index() * 64 + thread_index())));"
    )
    place, value = np.tile(np.arange(64) % 7, 8), np.arange(512)
    return ConformanceCase(
        name="atomic_add",
        source=kernel(
            body, pointers={"c": (DType.F32, OUT)}, threads=64, blocks=8, isa=architecture, name="atomic_sums"
        ),
        inputs={},
        expected={"c": np.bincount(place, value).astype(np.float32)},  # whole numbers: every order gives these bits
        zeroed=("c",),
    )


def _flags(architecture: str) -> ConformanceCase:
    body = """
    const uint32_t t = thread_index();
    const uint32_t b = block_index();
    if (b > 0) {
        st_global<float>(args.parts + 64 * b + t, static_cast<float>(64 * b + t));
        thread_fence();
        sync_block();
        if (t == 0) {
            red_release_add(args.flags, 1);
        }
    } else {
        st_global<float>(args.parts + t, 0.0F);
        if (t == 0) {
            while (ld_acquire(args.flags) < 3) {
            }
            st_release(args.flags + 1, 7);
        }
        sync_block();
        float sum = 0.0F;
        for (uint32_t i = 1; i < 4; ++i) {
            sum += ld_global<float>(args.parts + 64 * i + t);
        }
        st_global<float>(args.c + t, sum);
    }
"""
    parts = np.arange(256, dtype=np.float32).reshape(4, 64).copy()
    parts[0] = 0
    return ConformanceCase(
        name="flags",
        source=kernel(
            body,
            pointers={"parts": (DType.F32, OUT), "flags": (DType.I32, OUT), "c": (DType.F32, OUT)},
            threads=64,
            blocks=4,
            isa=architecture,
            name="flags",
        ),
        inputs={},
        expected={"parts": parts.reshape(-1), "flags": np.array([3, 7], np.int32), "c": parts.sum(axis=0)},
        zeroed=("flags",),
    )


def _copies(size: int, architecture: str) -> ConformanceCase:
    # Lane t copies `size` bytes whole, and t mod (size + 1) bytes with zeros behind.
    name = _TYPES[size]
    body = f"""
    const uint32_t t = thread_index();
    const uint32_t base = shared_base();
    cp_async<{size}>(base + {size} * t, args.a + {size} * t);
    cp_async_commit();
    cp_async_zfill<{size}>(base + 1024 + {size} * t, args.a + {size} * t, t % {size + 1});
    cp_async_commit();
    cp_async_wait<1>();
    st_global<{name}>(args.c + {size} * t, ld_shared<{name}>(base + {size} * t));
    cp_async_wait<0>();
    sync_warp();
    st_global<{name}>(args.d + {size} * t, ld_shared<{name}>(base + 1024 + {size} * (t ^ 1)));
"""
    data = unique_bytes(64 * size)
    filled = data.reshape(64, size).copy()
    for lane in range(64):
        filled[lane, lane % (size + 1) :] = 0
    return ConformanceCase(
        name=f"cp_async<{size}>",
        source=kernel(
            body,
            pointers={"a": (DType.U8, IN), "c": (DType.U8, OUT), "d": (DType.U8, OUT)},
            threads=64,
            shared_bytes=2048,
            isa=architecture,
            name=f"copies_{size}",
        ),
        inputs={"a": data},
        expected={"c": data, "d": filled[np.arange(64) ^ 1].reshape(-1)},
    )
