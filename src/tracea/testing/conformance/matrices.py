"""ldmatrix, stmatrix and mma.sync against the lane maps, which are checked against the vendor's tables."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

from tracea.core.dtype import DType
from tracea.emitters.cuda.primitives import sm_of
from tracea.semantic.lane_map import LaneMap, matrix_rows
from tracea.testing.conformance.case import ConformanceCase
from tracea.testing.conformance.source import IN, OUT, kernel

__all__ = ["as_elements", "matrix_cases", "small_integers"]

Array = np.ndarray[Any, Any]

# Call, instruction of semantic.lane_map, least architecture.
_PRODUCTS: Final = (
    ("mma_m16n8k8<f16>", "mma.m16n8k8.f16", 75),
    ("mma_m16n8k8<bf16>", "mma.m16n8k8.bf16", 80),
    ("mma_m16n8k16<f16>", "mma.m16n8k16.f16", 80),
    ("mma_m16n8k16<bf16>", "mma.m16n8k16.bf16", 80),
    ("mma_m16n8k4_tf32", "mma.m16n8k4.tf32", 80),
    ("mma_m16n8k8_tf32", "mma.m16n8k8.tf32", 80),
    ("mma_m8n8k16_s8", "mma.m8n8k16.s8", 75),
    ("mma_m16n8k32_s8", "mma.m16n8k32.s8", 80),
    ("mma_m16n8k32<e4m3>", "mma.m16n8k32.e4m3", 89),
    ("mma_m16n8k32<e5m2>", "mma.m16n8k32.e5m2", 89),
)
_NUMPY: Final[dict[str, Any]] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "s8": np.int8,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
_REACH: Final = {"e5m2": 4, "e4m3": 8}  # whole numbers that the format holds exactly


def matrix_cases(architecture: str) -> tuple[ConformanceCase, ...]:
    """Return the cases of warp-wide matrix primitives."""
    sm, _ = sm_of(architecture)
    cases = [_load(count, transposed, architecture) for count in (1, 2, 4) for transposed in (False, True)]
    if sm >= 90:
        cases += [_store(count, transposed, architecture) for count in (1, 2, 4) for transposed in (False, True)]
    cases += [_product(call, name, architecture) for call, name, least in _PRODUCTS if sm >= least]
    return tuple(cases)


def small_integers(shape: tuple[int, int], element: str, seed: int) -> Array:
    """Return whole numbers whose products and sums are exact: every rounding and every order gives the same bits."""
    reach = _REACH.get(element, 16)
    return np.random.default_rng(seed).integers(-reach, reach + 1, shape)


def as_elements(values: Array, element: str) -> Array:
    """Return whole numbers in an element type."""
    return values.astype(_NUMPY[element])


def _held(count: int, transposed: bool) -> tuple[Array, Array]:
    """Return row and column of each 16-bit half that each lane holds, (32, 2·count)."""
    layout = matrix_rows(count, transposed=transposed)
    place = layout.apply(lane=np.arange(32)[:, None], register=np.arange(2 * count)[None, :])
    return place["row"], place["column"]


def _rows_of(count: int) -> Array:
    """Return an order of the rows' places in shared memory in which no two follow each other as they are named."""
    return np.random.default_rng(count).permutation(8 * count)


def _load(count: int, transposed: bool, architecture: str) -> ConformanceCase:
    name = f"ldmatrix_x{count}{'_trans' if transposed else ''}"
    places = _rows_of(count)
    body = f"""
    const uint32_t t = thread_index();
    const uint32_t base = shared_base();
    if (t < {8 * count}) {{
        st_shared<Words<4>>(base + 16 * t, ld_global<Words<4>>(args.a + 8 * t));
    }}
    sync_block();
    uint32_t r[{count}];
    {name}(r, base + 16 * ld_global<uint32_t>(args.places + t));
    for (uint32_t i = 0; i < {count}; ++i) {{
        st_global<uint32_t>(args.c + {count} * t + i, r[i]);
    }}
"""
    stored = np.arange(64 * count, dtype=np.uint16).reshape(-1, 8) + 0x1234
    rows, columns = _held(count, transposed)
    return ConformanceCase(
        name=name,
        source=kernel(
            body,
            pointers={"a": (DType.F16, IN), "places": (DType.I32, IN), "c": (DType.I32, OUT)},
            shared_bytes=512,
            isa=architecture,
            name=name,
        ),
        inputs={
            "a": stored.reshape(-1).view(np.float16),
            "places": np.resize(places, 32).astype(np.int32),
        },
        expected={"c": np.ascontiguousarray(stored[places][rows, columns]).view(np.int32).reshape(-1)},
    )


def _store(count: int, transposed: bool, architecture: str) -> ConformanceCase:
    name = f"stmatrix_x{count}{'_trans' if transposed else ''}"
    places = _rows_of(count)
    body = f"""
    const uint32_t t = thread_index();
    const uint32_t base = shared_base();
    uint32_t r[{count}];
    for (uint32_t i = 0; i < {count}; ++i) {{
        r[i] = ld_global<uint32_t>(args.a + {count} * t + i);
    }}
    {name}(base + 16 * ld_global<uint32_t>(args.places + t), r);
    sync_block();
    if (t < {8 * count}) {{
        st_global<Words<4>>(args.c + 8 * t, ld_shared<Words<4>>(base + 16 * t));
    }}
"""
    held = np.arange(64 * count, dtype=np.uint16).reshape(32, -1) + 0x2345
    rows, columns = _held(count, transposed)
    named = np.zeros((8 * count, 8), np.uint16)
    named[rows, columns] = held
    stored = np.zeros_like(named)
    stored[places] = named
    return ConformanceCase(
        name=name,
        source=kernel(
            body,
            pointers={"a": (DType.I32, IN), "places": (DType.I32, IN), "c": (DType.F16, OUT)},
            shared_bytes=512,
            isa=architecture,
            name=name,
        ),
        inputs={"a": held.view(np.int32).reshape(-1), "places": np.resize(places, 32).astype(np.int32)},
        expected={"c": stored.reshape(-1).view(np.float16)},
    )


def _product(call: str, instruction: str, architecture: str) -> ConformanceCase:
    a, b, c = (LaneMap(instruction, operand) for operand in "ABC")
    element = a.instruction.element
    integers = element == "s8"
    sums, dtype = (np.int32, DType.I32) if integers else (np.float32, DType.F32)
    a_MK = small_integers((a.rows, a.columns), element, 1)
    b_KN = small_integers((b.rows, b.columns), element, 2)
    c_MN = np.random.default_rng(3).integers(-99, 100, (c.rows, c.columns))
    body = f"""
    const uint32_t t = thread_index();
    uint32_t a[{a.words}];
    uint32_t b[{b.words}];
    {"int32_t" if integers else "float"} d[{c.registers}];
    for (int i = 0; i < {a.words}; ++i) {{
        a[i] = ld_global<uint32_t>(args.a + {a.words} * t + i);
    }}
    for (int i = 0; i < {b.words}; ++i) {{
        b[i] = ld_global<uint32_t>(args.b + {b.words} * t + i);
    }}
    for (int i = 0; i < {c.registers}; ++i) {{
        d[i] = ld_global<{"int32_t" if integers else "float"}>(args.c + {c.registers} * t + i);
    }}
    {call}(d, a, b);
    for (int i = 0; i < {c.registers}; ++i) {{
        st_global(args.d + {c.registers} * t + i, d[i]);
    }}
"""

    def words(of: LaneMap, values: Array) -> Array:
        return np.ascontiguousarray(of.fragment(as_elements(values, element))).view(np.int32).reshape(-1)

    return ConformanceCase(
        name=call,
        source=kernel(
            body,
            pointers={"a": (DType.I32, IN), "b": (DType.I32, IN), "c": (dtype, IN), "d": (dtype, OUT)},
            isa=architecture,
            name=instruction.replace(".", "_"),
        ),
        inputs={"a": words(a, a_MK), "b": words(b, b_KN), "c": c.fragment(c_MN).astype(sums).reshape(-1)},
        expected={"d": c.fragment(c_MN + a_MK @ b_KN).astype(sums).reshape(-1)},
    )
