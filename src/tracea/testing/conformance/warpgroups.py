"""wgmma of every extent, element type, swizzle mode and operand order, and the registers that warpgroups exchange."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.emitters.cuda.primitives import WGMMA_EXTENTS, sm_of
from tracea.semantic.lane_map import LaneMap
from tracea.testing.conformance.case import ConformanceCase
from tracea.testing.conformance.matrices import as_elements, small_integers
from tracea.testing.conformance.source import IN, OUT, kernel
from tracea.testing.conformance.tiles import Mode, swizzled

__all__ = ["warpgroup_cases"]

Array = np.ndarray[Any, Any]

_DEPTH_BYTES: Final = 32
_B_OFFSET: Final = 8192  # of operand B's tile in shared memory
_CALLS: Final = {
    "f16": "wgmma_m64k16<{n}, f16, {ta}, {tb}>",
    "bf16": "wgmma_m64k16<{n}, bf16, {ta}, {tb}>",
    "tf32": "wgmma_m64k8_tf32<{n}>",
    "e4m3": "wgmma_m64k32<{n}, e4m3>",
    "e5m2": "wgmma_m64k32<{n}, e5m2>",
    "s8": "wgmma_m64k32_s8<{n}>",
}
_MODES: Final[tuple[Mode, ...]] = (0, 32, 64, 128)
_S8_EXTENTS: Final = tuple(n for n in WGMMA_EXTENTS if n in {8, 24} or n % 16 == 0)


def warpgroup_cases(architecture: str) -> tuple[ConformanceCase, ...]:
    """Return the cases of warpgroup primitives: products on sm_90a alone, registers on all of its successors."""
    sm, specific = sm_of(architecture)
    if sm < 90 or not specific:
        return ()
    if sm > 90:
        return (_registers(architecture),)
    plain = (False, False)
    cases = [_product("f16", n, 128, plain, architecture) for n in WGMMA_EXTENTS]
    cases += [_product("s8", n, 128, plain, architecture) for n in _S8_EXTENTS]
    cases += [_product(element, 64, mode, plain, architecture) for element in _CALLS for mode in _MODES]
    for element, n in (("f16", 64), ("bf16", 256)):
        for mode in _MODES:
            cases += [
                _product(element, n, mode, orders, architecture)
                for orders in ((True, False), (False, True), (True, True))
            ]
    unique = {case.name: case for case in cases}
    return (*unique.values(), _registers(architecture))


def _along_depth(values: Array, mode: Mode) -> tuple[Array, int, int, int]:
    """Lay out rows whose depth is contiguous: the tile's bytes, the first byte's offset, leading and stride bytes.

    With a swizzle the operand is the last 32 bytes of rows of the swizzle's width.
    """
    rows = len(values)
    row, byte = np.indices((rows, _DEPTH_BYTES))
    if mode == 0:
        offsets, start, leading, stride = row // 8 * 256 + byte // 16 * 128 + row % 8 * 16 + byte % 16, 0, 128, 256
    else:
        start, leading, stride = mode - _DEPTH_BYTES, 16, 8 * mode
        offsets = swizzled(row * mode + start + byte, mode)
    return _placed(values.view(np.uint8).reshape(rows, _DEPTH_BYTES), offsets), start, leading, stride


def _across_depth(values: Array, mode: Mode) -> tuple[Array, int, int, int]:
    """Lay out rows of 16-bit elements whose row index is contiguous: as `_along_depth`."""
    rows, depth = values.shape
    row, k, byte = np.indices((rows, depth, 2))
    if mode == 0:
        leading, stride = 128, 256
        offsets = row // 8 * stride + k % 8 * 16 + k // 8 * leading + row % 8 * 2 + byte
    else:
        leading, stride = 16 * mode, 8 * mode
        along = 2 * row + byte
        offsets = swizzled(along % mode + along // mode * leading + k % 8 * mode + k // 8 * stride, mode)
    return _placed(values.view(np.uint8).reshape(rows, depth, 2), offsets), 0, leading, stride


def _placed(data: Array, offsets: Array) -> Array:
    # What no element lies in holds ones in every bit: read by mistake, it shows.
    image = np.full(-(-(int(offsets.max()) + 1) // 16) * 16, 0xFF, np.uint8)
    image[offsets] = data
    return image


def _product(element: str, n: int, mode: Mode, orders: tuple[bool, bool], architecture: str) -> ConformanceCase:
    k = _DEPTH_BYTES // {"f16": 2, "bf16": 2, "tf32": 4}.get(element, 1)
    c = LaneMap(f"wgmma.m64n{n}k{k}.{element}", "C")
    integers = element == "s8"
    name, sums, dtype = ("int32_t", np.int32, DType.I32) if integers else ("float", np.float32, DType.F32)
    a_MK, b_NK = small_integers((64, k), element, n), small_integers((n, k), element, n + 1)
    c_MN = np.random.default_rng(n).integers(-99, 100, (64, n))
    (a, a_start, a_leading, a_stride), (b, b_start, b_leading, b_stride) = (
        (_across_depth if across else _along_depth)(as_elements(values, element), mode)
        for values, across in zip((a_MK, b_NK), orders, strict=True)
    )
    call = _CALLS[element].format(n=n, ta=str(orders[0]).lower(), tb=str(orders[1]).lower())
    registers = n // 2
    body = f"""
    const uint32_t t = thread_index();
    const uint32_t base = shared_base();
    for (uint32_t i = t; i < {len(a) // 4}; i += 128) {{
        st_shared<uint32_t>(base + 4 * i, ld_global<uint32_t>(args.a + i));
    }}
    for (uint32_t i = t; i < {len(b) // 4}; i += 128) {{
        st_shared<uint32_t>(base + {_B_OFFSET} + 4 * i, ld_global<uint32_t>(args.b + i));
    }}
    fence_proxy_async();
    sync_block();
    {name} d[{registers}];
    for (int i = 0; i < {registers}; ++i) {{
        d[i] = ld_global<{name}>(args.c + {registers} * t + i);
    }}
    {name} fresh[{registers}];
    for (int i = 0; i < {registers}; ++i) {{
        fresh[i] = d[i];
    }}
    const uint64_t a = wgmma_descriptor(base + {a_start}, {a_leading}, {a_stride}, {mode});
    const uint64_t b = wgmma_descriptor(base + {_B_OFFSET + b_start}, {b_leading}, {b_stride}, {mode});
    wgmma_fence();
    {call}(d, a, b, true);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_accumulators(d);
    wgmma_fence();
    {call}(fresh, a, b, false);
    {call}(fresh, a, b, true);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_accumulators(fresh);
    for (int i = 0; i < {registers}; ++i) {{
        st_global(args.d + {registers} * t + i, d[i]);
        st_global(args.e + {registers} * t + i, fresh[i]);
    }}
"""
    product = a_MK @ b_NK.T
    order = "".join("MK"[not across] for across in orders) if any(orders) else "KK"
    return ConformanceCase(
        name=f"{call} swizzle {mode}",
        source=kernel(
            body,
            pointers={
                "a": (DType.I32, IN),
                "b": (DType.I32, IN),
                "c": (dtype, IN),
                "d": (dtype, OUT),
                "e": (dtype, OUT),
            },
            threads=128,
            shared_bytes=_B_OFFSET + len(b),
            isa=architecture,
            name=f"wgmma_{element}_{n}_{mode}_{order}",
        ),
        inputs={"a": a.view(np.int32), "b": b.view(np.int32), "c": c.fragment(c_MN).astype(sums).reshape(-1)},
        expected={
            "d": c.fragment(c_MN + product).astype(sums).reshape(-1),
            "e": c.fragment(2 * product).astype(sums).reshape(-1),
        },
    )


def _registers(architecture: str) -> ConformanceCase:
    body = """
    const uint32_t t = thread_index();
    if (t < 128) {
        setmaxnreg_dec<40>();
        st_global<uint32_t>(args.c + t, t);
    } else {
        setmaxnreg_inc<232>();
        st_global<uint32_t>(args.c + t, 1000 + t);
    }
"""
    thread = np.arange(256)
    return ConformanceCase(
        name="setmaxnreg",
        source=kernel(body, pointers={"c": (DType.I32, OUT)}, threads=256, isa=architecture, name="registers"),
        inputs={},
        expected={"c": np.where(thread < 128, thread, 1000 + thread).astype(np.int32)},
    )
