"""What convolution kernels of ours require of an op, with the numbers that they find instead."""

from __future__ import annotations

from typing import Final

from tracea.core.dtype import DType
from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import TensorType
from tracea.kernels.conv.operands import conv_types, is_flat, sizes_of
from tracea.kernels.gemm.requirements import FLOATS
from tracea.kernels.requirements import (
    CPU_VECTORS,
    condition,
    element_types,
    non_negative_strides,
    sizes_in_range,
    strided_layouts,
)

__all__ = ["CONV_REQUIREMENTS", "FLAT_RESULT"]


def _types(op: Conv2dOp) -> tuple[TensorType, ...]:
    return (*op.operands, op.infer())


def _is_pure(op: Conv2dOp) -> bool:
    types = {type_.dtype for type_ in _types(op)}
    return (types == {DType.F64}) == (op.accumulator is DType.F64) and (DType.F64 not in types or len(types) == 1)


def _static(op: Conv2dOp) -> bool:
    return all(type_.is_static for type_ in _types(op))


_STATIC = condition(
    "known extents",
    lambda op, _: _static(op),
    needed="extents that are numbers",
    found=lambda op: ", ".join(str(type_) for type_ in _types(op) if not type_.is_static),
    remedy="bind the symbolic extents first",
)
_SIZES = sizes_in_range(lambda op: sizes_of(op) if _static(op) else {}, or_empty=True)
_LARGEST_STEP: Final = 2**20
_STEPS = condition(
    "steps that a proof covers",
    lambda op, _: _step(op) <= _LARGEST_STEP,  # else the pixels that tasks copy may be more than 64 bits count
    needed=f"(8 x stride of rows + 256) x stride of columns <= {_LARGEST_STEP}",
    found=lambda op: f"{_step(op)} of stride {op.stride}",
    remedy="copy the windows next to each other first, with a stride of their size",
)


def _step(op: Conv2dOp) -> int:
    return (8 * op.stride[0] + 256) * op.stride[1]


_ONE_ARITHMETIC = condition(
    "one arithmetic",
    lambda op, _: _is_pure(op),
    needed="f64 everywhere with f64 sums, or nowhere with f32 sums",
    found=lambda op: f"{', '.join(str(t.dtype.value) for t in _types(op))}, sums {op.accumulator.value}",
    remedy="cast the operands to one of the two",
)


def _pixels_are_one_axis(op: Conv2dOp) -> bool:
    types = conv_types(op)
    results = [type_ for name, type_ in types.items() if name.removesuffix("_last") not in ("x", "w")]
    *_, columns, filters = types["y"].strides
    *_, p, q, _ = types["y"].static_shape
    if p > 1 == q:  # the one column's stride is nobody's, so no launcher can check that rows follow each other by it
        return False
    if any(type_.static_shape[-3:-1] not in ((p, q), (1, 1)) for type_ in results):  # one number a row, or a column
        return False
    return all(map(is_flat, results)) and (filters == 1 or columns == 1 or types["y"].static_shape[-1] == 1)


FLAT_RESULT = condition(
    "pixels along one axis",
    lambda op, _: not _static(op) or _pixels_are_one_axis(op),
    needed="a result of more than one column, and epilogue operands, whose rows follow each other, filters or pixels "
    "next to each other",
    found=lambda op: ", ".join(str(type_) for type_ in (op.infer(), *op.epilogue.operands)),
    remedy="use conv.packed, which takes any strides",
)

CONV_REQUIREMENTS = (
    CPU_VECTORS,
    element_types(FLOATS),
    strided_layouts,
    non_negative_strides,
    _STATIC,
    _SIZES,
    _STEPS,
    _ONE_ARITHMETIC,
)
