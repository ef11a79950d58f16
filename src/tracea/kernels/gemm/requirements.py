"""What GEMM kernels of ours require of an op, with the numbers that they find instead."""

from __future__ import annotations

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp, MatrixMath
from tracea.core.tensor_type import BlockedLayout
from tracea.kernels.gemm.operands import gemm_types
from tracea.kernels.requirements import CPU_VECTORS, condition, element_types, non_negative_strides, strided_layouts
from tracea.kernels.variant import Requirement

__all__ = [
    "FLOATS",
    "GEMM_REQUIREMENTS",
    "IEEE_PRODUCTS",
    "ROWS_OF_B",
    "STORED_AS_SUMMED",
    "contiguous",
    "most",
    "unit_stride",
]

FLOATS = (DType.F64, DType.F32, DType.F16, DType.BF16)


def _is_pure(op: GemmOp) -> bool:
    types = {type_.dtype for type_ in (*op.operands, op.infer())}
    return (types == {DType.F64}) == (op.accumulator is DType.F64) and (DType.F64 not in types or len(types) == 1)


_NON_EMPTY_SUM = condition(
    "k >= 1",
    lambda op, _: op.k != 0,
    needed="k >= 1",
    found=lambda op: f"k = {op.k}",
    remedy="gemm.empty stores the epilogue of zero",
)
_ONE_ARITHMETIC = condition(
    "one arithmetic",
    lambda op, _: _is_pure(op),
    needed="f64 everywhere with f64 sums, or nowhere with f32 sums",
    found=lambda op: (
        f"{', '.join(str(t.dtype.value) for t in (*op.operands, op.infer()))}, sums {op.accumulator.value}"
    ),
    remedy="cast the operands to one of the two",
)

IEEE_PRODUCTS = condition(
    "products of unrounded factors",
    lambda op, _: op.math is MatrixMath.IEEE,
    needed="math = ieee",
    found=lambda op: f"math = {op.math.value}",
    remedy="TF32 is the arithmetic of tensor cores: leave math at ieee here",
)

GEMM_REQUIREMENTS = (
    CPU_VECTORS,
    element_types(FLOATS),
    strided_layouts,
    non_negative_strides,
    _NON_EMPTY_SUM,
    _ONE_ARITHMETIC,
    IEEE_PRODUCTS,
)

STORED_AS_SUMMED = condition(
    "operands stored as they are summed",
    lambda op, _: op.a.dtype is op.b.dtype is op.accumulator,
    needed="a and b in the accumulator's element type",
    found=lambda op: f"{op.a.dtype.value}, {op.b.dtype.value}, sums {op.accumulator.value}",
    remedy="use gemm.packed, which converts while it packs",
)


def contiguous(name: str, what: str) -> Requirement:
    """Return the requirement that the last axis of operand ``name`` has stride 1 (or one element)."""
    return condition(
        f"{what} contiguous",
        lambda op, _: unit_stride(op, name, -1),
        needed=f"stride 1 along the last axis of {name}",
        found=lambda op: str(getattr(op, name)),
        remedy="use gemm.packed, which takes any strides",
    )


def unit_stride(op: GemmOp, name: str, axis: int) -> bool:
    """Whether an axis of operand ``name`` has stride 1 or one element."""
    if any(isinstance(type_.layout, BlockedLayout) for type_ in (*op.operands, op.infer())):
        return False
    type_ = gemm_types(op)[name]
    if type_.layout is None and not type_.is_static:
        return axis == -1
    return type_.shape[axis] == 1 or type_.strides[axis] == 1


ROWS_OF_B = contiguous("b", "rows of B")


def most(name: str, limit: int) -> Requirement:
    """Return the requirement that extent ``name`` is a number of at most ``limit``."""
    return condition(
        f"{name} <= {limit}",
        lambda op, _: isinstance(getattr(op, name), int) and getattr(op, name) <= limit,
        needed=f"{name} <= {limit}",
        found=lambda op: f"{name} = {getattr(op, name)}",
        remedy="use gemm.packed",
    )
