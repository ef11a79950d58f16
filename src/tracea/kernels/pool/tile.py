"""What pooling kernels share: a task takes a band of rows and a block of channels, a tile one pixel's window.

Channels next to each other are loaded whole. In other layouts a vector of them is gathered, element by element, or,
where pixels are neighbours and the window has many, is one of pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.ops.adaptive_pool2d import AdaptivePool2dOp
from tracea.core.ops.pool2d import Pool2dOp, PoolKind
from tracea.core.ops.rows import ReduceKind
from tracea.core.tensor_type import TensorType, static
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, tensor_buffer
from tracea.kernels.pointwise.tile import compute_type
from tracea.kernels.requirements import (
    CPU_VECTORS,
    element_types,
    non_negative_strides,
    sizes_in_range,
    strided_layouts,
)
from tracea.kernels.space import ScheduleSpace
from tracea.semantic.access import Intrinsic, as_given
from tracea.semantic.index import Index, Param, Var, ceil_div, minimum
from tracea.semantic.nodes import For, Let, Level, Parallel, ReduceTile, block
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import BufferRole, TileKernel
from tracea.targets.target import Target

__all__ = [
    "REQUIREMENTS",
    "H",
    "P",
    "Q",
    "Span",
    "W",
    "channels_last_types",
    "default_schedule",
    "pool_kernel",
    "pool_space",
]

# The largest values keep every product of them within 64 bits.
_IMAGES, _CHANNELS = Param("images", maximum=2**16), Param("c", minimum=1, maximum=2**24)
H, W = Param("h", minimum=1, maximum=2**15), Param("width", minimum=1, maximum=2**24)
P, Q = Param("p", minimum=1, maximum=2**15), Param("q", minimum=1, maximum=2**24)
_FLOATS: Final = (DType.F32, DType.F64, DType.F16, DType.BF16)
_TASK_BYTES: Final = 1 << 18  # of the image, a task: far more than handing it out costs
_BLOCK: Final = 512  # channels of a block where rows are too few for all cores

Pooling: TypeAlias = Pool2dOp | AdaptivePool2dOp


class Span(NamedTuple):
    """Where a window begins and ends along an axis of the image, and the length that a mean counts."""

    first: Index
    end: Index
    counted: Index
    lets: tuple[Let, ...] = ()  # what the three are said by


def channels_last_types(op: Pooling) -> dict[str, TensorType]:
    """Return the types of the buffers, channels last: (images, rows, columns, channels) in any strides."""
    return {"x0": op.x.permuted((0, 2, 3, 1)), "y": op.infer().permuted((0, 2, 3, 1))}


def pool_kernel(
    op: Pooling,
    variant: str,
    schedule: Schedule,
    target: Target,
    *,
    routine: str,
    numbers: tuple[tuple[str, int], ...],
    span: Callable[[int, Index], Span],
) -> TileKernel:
    """Return the kernel of a pooling whose window of a place along rows (0) or columns (1) is ``span(axis, place)``.

    ``numbers`` are the routine's attributes, from which the proofs compute the same window.
    """
    schedule.check_range(1, "rows", "channels")
    rows, channels = schedule.integer("rows"), schedule.integer("channels")
    types = channels_last_types(op)
    x_sizes, y_sizes = (_IMAGES, H, W, _CHANNELS), (_IMAGES, P, Q, _CHANNELS)
    x = tensor_buffer("x0", types["x0"], x_sizes, types["x0"].shape, BufferRole.INPUT)
    y = tensor_buffer("y", types["y"], y_sizes, types["y"].shape, BufferRole.OUTPUT)
    task, image, top, band = Var("task"), Var("image"), Var("top"), Var("band")
    first, wide, line, pixel = Var("first"), Var("wide"), Var("line"), Var("pixel")
    bands, blocks = ceil_div(P, rows), ceil_div(_CHANNELS, channels)
    lets = (
        Let(var=image, value=task // (bands * blocks)),
        Let(var=top, value=task // blocks % bands * rows),
        Let(var=band, value=minimum(rows, P - top)),
        Let(var=first, value=task % blocks * channels),
        Let(var=wide, value=minimum(channels, _CHANNELS - first)),
    )
    down, right = span(0, top + line), span(1, pixel)
    region = x.region(
        (image, down.first, right.first, first), (1, down.end - down.first, right.end - right.first, wide)
    )
    tile = ReduceTile(
        kind=ReduceKind.MAX if op.kind is PoolKind.MAX else ReduceKind.MEAN,
        intrinsic=Intrinsic(
            name=routine,
            meaning=as_given,
            source="emitters/cpu/include/tracea/pool.h",
            attributes=(("compute", compute_type(op.x.dtype).value), *numbers),
        ),
        inputs=(region,),
        prologue=Input(0),
        shape=region.extent,
        axes=(1, 2),
        target=y.region((image, top + line, pixel, first), (1, 1, 1, wide)),
        count=down.counted * right.counted,
    )
    pixels = For(var=pixel, extent=Q, body=block(*right.lets, tile))
    lines = For(var=line, extent=band, body=block(*down.lets, pixels))
    body = block(
        Parallel(level=Level.TASK, var=task, extent=_IMAGES * bands * blocks, body=block(*lets, lines)),
    )
    buffers = (x, y)
    return TileKernel(
        name=kernel_name(op.key, variant, schedule, target),
        op=op,
        variant=variant,
        schedule=schedule,
        target=target.name,
        params=params_of(buffers),
        buffers=buffers,
        body=body,
    )


def default_schedule(op: Pooling, target: Target) -> Schedule:
    """Return bands of a quarter of a core's share, or blocks of channels where rows are too few for all cores."""
    images, channels, p, q = op.infer().static_shape
    row_bytes = q * channels * _read_a_pixel(op) * op.x.dtype.nbytes
    rows = max(1, min(_TASK_BYTES // max(1, row_bytes), -(-images * p // (4 * target.cores)), p))
    few = images * -(-p // rows) < 2 * target.cores and channels >= 2 * _BLOCK
    return Schedule(rows=rows, channels=_BLOCK if few else channels)


def _read_a_pixel(op: Pooling) -> int:
    """Return how many pixels of the image a pixel of the result takes that none before it read, about."""
    if isinstance(op, Pool2dOp):
        return op.stride[0] * op.stride[1]
    return op.longest[0] * op.longest[1]


def pool_space(op: Pooling, target: Target) -> ScheduleSpace:
    """Return bands and blocks about the default ones."""
    default = default_schedule(op, target)
    rows, channels, p = default.integer("rows"), default.integer("channels"), static(op.shape[2])
    return ScheduleSpace.enumerated(
        {
            "rows": tuple(dict.fromkeys((rows, 1, max(1, rows // 2), min(p, 4 * rows), p))),
            "channels": tuple(dict.fromkeys((channels, _BLOCK, static(op.shape[1])))),
        }
    )


def _sizes(op: Pooling) -> dict[Param, int]:
    images, channels, h, width = op.x.static_shape
    p, q = (static(dim) for dim in op.shape[2:])
    return dict(zip((_IMAGES, _CHANNELS, H, W, P, Q), (images, channels, h, width, p, q), strict=True))


REQUIREMENTS: Final = (
    CPU_VECTORS,
    element_types(_FLOATS),
    strided_layouts,
    non_negative_strides,
    sizes_in_range(_sizes),
)
