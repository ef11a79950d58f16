"""Pooling to a grid that covers the image: windows of several sizes, whose places the kernel divides for.

Extents and grids are arguments, so that one kernel serves all of them.
"""

from __future__ import annotations

from tracea.core.ops.adaptive_pool2d import AdaptivePool2dOp
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
from tracea.semantic.index import Index, Var
from tracea.semantic.nodes import Let
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.target import Target

__all__ = ["GRID", "build_grid", "grid_types"]


def grid_types(op: AdaptivePool2dOp, like: AdaptivePool2dOp | None = None) -> dict[str, TensorType]:
    """Return the types of the buffers, channels last: (images, rows, columns, channels) in any strides.

    Raises:
        InvalidOp: windows become something else than those of ``like``, the op that the kernel is built for.
    """
    if like is not None and op.kind is not like.kind:
        raise InvalidOp(
            field="adaptive_pool2d.kind", got=op.kind, expected=like.kind, remedy="build the kernel for this kind"
        )
    return channels_last_types(op)


_NAMES = (Var("above"), Var("rows")), (Var("left"), Var("columns"))


def build_grid(op: AdaptivePool2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of an adaptive pooling."""

    def span(axis: int, place: Index) -> Span:
        size, parts = ((H, P), (W, Q))[axis]
        first, length = _NAMES[axis]
        # The quotient rounded up is one more than that of one less, which is below the size and so known to fit.
        end = ((place + 1) * size - 1) // parts + 1
        lets = Let(var=first, value=place * size // parts), Let(var=length, value=end - first)
        return Span(first, first + length, length, lets)

    return pool_kernel(op, GRID_ID, schedule, target, routine="pool_grid", numbers=(), span=span)


_COUNT_FITS = condition(
    "windows that a float counts",
    lambda op, _: op.longest[0] * op.longest[1] <= 2**24,
    needed="at most 2^24 elements a window",
    found=lambda op: str(op.longest[0] * op.longest[1]),
    remedy="pool in two steps",
)

GRID_ID = "pool.grid"
GRID = Variant(
    id=GRID_ID,
    op_type=AdaptivePool2dOp,
    backend="cpu",
    requirements=(*REQUIREMENTS, _COUNT_FITS),
    preferences=(),
    priority=50,
    build=build_grid,
    space=pool_space,
    default_schedule=default_schedule,
)
