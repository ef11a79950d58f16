"""The kernels of columns' moments that the tests compile: with and without a gradient, types, strides, parts."""

from __future__ import annotations

from tests.kernels.conformance import Case
from tests.kernels.slab_cases import BF16, F32, F64, tensor

from tracea.core.dtype import DType
from tracea.core.op import MomentsOp

ID = "rows.moments"


def moments(
    images: int, rows: int, columns: int, *, dtype: DType = F32, graded: bool = True, pitch: int = 0
) -> MomentsOp:
    """The moments of columns; rows of x lie ``pitch`` elements apart where it is given."""
    step = pitch or columns
    return MomentsOp(
        x=tensor(images, rows, columns, dtype=dtype, strides=(rows * step, step, 1)),
        about=tensor(images, 1, columns, dtype=F64 if dtype is F64 else F32),
        grad=tensor(images, rows, columns, dtype=dtype) if graded else None,
    )


def moments_cases() -> tuple[Case, ...]:
    """Parts that rows do not fill, rows that no four fill, tails of columns, columns of several panels."""
    return (
        Case.of("moments", ID, moments(3, 37, 90), rows=16, fold=48),
        Case.of("moments_plain", ID, moments(2, 70, 33, graded=False), rows=16),
        Case.of("moments_wide", ID, moments(1, 9, 1100, pitch=1200), rows=4, prefetch=1),
        Case.of("moments_f64", ID, moments(2, 21, 45, dtype=F64), rows=8),
        Case.of("moments_bf16", ID, moments(1, 300, 18, dtype=BF16), rows=64, prefetch=1),
        Case.of("moments_one_row", ID, moments(2, 1, 20)),
        Case.of("moments_one_column", ID, moments(1, 67, 1, pitch=3), rows=16),
    )


def moments_golden() -> tuple[Case, ...]:
    """What a user's kernels look like."""
    return (Case.of(ID, ID, moments(1, 16 * 14 * 14, 256)),)
