"""Folding: rows of an image as one row, where a convolution reads of each pixel nothing but the pixel.

Worked example: seven rows of seven pixels, channels last, are one row of 49: a pixel is as far from the last one of the
row before as from its left neighbour. So tiles of 14 pixels run over the ends of rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import StridedLayout, TensorType, static

__all__ = ["fold_rows", "folded_like", "is_pointwise"]


def is_pointwise(op: Conv2dOp) -> bool:
    """Whether a pixel of the result is made of one pixel of the image, at the same place, and extents are known."""
    taps, sizes = op.w.shape[2:], (*op.x.shape, *op.shape)
    plain = taps == (1, 1) == op.stride and op.padding == (0, 0) and op.size is None
    return plain and all(isinstance(size, int) for size in sizes) and op.x.shape[2:] == op.shape[2:]


def fold_rows(op: Conv2dOp, rows: int) -> Conv2dOp | None:
    """Return a pointwise op with ``rows`` rows at a time as one; None where they are not one run in every tensor."""
    height, width = (static(size) for size in op.shape[2:])
    tensors = (op.x, op.infer(), *op.epilogue.operands)
    if height % rows:
        return None
    x, out, *operands = (_folded(type_, (height, width), rows) for type_ in tensors)
    if x is None or out is None or None in operands:
        return None
    epilogue: Any = replace(op.epilogue, operands=tuple(operands))
    return replace(op, x=x, out=out, epilogue=epilogue)


def folded_like(op: Conv2dOp, like: Conv2dOp) -> Conv2dOp:
    """Return the op with as many rows as one as ``like`` has, for which a kernel was built; itself where none fits."""
    if not (is_pointwise(op) and is_pointwise(like)):
        return op
    rows, rest = divmod(static(like.shape[3]), static(op.shape[3]))
    return op if rows <= 1 or rest else fold_rows(op, rows) or op


def _folded(type_: TensorType, image: tuple[int, int], rows: int) -> TensorType | None:
    """Return a type whose last two axes are an image's, or are broadcast to it, with rows as one."""
    if type_.shape[-2:] == (1, 1) or type_.rank == 0 or type_.shape == (1,):
        return type_  # the same for all pixels
    if type_.shape[-2:] != image or not isinstance(type_.layout, StridedLayout | None):
        return None
    *outer, row, column = type_.strides
    if row != image[1] * column:
        return None
    shape = (*type_.shape[:-2], image[0] // rows, image[1] * rows)
    return TensorType(shape, type_.dtype, StridedLayout((*outer, rows * row, column)))
