"""Element types: their names, sizes, rounding units and NumPy counterparts."""

from __future__ import annotations

from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np

from tracea.core.names import meant, near
from tracea.errors import InvalidDType

__all__ = ["DType", "round_tf32"]


class DType(Enum):
    """An element type; its value is the short name that reports, keys and JSON use."""

    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    E4M3 = "e4m3"
    E5M2 = "e5m2"
    I64 = "i64"
    I32 = "i32"
    I8 = "i8"
    U8 = "u8"
    BOOL = "bool"

    @classmethod
    def parse(cls, text: str | DType) -> DType:
        """Return the type that a short or a framework's name means: ``f32``, ``float32``, ``torch.float32``.

        Raises:
            InvalidDType: the name is not one of ours.
        """
        if isinstance(text, DType):
            return text
        name = str(text).strip().lower().removeprefix("torch.")
        known = _BY_NAME.get(name)
        if known is None:
            remedy = f"{meant(near(name, _BY_NAME))}name one of these element types"
            raise InvalidDType(field="dtype", got=text, expected=_SHORT_NAMES, remedy=remedy)
        return known

    @classmethod
    def of(cls, dtype: Any) -> DType:
        """Return the type of a NumPy dtype or of anything that NumPy makes one of.

        Raises:
            InvalidDType: Tracea has no such element type, or it is in foreign byte order.
        """
        try:
            numpy_type = np.dtype(dtype)
        except TypeError:
            numpy_type = None
        for known in cls:
            if numpy_type == known.numpy:
                return known
        raise InvalidDType(
            field="dtype", got=str(dtype), expected=_SHORT_NAMES, remedy="convert the array to one of these types first"
        )

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return _NBYTES[self]

    @property
    def eps(self) -> float:
        """Distance from 1 to the next number; 0 for integers, whose arithmetic is exact."""
        return _EPS.get(self, 0.0)

    @property
    def smallest(self) -> float:
        """Smallest positive subnormal: the absolute rounding unit next to zero; 0 for integers."""
        return _SMALLEST.get(self, 0.0)

    @property
    def largest(self) -> float:
        """Largest finite value."""
        return _LARGEST[self]

    @property
    def lowest(self) -> float:
        """Most negative finite value."""
        return _LOWEST[self]

    @property
    def is_float(self) -> bool:
        """Whether this is a floating-point type."""
        return self in _EPS

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bf16, e4m3 and e5m2 are ``ml_dtypes``' bfloat16, float8_e4m3fn and float8_e5m2."""
        return _NUMPY[self]

    @property
    def compute(self) -> DType:
        """The type that kernels compute in: f64 for f64, f32 for narrower floats, i32 for narrow integers."""
        if self.is_float:
            return DType.F64 if self is DType.F64 else DType.F32
        return DType.I64 if self is DType.I64 else DType.I32

    def holds(self, other: DType) -> bool:
        """Whether every value of ``other`` is a value of this type, so that a cast to it changes nothing."""
        if self is other or self is DType.F64:
            return self is other or other is not DType.I64
        return other in _HOLDS.get(self, frozenset())

    def round(self, values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Round float64 values to this type, once, and return them as float64.

        Floats round to nearest even and overflow to infinity; those of 8 bits saturate, as GPUs store them (NaN stays
        NaN). Integers truncate toward zero; NaN gives 0 and what is
        out of range gives the nearest end (C and torch leave these two undefined). Bool is ``value != 0``.
        """
        exact = np.asarray(values, dtype=np.float64)
        with np.errstate(all="ignore"):
            if self is DType.F64:
                return exact
            if self is DType.BOOL:
                return (exact != 0.0).astype(np.float64)
            if self in (DType.E4M3, DType.E5M2):
                exact = np.clip(exact, self.lowest, self.largest)
            if self in (DType.BF16, DType.E4M3, DType.E5M2):
                return _round_to_odd_float32(exact).astype(self.numpy).astype(np.float64)
            if self.is_float:
                return exact.astype(self.numpy).astype(np.float64)
            return np.nan_to_num(np.clip(np.trunc(exact), self.lowest, self.largest), nan=0.0)


def _round_to_odd_float32(exact: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    # ml_dtypes goes to its narrow floats by way of float32: two roundings. Rounding the first one to odd makes the pair
    # equal to one.
    near = exact.astype(np.float32)
    toward_zero = np.where(np.abs(near.astype(np.float64)) > np.abs(exact), np.nextafter(near, np.float32(0)), near)
    inexact = (toward_zero.astype(np.float64) != exact) & ~np.isnan(exact)
    bits = np.asarray(toward_zero, dtype=np.float32).view(np.uint32) | inexact.astype(np.uint32)
    return bits.view(np.float32)


def round_tf32(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Round f32 values to the 10 bits of fraction of TF32, ties away from zero, and return them as float64.

    Source: PTX ISA, cvt.rna.tf32.f32.
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    finite = (bits & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
    rounded = np.where(finite, (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000), bits)
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64).reshape(np.shape(values))


_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.F64: np.dtype(np.float64),
    DType.F32: np.dtype(np.float32),
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.E4M3: np.dtype(ml_dtypes.float8_e4m3fn),
    DType.E5M2: np.dtype(ml_dtypes.float8_e5m2),
    DType.I64: np.dtype(np.int64),
    DType.I32: np.dtype(np.int32),
    DType.I8: np.dtype(np.int8),
    DType.U8: np.dtype(np.uint8),
    DType.BOOL: np.dtype(np.bool_),
}
_NBYTES = {dtype: numpy_type.itemsize for dtype, numpy_type in _NUMPY.items()}
_EPS = {
    DType.F64: 2.0**-52,
    DType.F32: 2.0**-23,
    DType.F16: 2.0**-10,
    DType.BF16: 2.0**-7,
    DType.E4M3: 2.0**-3,
    DType.E5M2: 2.0**-2,
}
_SMALLEST = {
    DType.F64: 2.0**-1074,
    DType.F32: 2.0**-149,
    DType.F16: 2.0**-24,
    DType.BF16: 2.0**-133,
    DType.E4M3: 2.0**-9,
    DType.E5M2: 2.0**-16,
}
_LARGEST = {
    DType.F64: (2.0 - 2.0**-52) * 2.0**1023,
    DType.F32: (2.0 - 2.0**-23) * 2.0**127,
    DType.F16: 65504.0,
    DType.BF16: (2.0 - 2.0**-7) * 2.0**127,
    DType.E4M3: 448.0,
    DType.E5M2: 57344.0,
    DType.I64: 2.0**63 - 2.0**10,  # the largest float64 below 2^63
    DType.I32: 2.0**31 - 1,
    DType.I8: 127.0,
    DType.U8: 255.0,
    DType.BOOL: 1.0,
}
_LOWEST = {
    dtype: {DType.I64: -(2.0**63), DType.I32: -(2.0**31), DType.I8: -128.0, DType.U8: 0.0, DType.BOOL: 0.0}.get(
        dtype, -largest
    )
    for dtype, largest in _LARGEST.items()
}
_HOLDS = {
    DType.F32: frozenset({DType.F16, DType.BF16, DType.E4M3, DType.E5M2, DType.I8, DType.U8, DType.BOOL}),
    DType.F16: frozenset({DType.E4M3, DType.E5M2, DType.I8, DType.U8, DType.BOOL}),
    DType.BF16: frozenset({DType.E4M3, DType.E5M2, DType.I8, DType.U8, DType.BOOL}),
    DType.I64: frozenset({DType.I32, DType.I8, DType.U8, DType.BOOL}),
    DType.I32: frozenset({DType.I8, DType.U8, DType.BOOL}),
    DType.I8: frozenset({DType.BOOL}),
    DType.U8: frozenset({DType.BOOL}),
}
_SHORT_NAMES = tuple(dtype.value for dtype in DType)
_BY_NAME = {dtype.value: dtype for dtype in DType} | {
    "float64": DType.F64,
    "fp64": DType.F64,
    "double": DType.F64,
    "float32": DType.F32,
    "fp32": DType.F32,
    "float": DType.F32,
    "float16": DType.F16,
    "fp16": DType.F16,
    "half": DType.F16,
    "bfloat16": DType.BF16,
    "float8_e4m3fn": DType.E4M3,
    "float8_e5m2": DType.E5M2,
    "int64": DType.I64,
    "int32": DType.I32,
    "int8": DType.I8,
    "uint8": DType.U8,
}
