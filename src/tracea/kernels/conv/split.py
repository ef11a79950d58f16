"""Convolution whose sum over channels is split between the cores, where results have no parts enough for all of them.

A core takes some of the channels, for all rows and filters, and leaves partial sums in scratch of the team; behind a
barrier these are added, in the order of the parts, and the epilogue is applied. The parts are the schedule's: the bits
of a result do not depend on how many threads run it. Tiles, halos and panels are those of ``conv.packed``.
"""

from __future__ import annotations

from typing import Final

from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import static
from tracea.kernels.conv.blocking import ConvBlocking, conv_default
from tracea.kernels.conv.operands import BAND, FILTERS, FIRST, GROUP, IMAGE, IMAGES, TOP, C, ConvOperands, K, P, Q
from tracea.kernels.conv.packed import (
    band_tiles,
    build_pack,
    filter_panels,
    halo_of,
    image_is_inside,
    pack_filters,
    panel_type,
)
from tracea.kernels.conv.requirements import CONV_REQUIREMENTS
from tracea.kernels.gemm.blocking import round_up
from tracea.kernels.operands import scratch, vector_lanes
from tracea.kernels.parts import sum_of_parts
from tracea.kernels.requirements import condition
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.access import Region
from tracea.semantic.index import FALSE, TRUE, Const, Index, Predicate, Var, ceil_div
from tracea.semantic.nodes import Barrier, EpilogueCall, For, Level, Node, Parallel, block
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["SPLIT", "SPLIT_PREPACKED", "build_split", "build_split_prepacked"]

_PART, _DEPTH = Var("part_first"), Var("part_depth")
_IMAGE, _GROUP, _ROW, _PIXEL = Var("sum_image"), Var("sum_group"), Var("sum_row"), Var("sum_pixel")

_EVEN: Final = 16  # channels: parts are whole cache lines of an image
_WORTH_FLOPS: Final = 2**20  # of a core: what a barrier costs is a fiftieth of their time
_WORTH: Final = 45.0
_MOST_RESULTS: Final = 2**28  # each of them takes room in every part
_MOST_SUMS: Final = 2**38  # of all parts, so that they fit an address space


def build_split(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the convolution of ``op`` over parts of the channels, which packs the filters before it begins."""
    blocking, operands = _blocking(op, schedule, target), ConvOperands.of(op)
    panels = filter_panels(operands, blocking.nr, "panels", BufferRole.SCRATCH)
    packing = (pack_filters(operands, panels, blocking.nr), Barrier())
    body, scratches = _body(operands, blocking, panels)
    scratches = (panels, *scratches)
    return operands.kernel(
        SPLIT_ID, schedule, target, scratches, (*packing, *body), assumptions=_guard(operands, blocking)
    )


def build_split_prepacked(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the same for filters that are the result of ``packed.build_pack`` for the same schedule."""
    blocking, plain = _blocking(op, schedule, target), ConvOperands.of(op)
    panels = filter_panels(plain, blocking.nr, "w", BufferRole.CONSTANT)
    operands = ConvOperands.of(op, w=panels)
    body, scratches = _body(operands, blocking, panels)
    return operands.kernel(PREPACKED_ID, schedule, target, scratches, body, assumptions=_guard(operands, blocking))


def _guard(operands: ConvOperands, blocking: ConvBlocking) -> Predicate:
    sums = ceil_div(C, blocking.cb) * IMAGES * operands.groups * P * Q * K
    return (sums <= _MOST_SUMS) & image_is_inside(operands)


def _blocking(op: Conv2dOp, schedule: Schedule, target: Target) -> ConvBlocking:
    schedule.check_range(1, "cb")  # the channels of a part
    return ConvBlocking.of(schedule, op, target)


def _body(
    operands: ConvOperands, blocking: ConvBlocking, panels: Buffer
) -> tuple[tuple[Node, ...], tuple[Buffer, ...]]:
    """Return the parts, a barrier and their sums, and the scratch that they take."""
    halos = halo_of(operands, blocking)
    pixels = (IMAGES, operands.groups, P, Q)
    partials = scratch("partials", operands.accumulator, MemorySpace.TEAM, ceil_div(C, blocking.cb), *pixels, K)

    def place(rows: tuple[Index, Index, Index], extents: tuple[int, Index, Index]) -> Region:
        return partials.region((_PART // blocking.cb, IMAGE, GROUP, *rows), (1, 1, 1, *extents))

    tiles = band_tiles(
        operands,
        blocking,
        panels,
        halos,
        channels=(_PART, _DEPTH),
        sums=(FALSE, TRUE),
        target=place,
        stored=False,
    )
    filters = For(var=FIRST, extent=K, step=Const(blocking.kb), length=FILTERS, body=block(*tiles))
    bands = For(var=TOP, extent=P, step=Const(blocking.rows), length=BAND, body=block(filters))
    groups = For(var=GROUP, extent=operands.groups, body=block(bands))
    images = For(var=IMAGE, extent=IMAGES, body=block(groups))
    parts = Parallel(level=Level.TEAM, var=_PART, extent=C, step=Const(blocking.cb), length=_DEPTH, body=block(images))
    return (parts, Barrier(), _sums(operands, partials)), (partials, *halos)


def _sums(operands: ConvOperands, partials: Buffer) -> Parallel:
    """Return the sum of the parts of all pixels, and what the epilogue makes of them; columns are shared by cores."""

    def whole(buffer: Buffer) -> Region:
        return operands.at(buffer, _ROW, _PIXEL, Const(0), (1, 1, K), of=(_IMAGE, _GROUP))

    pixel = sum_of_parts(
        partials,
        (_IMAGE, _GROUP, _ROW, _PIXEL),
        0,
        K,
        target=whole(operands.y),
        compute=operands.accumulator,
        epilogue=EpilogueCall(expr=operands.op.epilogue.expr, operands=tuple(map(whole, operands.extras))),
    )
    rows = For(var=_ROW, extent=P, body=block(pixel))
    groups = For(var=_GROUP, extent=operands.groups, body=block(rows))
    images = For(var=_IMAGE, extent=IMAGES, body=block(groups))
    return Parallel(level=Level.TEAM, var=_PIXEL, extent=Q, body=block(images))


def split_default(op: Conv2dOp, target: Target) -> Schedule:
    """Return the schedule that needs no tuning: a part a core, all rows and filters for each."""
    return _schedule(op, target, parts=max(2, target.cores))


def split_space(op: Conv2dOp, target: Target) -> ScheduleSpace:
    """Return the schedules worth measuring, the default among them."""
    counts = dict.fromkeys((max(2, target.cores), 2, 4, 8))
    chosen = [dict(_schedule(op, target, parts=parts)) for parts in counts]
    for unroll in (1, 2, 4):
        chosen.append({**chosen[0], "unroll": unroll})
    return ScheduleSpace.listed(chosen)


def _schedule(op: Conv2dOp, target: Target, *, parts: int) -> Schedule:
    channels = static(op.w.shape[1])
    depth = min(channels, round_up(-(-channels // parts), _EVEN)) if channels > parts else 1
    plain = conv_default(op, target)
    filters = round_up(static(op.w.shape[0]) // op.groups, plain.integer("nv") * vector_lanes(target, op.accumulator))
    return plain.with_values(cb=depth, kb=filters, upcoming=0, ahead=0)


def _starves(op: Conv2dOp, target: Target) -> float:
    """Whether a result has fewer parts than there are cores: rows of images, and vectors of filters."""
    result = op.infer()
    if not result.is_static:
        return 0.0
    images, filters, rows, _ = result.static_shape
    vectors = op.groups * -(-filters // op.groups // vector_lanes(target, op.accumulator))
    splits = static(op.w.shape[1]) >= 2 * _EVEN and op.flops >= _WORTH_FLOPS * target.cores
    return _WORTH if splits and images * rows * vectors < target.cores else 0.0


_LAST = condition(
    "filters next to each other",
    lambda op, _: op.infer().strides[1] == 1,
    needed="a result whose channels are next to each other",
    found=lambda op: str(op.infer()),
    remedy="use conv.packed, which takes any strides",
)
_FEW = condition(
    "few results",
    lambda op, _: op.infer().is_static and op.infer().elements <= _MOST_RESULTS,
    needed=f"at most {_MOST_RESULTS} results",
    found=lambda op: str(op.infer()),
    remedy="use conv.packed, which keeps no sums of parts",
)
_REQUIREMENTS = (*CONV_REQUIREMENTS, _LAST, _FEW)
_PREFERENCES = (Preference(name="a part for every core", score=_starves),)
SPLIT_ID = "conv.split"
PREPACKED_ID = "conv.split_prepacked"
SPLIT = Variant(
    id=SPLIT_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=_PREFERENCES,
    priority=20,
    build=build_split,
    space=split_space,
    default_schedule=split_default,
)
SPLIT_PREPACKED = Variant(
    id=PREPACKED_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=_PREFERENCES,
    priority=25,
    build=build_split_prepacked,
    space=split_space,
    default_schedule=split_default,
    constant_operand=1,
    build_pack=build_pack,
    pack_type=panel_type,
)
