"""Convolution on vectors: a task copies the rows that it reads, padded with zeros, and tiles of pixels read them there.

The copy (the halo) is channels last, in the sums' type: a tile of pixels by filters takes its products over all taps
and channels from it, the sums staying in registers. An image that a halo would only repeat (channels last, no padding,
filters of one tap), or whose channels are windows of a row, is read where it lies. The filters are in panels:
``conv.packed`` packs them in each call, ``conv.prepacked`` reads constants that were packed once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import TensorType, static
from tracea.kernels.conv.blocking import SHORT_RUN, ConvBlocking, conv_default, conv_space, pixel_cycles
from tracea.kernels.conv.folding import fold_rows, is_pointwise
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
    K,
    P,
    Q,
    R,
    S,
    W,
    conv_kernel,
    tap_of,
    window_of,
    window_steps,
)
from tracea.kernels.conv.prefetching import share_of
from tracea.kernels.conv.requirements import CONV_REQUIREMENTS
from tracea.kernels.operands import scratch, vector_lanes
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic, Region
from tracea.semantic.index import FALSE, TRUE, Const, Index, Predicate, Var, ceil_div, minimum
from tracea.semantic.intrinsics import window_product
from tracea.semantic.nodes import (
    Barrier,
    CopyTile,
    For,
    ImageArea,
    Let,
    Level,
    MicroKernel,
    Node,
    Pack,
    Parallel,
    block,
)
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = [
    "PACKED",
    "PREPACKED",
    "band_tiles",
    "build_pack",
    "build_packed",
    "build_prepacked",
    "filter_panels",
    "halo_of",
    "image_is_inside",
    "pack_filters",
    "panel_type",
]

_NARROW: Final = 32  # pixels: of longer rows the taps beside the image are a hundredth or less
_PACKED_CHANNELS: Final = 16  # of taps that are neighbours: what a panel of filters reads stays in the first cache

_DEPTH_READ: Final = 512  # channels of a pixel that a block of them reads at most
_FILTERS_EACH: Final = 64  # of a task at least: bands are whole rows, and fewer where several are one
_WORTH_FOLDING: Final = 0.97  # of the cycles
_AS_EVEN: Final = 1.03  # times the busiest core's share of whole rows

_C0, _DEPTH = Var("c0"), Var("depth")
_CHANNEL, _WIDE = Var("filter"), Var("wide")
_LINE, _PIXEL, _PIXELS = Var("line"), Var("pixel"), Var("pixels")


def build_packed(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the convolution of ``op`` that packs the filters, all of them, before it begins."""
    op = _folded(op, target)
    blocking, operands = ConvBlocking.of(schedule, op, target), ConvOperands.of(op)
    panels = filter_panels(operands, blocking.nr, "panels", BufferRole.SCRATCH)
    body = (pack_filters(operands, panels, blocking.nr), Barrier(), _tasks(operands, blocking, panels))
    scratches = (panels, *_thread_scratch(operands, blocking))
    return operands.kernel(PACKED_ID, schedule, target, scratches, body, assumptions=image_is_inside(operands))


def build_prepacked(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the convolution of ``op`` whose filters are the result of :func:`build_pack` for the same schedule."""
    op = _folded(op, target)
    blocking, plain = ConvBlocking.of(schedule, op, target), ConvOperands.of(op)
    panels = filter_panels(plain, blocking.nr, "w", BufferRole.CONSTANT)
    operands = ConvOperands.of(op, w=panels)
    body = (_tasks(operands, blocking, panels),)
    scratches = _thread_scratch(operands, blocking)
    return operands.kernel(PREPACKED_ID, schedule, target, scratches, body, assumptions=image_is_inside(operands))


def packed_default(op: Conv2dOp, target: Target) -> Schedule:
    """Return the schedule that needs no tuning."""
    return conv_default(_folded(op, target), target)


def packed_space(op: Conv2dOp, target: Target) -> ScheduleSpace:
    """Return the schedules worth measuring, the default among them."""
    return conv_space(_folded(op, target), target)


@lru_cache(maxsize=1024)  # asked by the default schedule, the space and the kernel of each convolution
def _folded(op: Conv2dOp, target: Target) -> Conv2dOp:
    """Return the op with some of its rows as one, where tiles then take fewer cycles; the op itself elsewhere.

    Measured on a Xeon without its tiles, 1x1: 512 to 2048 7² 0.92 to 0.94 of the time, 2048 to 512 0.93 to 0.98.
    """
    if not is_pointwise(op):
        return op
    height, width = (static(size) for size in op.shape[2:])
    pixel_bytes = min(static(op.w.shape[1]), _DEPTH_READ) * op.accumulator.nbytes
    blocks = static(op.shape[0]) * (static(op.w.shape[0]) // _FILTERS_EACH)
    together = [
        rows
        for rows in range(2, height + 1)
        if rows * width * pixel_bytes <= target.l2_bytes // 2 and height // rows * blocks >= target.cores
    ]
    choices = [choice for rows in together if (choice := fold_rows(op, rows)) is not None]
    if not choices:
        return op
    best, (least, even) = op, pixel_cycles(op, target)
    least *= _WORTH_FOLDING
    for choice in choices:
        cycles, share = pixel_cycles(choice, target)
        if cycles < least and share <= _AS_EVEN * even:
            best, least = choice, cycles
    return best


def build_pack(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel that packs ``op``'s filters: buffers ``w`` and ``panels``."""
    blocking, operands = ConvBlocking.of(schedule, op, target), ConvOperands.of(op)
    panels = filter_panels(operands, blocking.nr, "panels", BufferRole.OUTPUT)
    body = (pack_filters(operands, panels, blocking.nr),)
    return conv_kernel(op, PACK_ID, schedule, target, buffers=(operands.w, panels), body=body)


def panel_type(op: Conv2dOp, schedule: Schedule, target: Target) -> TensorType:
    """Return the type of the filters in panels: (groups, panels, r, s, c, nr), in the accumulator's element type."""
    filters, channels, r, s = op.w.static_shape
    nr = schedule.integer("nv") * vector_lanes(target, op.accumulator)
    return TensorType((op.groups, -(-filters // op.groups // nr), r, s, channels, nr), op.accumulator)


def filter_panels(operands: ConvOperands, nr: int, name: str, role: BufferRole) -> Buffer:
    """Return the buffer of all filters in panels of ``nr``: (groups, panels, r, s, c, nr)."""
    return Buffer(
        name=name,
        dtype=operands.accumulator,
        space=MemorySpace.TEAM if role is BufferRole.SCRATCH else MemorySpace.GLOBAL,
        shape=(operands.groups, ceil_div(K, nr), R, S, C, Const(nr)),
        role=role,
    )


def pack_filters(operands: ConvOperands, panels: Buffer, nr: int) -> Parallel:
    """Return the packing of all filters into panels of ``nr``.

    A task is a panel, tap after tap; some channels at a time if taps are near.
    """
    task, group, first, wide = Var("pack_task"), Var("pack_group"), Var("pack_first"), Var("pack_wide")
    r, s = Var("pack_r"), Var("pack_s")
    count = ceil_div(K, nr)
    grouped = operands.groups != Const(1)
    lets = (
        Let(var=group, value=task // count if grouped else Const(0)),
        Let(var=first, value=(task % count if grouped else task) * nr),
        Let(var=wide, value=minimum(nr, K - first)),
    )
    c0, depth = Var("pack_c0"), Var("pack_depth")
    parted = _has_near_taps(operands)
    begin, channels = (c0, depth) if parted else (Const(0), C)
    tap = Pack(
        source=operands.w.region((group, *tap_of(operands.op, r, s), begin, first), (1, 1, 1, channels, wide)),
        target=panels.region((group, first // nr, r, s, begin, 0), (1, 1, 1, 1, channels, nr)),
        panel=nr,
        axis=1,
    )
    taps = For(var=r, extent=R, body=block(For(var=s, extent=S, body=block(tap))))
    if parted:
        taps = For(var=c0, extent=C, step=Const(_PACKED_CHANNELS), length=depth, body=block(taps))
    return Parallel(level=Level.TASK, var=task, extent=operands.groups * count, body=block(*lets, taps))


def _has_near_taps(operands: ConvOperands) -> bool:
    """Tell whether taps share cache lines, so that each tap alone would fetch every line of the filters once more."""
    op, strides = operands.op, operands.w.element_strides
    return static(op.w.shape[2]) * static(op.w.shape[3]) > 1 and Const(1) not in strides[-2:]


def halo_of(operands: ConvOperands, blocking: ConvBlocking) -> tuple[Buffer, ...]:
    """Return what a thread copies a band to, where tiles do not read the image itself."""
    if operands.in_place:
        return ()
    rows, columns = window_of(operands.op, blocking.rows, Q)
    depth = Const(blocking.cb) if blocking.cb else C
    return (scratch("halo", operands.accumulator, MemorySpace.THREAD, rows, columns, depth + blocking.gap),)


def _thread_scratch(operands: ConvOperands, blocking: ConvBlocking) -> tuple[Buffer, ...]:
    dtype, thread = operands.accumulator, MemorySpace.THREAD
    halo = halo_of(operands, blocking)
    if operands.sums_in_place:
        return halo
    if blocking.cb:
        return (*halo, scratch("sums", dtype, thread, blocking.rows, Q, blocking.kb))
    return (*halo, scratch("sums", dtype, thread, blocking.mr, blocking.nr))


def image_is_inside(operands: ConvOperands) -> Predicate:
    """Return the guard that the image has every pixel that a tile reads of it."""
    if not operands.in_place:
        return TRUE
    high, wide = window_of(operands.op, P, Q)
    return (high <= H) & (wide <= W)


def _tasks(operands: ConvOperands, blocking: ConvBlocking, panels: Buffer) -> Parallel:
    scratches = _thread_scratch(operands, blocking)

    def nodes(channels: tuple[Index, Index], sums: tuple[Predicate, Predicate]) -> tuple[Node, ...]:
        target = partial(_sums, operands, blocking, scratches)
        return band_tiles(
            operands, blocking, panels, scratches[:1], channels=channels, sums=sums, target=target, stored=True
        )

    body: tuple[Node, ...]
    if blocking.cb:
        blocks = nodes((_C0, _DEPTH), (_C0 > 0, _C0 + _DEPTH >= C))
        body = (For(var=_C0, extent=C, step=Const(blocking.cb), length=_DEPTH, body=block(*blocks)),)
    else:
        body = nodes((Const(0), C), (FALSE, TRUE))
    return operands.tasks(blocking.rows, blocking.kb, body)


def band_tiles(
    operands: ConvOperands,
    blocking: ConvBlocking,
    panels: Buffer,
    halos: tuple[Buffer, ...],
    *,
    channels: tuple[Index, Index],
    sums: tuple[Predicate, Predicate],
    target: Callable[[tuple[Index, Index, Index], tuple[int, Index, Index]], Region],
    stored: bool,
) -> tuple[Node, ...]:
    """Return the copy of a block of channels of a band, and the tiles that are summed over it.

    ``channels`` are the first one and how many; ``sums`` tells when a tile adds to what is there, and when its sums are
    whole; ``target`` says where those of a place lie, and of ``stored`` ones the epilogue makes results.
    """
    op, (c0, depth) = operands.op, channels
    (down, right), (above, left) = op.stride, op.padding
    window = (*window_of(op, 1, _PIXELS), depth)
    copies: tuple[Node, ...] = ()
    if operands.in_place:
        read = operands.x.region((IMAGE, GROUP, (TOP + _LINE) * down, _PIXEL * right, c0), (1, 1, *window))
    else:
        copied, halo = (*window_of(op, BAND, Q), depth), halos[0]
        source = operands.x.region((IMAGE, GROUP, TOP * down - above, -left, c0), (1, 1, *copied))
        copies = (CopyTile(source=source, target=halo.region((0, 0, 0), copied), masked=True),)
        read = halo.region((_LINE * down, _PIXEL * right, 0), window)
    place, extents = (TOP + _LINE, _PIXEL, FIRST + _CHANNEL), (1, _PIXELS, _WIDE)
    panel, number = (FIRST + _CHANNEL) // blocking.nr, _LINE * ceil_div(Q, blocking.mr) + _PIXEL // blocking.mr
    following, steps = (GROUP, panel + 1, Const(0), Const(0), c0), depth if blocking.cb else R * S * C
    tile = MicroKernel(
        intrinsic=conv_tile(op, blocking),
        a=read,
        b=panels.region((GROUP, panel, 0, 0, c0, 0), (1, 1, R, S, depth, blocking.nr)),
        ahead=share_of(panels, following, steps=steps, run=blocking.unroll, lines=blocking.upcoming, tile=number),
        c=target(place, extents),
        accumulate=sums[0],
        finish=sums[1],
        epilogue=operands.epilogue(*place, extents) if stored else None,
        image=_area(operands, TOP + _LINE),
    )
    across = For(var=_PIXEL, extent=Q, step=Const(blocking.mr), length=_PIXELS, body=block(tile))
    lines = For(var=_LINE, extent=BAND, body=block(across))
    return (*copies, For(var=_CHANNEL, extent=FILTERS, step=Const(blocking.nr), length=_WIDE, body=block(lines)))


def _area(operands: ConvOperands, row: Index) -> ImageArea | None:
    """Return the image where windows of a row of results reach over its border; its columns too if rows are short.

    The taps of few channels are one run, of which none is left out.
    """
    op = operands.op
    (down, right), (above, left) = op.stride, op.padding
    if not above or static(op.w.shape[2]) == 1:
        return None
    rows, columns = (row * down - above, H), (_PIXEL * right - left, W)
    channels, _, taps = (static(size) for size in op.w.shape[1:])
    beside = left and taps > 1 and channels > SHORT_RUN and static(op.shape[3]) <= _NARROW
    first, extent = zip(*((rows, columns) if beside else (rows,)), strict=True)
    return ImageArea(first=first, extent=extent)


def _sums(
    operands: ConvOperands,
    blocking: ConvBlocking,
    scratches: tuple[Buffer, ...],
    place: tuple[Index, Index, Index],
    extents: tuple[int, Index, Index],
) -> Region:
    if operands.sums_in_place:
        return operands.at(operands.y, *place, extents)
    if blocking.cb:
        return scratches[-1].region((_LINE, _PIXEL, _CHANNEL), extents)
    return scratches[-1].region((0, 0), extents[1:])


def conv_tile(op: Conv2dOp, blocking: ConvBlocking) -> Intrinsic:
    """Return the tile of ``mr`` pixels of one row by ``nv`` vectors of filters, over all taps and channels."""
    return Intrinsic(
        name="conv_tile",
        meaning=partial(window_product, stride=op.stride, dilation=op.dilation),
        source="emitters/cpu/include/tracea/conv.h",
        attributes=(
            ("window", 1),
            ("mr", blocking.mr),
            ("nv", blocking.nv),
            ("nr", blocking.nr),
            ("unroll", blocking.unroll),
            ("prefetch", blocking.prefetch),
            ("ahead", blocking.ahead),
            ("upcoming", blocking.upcoming),
            ("rows", ",".join(map(str, blocking.pixels))),
            *window_steps(op),
        ),
    )


PACKED_ID = "conv.packed"
PREPACKED_ID = "conv.prepacked"
PACK_ID = "conv.pack_w"
PACKED = Variant(
    id=PACKED_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=CONV_REQUIREMENTS,
    preferences=(),
    priority=50,
    build=build_packed,
    space=packed_space,
    default_schedule=packed_default,
)
PREPACKED = Variant(
    id=PREPACKED_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=CONV_REQUIREMENTS,
    preferences=(),
    priority=60,
    build=build_prepacked,
    space=packed_space,
    default_schedule=packed_default,
    constant_operand=1,
    build_pack=build_pack,
    pack_type=panel_type,
)
