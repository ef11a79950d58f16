"""In which type kernels compute scalars, and which ops need all of it.

An op's element types decide: ``x_f32 -> f64`` is computed in f64, and so is ``x_f64 -> bool``. The two as one op would
have ends of f32 and bool, be computed in f32, and take 0.1 of f32 for 0.1 of f64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.expr import Binary, Constant, Expr, Input, Unary
from tracea.core.function import BinaryFunction, UnaryFunction
from tracea.core.op import Op, PairsOp, PointwiseOp, ReduceKind, ReduceOp

__all__ = ["computed_in", "has_wide_arithmetic", "is_narrowed", "is_stored_as_computed", "is_widened"]

_WIDE: Final = frozenset({DType.F64, DType.I64, DType.I32})  # f32 does not hold their values


def computed_in(dtypes: Iterable[DType]) -> DType:
    """Return what kernels compute scalars in between these element types: f64 where f32 would lose bits of one."""
    found = frozenset(dtypes)
    return DType.F64 if found & _WIDE or not any(dtype.is_float for dtype in found) else DType.F32


def is_stored_as_computed(out: DType, dtypes: Iterable[DType]) -> bool:
    """Tell whether results of a float type computed from these are f64 in both or neither: what a plain store does."""
    return (out is DType.F64) == (computed_in((*dtypes, out)) is DType.F64)


def has_wide_arithmetic(op: Op) -> bool:
    """Tell whether an op is computed in f64 and f32 would not do: for masks and integers of 8 bits it mostly would."""
    found = _types(op)
    if computed_in(found) is DType.F32:
        return False
    if found & _WIDE:
        return True
    match op:
        case PointwiseOp(expr=expr):
            return not _is_exact(expr)
        case PairsOp():
            return not all(map(_is_exact, op.expressions))
        case ReduceOp(kind=ReduceKind.MAX | ReduceKind.MIN, prologue=prologue, epilogue=epilogue):
            return not (_is_exact(prologue) and _is_exact(epilogue.expr))
        case _:
            return True


def is_narrowed(fused: Op, *parts: Op) -> bool:
    """Tell whether an op would be computed in f32 though one of the ops that it does the work of needs f64."""
    return computed_in(_types(fused)) is DType.F32 and any(map(has_wide_arithmetic, parts))


def is_widened(fused: Op, *parts: Op) -> bool:
    """Tell whether an op would be computed in f64 for an integer's sake though a part is rounded to f32 by itself.

    What a sum is rounded to moves its last places; what is cut off to an integer or compared with a number may jump.
    """
    types = _types(fused)
    return computed_in(types) is DType.F64 and DType.F64 not in types and any(map(_rounds, parts))


def _rounds(op: Op) -> bool:
    return isinstance(op, PointwiseOp) and computed_in(_types(op)) is DType.F32 and not _is_exact(op.expr)


def _types(op: Op) -> frozenset[DType]:
    return frozenset({op.infer().dtype, *(operand.dtype for operand in op.operands)})


def _is_exact(expr: Expr) -> bool:
    """Whether f32 gives the value that f64 gives, of operands that f32 holds."""
    return all(map(_is_exact_step, expr.walk()))


def _is_exact_step(node: Expr) -> bool:
    match node:
        case Constant(value=value):
            with np.errstate(over="ignore"):
                return math.isnan(value) or float(np.float32(value)) == value
        case Unary(function=function):
            return function in (UnaryFunction.NEG, UnaryFunction.ABS)
        case Binary(function=BinaryFunction.MUL, left=left, right=right):
            return _is_mask(left) and _is_mask(right)
        case Binary(function=function):
            return function.is_comparison or function in (BinaryFunction.MAX, BinaryFunction.MIN)
        case _:
            return True  # an input, a choice, or a cast, which rounds what f32 holds


def _is_mask(expr: Expr) -> bool:
    """Whether a factor is 1 or 0, or a number of 8 bits: f32 holds the product of two such."""
    return isinstance(expr, Input) or (isinstance(expr, Binary) and expr.function.is_comparison)
