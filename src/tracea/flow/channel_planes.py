"""Gradients of group and batch norms of images in rows as one op over planes, each of which lies along memory."""

from __future__ import annotations

import math
from typing import Final

from tracea.core.op import NormGradientOp, RowKind
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.doctor import host
from tracea.kernels.registry import candidates
from tracea.targets.target import for_threads

__all__ = ["norm_of_planes"]

_SHORT: Final = 32  # elements of a plane: below, what a plane costs beside its vectors is more than what a pass saves


def norm_of_planes(
    grad: TensorType, x: TensorType, weight: TensorType | None, *, groups: int, eps: float, threads: int
) -> NormGradientOp | None:
    """Return the op of the gradients of a group norm, or of a batch norm for 0 groups; None for other layouts.

    Its operands are views of grad, x and weight, its gradients lie row-major in the order of axes of x.

    Shapes: grad and x are (n, c, ...), weight (c,).
    """
    planes = [_planes(type_, groups) for type_ in (grad, x)]
    if None in planes:
        return None
    of_grad, of_x = (type_ for type_ in planes if type_ is not None)
    parameter = (*of_x.static_shape[1:3], 1) if groups else (x.static_shape[1], 1)
    op = NormGradientOp(
        kind=RowKind.LAYER_NORM,
        grad=of_grad,
        x=of_x,
        weight=None if weight is None else _parameters(weight, parameter),
        eps=eps,
        axes=(2, 3) if groups else (0, 2),
        parameter=parameter,
    )
    return op if candidates(op, for_threads(host(), threads)) else None


def _planes(type_: TensorType, groups: int) -> TensorType | None:
    """Return (n, c, ...) as (n, groups, c / groups, pixels), or (n, c, pixels); None where that is no view in order."""
    batch, channels, *sides = type_.static_shape
    of_image, of_channel, *steps = type_.strides
    pixels, step = math.prod(sides), 1
    for extent, own in zip(reversed(sides), reversed(steps), strict=True):
        if extent > 1 and own != step:
            return None
        step *= extent
    in_order = of_channel >= pixels and (batch == 1 or of_image >= channels * of_channel)
    if pixels < _SHORT or not in_order:
        return None
    if not groups:
        return TensorType((batch, channels, pixels), type_.dtype, StridedLayout((of_image, of_channel, 1)))
    each = channels // groups
    strides = (of_image, each * of_channel, of_channel, 1)
    return TensorType((batch, groups, each, pixels), type_.dtype, StridedLayout(strides))


def _parameters(weight: TensorType, shape: tuple[int, ...]) -> TensorType:
    (step,) = weight.strides
    strides = (shape[1] * step, step, 1) if len(shape) > 2 else (step, 1)
    return TensorType(shape, weight.dtype, StridedLayout(strides))
