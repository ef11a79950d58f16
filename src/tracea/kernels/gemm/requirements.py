"""What every GEMM kernel of ours requires of an op."""

from __future__ import annotations

from tracea.core.dtype import DType
from tracea.kernels.requirements import CPU_VECTORS, condition, element_types, non_negative_strides, strided_layouts

__all__ = ["FLOATS", "GEMM_REQUIREMENTS", "NON_EMPTY_SUM"]

FLOATS = (DType.F64, DType.F32, DType.F16, DType.BF16)

NON_EMPTY_SUM = condition(
    "k",
    lambda op, _: op.k != 0,
    needed="k >= 1",
    found=lambda op: f"k = {op.k}",
    remedy="gemm.empty stores the epilogue of zero",
)

GEMM_REQUIREMENTS = (CPU_VECTORS, element_types(FLOATS), strided_layouts, non_negative_strides, NON_EMPTY_SUM)
