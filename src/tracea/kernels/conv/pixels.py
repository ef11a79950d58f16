"""Convolution on vectors along pixels: for images in rows, where vectors of filters would not be full.

A task copies the rows that it reads, padded with zeros, channel after channel with columns next to each other: one axis
of pixels in which a tap is an offset. (Of one tap without padding the image itself is that.) Tiles of filters by
vectors of pixels walk it over the ends of rows, and apply the epilogue themselves; the few columns between two rows are
computed in vain. ``conv.pixels`` packs the filters in each call, ``conv.pixels_prepacked`` reads constants that were
packed once. docs/adr/0007 says where they are taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import TensorType, static
from tracea.kernels.conv.blocking import band_of, even_bands
from tracea.kernels.conv.operands import (
    BAND,
    FILTERS,
    FIRST,
    GROUP,
    IMAGE,
    TOP,
    C,
    ConvOperands,
    H,
    P,
    Q,
    R,
    S,
    W,
    conv_kernel,
    conv_types,
    flattened,
    is_flat,
    window_of,
    window_steps,
)
from tracea.kernels.conv.packed import filter_panels, pack_filters
from tracea.kernels.conv.requirements import CONV_REQUIREMENTS, FLAT_RESULT
from tracea.kernels.gemm.blocking import check_registers, equal_blocks, fits_registers, round_up
from tracea.kernels.operands import vector_lanes
from tracea.kernels.requirements import condition
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import TRUE, Const, Predicate, Var
from tracea.semantic.intrinsics import window_product
from tracea.semantic.nodes import Barrier, CopyTile, For, MicroKernel, Node, Parallel, block
from tracea.semantic.schedule import MOST_OF_TILE, Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["PIXELS", "PIXELS_PREPACKED", "build_pixels", "build_pixels_pack", "build_pixels_prepacked"]

_MOST_GAP: Final = 1024
_LINE: Final = 16  # elements: channels an odd number of lines apart fall on all sets of the first cache
_TILES_OF_A_BAND: Final = 12
# Cycles that a step waits where it is the first to read its pixels, for a channel far from the last one: fewer, longer
# runs of them are better (144 and 96 to 24 1x1 56² on a Xeon without its tiles: benchmarks/NOTES.md, 2026-11-27).
_FIRST_READ: Final = 5.0
# Measured on a Zen 3, for AVX-512 on a Zen 5 and by the prototype benchmarks/pixels.cpp on a Zen 4 (docs/adr/0007).
_LONG_ROWS: Final = 48  # pixels
_USEFUL: Final = 0.9  # of the columns that are computed; and of that, what vectors of filters may fill by AVX-512
_SHORT_SUM: Final = 150  # products of a result: beyond, the first cache serves vectors of filters better
_EMPTY_LANES: Final = 450  # the same where filters leave lanes of a vector empty

# Tiles of filters by vectors of pixels that fill the registers, by instruction set.
_TILES: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    "avx512": ((13, 2), (9, 3), (7, 4)),
    "avx2": ((4, 3), (6, 2)),
    "neon": ((9, 3), (13, 2), (7, 4)),
    "plain": ((6, 2),),
}

_CHANNEL, _WIDE = Var("filter"), Var("wide")


@dataclass(frozen=True, slots=True, kw_only=True)
class PixelBlocking:
    """The schedule in numbers.

    Units: ``nr`` filters; ``nv`` vectors of pixels; ``tail`` filters of the last panel, 0 where it is full; ``rows`` of
    results in a band; ``kb`` filters of a task, whole panels; ``gap`` elements behind each channel of the halo.
    """

    nr: int
    nv: int
    tail: int
    rows: int
    kb: int
    gap: int

    @classmethod
    def of(cls, schedule: Schedule, target: Target) -> PixelBlocking:
        """Read and check a schedule.

        Raises:
            InvalidSchedule: a value is missing or out of its range, or the tile does not fit the registers.
        """
        schedule.check_range(1, "nr", "nv", "rows", "kb", most=MOST_OF_TILE)
        schedule.check_range(0, "gap", most=_MOST_GAP)
        check_registers(schedule, target, broadcast="nr")
        nr = schedule.integer("nr")
        schedule.check_range(0, "tail", most=nr - 1)
        return cls(
            nr=nr,
            nv=schedule.integer("nv"),
            tail=schedule.integer("tail"),
            rows=schedule.integer("rows"),
            kb=round_up(schedule.integer("kb"), nr),
            gap=schedule.integer("gap"),
        )

    @property
    def counts(self) -> tuple[int, ...]:
        """Filter counts with code of their own, descending."""
        return (self.nr, self.tail) if self.tail else (self.nr,)


def build_pixels(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the convolution of ``op`` that packs the filters, all of them, before it begins."""
    blocking, operands = PixelBlocking.of(schedule, target), _operands(op)
    panels = filter_panels(operands, blocking.nr, "panels", BufferRole.SCRATCH)
    body = (pack_filters(operands, panels, blocking.nr), Barrier(), _tasks(operands, blocking, panels))
    scratches = (panels, *_halos(operands, blocking))
    return operands.kernel(PIXELS_ID, schedule, target, scratches, body, assumptions=_inside(operands))


def build_pixels_prepacked(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the convolution of ``op`` whose filters are the result of :func:`build_pixels_pack`."""
    blocking = PixelBlocking.of(schedule, target)
    panels = filter_panels(ConvOperands.of(op), blocking.nr, "w", BufferRole.CONSTANT)
    operands = _operands(op, w=panels)
    body = (_tasks(operands, blocking, panels),)
    scratches = _halos(operands, blocking)
    return operands.kernel(PIXELS_PREPACKED_ID, schedule, target, scratches, body, assumptions=_inside(operands))


def build_pixels_pack(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel that packs ``op``'s filters: buffers ``w`` and ``panels``."""
    blocking, operands = PixelBlocking.of(schedule, target), ConvOperands.of(op)
    panels = filter_panels(operands, blocking.nr, "panels", BufferRole.OUTPUT)
    body = (pack_filters(operands, panels, blocking.nr),)
    return conv_kernel(op, PIXELS_PACK_ID, schedule, target, buffers=(operands.w, panels), body=body)


def pixel_panel_type(op: Conv2dOp, schedule: Schedule, target: Target) -> TensorType:
    """Return the type of the filters in panels: (groups, panels, r, s, c, nr), in the accumulator's element type."""
    del target
    filters, channels, r, s = op.w.static_shape
    nr = schedule.integer("nr")
    return TensorType((op.groups, -(-filters // op.groups // nr), r, s, channels, nr), op.accumulator)


def _operands(op: Conv2dOp, w: Buffer | None = None) -> ConvOperands:
    """Return the operands, pixels of the result along one axis, and those of an image that tiles read themselves."""
    operands = ConvOperands.of(op, w=w, flat=True)
    return replace(operands, x=flattened(operands.x)) if _reads_image(op) else operands


def _reads_image(op: Conv2dOp) -> bool:
    """Whether the image is the halo: of one tap without padding, its rows following each other, in the sums' type."""
    plain = op.w.static_shape[2:] == (1, 1) and op.padding == (0, 0) and op.size is None
    return plain and op.x.dtype is op.accumulator and is_flat(conv_types(op)["x"])


def _inside(operands: ConvOperands) -> Predicate:
    """Return the guard that the image has every pixel that a tile reads of it."""
    if not _reads_image(operands.op):
        return TRUE
    high, wide = window_of(operands.op, P, Q)
    return (high <= H) & (wide <= W)


def _halos(operands: ConvOperands, blocking: PixelBlocking) -> tuple[Buffer, ...]:
    """Return the copy of a band, if any: (rows, columns, channels), of which columns are next to each other."""
    if _reads_image(operands.op):
        return ()
    rows, columns = window_of(operands.op, blocking.rows, Q)
    halo = Buffer(
        name="halo",
        dtype=operands.accumulator,
        space=MemorySpace.THREAD,
        shape=(rows, columns, C),  # pyright: ignore[reportArgumentType]
        strides=(columns, Const(1), rows * columns + blocking.gap),  # pyright: ignore[reportArgumentType]
        role=BufferRole.SCRATCH,
    )
    return (halo,)


def _tasks(operands: ConvOperands, blocking: PixelBlocking, panels: Buffer) -> Parallel:
    op, (above, left) = operands.op, operands.op.padding
    window = (*window_of(op, BAND, Q), C)
    read = operands.x.region((IMAGE, GROUP, TOP - above, -left, 0), (1, 1, *window))
    copies: tuple[Node, ...] = ()
    for halo in _halos(operands, blocking):
        copied = halo.region((0, 0, 0), window)
        copies, read = (CopyTile(source=read, target=copied, masked=True),), copied
    place, extents = (TOP, Const(0), FIRST + _CHANNEL), (BAND, Q, _WIDE)
    product = MicroKernel(
        intrinsic=pixel_tile(op, blocking),
        a=read,
        b=panels.region((GROUP, (FIRST + _CHANNEL) // blocking.nr, 0, 0, 0, 0), (1, 1, R, S, C, blocking.nr)),
        c=operands.at(operands.y, *place, extents),
        epilogue=operands.applied(*place, extents),
    )
    filters = For(var=_CHANNEL, extent=FILTERS, step=Const(blocking.nr), length=_WIDE, body=block(product))
    return operands.tasks(blocking.rows, blocking.kb, (*copies, filters))


def pixel_tile(op: Conv2dOp, blocking: PixelBlocking) -> Intrinsic:
    """Return the routine of a band: tiles of ``nr`` filters by ``nv`` vectors of pixels, over all taps and channels."""
    return Intrinsic(
        name="pixel_tile",
        meaning=partial(window_product, stride=op.stride, dilation=op.dilation),
        source="emitters/cpu/include/tracea/pixels.h",
        attributes=(
            ("window", 1),
            ("nr", blocking.nr),
            ("nv", blocking.nv),
            ("rows", ",".join(map(str, blocking.counts))),
            *window_steps(op),
        ),
    )


def pixels_default(op: Conv2dOp, target: Target) -> Schedule:
    """Return the schedule that needs no tuning."""
    return min(_tiled(op, target), key=lambda schedule: _cost(op, target, schedule))


def pixels_space(op: Conv2dOp, target: Target) -> ScheduleSpace:
    """Return the schedules worth measuring, the default among them."""
    chosen: list[dict[str, Value]] = [dict(pixels_default(op, target))]
    height, filters = static(op.shape[2]), static(op.w.shape[0]) // op.groups
    for base in _tiled(op, target):
        nr = base.integer("nr")
        for rows in dict.fromkeys((base.integer("rows"), height, *(-(-height // n) for n in (2, 4, 8, 16)))):
            for kb in dict.fromkeys((base.integer("kb"), *(round_up(-(-filters // n), nr) for n in (1, 2)))):
                chosen.append({**base, "rows": rows, "kb": kb, "gap": _gap(op, rows)})
    return ScheduleSpace.listed(chosen)


def _tiled(op: Conv2dOp, target: Target) -> list[Schedule]:
    """Return a schedule for each tile that fills the registers, its filters as even as panels of it can be."""
    filters, channels = static(op.w.shape[0]) // op.groups, static(op.w.shape[1])
    height, columns = static(op.shape[2]), _columns(op)
    found: list[Schedule] = []
    for most, nv in _TILES[target.isa]:
        if not fits_registers(most, nv, target):
            continue
        nr, item = equal_blocks(filters, most), op.accumulator.nbytes
        row_bytes = columns * channels * item
        rows, kb = band_of(op, target, row_bytes, filters=filters, step=nr, filter_bytes=op.taps * item)
        # The last tile of a band is seldom full.
        low = -(-_TILES_OF_A_BAND * nv * vector_lanes(target, op.accumulator) // columns)
        rows = equal_blocks(height, min(max(rows, low), height))
        rows, kb = even_bands(op, target, rows, kb, step=nr)
        found.append(Schedule(nr=nr, nv=nv, tail=filters % nr, rows=rows, kb=kb, gap=_gap(op, rows)))
    return found


def _columns(op: Conv2dOp) -> int:
    """Return the columns of a halo: those of the result, and what the taps of the last one reach."""
    return static(op.shape[3]) + (static(op.w.shape[3]) - 1) * op.dilation[1]


def _gap(op: Conv2dOp, rows: int) -> int:
    """Return the elements behind a channel that put the next one an odd number of lines away."""
    high = rows + (static(op.w.shape[2]) - 1) * op.dilation[0]
    return (_LINE - high * _columns(op)) % (2 * _LINE)


def _cost(op: Conv2dOp, target: Target, schedule: Schedule) -> float:
    """Return the cycles of a step of all tiles of a band."""
    nr, nv, tail = (schedule.integer(name) for name in ("nr", "nv", "tail"))
    filters, width = static(op.w.shape[0]) // op.groups, nv * vector_lanes(target, op.accumulator)

    def cycles(rows: int) -> float:
        return max(rows * nv / target.fma_per_cycle, (rows + nv) / 2, target.fma_latency_cycles)

    tiles = -(-schedule.integer("rows") * _columns(op) // width) / schedule.integer("rows")
    # The other taps find what the first of them has read. By AVX2 nothing was measured.
    read = _FIRST_READ * static(op.w.shape[1]) / op.taps if target.isa == "avx512" else 0.0
    return tiles * (read + filters // nr * cycles(nr) + (cycles(tail) if tail else 0.0))


_STEP_ONE = condition(
    "windows a pixel apart",
    lambda op, _: op.stride == (1, 1),
    needed="stride 1",
    found=lambda op: f"stride {op.stride}",
    remedy="use conv.packed",
)


def _is_in_rows(op: Conv2dOp) -> bool:
    if not all(type_.is_static for type_ in (*op.operands, op.infer())):
        return True  # refused for that
    operands = ConvOperands.of(op)
    return operands.x.element_strides[-2] == Const(1) != operands.x.element_strides[-1] and operands.planar


_IN_ROWS = condition(
    "images in rows",
    lambda op, _: _is_in_rows(op),
    needed="an image and a result whose columns are next to each other, channels apart",
    found=lambda op: f"{op.x}, {op.infer()}",
    remedy="use conv.packed, which takes any strides",
)


def _by_rows(op: Conv2dOp, target: Target) -> float:
    """Long rows, of filters that leave lanes empty or, by AVX2, of results that are most of the work."""
    filters, width = static(op.w.shape[0]) // op.groups, static(op.shape[3])
    if width < max(_LONG_ROWS, _USEFUL * _columns(op)):
        return -40.0
    lanes = round_up(filters, vector_lanes(target, op.accumulator))
    if target.isa == "avx2":
        return 20.0 if op.taps <= (_EMPTY_LANES if filters < lanes else _SHORT_SUM) else -40.0
    return 20.0 if target.isa == "avx512" and filters * _columns(op) < _USEFUL * lanes * width else -40.0


_REQUIREMENTS = (*CONV_REQUIREMENTS, FLAT_RESULT, _STEP_ONE, _IN_ROWS)
_PREFERENCES = (Preference(name="long rows", score=_by_rows),)
PIXELS_ID = "conv.pixels"
PIXELS_PREPACKED_ID = "conv.pixels_prepacked"
PIXELS_PACK_ID = "conv.pixels_pack_w"
PIXELS = Variant(
    id=PIXELS_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=_PREFERENCES,
    priority=48,
    build=build_pixels,
    space=pixels_space,
    default_schedule=pixels_default,
)
PIXELS_PREPACKED = Variant(
    id=PIXELS_PREPACKED_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=_PREFERENCES,
    priority=58,
    build=build_pixels_prepacked,
    space=pixels_space,
    default_schedule=pixels_default,
    constant_operand=1,
    build_pack=build_pixels_pack,
    pack_type=pixel_panel_type,
)
