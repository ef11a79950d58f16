"""Convolution by Winograd's F(m, r): fewer products, for 3×3 or 5×5 filters of stride 1 and accuracy by norm.

A task transforms the tiles of a band of the image, a block of columns after the other, all channels of them, into
scratch of its own; where channels lie apart it copies the block first. Then, panel after panel of filters, it
multiplies each place of the transformed image by that of the transformed filters, and transforms the products back
where the results go: but for the filters nothing leaves the second-level cache. The filters are transformed in each
call by ``conv.winograd``, and once by ``conv.winograd_prepacked``, for constants.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tracea.core.contract import Accuracy
from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import TensorType
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
)
from tracea.kernels.conv.prefetching import share_of
from tracea.kernels.conv.requirements import CONV_REQUIREMENTS
from tracea.kernels.conv.winograd_blocking import WinogradBlocking, brings_more, winograd_default, winograd_space
from tracea.kernels.gemm.amx import MATRIX_TILES
from tracea.kernels.operands import scratch, vector_lanes
from tracea.kernels.requirements import condition
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import Const, Predicate, Var, ceil_div, minimum
from tracea.semantic.intrinsics import plain_product
from tracea.semantic.nodes import Barrier, CopyTile, For, Let, Level, MicroKernel, Node, Parallel, block
from tracea.semantic.nodes_winograd import TransformBack, TransformFilters, TransformImage
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["WINOGRAD", "WINOGRAD_PREPACKED", "build_winograd", "build_winograd_pack", "build_winograd_prepacked"]

_FEW: Final = 16
# Of a result, over all images. Beside matrix tiles, one thread of a Xeon, us: 64 channels 56² 519 and 854, 128 28² 504
# and 816, 256 14² 697 and 849, 512 7² 1431 and 1464; inside of ResNet-50 nothing was left of it where those of 256 and
# 512 channels took it too (benchmarks/NOTES.md).
_SHARED_PIXELS: Final = 512

_CHANNEL, _WIDE = Var("filter"), Var("wide")
_PLACE, _TILE, _TILES = Var("place"), Var("tile"), Var("tiles")
_LEFT, _ACROSS = Var("left"), Var("across")  # of a block of columns


def build_winograd(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the convolution of ``op`` that transforms the filters, all of them, before it begins."""
    blocking, operands = WinogradBlocking.of(schedule, op, target), ConvOperands.of(op)
    panels = _panels(operands, blocking, "panels", BufferRole.SCRATCH)
    body = (_filters(operands, panels, blocking), Barrier(), _tasks(operands, blocking, panels))
    scratches = (panels, *_scratch(operands, blocking))
    return operands.kernel(WINOGRAD_ID, schedule, target, scratches, body, assumptions=_own_taps(blocking))


def build_winograd_prepacked(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the convolution whose filters are the result of :func:`build_winograd_pack` for the same schedule."""
    blocking, plain = WinogradBlocking.of(schedule, op, target), ConvOperands.of(op)
    panels = _panels(plain, blocking, "w", BufferRole.CONSTANT)
    operands = ConvOperands.of(op, w=panels)
    body = (_tasks(operands, blocking, panels),)
    return operands.kernel(PREPACKED_ID, schedule, target, _scratch(operands, blocking), body)


def build_winograd_pack(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel that transforms ``op``'s filters: buffers ``w`` and ``panels``."""
    blocking, operands = WinogradBlocking.of(schedule, op, target), ConvOperands.of(op)
    panels = _panels(operands, blocking, "panels", BufferRole.OUTPUT)
    body = (_filters(operands, panels, blocking),)
    kernel = conv_kernel(op, PACK_ID, schedule, target, buffers=(operands.w, panels), body=body)
    return replace(kernel, assumptions=_own_taps(blocking))


def winograd_panels(op: Conv2dOp, schedule: Schedule, target: Target) -> TensorType:
    """Return the type of the transformed filters: (groups, panels, places, c, nr), in the accumulator's type."""
    filters, channels, *_ = op.w.static_shape
    nr = schedule.integer("nv") * vector_lanes(target, op.accumulator)
    places = WinogradBlocking.of(schedule, op, target).places
    return TensorType((op.groups, -(-filters // op.groups // nr), places, channels, nr), op.accumulator)


def _own_taps(blocking: WinogradBlocking) -> Predicate:
    """Return the guard that the filters have the taps that are transformed."""
    taps = blocking.taps
    return (taps >= R) & (taps >= S) & (taps <= R) & (taps <= S)


def _panels(operands: ConvOperands, blocking: WinogradBlocking, name: str, role: BufferRole) -> Buffer:
    return Buffer(
        name=name,
        dtype=operands.accumulator,
        space=MemorySpace.TEAM if role is BufferRole.SCRATCH else MemorySpace.GLOBAL,
        shape=(operands.groups, ceil_div(K, blocking.nr), Const(blocking.places), C, Const(blocking.nr)),
        role=role,
    )


def _filters(operands: ConvOperands, panels: Buffer, blocking: WinogradBlocking) -> Parallel:
    """Return the transform of all filters: a task is a panel."""
    task, group, first, wide = Var("pack_task"), Var("pack_group"), Var("pack_first"), Var("pack_wide")
    nr, count = blocking.nr, ceil_div(K, blocking.nr)
    grouped = operands.groups != Const(1)
    lets = (
        Let(var=group, value=task // count if grouped else Const(0)),
        Let(var=first, value=(task % count if grouped else task) * nr),
        Let(var=wide, value=minimum(nr, K - first)),
    )
    transform = TransformFilters(
        m=blocking.m,
        taps=blocking.taps,
        source=operands.w.region((group, 0, 0, 0, first), (1, R, S, C, wide)),
        target=panels.region((group, first // nr, 0, 0, 0), (1, 1, blocking.places, C, nr)),
    )
    return Parallel(level=Level.TASK, var=task, extent=operands.groups * count, body=block(*lets, transform))


def _scratch(operands: ConvOperands, blocking: WinogradBlocking) -> tuple[Buffer, ...]:
    """Return the transformed image, the products, and the copy of the image where its channels lie apart."""
    dtype, thread, places = operands.accumulator, MemorySpace.THREAD, Const(blocking.places)
    tiles = Const(blocking.rows * blocking.columns)
    depth, apart = C + blocking.gap, operands.x.element_strides[-1] != Const(1)
    halo = (*map(Const, blocking.window(blocking.rows, blocking.columns)), depth) if apart else ()
    return (
        scratch("image_places", dtype, thread, places, tiles, depth),
        scratch("sums", dtype, thread, places, tiles, Const(blocking.nr)),
        *([scratch("halo", dtype, thread, *halo)] if halo else []),
    )


def _tasks(operands: ConvOperands, blocking: WinogradBlocking, panels: Buffer) -> Parallel:
    op, m, places = operands.op, blocking.m, blocking.places
    image, sums, *halos = _scratch(operands, blocking)
    above, left = op.padding
    # Tiles beyond the last row of results are computed for nothing, those beyond the last column are not.
    rows, columns = Const(blocking.rows), ceil_div(_ACROSS, m)
    count = rows * columns
    window = (*blocking.window(rows, columns), C)
    pixels = operands.x.region((IMAGE, GROUP, TOP - above, _LEFT - left, 0), (1, 1, *window))
    copies: tuple[Node, ...] = ()
    if halos:  # where channels lie apart, a copy puts them next to each other
        halo = halos[0].region((0, 0, 0), window)
        copies, pixels = (CopyTile(source=pixels, target=halo, masked=True),), halo
    transform = TransformImage(
        m=m,
        taps=blocking.taps,
        source=pixels,
        target=image.region((0, 0, 0), (places, count, C)),
        tiles=(rows, columns),
    )
    panel, number = (FIRST + _CHANNEL) // blocking.nr, _TILE // blocking.mr
    following = (GROUP, panel, _PLACE + 1, Const(0))  # behind the last place, the next panel's first one
    product = MicroKernel(
        intrinsic=_place_tile(blocking),
        a=image.region((_PLACE, _TILE, 0), (1, _TILES, C)),
        b=panels.region((GROUP, panel, _PLACE, 0, 0), (1, 1, 1, C, blocking.nr)),
        ahead=share_of(panels, following, steps=C, run=blocking.unroll, lines=blocking.upcoming, tile=number),
        c=sums.region((_PLACE, _TILE, 0), (1, _TILES, _WIDE)),
    )
    tiles = For(var=_TILE, extent=count, step=Const(blocking.mr), length=_TILES, body=block(product))
    products = For(var=_PLACE, extent=Const(places), body=block(tiles))
    place, extents = (TOP, _LEFT, FIRST + _CHANNEL), (BAND, _ACROSS, _WIDE)
    back = TransformBack(
        m=m,
        taps=blocking.taps,
        source=sums.region((0, 0, 0), (places, count, _WIDE)),
        target=operands.at(operands.y, *place, extents),
        tiles=(rows, columns),
        expr=op.epilogue.expr,
        operands=tuple(operands.at(buffer, *place, extents) for buffer in operands.extras),
    )
    panel = For(var=_CHANNEL, extent=FILTERS, step=Const(blocking.nr), length=_WIDE, body=block(products, back))
    step, body = Const(blocking.columns * m), block(*copies, transform, panel)
    blocks = For(var=_LEFT, extent=Q, step=step, length=_ACROSS, body=body)
    return operands.tasks(blocking.rows * m, blocking.kb, (blocks,))


def _place_tile(blocking: WinogradBlocking) -> Intrinsic:
    """Return the tile of ``mr`` tiles by ``nv`` vectors of filters, over all channels of one place."""
    return Intrinsic(
        name="place_tile",
        meaning=plain_product,
        source="emitters/cpu/include/tracea/conv.h",
        attributes=(
            ("mr", blocking.mr),
            ("nv", blocking.nv),
            ("nr", blocking.nr),
            ("unroll", blocking.unroll),
            ("prefetch", blocking.prefetch),
            ("upcoming", blocking.upcoming),
            ("rows", ",".join(map(str, blocking.counts))),
        ),
    )


_ACCURACY = condition(
    "accuracy by norm",
    lambda op, _: op.accuracy is Accuracy.NORMWISE,
    needed="an error measured against the largest pixel",
    found=lambda op: f"accuracy {op.accuracy.value}: measured against each result's own products",
    remedy='ask for accuracy="normwise" where images are finite',
)
_SQUARE = condition(
    "3×3 or 5×5 filters",
    lambda op, _: op.takes_fewer_products,
    needed="3×3 or 5×5 taps in order, stride 1, dilation 1",
    found=lambda op: (
        f"{'×'.join(map(str, op.w.shape[2:]))} taps{' in reverse' * op.turned}, stride {op.stride}, "
        f"dilation {op.dilation}"
    ),
    remedy="use conv.packed",
)


def _pays(op: Conv2dOp, target: Target) -> float:
    """Few channels or filters are transformed as long as they are multiplied.

    Matrix tiles take all products, and come before it where few pixels share what is read of the filters: up to four
    times as many numbers here, from memory inside of a model. Where that is far, fewer pixels yet are not worth it.
    """
    filters, channels, *_ = op.w.static_shape
    if min(channels, filters // op.groups) < _FEW:
        return -40.0
    has_tiles = MATRIX_TILES.check(op, target) is None
    result = op.infer()
    if not has_tiles and result.is_static and brings_more(op, target, result.elements // filters):
        return -40.0
    return 50.0 if has_tiles and result.is_static and result.elements // filters >= _SHARED_PIXELS else 20.0


_REQUIREMENTS = (*CONV_REQUIREMENTS, _ACCURACY, _SQUARE)
_PREFERENCES = (Preference(name="fewer products", score=_pays),)
WINOGRAD_ID = "conv.winograd"
PREPACKED_ID = "conv.winograd_prepacked"
PACK_ID = "conv.winograd_pack"
WINOGRAD = Variant(
    id=WINOGRAD_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=_PREFERENCES,
    priority=50,
    build=build_winograd,
    space=winograd_space,
    default_schedule=winograd_default,
)
WINOGRAD_PREPACKED = Variant(
    id=PREPACKED_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=_PREFERENCES,
    priority=60,
    build=build_winograd_prepacked,
    space=winograd_space,
    default_schedule=winograd_default,
    constant_operand=1,
    build_pack=build_winograd_pack,
    pack_type=winograd_panels,
)
