"""What convolution kernels of ours require of an op, with the numbers that they find instead."""

from __future__ import annotations

import math
from typing import Final

from tracea.core.dtype import DType
from tracea.core.ops.conv2d import LONG_STEP, Conv2dOp
from tracea.core.tensor_type import TensorType, static
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

__all__ = ["CONV_REQUIREMENTS", "FLAT_RESULT", "NEAR_WINDOWS"]


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
_MOST_PIXELS: Final = 2**40
_SPARE: Final = 16  # windows: a tile's, which the last one of matrix tiles reads and drops
_STEPS = condition(
    "steps that a proof covers",
    # A kernel of long steps is proved for its op's own sizes (operands.own_sizes).
    lambda op, _: (
        not _static(op) or max(*op.stride, *op.dilation) <= LONG_STEP or math.prod(_under(op)) <= _MOST_PIXELS
    ),
    needed=f"at most {_MOST_PIXELS} pixels under all windows, zeros around the image among them",
    found=lambda op: " x ".join(map(str, _under(op))),
    remedy="copy the windows next to each other first, with a stride of their size",
)


def _under(op: Conv2dOp) -> tuple[int, int]:
    """Return the rows and columns that windows and taps lead over."""
    along = zip(op.shape[2:], op.stride, op.w.shape[2:], op.dilation, strict=True)
    rows, columns = ((static(p) - 1 + _SPARE) * step + (static(r) - 1) * gap + 1 for p, step, r, gap in along)
    return rows, columns


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


def _gaps(op: Conv2dOp) -> tuple[int, ...]:
    """Return the pixels between a window and the next one, of long strides, along rows and columns."""
    along = zip(op.w.shape[2:], op.dilation, op.stride, strict=True)
    return tuple(max(0, step - (static(r) - 1) * gap - 1) if step > LONG_STEP else 0 for r, gap, step in along)


NEAR_WINDOWS = condition(
    "windows near each other",
    # Its halo has a phase for each pixel of a stride: those that no window reads take room and time as well.
    lambda op, _: not any(_gaps(op)),
    needed=f"no pixels between windows where a stride is longer than {LONG_STEP}",
    found=lambda op: " and ".join(map(str, _gaps(op))),
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
