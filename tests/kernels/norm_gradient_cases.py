"""The kernels of norms' gradients that the tests compile: with and without weight, types, strides, schedules."""

from __future__ import annotations

from tests.kernels.conformance import Case
from tests.kernels.slab_cases import BF16, F32, F64, tensor

from tracea.core.dtype import DType
from tracea.core.op import NormGradientOp, RowKind

ID, PLANES_ID = "rows.norm_gradient", "rows.plane_gradient"


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


def plane_gradient(
    *shape: int, dtype: DType = F32, weighted: bool = True, pitch: int = 0, eps: float = 1e-5
) -> NormGradientOp:
    """The gradients of a group norm (n, groups, channels, pixels) or a batch norm (n, channels, pixels).

    Planes of x lie ``pitch`` elements apart where it is given.
    """
    steps = [1]
    for extent in reversed((*shape[1:-1], pitch or shape[-1])):
        steps.insert(0, steps[0] * extent)
    of_groups = len(shape) == 4
    parameter = (*shape[1:3], 1) if of_groups else (shape[1], 1)
    return NormGradientOp(
        kind=RowKind.LAYER_NORM,
        grad=tensor(*shape, dtype=dtype),
        x=tensor(*shape, dtype=dtype, strides=tuple(steps) if pitch else None),
        weight=tensor(*parameter, dtype=dtype) if weighted else None,
        eps=eps,
        axes=(2, 3) if of_groups else (0, 2),
        parameter=parameter,
    )


def plane_gradient_cases() -> tuple[Case, ...]:
    """Groups of one plane and of several, tails of planes, one weight a plane and a group, images that are summed."""
    return (
        Case.of("plane_gradient", PLANES_ID, plane_gradient(3, 4, 5, 90), fold=16),
        Case.of("plane_gradient_plain", PLANES_ID, plane_gradient(2, 3, 2, 49, weighted=False)),
        Case.of("plane_gradient_far", PLANES_ID, plane_gradient(1, 2, 3, 128, pitch=130), streaming=1, fixed=1),
        Case.of("plane_gradient_f64", PLANES_ID, plane_gradient(2, 2, 3, 37, dtype=F64)),
        Case.of("plane_gradient_bf16", PLANES_ID, plane_gradient(2, 3, 4, 50, dtype=BF16)),
        Case.of("plane_gradient_each", PLANES_ID, plane_gradient(4, 6, 1, 30)),
        Case.of("plane_gradient_pixel", PLANES_ID, plane_gradient(5, 2, 17, 1)),
        Case.of("plane_gradient_batch", PLANES_ID, plane_gradient(4, 11, 70, pitch=72), fold=8),
        Case.of("plane_gradient_batch_plain", PLANES_ID, plane_gradient(3, 5, 33, weighted=False)),
        Case.of("plane_gradient_batch_bf16", PLANES_ID, plane_gradient(2, 3, 40, dtype=BF16)),
        Case.of("plane_gradient_batch_one", PLANES_ID, plane_gradient(1, 3, 64)),
    )


def norm_gradient_golden() -> tuple[Case, ...]:
    """What a user's kernels look like."""
    return (
        Case.of(ID, ID, norm_gradient(512, 768)),
        Case.of(PLANES_ID, PLANES_ID, plane_gradient(4, 8, 4, 112 * 112)),
    )
