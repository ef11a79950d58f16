"""The kernels of norms' gradients that the tests compile: with and without weight, types, strides, schedules."""

from __future__ import annotations

from tests.kernels.conformance import Case
from tests.kernels.slab_cases import BF16, F32, F64, tensor

from tracea.core.dtype import DType
from tracea.core.op import NormGradientOp, RowKind

ID = "rows.norm_gradient"


def norm_gradient(
    *shape: int, dtype: DType = F32, rms: bool = False, weighted: bool = True, pitch: int = 0, eps: float = 1e-5
) -> NormGradientOp:
    """The gradients of a norm; rows of x lie ``pitch`` elements apart where it is given."""
    x = tensor(*shape, dtype=dtype, strides=(pitch, 1) if pitch else None)
    return NormGradientOp(
        kind=RowKind.RMS_NORM if rms else RowKind.LAYER_NORM,
        grad=tensor(*shape, dtype=dtype),
        x=x,
        weight=tensor(shape[-1], dtype=dtype) if weighted else None,
        eps=eps,
    )


def norm_gradient_cases() -> tuple[Case, ...]:
    """Parts that rows do not fill, rows that no group fills, tails of columns."""
    return (
        Case.of("norm_gradient", ID, norm_gradient(37, 90), rows=8, prefetch=1, fold=48),
        Case.of("norm_gradient_plain", ID, norm_gradient(2, 9, 70, weighted=False), rows=7, together=2),
        Case.of("norm_gradient_far", ID, norm_gradient(21, 128), rows=9, streaming=1, fixed=1),
        Case.of("norm_gradient_rms", ID, norm_gradient(19, 33, rms=True, pitch=40), rows=16, prefetch=1),
        Case.of("norm_gradient_f64", ID, norm_gradient(11, 45, dtype=F64), rows=4),
        Case.of("norm_gradient_bf16", ID, norm_gradient(18, 50, dtype=BF16), rows=5),
        Case.of("norm_gradient_one_row", ID, norm_gradient(1, 64)),
        Case.of("norm_gradient_rms_bf16", ID, norm_gradient(30, dtype=BF16, rms=True, weighted=False)),
    )


def norm_gradient_golden() -> tuple[Case, ...]:
    """What a user's kernel looks like."""
    return (Case.of(ID, ID, norm_gradient(512, 768)),)
