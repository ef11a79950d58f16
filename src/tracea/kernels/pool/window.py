"""Pooling on vectors of channels: a task takes a band of rows and a block of channels, a tile one pixel's window.

Channels next to each other are loaded whole; in other layouts a vector is gathered, element by element.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.ops.pool2d import Pool2dOp, PoolKind
from tracea.core.ops.rows import ReduceKind
from tracea.core.tensor_type import TensorType, static
from tracea.errors import InvalidOp
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, tensor_buffer
from tracea.kernels.pointwise.tile import compute_type
from tracea.kernels.requirements import (
    CPU_VECTORS,
    condition,
    element_types,
    non_negative_strides,
    sizes_in_range,
    strided_layouts,
)
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic, as_given
from tracea.semantic.index import TRUE, Index, Param, Predicate, Var, ceil_div, maximum, minimum
from tracea.semantic.nodes import For, Let, Level, Parallel, ReduceTile, block
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import BufferRole, TileKernel
from tracea.targets.target import Target

__all__ = ["WINDOW", "build_window", "pool_types"]

# The largest values keep every product of them within 64 bits.
_IMAGES, _CHANNELS = Param("images", maximum=2**16), Param("c", minimum=1, maximum=2**24)
_H, _W = Param("h", minimum=1, maximum=2**15), Param("width", minimum=1, maximum=2**24)
_P, _Q = Param("p", minimum=1, maximum=2**15), Param("q", minimum=1, maximum=2**24)
_FLOATS: Final = (DType.F32, DType.F64, DType.F16, DType.BF16)
_TASK_BYTES: Final = 1 << 18  # of the image, a task: far more than handing it out costs
_BLOCK: Final = 512  # channels of a block where rows are too few for all cores


def pool_types(op: Pool2dOp, like: Pool2dOp | None = None) -> dict[str, TensorType]:
    """Return the types of the buffers, channels last: (images, rows, columns, channels) in any strides.

    Raises:
        InvalidOp: the windows are others than those of ``like``, the op that the kernel is built for.
    """
    if like is not None and _fixed(op) != _fixed(like):
        raise InvalidOp(
            field="pool2d", got=_fixed(op), expected=_fixed(like), remedy="build the kernel for this window"
        )
    return {"x0": op.x.permuted((0, 2, 3, 1)), "y": op.infer().permuted((0, 2, 3, 1))}


def _fixed(op: Pool2dOp) -> tuple[object, ...]:
    return (op.kind, op.kernel, op.stride, op.padding, op.count_padding)


def build_window(op: Pool2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of a pooling."""
    schedule.check_range(1, "rows", "channels")
    rows, channels = schedule.integer("rows"), schedule.integer("channels")
    types = pool_types(op)
    x_sizes, y_sizes = (_IMAGES, _H, _W, _CHANNELS), (_IMAGES, _P, _Q, _CHANNELS)
    x = tensor_buffer("x0", types["x0"], x_sizes, types["x0"].shape, BufferRole.INPUT)
    y = tensor_buffer("y", types["y"], y_sizes, types["y"].shape, BufferRole.OUTPUT)
    task, image, top, band = Var("task"), Var("image"), Var("top"), Var("band")
    first, wide, line, pixel = Var("first"), Var("wide"), Var("line"), Var("pixel")
    bands, blocks = ceil_div(_P, rows), ceil_div(_CHANNELS, channels)
    lets = (
        Let(var=image, value=task // (bands * blocks)),
        Let(var=top, value=task // blocks % bands * rows),
        Let(var=band, value=minimum(rows, _P - top)),
        Let(var=first, value=task % blocks * channels),
        Let(var=wide, value=minimum(channels, _CHANNELS - first)),
    )
    (r0, r1, counted_rows), (q0, q1, counted_columns) = (
        _window(op, axis, place, size) for axis, place, size in ((0, top + line, _H), (1, pixel, _W))
    )
    window = (1, r1 - r0, q1 - q0, wide)
    tile = ReduceTile(
        kind=ReduceKind.MAX if op.kind is PoolKind.MAX else ReduceKind.MEAN,
        intrinsic=Intrinsic(
            name="pool_window",
            meaning=as_given,
            source="emitters/cpu/include/tracea/pool.h",
            attributes=(("compute", compute_type(op.x.dtype).value), *_attributes(op)),
        ),
        inputs=(x.region((image, r0, q0, first), window),),
        prologue=Input(0),
        shape=x.region((image, r0, q0, first), window).extent,
        axes=(1, 2),
        target=y.region((image, top + line, pixel, first), (1, 1, 1, wide)),
        count=counted_rows * counted_columns,
    )
    pixels = For(var=pixel, extent=_Q, body=block(tile))
    lines = For(var=line, extent=band, body=block(pixels))
    body = block(
        Parallel(level=Level.TASK, var=task, extent=_IMAGES * bands * blocks, body=block(*lets, lines)),
    )
    buffers = (x, y)
    kernel = TileKernel(
        name=kernel_name(op.key, WINDOW_ID, schedule, target),
        op=op,
        variant=WINDOW_ID,
        schedule=schedule,
        target=target.name,
        params=params_of(buffers),
        buffers=buffers,
        body=body,
    )
    return replace(kernel, assumptions=_begins_inside(op))


def _window(op: Pool2dOp, axis: int, place: Index, size: Index) -> tuple[Index, Index, Index]:
    """Return where the window of a place begins and ends in the image, and the length that a mean counts."""
    begin = place * op.stride[axis] - op.padding[axis]
    inside = maximum(begin, 0), minimum(begin + op.kernel[axis], size)
    if op.count_padding:
        return *inside, minimum(begin + op.kernel[axis], size + op.padding[axis]) - begin
    return *inside, inside[1] - inside[0]


def _begins_inside(op: Pool2dOp) -> Predicate:
    """Return the guard that the last window has an element of the image."""
    (down, right), (above, left) = op.stride, op.padding
    return ((_P - 1) * down + 1 <= _H + above) & ((_Q - 1) * right + 1 <= _W + left) & TRUE


def _attributes(op: Pool2dOp) -> tuple[tuple[str, int], ...]:
    return tuple(
        (f"{name}_{axis}", value)
        for name, values in (("kernel", op.kernel), ("stride", op.stride), ("padding", op.padding))
        for axis, value in zip(("rows", "columns"), values, strict=True)
    )


def _default(op: Pool2dOp, target: Target) -> Schedule:
    images, channels, p, q = op.infer().static_shape
    row_bytes = q * channels * op.stride[0] * op.stride[1] * op.x.dtype.nbytes
    rows = max(1, min(_TASK_BYTES // max(1, row_bytes), -(-images * p // (4 * target.cores)), p))
    few = images * -(-p // rows) < 2 * target.cores and channels >= 2 * _BLOCK
    return Schedule(rows=rows, channels=_BLOCK if few else channels)


def _space(op: Pool2dOp, target: Target) -> ScheduleSpace:
    default = _default(op, target)
    rows, channels, p = default.integer("rows"), default.integer("channels"), static(op.shape[2])
    return ScheduleSpace.enumerated(
        {
            "rows": tuple(dict.fromkeys((rows, 1, max(1, rows // 2), min(p, 4 * rows), p))),
            "channels": tuple(dict.fromkeys((channels, _BLOCK, static(op.shape[1])))),
        }
    )


def _sizes(op: Pool2dOp) -> dict[Param, int]:
    images, channels, h, width = op.x.static_shape
    p, q = (static(dim) for dim in op.shape[2:])
    return dict(zip((_IMAGES, _CHANNELS, _H, _W, _P, _Q), (images, channels, h, width, p, q), strict=True))


_SIZES = sizes_in_range(_sizes)
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
    requirements=(
        CPU_VECTORS,
        element_types(_FLOATS),
        strided_layouts,
        non_negative_strides,
        _SIZES,
        _COUNT_FITS,
    ),
    preferences=(),
    priority=50,
    build=build_window,
    space=_space,
    default_schedule=_default,
)
