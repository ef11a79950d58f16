"""Conversions: every value of the narrow formats, and floats at, between and beyond their neighbours."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

from tracea.core.dtype import DType
from tracea.emitters.cuda.primitives import sm_of
from tracea.testing.conformance.case import ConformanceCase
from tracea.testing.conformance.source import IN, OUT, kernel

__all__ = ["number_cases"]

Array = np.ndarray[Any, Any]

_NARROW: Final = {
    "f16": (DType.F16, np.uint16, np.dtype(np.float16)),
    "bf16": (DType.BF16, np.uint16, np.dtype(ml_dtypes.bfloat16)),
    "e4m3": (DType.E4M3, np.uint8, np.dtype(ml_dtypes.float8_e4m3fn)),
    "e5m2": (DType.E5M2, np.uint8, np.dtype(ml_dtypes.float8_e5m2)),
}
_NAN: Final = {"f16": 0x7FFF, "bf16": 0x7FFF, "e4m3": 0x7F, "e5m2": 0x7F}
_LARGEST: Final = {"e4m3": 448.0, "e5m2": 57344.0}


def number_cases(architecture: str) -> tuple[ConformanceCase, ...]:
    """Return the cases of to_float, from_float and round_tf32."""
    cases = [case for name in _NARROW for case in (_widen(name, architecture), _narrow(name, architecture))]
    cases += [_integers(architecture), _float(architecture)]
    if sm_of(architecture)[0] >= 80:
        cases.append(_tf32(architecture))
    return tuple(cases)


def _elementwise(statement: str, count: int) -> str:
    return f"""
    const uint32_t i = block_index() * 128 + thread_index();
    if (i < {count}) {{
        {statement}
    }}
"""


@np.errstate(invalid="ignore")
def _widen(name: str, architecture: str) -> ConformanceCase:
    dtype, bits, numpy_type = _NARROW[name]
    values = np.arange(1 << (8 * numpy_type.itemsize), dtype=np.uint32).astype(bits).view(numpy_type)
    values = values[~np.isnan(values.astype(np.float32))]  # the bits of a NaN are nobody's contract
    return ConformanceCase(
        name=f"to_float<{name}>",
        source=kernel(
            _elementwise(f"st_global<float>(args.c + i, to_float(ld_global<{name}>(args.a + i)));", len(values)),
            pointers={"a": (dtype, IN), "c": (DType.F32, OUT)},
            threads=128,
            blocks=-(-len(values) // 128),
            isa=architecture,
            name=f"to_float_{name}",
        ),
        inputs={"a": values},
        expected={"c": values.astype(np.float32)},
    )


@np.errstate(invalid="ignore", over="ignore")
def _floats(numpy_type: np.dtype[Any]) -> Array:
    """Return floats around every finite value of a format, or a sample: itself, the midpoints, their neighbours."""
    bits = np.arange(1 << (8 * numpy_type.itemsize), dtype=np.uint32)
    step = max(1, len(bits) // 4096)
    sample = np.unique(np.concatenate([bits[::step], bits[-8:], bits[: 8 * step], bits[len(bits) // 2 - 8 :: step]]))
    near = sample.astype(f"u{numpy_type.itemsize}").view(numpy_type).astype(np.float64)
    following = (sample + 1).astype(f"u{numpy_type.itemsize}").view(numpy_type).astype(np.float64)
    keep = np.isfinite(near) & np.isfinite(following)
    middle = ((near[keep] + following[keep]) / 2).astype(np.float32)
    exact = near[np.isfinite(near)].astype(np.float32)
    up, down = np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))
    beyond = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1e38, -1e38, 1e-45, 65519.9, 65520.0, 449.0, 464.0, 465.0, 61440.0],
        np.float32,
    )
    return np.concatenate([exact, middle, up, down, beyond]).astype(np.float32)


def _rounded(values: Array, name: str) -> Array:
    """Round to nearest even by ml_dtypes and NumPy; fp8 saturates; a NaN is the format's one."""
    _, bits, numpy_type = _NARROW[name]
    limit = _LARGEST.get(name)
    with np.errstate(over="ignore", invalid="ignore"):
        clipped = values if limit is None else np.clip(values, -limit, limit)
        result = clipped.astype(numpy_type).view(bits).copy()
    result[np.isnan(values)] = _NAN[name]
    return result


def _narrow(name: str, architecture: str) -> ConformanceCase:
    dtype, _, numpy_type = _NARROW[name]
    values = _floats(numpy_type)
    return ConformanceCase(
        name=f"from_float<{name}>",
        source=kernel(
            _elementwise(
                f"st_global<{name}>(args.c + i, from_float<{name}>(ld_global<float>(args.a + i)));", len(values)
            ),
            pointers={"a": (DType.F32, IN), "c": (dtype, OUT)},
            threads=128,
            blocks=-(-len(values) // 128),
            isa=architecture,
            name=f"from_float_{name}",
        ),
        inputs={"a": values},
        expected={"c": _rounded(values, name).view(numpy_type)},
    )


def _integers(architecture: str) -> ConformanceCase:
    values = np.arange(-128, 128, dtype=np.int8)
    wide = np.array([0, 1, -1, 2**24, 2**24 + 1, 2**31 - 1, -(2**31), 16777219] * 32, np.int32)
    statement = """st_global<float>(args.c + i, to_float(ld_global<int8_t>(args.a + i)));
        st_global<float>(args.d + i, to_float(ld_global<int32_t>(args.b + i)));"""
    return ConformanceCase(
        name="to_float<integers>",
        source=kernel(
            _elementwise(statement, 256),
            pointers={"a": (DType.I8, IN), "b": (DType.I32, IN), "c": (DType.F32, OUT), "d": (DType.F32, OUT)},
            threads=128,
            blocks=2,
            isa=architecture,
            name="to_float_integers",
        ),
        inputs={"a": values, "b": wide},
        expected={"c": values.astype(np.float32), "d": wide.astype(np.float32)},
    )


def _float(architecture: str) -> ConformanceCase:
    values = np.array([0.0, -0.0, 1.5, np.inf, -1e-45, 3e38, -7.0, 0.1] * 16, np.float32)
    return ConformanceCase(
        name="from_float<float>",
        source=kernel(
            _elementwise(
                "st_global<float>(args.c + i, from_float<float>(to_float(ld_global<float>(args.a + i))));", 128
            ),
            pointers={"a": (DType.F32, IN), "c": (DType.F32, OUT)},
            threads=128,
            isa=architecture,
            name="from_float_float",
        ),
        inputs={"a": values},
        expected={"c": values},
    )


@np.errstate(invalid="ignore", over="ignore")
def _tf32(architecture: str) -> ConformanceCase:
    rng = np.random.default_rng(5)
    bits = np.concatenate(
        [
            rng.integers(0, 1 << 32, 2048, dtype=np.uint64),
            rng.integers(0, 1 << 19, 1024, dtype=np.uint64) << 13 | 0x1000,  # ties
            rng.integers(0, 1 << 19, 1024, dtype=np.uint64) << 13 | 0xFFF,
            np.array([0, 1 << 31, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 1, 0x1000, 0xFFF], np.uint64),
        ]
    ).astype(np.uint32)
    values = bits.view(np.float32)
    values = values[~np.isnan(values)]
    # Ties away from zero are ties up in magnitude: half of the last kept place, added to the magnitude, then cut.
    exact = np.abs(values.astype(np.float64))
    _, exponent = np.frexp(exact)
    place = np.ldexp(1.0, np.maximum(exponent - 11, -136))
    magnitude = np.where(
        np.isfinite(exact), np.floor(np.where(np.isfinite(exact), exact, 0) / place + 0.5) * place, np.inf
    )
    expected = np.copysign(np.where(magnitude >= 2.0**128, np.inf, magnitude), values).astype(np.float32)
    return ConformanceCase(
        name="round_tf32",
        source=kernel(
            _elementwise("st_global<uint32_t>(args.c + i, round_tf32(ld_global<float>(args.a + i)));", len(values)),
            pointers={"a": (DType.F32, IN), "c": (DType.F32, OUT)},
            threads=128,
            blocks=-(-len(values) // 128),
            isa=architecture,
            name="round_to_tf32",
        ),
        inputs={"a": values},
        expected={"c": expected},
    )
