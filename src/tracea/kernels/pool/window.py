"""Pooling by windows of one size and distance, which are numbers of the text, cut off at the image."""

from __future__ import annotations

import math
from dataclasses import replace

from tracea.core.ops.pool2d import Pool2dOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidOp
from tracea.kernels.pool.tile import (
    REQUIREMENTS,
    H,
    P,
    Q,
    Span,
    W,
    channels_last_types,
    default_schedule,
    pool_kernel,
    pool_space,
)
from tracea.kernels.requirements import condition
from tracea.kernels.variant import Variant
from tracea.semantic.index import TRUE, Index, Predicate, maximum, minimum
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.target import Target

__all__ = ["WINDOW", "build_window", "pool_types"]


def pool_types(op: Pool2dOp, like: Pool2dOp | None = None) -> dict[str, TensorType]:
    """Return the types of the buffers, channels last: (images, rows, columns, channels) in any strides.

    Raises:
        InvalidOp: the windows are others than those of ``like``, the op that the kernel is built for.
    """
    if like is not None and _fixed(op) != _fixed(like):
        raise InvalidOp(
            field="pool2d", got=_fixed(op), expected=_fixed(like), remedy="build the kernel for this window"
        )
    return channels_last_types(op)


def _fixed(op: Pool2dOp) -> tuple[object, ...]:
    return (op.kind, op.kernel, op.stride, op.padding, op.count_padding)


def build_window(op: Pool2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of a pooling."""

    def span(axis: int, place: Index) -> Span:
        size, begin = (H, W)[axis], place * op.stride[axis] - op.padding[axis]
        first, end = maximum(begin, 0), minimum(begin + op.kernel[axis], size)
        if op.count_padding:
            return Span(first, end, minimum(begin + op.kernel[axis], size + op.padding[axis]) - begin)
        return Span(first, end, end - first)

    kernel = pool_kernel(op, WINDOW_ID, schedule, target, routine="pool_window", numbers=_attributes(op), span=span)
    return replace(kernel, assumptions=_begins_inside(op))


def _begins_inside(op: Pool2dOp) -> Predicate:
    """Return the guard that the last window has an element of the image."""
    (down, right), (above, left) = op.stride, op.padding
    return ((P - 1) * down + 1 <= H + above) & ((Q - 1) * right + 1 <= W + left) & TRUE


def _attributes(op: Pool2dOp) -> tuple[tuple[str, int], ...]:
    return tuple(
        (f"{name}_{axis}", value)
        for name, values in (("kernel", op.kernel), ("stride", op.stride), ("padding", op.padding))
        for axis, value in zip(("rows", "columns"), values, strict=True)
    )


_COUNT_FITS = condition(
    "a window that a float counts",
    lambda op, _: math.prod(op.kernel) <= 2**24,
    needed="at most 2^24 elements a window",
    found=lambda op: str(math.prod(op.kernel)),
    remedy="pool in two steps",
)

WINDOW_ID = "pool.window"
WINDOW = Variant(
    id=WINDOW_ID,
    op_type=Pool2dOp,
    backend="cpu",
    requirements=(*REQUIREMENTS, _COUNT_FITS),
    preferences=(),
    priority=50,
    build=build_window,
    space=pool_space,
    default_schedule=default_schedule,
)
