"""A convolution of one tap over images in rows as what it is: the filters times the pixels, a matrix product.

``y[k, pixel] = sum over c of w[k, c] · x[c, pixel]``, for each image. No pixel is copied to where its channels are
neighbours: the rows of a channel are one row of the product's second factor, and what follows the sums stays the same.
"""

from __future__ import annotations

from typing import Final

from tracea.core.op import Conv2dOp, Epilogue, GemmOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.kernels.gemm.amx import MATRIX_TILES
from tracea.targets.target import Target

__all__ = ["product_of"]

_FEW: Final = 8  # channels: by AVX2 a convolution on vectors along pixels is faster then


def product_of(op: Conv2dOp, target: Target) -> GemmOp | None:
    """Return the product whose operands are the filters, the image and what the epilogue takes; None where it is none.

    Measured on a Xeon without its tiles, filters as they come, time of the product over the convolution's: f32 by
    AVX-512 0.36 to 0.9, with few pixels (14² and less) 0.99 to 1.05; by AVX2 0.33 to 0.97, 3 channels 1.30, 144 to 24
    1.06; f64 0.42 to 0.9, 24 channels 1.08, 16 1.25 (benchmarks/NOTES.md, 2026-11-28). On matrix tiles nothing was
    measured.
    """
    types = (*op.operands, op.infer())
    if target.isa not in ("avx512", "avx2") or MATRIX_TILES.check(None, target) is None:
        return None
    if not all(type_.is_static and isinstance(type_.layout, StridedLayout | None) for type_ in types):
        return None
    filters, channels = op.w.static_shape[:2]
    is_plain = op.w.static_shape[2:] == op.stride == (1, 1) and op.padding == (0, 0) and op.groups == 1
    is_few = target.isa == "avx2" and channels < _FEW
    if not is_plain or op.size is not None or is_few or 0 in op.infer().static_shape:
        return None
    size = op.infer().static_shape[2:]
    given = (op.x, op.infer(), *op.epilogue.operands)
    rows = [row for row in (_in_one_row(type_, size) for type_ in given) if row is not None]
    if len(rows) < len(given) or rows[0].strides[-1] != 1 or rows[1].strides[-1] != 1:
        return None
    x, y, *extras = rows
    images, _, pixels = x.static_shape
    if images == 1:
        x, y, *extras = [_of_one(type_) for type_ in (x, y, *extras)]
    return GemmOp(
        m=filters,
        n=pixels,
        k=channels,
        batch=() if images == 1 else (images,),
        a=TensorType((filters, channels), op.w.dtype, StridedLayout(op.w.strides[:2])),
        b=x,
        epilogue=Epilogue(expr=op.epilogue.expr, operands=tuple(extras)),
        accumulator=op.accumulator,
        out=y,
    )


def _in_one_row(type_: TensorType, size: tuple[int, ...]) -> TensorType | None:
    """Return the type with its rows and columns as one axis; None where they are neither ``size`` nor one pixel.

    None also where no stride leads from the end of a row to the next.
    """
    if type_.rank < 2:
        return type_ if type_.elements == 1 else None
    *shape, rows, columns = type_.static_shape
    *strides, down, right = type_.strides
    is_whole = rows == 1 or columns == 1 or down == columns * right
    if not is_whole or (rows, columns) not in (size, (1, 1)):
        return None
    return TensorType((*shape, rows * columns), type_.dtype, StridedLayout((*strides, down if columns == 1 else right)))


def _of_one(type_: TensorType) -> TensorType:
    """Return the type of the only image of a batch, or what all images share."""
    if type_.rank < 3:
        return type_
    return TensorType(type_.shape[1:], type_.dtype, StridedLayout(type_.strides[1:]))
