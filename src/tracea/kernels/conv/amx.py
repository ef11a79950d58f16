"""Convolution on matrix tiles: a task splits the rows that it reads into bf16 terms, and tiles read them there.

Three terms hold a f32, two a f16, one a bf16. The filters are in panels of terms: ``conv.amx`` packs them in each call,
``conv.amx_prepacked`` reads constants, 6 bytes an element of f32. See docs/adr/0004 for the arithmetic and
emitters/cpu/include/tracea/conv_amx.h for the routine.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Final

from tracea.core.dtype import DType
from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import TensorType, static
from tracea.kernels.conv.amx_bands import best_bands
from tracea.kernels.conv.blocking import rows_that_fit
from tracea.kernels.conv.operands import (
    BAND,
    FILTERS,
    FIRST,
    GROUP,
    IMAGE,
    TOP,
    C,
    ConvOperands,
    K,
    Q,
    R,
    S,
    conv_kernel,
    tap_of,
    window_of,
)
from tracea.kernels.conv.requirements import CONV_REQUIREMENTS, FLAT_RESULT, NEAR_WINDOWS
from tracea.kernels.gemm.amx import MATRIX_TILES, terms_hold
from tracea.kernels.gemm.blocking import round_up
from tracea.kernels.gemm.matrix_tiles import GRANULE, TILE, marks_of
from tracea.kernels.operands import scratch, vector_lanes
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import Const, Index, Predicate, Var, ceil_div, minimum
from tracea.semantic.intrinsics import terms_of, terms_window_product
from tracea.semantic.nodes import Barrier, For, Let, Level, MicroKernel, Pack, Parallel, block
from tracea.semantic.nodes_halo import Halo
from tracea.semantic.schedule import MOST_OF_TILE, Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = [
    "AMX",
    "AMX_PREPACKED",
    "amx_space_of",
    "band_numbers",
    "build_amx",
    "build_amx_pack",
    "build_amx_prepacked",
    "panel_width",
    "pixel_width",
]

_FILLED: Final = 0.45  # of granules: as much is always enough
# Cycles of a pixel, measured (benchmarks/NOTES.md): a granule's products, and splitting a block of its channels.
_GRANULE_CYCLES: Final = 12.5
_SPLIT_CYCLES: Final = 14.0
_SURELY: Final = 1.1  # of the cycles on tiles: vectors that take more are slower
_SPLIT_PAYS: Final = 64  # products of an element of the image, from which on tiles save more than its splitting costs


def build_amx(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the convolution of ``op`` that packs the filters, all of them, before it begins."""
    rows, filters = band_numbers(schedule)
    operands = ConvOperands.of(op, flat=True)
    panels = _panels(operands, "panels", BufferRole.SCRATCH)
    body = (_pack(operands, panels), Barrier(), _tasks(operands, panels, rows, filters))
    scratches = (panels, _halo(operands, rows))
    return operands.kernel(AMX_ID, schedule, target, scratches, body, assumptions=_wide_enough(operands))


def build_amx_prepacked(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the convolution of ``op`` whose filters are the result of :func:`build_amx_pack`."""
    rows, filters = band_numbers(schedule)
    panels = _panels(ConvOperands.of(op), "w", BufferRole.CONSTANT)
    operands = ConvOperands.of(op, w=panels, flat=True)
    body = (_tasks(operands, panels, rows, filters),)
    scratches = (_halo(operands, rows),)
    return operands.kernel(AMX_PREPACKED_ID, schedule, target, scratches, body, assumptions=_wide_enough(operands))


def build_amx_pack(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel that packs ``op``'s filters: buffers ``w`` and ``panels``."""
    operands = ConvOperands.of(op)
    panels = _panels(operands, "panels", BufferRole.OUTPUT)
    body = (_pack(operands, panels),)
    return conv_kernel(op, AMX_PACK_ID, schedule, target, buffers=(operands.w, panels), body=body)


def amx_panel_type(op: Conv2dOp, schedule: Schedule, target: Target) -> TensorType:
    """Return the type of the filters in panels of terms: whole granules of channels, each element 6 bytes."""
    del schedule, target
    filters, channels, r, s = op.w.static_shape
    panels, blocks = -(-filters // op.groups // TILE), -(-channels // GRANULE)
    return TensorType((op.groups, panels, blocks, r, s, GRANULE, panel_width(op)), DType.BF16)


def panel_width(op: Conv2dOp) -> int:
    """Return the elements of a step of a panel of filters."""
    terms = terms_of(op.x.dtype)
    return TILE * terms + marks_of(terms)


def pixel_width(op: Conv2dOp) -> int:
    """Return the elements of a pixel of the halo, for a block of channels."""
    return terms_of(op.x.dtype) * GRANULE + 1


def band_numbers(schedule: Schedule) -> tuple[int, int]:
    """Return a band's rows and a task's filters, whole tiles of them.

    Raises:
        InvalidSchedule: a value is missing or out of its range.
    """
    schedule.check_range(1, "rows", "kb", most=MOST_OF_TILE)
    return schedule.integer("rows"), round_up(schedule.integer("kb"), TILE)


def _panels(operands: ConvOperands, name: str, role: BufferRole) -> Buffer:
    blocks = ceil_div(C, GRANULE)
    return Buffer(
        name=name,
        dtype=DType.BF16,
        space=MemorySpace.TEAM if role is BufferRole.SCRATCH else MemorySpace.GLOBAL,
        shape=(operands.groups, ceil_div(K, TILE), blocks, R, S, Const(GRANULE), Const(panel_width(operands.op))),
        role=role,
    )


def _pack(operands: ConvOperands, panels: Buffer) -> Parallel:
    """Return the packing of all filters: a task is a panel, granule after granule."""
    task, group, first, wide = Var("pack_task"), Var("pack_group"), Var("pack_first"), Var("pack_wide")
    r, s, c, steps = Var("pack_r"), Var("pack_s"), Var("pack_c"), Var("pack_steps")
    count, grouped = ceil_div(K, TILE), operands.groups != Const(1)
    terms, width = terms_of(operands.op.x.dtype), panel_width(operands.op)
    lets = (
        Let(var=group, value=task // count if grouped else Const(0)),
        Let(var=first, value=(task % count if grouped else task) * TILE),
        Let(var=wide, value=minimum(TILE, K - first)),
    )
    granule = Pack(
        source=operands.w.region((group, *tap_of(operands.op, r, s), c, first), (1, 1, 1, steps, wide)),
        target=panels.region((group, first // TILE, c // GRANULE, r, s, 0, 0), (1, 1, 1, 1, 1, GRANULE, width)),
        panel=TILE,
        axis=1,
        terms=terms,
        marks=marks_of(terms),
        granule=GRANULE,
    )
    taps = For(var=r, extent=R, body=block(For(var=s, extent=S, body=block(granule))))
    blocks = For(var=c, extent=C, step=Const(GRANULE), length=steps, body=block(taps))
    return Parallel(level=Level.TASK, var=task, extent=operands.groups * count, body=block(*lets, blocks))


def _halo(operands: ConvOperands, rows: int) -> Buffer:
    """Return the scratch of a band: whole steps of windows, and a tile more, which the last one reads and drops."""
    down, right = operands.op.stride
    high, _ = window_of(operands.op, rows, Q)
    height = (ceil_div(high, down) + _spare_rows(operands.op)) * down
    wide = _pitch(operands) * right
    return scratch("halo", DType.BF16, MemorySpace.THREAD, ceil_div(C, GRANULE), height, wide, pixel_width(operands.op))


def _pitch(operands: ConvOperands) -> Index:
    """Return the pixels from a row of a phase of the halo to the next."""
    return ceil_div(window_of(operands.op, 1, Q)[1], operands.op.stride[1])


def _spare_rows(op: Conv2dOp) -> int:
    wide, right = (static(op.w.shape[3]) - 1) * op.dilation[1] + 1, op.stride[1]
    return -(-TILE // (static(op.shape[3]) - 1 + -(-wide // right)))


def _wide_enough(operands: ConvOperands) -> Predicate:
    """Return the guard that the spare rows, as many as the kernel's own op needs, hold a tile."""
    return _pitch(operands) * _spare_rows(operands.op) >= TILE


def _tasks(operands: ConvOperands, panels: Buffer, rows: int, filters: int) -> Parallel:
    op, halo = operands.op, _halo(operands, rows)
    (down, _), (above, left) = op.stride, op.padding
    high, wide = window_of(op, BAND, Q)
    blocks = ceil_div(C, GRANULE)
    window = halo.region((0, 0, 0, 0), (blocks, high, wide, pixel_width(op)))
    split = Halo(
        source=operands.x.region((IMAGE, GROUP, TOP * down - above, -left, 0), (1, 1, high, wide, C)),
        target=window,
        lanes=GRANULE,
        terms=terms_of(op.x.dtype),
        steps=op.stride,
        taps=(R, S),
        gaps=op.dilation,
    )
    place, extents = (TOP, Const(0), FIRST), (BAND, Q, FILTERS)
    product = MicroKernel(
        intrinsic=amx_conv(op),
        a=window,
        b=panels.region(
            (GROUP, FIRST // TILE, 0, 0, 0, 0, 0), (1, ceil_div(FILTERS, TILE), blocks, R, S, GRANULE, panel_width(op))
        ),
        c=operands.at(operands.y, *place, extents),
        epilogue=operands.applied(*place, extents),
    )
    return operands.tasks(rows, filters, (split, product))


def amx_conv(op: Conv2dOp) -> Intrinsic:
    """Return the routine of a band of results on matrix tiles."""
    terms = terms_of(op.x.dtype)
    marks = marks_of(terms)
    return Intrinsic(
        name="amx_conv",
        meaning=partial(terms_window_product, terms=terms, marks=marks, stride=op.stride, dilation=op.dilation),
        source="emitters/cpu/include/tracea/conv_amx.h; TDPBF16PS: Intel 64 and IA-32 SDM vol. 2",
        attributes=(
            ("window", 1),
            ("terms", terms),
            ("marks", marks),
            ("tile", TILE),
            ("lanes", GRANULE),
            ("spare_rows", _spare_rows(op)),
            ("stride_rows", op.stride[0]),
            ("stride_columns", op.stride[1]),
            ("dilation_rows", op.dilation[0]),
            ("dilation_columns", op.dilation[1]),
        ),
    )


def amx_default(op: Conv2dOp, target: Target) -> Schedule:
    """Return the schedule that needs no tuning."""
    filters, channels = static(op.w.shape[0]) // op.groups, static(op.w.shape[1])
    columns = (static(op.shape[3]) - 1) * op.stride[1] + (static(op.w.shape[3]) - 1) * op.dilation[1] + 1
    # Of a halo whose windows move by more than their taps reach only the phases that some tap reads are ever touched.
    read = _phases_read(op, 0) * _phases_read(op, 1)
    if _is_tall(op):
        # Windows are higher than the result: a band of one row reads most of the image already. Measured, two cores,
        # 3 rows of 192 by 64 filters: bands of one and two rows 1285 and 1065 us, blocks of 32 filters 716.
        return Schedule(rows=static(op.shape[2]), kb=round_up(-(-filters // max(1, target.cores // op.groups)), TILE))
    row_bytes = columns * -(-channels // GRANULE) * 2 * pixel_width(op) * read // (op.stride[0] * op.stride[1])
    filter_bytes = 2 * terms_of(op.x.dtype) * op.taps
    most = rows_that_fit(op, target, row_bytes, filters=filters, filter_bytes=filter_bytes)
    rows, kb = best_bands(op, target, most=min(most, static(op.shape[2])), filter_bytes=filter_bytes * filters)
    return Schedule(rows=rows, kb=kb)


def _is_tall(op: Conv2dOp) -> bool:
    """Whether windows are higher than the result, so that every band reads most of the image."""
    return (static(op.w.shape[2]) - 1) * op.dilation[0] + 1 > static(op.shape[2]) * op.stride[0]


def _phases_read(op: Conv2dOp, axis: int) -> int:
    return len({tap * op.dilation[axis] % op.stride[axis] for tap in range(static(op.w.shape[2 + axis]))})


def amx_space(op: Conv2dOp, target: Target) -> ScheduleSpace:
    """Return the schedules worth measuring, the default among them."""
    return amx_space_of(op, amx_default(op, target))


def amx_space_of(op: Conv2dOp, default: Schedule) -> ScheduleSpace:
    """Return the schedules of a band on matrix tiles that are worth measuring beside ``default``."""
    height, filters = static(op.shape[2]), round_up(static(op.w.shape[0]) // op.groups, TILE)
    chosen: list[dict[str, Value]] = [dict(default)]
    for rows in dict.fromkeys((default.integer("rows"), height, *(-(-height // n) for n in (2, 3, 4, 6, 8, 16)))):
        for kb in dict.fromkeys((default.integer("kb"), filters, *(round_up(-(-filters // n), TILE) for n in (2, 4)))):
            chosen.append({"rows": rows, "kb": kb})
    return ScheduleSpace.listed(chosen)


def _by_shape(op: Conv2dOp, target: Target) -> float:
    if target.isa == "plain":
        return -200.0  # arrays in place of registers: there to be read by sanitizers
    filters, channels = static(op.w.shape[0]) // op.groups, static(op.w.shape[1])
    # A granule is 32 channels by 32 filters: what it is filled up with is multiplied too.
    whole = channels / round_up(channels, GRANULE)
    filled = whole * (filters / round_up(filters, TILE))
    # Vectors that read the image where it lies copy nothing; tiles split each element first, whatever it is used for.
    # Below a window that is higher than the result each core splits all of the image, for its own filters.
    if op.x.is_static and (ConvOperands.of(op).reads_image or _is_tall(op)) and whole * filters < _SPLIT_PAYS:
        return -60.0
    if filled >= _FILLED:
        return 40.0
    # A tap of a result: vectors multiply whole vectors of filters by every channel, tiles whole granules.
    vectors = channels * -(-filters // vector_lanes(target, op.accumulator)) / target.fma_per_cycle
    each = op.stride[0] * op.stride[1] / math.prod(op.w.static_shape[2:])  # pixels that are split for it
    tiles = -(-channels // GRANULE) * (_GRANULE_CYCLES * -(-filters // TILE) + _SPLIT_CYCLES * each)
    return 40.0 if vectors >= _SURELY * tiles else -60.0


_SHAPE = Preference(name="whole granules", score=_by_shape)
_REQUIREMENTS = (
    *CONV_REQUIREMENTS,
    NEAR_WINDOWS,
    MATRIX_TILES,
    terms_hold("x", "w", remedy="use conv.packed"),
    FLAT_RESULT,
)

AMX_ID = "conv.amx"
AMX_PREPACKED_ID = "conv.amx_prepacked"
AMX_PACK_ID = "conv.amx_pack_w"
AMX = Variant(
    id=AMX_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=(_SHAPE,),
    priority=52,
    build=build_amx,
    space=amx_space,
    default_schedule=amx_default,
)
AMX_PREPACKED = Variant(
    id=AMX_PREPACKED_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=(_SHAPE,),
    priority=62,
    build=build_amx_prepacked,
    space=amx_space,
    default_schedule=amx_default,
    constant_operand=1,
    build_pack=build_amx_pack,
    pack_type=amx_panel_type,
)
