"""Convolution with few filters: vectors along channels, so that no lane waits for a filter that there is not.

A tile of pixels by filters holds a vector of sums for each pair, whose lanes are added behind the last step. An image
whose channels lie next to each other is read where it lies, zeros standing for taps beside it; another one is copied
channels last, a band at a time. A filter is one run of taps and channels: ``conv.dot`` packs the filters in each call,
``conv.dot_prepacked`` reads constants that were packed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import TensorType, static
from tracea.errors import InvalidSchedule
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
    Q,
    R,
    S,
    conv_kernel,
    window_of,
    window_steps,
)
from tracea.kernels.conv.packed import filter_panels, pack_filters
from tracea.kernels.conv.requirements import CONV_REQUIREMENTS
from tracea.kernels.gemm.blocking import equal_blocks, round_up
from tracea.kernels.operands import scratch, vector_lanes
from tracea.kernels.requirements import condition
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import Const, Var
from tracea.semantic.intrinsics import window_dot
from tracea.semantic.nodes import Barrier, CopyTile, For, MicroKernel, Node, Parallel, block
from tracea.semantic.schedule import MOST_OF_TILE, Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["CONV_DOT", "CONV_DOT_PREPACKED", "build_dot", "build_dot_pack", "build_dot_prepacked"]

_MOST_GAP: Final = 1024
_GAP: Final = 16  # elements between pixels of a halo: a pitch of a power of two would fall on few sets of the cache
# In products of vectors, measured on a Xeon without its tiles by AVX-512 and by AVX2 (benchmarks/NOTES.md, 2026-11-28):
_SUMMED: Final = 5.5  # what adding up a sum's lanes costs, and storing it
_BEGUN: Final = 8.0  # what a pixel costs beside
_COPIED: Final = 0.6  # a channel of a pixel that is copied channels last
_STORED: Final = 5.0  # a pixel of vectors of filters
_PAYS: Final = 0.9  # of the time of vectors of filters
_HALF: Final = 0.5  # the same, where matrix tiles, which take vectors of filters too, need not be tried first
_FEW_OF_ROWS: Final = (0.25, 64)  # filters of a vector at most, and channels: in rows faster than vectors of pixels

# Most pixels by so many filters that leave a register for a vector of a pixel, by instruction set.
_TILES: Final[Mapping[str, Mapping[int, int]]] = {
    "avx512": {1: 14, 2: 12, 3: 9, 4: 6, 5: 5, 6: 4, 7: 3, 8: 2},
    "avx2": {1: 8, 2: 6, 3: 4, 4: 2},
    "neon": {1: 14, 2: 12, 3: 9, 4: 6},
    "plain": {1: 4, 2: 3, 3: 2, 4: 2},
}

_CHANNEL, _WIDE = Var("filter"), Var("wide")
_LINE, _PIXEL, _PIXELS = Var("line"), Var("pixel"), Var("pixels")


@dataclass(frozen=True, slots=True, kw_only=True)
class DotBlocking:
    """The schedule in numbers.

    Units: a tile is ``mr`` pixels by ``nk`` filters; ``tail`` pixels of the last one of a row, 0 where it is full;
    ``rows`` of results in a band; ``kb`` filters of a task, whole tiles; ``gap`` elements after each pixel of a halo.
    """

    mr: int
    nk: int
    tail: int
    rows: int
    kb: int
    gap: int

    @classmethod
    def of(cls, schedule: Schedule, target: Target) -> DotBlocking:
        """Read and check a schedule.

        Raises:
            InvalidSchedule: a value is missing or out of its range, or the tile does not fit the registers.
        """
        schedule.check_range(1, "mr", "nk", "rows", "kb", most=MOST_OF_TILE)
        schedule.check_range(0, "gap", most=_MOST_GAP)
        mr, nk = schedule.integer("mr"), schedule.integer("nk")
        schedule.check_range(0, "tail", most=mr - 1)
        needed, most = mr * nk + nk + 1, target.vector_registers
        if (target.isa != "plain" and needed > most) or needed > _MOST_GAP:
            raise InvalidSchedule(
                field="mr, nk",
                got=f"mr={mr}, nk={nk}: {needed} vector registers",
                expected=f"mr*nk + nk + 1 <= {most}, the registers of {target.isa}",
                remedy=f"mr={max(1, (most - 1) // nk - 1)} at most with nk={nk}, or fewer filters",
            )
        return cls(
            mr=mr,
            nk=nk,
            tail=schedule.integer("tail"),
            rows=schedule.integer("rows"),
            kb=round_up(schedule.integer("kb"), nk),
            gap=schedule.integer("gap"),
        )

    @property
    def pixels(self) -> tuple[int, ...]:
        """Pixel counts with code of their own, descending."""
        return (self.mr, self.tail) if self.tail else (self.mr,)


def build_dot(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the convolution of ``op`` that packs the filters, all of them, before it begins."""
    blocking, operands = DotBlocking.of(schedule, target), ConvOperands.of(op)
    panels = filter_panels(operands, 1, "panels", BufferRole.SCRATCH)
    body = (pack_filters(operands, panels, 1), Barrier(), _tasks(operands, blocking, panels))
    return operands.kernel(DOT_ID, schedule, target, (panels, *_thread_scratch(operands, blocking)), body)


def build_dot_prepacked(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the convolution of ``op`` whose filters are the result of :func:`build_dot_pack`."""
    blocking = DotBlocking.of(schedule, target)
    panels = filter_panels(ConvOperands.of(op), 1, "w", BufferRole.CONSTANT)
    operands = ConvOperands.of(op, w=panels)
    body = (_tasks(operands, blocking, panels),)
    return operands.kernel(PREPACKED_ID, schedule, target, _thread_scratch(operands, blocking), body)


def build_dot_pack(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel that packs ``op``'s filters: buffers ``w`` and ``panels``."""
    operands = ConvOperands.of(op)
    panels = filter_panels(operands, 1, "panels", BufferRole.OUTPUT)
    body = (pack_filters(operands, panels, 1),)
    return conv_kernel(op, PACK_ID, schedule, target, buffers=(operands.w, panels), body=body)


def dot_panel_type(op: Conv2dOp, schedule: Schedule, target: Target) -> TensorType:
    """Return the type of the filters in panels of one: (groups, filters, r, s, c, 1), in the accumulator's type."""
    del schedule, target
    filters, channels, r, s = op.w.static_shape
    return TensorType((op.groups, filters // op.groups, r, s, channels, 1), op.accumulator)


def _reads_image(operands: ConvOperands) -> bool:
    """Whether tiles read the image itself: its channels lie next to each other, so that no copy orders them."""
    return operands.x.element_strides[-1] == Const(1)


def _sums_in_place(operands: ConvOperands) -> bool:
    """Whether sums go where results do: a pixel's few results, read there again, would wait for its neighbour's."""
    return operands.sums_in_place and operands.op.epilogue.is_identity


def _thread_scratch(operands: ConvOperands, blocking: DotBlocking) -> tuple[Buffer, ...]:
    dtype, thread = operands.accumulator, MemorySpace.THREAD
    halo = scratch("halo", dtype, thread, *window_of(operands.op, blocking.rows, Q), C + blocking.gap)
    sums = scratch("sums", dtype, thread, blocking.mr, blocking.nk)
    return (
        *(() if _reads_image(operands) else (halo,)),
        *(() if _sums_in_place(operands) else (sums,)),
    )


def _tasks(operands: ConvOperands, blocking: DotBlocking, panels: Buffer) -> Parallel:
    op, scratches, direct = operands.op, _thread_scratch(operands, blocking), _reads_image(operands)
    (down, right), (above, left) = op.stride, op.padding
    window = (*window_of(op, 1, _PIXELS), C)
    copies: tuple[Node, ...] = ()
    if direct:
        first = (IMAGE, GROUP, (TOP + _LINE) * down - above, _PIXEL * right - left, Const(0))
        read = operands.x.region(first, (1, 1, *window))
    else:
        copied, halo = (*window_of(op, BAND, Q), C), scratches[0]
        source = operands.x.region((IMAGE, GROUP, TOP * down - above, -left, 0), (1, 1, *copied))
        copies = (CopyTile(source=source, target=halo.region((0, 0, 0), copied), masked=True),)
        read = halo.region((_LINE * down, _PIXEL * right, 0), window)
    place, extents = (TOP + _LINE, _PIXEL, FIRST + _CHANNEL), (1, _PIXELS, _WIDE)
    in_place = _sums_in_place(operands)
    result = operands.at(operands.y, *place, extents)
    stored = operands.epilogue(*place, extents)
    tile = MicroKernel(
        intrinsic=dot_tile(op, blocking),
        a=read,
        masked=direct,
        b=panels.region((GROUP, FIRST + _CHANNEL, 0, 0, 0, 0), (1, _WIDE, R, S, C, 1)),
        c=result if in_place else scratches[-1].region((0, 0), extents[1:]),
        epilogue=None if stored is None else replace(stored, target=result),
    )
    across = For(var=_PIXEL, extent=Q, step=Const(blocking.mr), length=_PIXELS, body=block(tile))
    lines = For(var=_LINE, extent=BAND, body=block(across))
    filters = For(var=_CHANNEL, extent=FILTERS, step=Const(blocking.nk), length=_WIDE, body=block(lines))
    return operands.tasks(blocking.rows, blocking.kb, (*copies, filters))


def dot_tile(op: Conv2dOp, blocking: DotBlocking) -> Intrinsic:
    """Return the tile of ``mr`` pixels of one row by ``nk`` filters, over all taps and channels."""
    return Intrinsic(
        name="conv_dot",
        meaning=partial(window_dot, stride=op.stride, dilation=op.dilation),
        source="emitters/cpu/include/tracea/conv_dot.h",
        attributes=(
            ("window", 1),
            ("mr", blocking.mr),
            ("nk", blocking.nk),
            ("rows", ",".join(map(str, blocking.pixels))),
            *window_steps(op),
        ),
    )


def dot_default(op: Conv2dOp, target: Target) -> Schedule:
    """Return the schedule that needs no tuning."""
    return min(_tiled(op, target), key=lambda schedule: _cost(op, target, schedule))


def dot_space(op: Conv2dOp, target: Target) -> ScheduleSpace:
    """Return the schedules worth measuring, the default among them."""
    chosen: list[dict[str, Value]] = [dict(dot_default(op, target))]
    height = static(op.shape[2])
    for base in _tiled(op, target):
        for rows in dict.fromkeys((base.integer("rows"), *(-(-height // n) for n in (1, 2, 4, 8, 16)))):
            chosen.append({**base, "rows": rows})
    return ScheduleSpace.listed(chosen)


def _tiled(op: Conv2dOp, target: Target) -> list[Schedule]:
    """Return a schedule for each number of filters of a tile, the pixels of a row as even as such tiles can be."""
    filters, channels = static(op.w.shape[0]) // op.groups, static(op.w.shape[1])
    height, width, item = static(op.shape[2]), static(op.shape[3]), op.accumulator.nbytes
    columns = (width - 1) * op.stride[1] + (static(op.w.shape[3]) - 1) * op.dilation[1] + 1
    gap = _GAP if channels % _GAP == 0 else 0  # else the taps of a row are one run, with one tail
    found: list[Schedule] = []
    for nk, most in _TILES[target.isa].items():
        if nk > filters:
            continue
        mr = equal_blocks(width, most)
        row_bytes = columns * (channels + gap) * item
        rows, kb = band_of(op, target, row_bytes, filters=filters, step=nk, filter_bytes=op.taps * item)
        rows, kb = even_bands(op, target, min(rows, height), kb, step=nk)
        found.append(Schedule(mr=mr, nk=nk, tail=width % mr, rows=rows, kb=kb, gap=gap))
    return found


def _cost(op: Conv2dOp, target: Target, schedule: Schedule) -> float:
    """Return the cycles of a step of all tiles of a row."""
    filters, width = static(op.w.shape[0]) // op.groups, static(op.shape[3])
    mr, nk, tail = (schedule.integer(name) for name in ("mr", "nk", "tail"))

    def cycles(pixels: int) -> float:
        return max(pixels * nk / target.fma_per_cycle, (pixels + nk) / 2, target.fma_latency_cycles)

    return -(-filters // nk) * (width // mr * cycles(mr) + (cycles(tail) if tail else 0.0))


def _has_few_filters(op: Conv2dOp, target: Target) -> float:
    """Filters that leave lanes of a vector empty, channels that fill some, and a row of results for every core."""
    result = op.infer()
    if not all(type_.is_static for type_ in (*op.operands, result)):
        return 0.0
    lanes, filters, channels = vector_lanes(target, op.accumulator), static(op.w.shape[0]), static(op.w.shape[1])
    filters //= op.groups
    share = _share(op, target)
    if filters >= lanes or channels == 1 or share > _PAYS:
        return -40.0
    if static(op.shape[0]) * op.groups * static(op.shape[2]) < target.cores:
        return 0.0  # conv.split has parts for all of them
    most, least = _FEW_OF_ROWS
    if op.x.strides[1] != 1 and (filters > most * lanes or channels < least):
        return 10.0  # before vectors of filters, behind those of pixels where rows are long
    return 60.0 if share <= _HALF else 30.0


def _share(op: Conv2dOp, target: Target) -> float:
    """Return the part of the time of vectors of filters that vectors of channels take, by counts of products."""
    lanes, filters = vector_lanes(target, op.accumulator), static(op.w.shape[0]) // op.groups
    _, channels, r, s = op.w.static_shape
    direct = op.x.strides[1] == 1
    dense = op.x.strides[3] == channels if direct else channels % _GAP != 0
    vectors = r * -(-s * channels // lanes) if dense and op.dilation[1] == 1 else r * s * -(-channels // lanes)
    copied = 0.0 if direct else _COPIED * channels * op.stride[0] * op.stride[1]
    return (filters * (vectors + _SUMMED) + _BEGUN + copied) / (op.taps * -(-filters // lanes) + _STORED)


_SEVERAL = condition(
    "channels for vectors",
    lambda op, _: static(op.w.shape[1]) > 1,
    needed="two channels of a group or more",
    found=lambda op: f"{static(op.w.shape[1])}",
    remedy="use conv.packed, or conv.depthwise where each group has one filter",
)
_REQUIREMENTS = (*CONV_REQUIREMENTS, _SEVERAL)
_PREFERENCES = (Preference(name="few filters", score=_has_few_filters),)
DOT_ID = "conv.dot"
PREPACKED_ID = "conv.dot_prepacked"
PACK_ID = "conv.dot_pack_w"
CONV_DOT = Variant(
    id=DOT_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=_PREFERENCES,
    priority=45,
    build=build_dot,
    space=dot_space,
    default_schedule=dot_default,
)
CONV_DOT_PREPACKED = Variant(
    id=PREPACKED_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=_PREFERENCES,
    priority=55,
    build=build_dot_prepacked,
    space=dot_space,
    default_schedule=dot_default,
    constant_operand=1,
    build_pack=build_dot_pack,
    pack_type=dot_panel_type,
)
