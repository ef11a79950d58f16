"""How element types are spelled in CUDA text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracea.core.dtype import DType

__all__ = ["STORAGE"]

STORAGE: Final[Mapping[DType, str]] = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "f16",
    DType.BF16: "bf16",
    DType.E4M3: "e4m3",
    DType.E5M2: "e5m2",
    DType.I64: "int64_t",
    DType.I32: "int32_t",
    DType.I8: "int8_t",
    DType.U8: "uint8_t",
}
