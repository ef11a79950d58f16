"""Depthwise convolution on vectors: each filter has one channel of its own, and vectors run along channels.

Where channels come last, tiles of pixels read the image itself, taps outside of it being zeros. Else a task copies the
rows that it reads of a block of channels, channels last and padded with zeros, and tiles read them there.
``conv.depthwise`` packs the filters in each call, ``conv.depthwise_prepacked`` reads constants.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import TensorType
from tracea.kernels.conv.depthwise_blocking import DepthwiseBlocking, depthwise_default, depthwise_space
from tracea.kernels.conv.operands import (
    BAND,
    GROUPS,
    IMAGE,
    IMAGES,
    TOP,
    H,
    P,
    Q,
    R,
    S,
    W,
    conv_types,
    tap_of,
    window_of,
)
from tracea.kernels.conv.operands import conv_kernel as kernel_of
from tracea.kernels.conv.requirements import CONV_REQUIREMENTS
from tracea.kernels.operands import scratch, tensor_buffer, vector_lanes
from tracea.kernels.requirements import condition
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic, Region
from tracea.semantic.index import Const, Index, Var, ceil_div, minimum
from tracea.semantic.intrinsics import channelwise_product
from tracea.semantic.nodes import (
    Barrier,
    CopyTile,
    EpilogueCall,
    For,
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

__all__ = ["DEPTHWISE", "DEPTHWISE_PREPACKED", "build_depthwise", "build_depthwise_pack", "build_depthwise_prepacked"]

_FIRST, _CHANNELS = Var("first"), Var("channels")  # a task's first channel and their number
_CHANNEL, _WIDE = Var("channel"), Var("wide")
_LINE, _PIXEL, _PIXELS = Var("line"), Var("pixel"), Var("pixels")


@dataclass(frozen=True, slots=True)
class _Operands:
    """The global buffers, groups as the last axis: x (images, h, w, k), w (r, s, k), y (images, p, q, k)."""

    op: Conv2dOp
    x: Buffer
    w: Buffer
    y: Buffer
    extras: tuple[Buffer, ...]

    @classmethod
    def of(cls, op: Conv2dOp) -> _Operands:
        types = conv_types(op)
        y_shape, y_dims = (IMAGES, P, Q, GROUPS), types["y_last"].static_shape

        def result(name: str, role: BufferRole) -> Buffer:
            return tensor_buffer(name, types[name], y_shape, y_dims, role)

        def operand(name: str, shape: tuple[Index, ...]) -> Buffer:
            return tensor_buffer(name, types[name], shape, types[name].shape, BufferRole.INPUT)

        names = tuple(f"x{position}_last" for position in range(1, len(op.epilogue.operands) + 1))
        return cls(
            op,
            operand("x_last", (IMAGES, H, W, GROUPS)),
            operand("w_last", (R, S, GROUPS)),
            result("y_last", BufferRole.OUTPUT),
            tuple(result(name, BufferRole.INPUT) for name in names),
        )

    @property
    def sums_in_place(self) -> bool:
        return self.y.dtype is self.op.accumulator and self.y.element_strides[-1] == Const(1)

    @property
    def reads_image(self) -> bool:
        """Whether tiles read the image itself: its channels lie next to each other, so that no copy orders them."""
        return self.x.element_strides[-1] == Const(1)

    def at(self, buffer: Buffer) -> Region:
        """Return the current tile of the result or of what broadcasts to it."""
        single = [size == Const(1) for size in buffer.shape]
        offset, extent = (IMAGE, TOP + _LINE, _PIXEL, _FIRST + _CHANNEL), (1, 1, _PIXELS, _WIDE)
        return buffer.region(
            tuple(0 if one else start for one, start in zip(single, offset, strict=True)),
            tuple(1 if one else size for one, size in zip(single, extent, strict=True)),
        )

    def epilogue(self) -> EpilogueCall | None:
        if self.sums_in_place and self.op.epilogue.is_identity:
            return None
        return EpilogueCall(
            expr=self.op.epilogue.expr,
            operands=tuple(map(self.at, self.extras)),
            target=None if self.sums_in_place else self.at(self.y),
        )


def build_depthwise(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the depthwise convolution of ``op`` that packs the filters before it begins."""
    blocking, operands = DepthwiseBlocking.of(schedule, op, target), _Operands.of(op)
    panels = _panels(op, blocking, "panels", BufferRole.SCRATCH)
    scratches = _scratch(operands, blocking)
    buffers = (operands.x, operands.w, *operands.extras, operands.y, panels, *scratches)
    body = (_pack(operands, panels, blocking), Barrier(), _tasks(operands, blocking, panels, scratches))
    return kernel_of(op, DEPTHWISE_ID, schedule, target, buffers=buffers, body=body)


def build_depthwise_prepacked(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the depthwise convolution of ``op`` whose filters are the result of :func:`build_depthwise_pack`."""
    blocking = DepthwiseBlocking.of(schedule, op, target)
    panels = _panels(op, blocking, "w_last", BufferRole.CONSTANT)
    operands = replace(_Operands.of(op), w=panels)
    scratches = _scratch(operands, blocking)
    buffers = (operands.x, panels, *operands.extras, operands.y, *scratches)
    body = (_tasks(operands, blocking, panels, scratches),)
    return kernel_of(op, DEPTHWISE_PREPACKED_ID, schedule, target, buffers=buffers, body=body)


def build_depthwise_pack(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel that packs ``op``'s filters: buffers ``w_last`` and ``panels``."""
    blocking, operands = DepthwiseBlocking.of(schedule, op, target), _Operands.of(op)
    panels = _panels(op, blocking, "panels", BufferRole.OUTPUT)
    body = (_pack(operands, panels, blocking),)
    return kernel_of(op, DEPTHWISE_PACK_ID, schedule, target, buffers=(operands.w, panels), body=body)


def depthwise_panel_type(op: Conv2dOp, schedule: Schedule, target: Target) -> TensorType:
    """Return the type of the filters in panels: (panels, r, s, nr), in the accumulator's element type."""
    nr = schedule.integer("nv") * vector_lanes(target, op.accumulator)
    _, _, r, s = op.w.static_shape
    return TensorType((-(-op.groups // nr), r, s, nr), op.accumulator)


def _panels(op: Conv2dOp, blocking: DepthwiseBlocking, name: str, role: BufferRole) -> Buffer:
    return Buffer(
        name=name,
        dtype=op.accumulator,
        space=MemorySpace.TEAM if role is BufferRole.SCRATCH else MemorySpace.GLOBAL,
        shape=(ceil_div(GROUPS, blocking.nr), R, S, Const(blocking.nr)),
        role=role,
    )


def _pack(operands: _Operands, panels: Buffer, blocking: DepthwiseBlocking) -> Parallel:
    """Return the packing of all filters: a task is a panel, row after row of taps; of turned filters tap after tap."""
    op, first, wide, r, s, nr = (
        operands.op,
        Var("pack_first"),
        Var("pack_wide"),
        Var("pack_r"),
        Var("pack_s"),
        blocking.nr,
    )
    column, columns = (s, Const(1)) if op.turned else (Const(0), S)
    row, tap = tap_of(op, r, column) if op.turned else (r, column)
    taps = Pack(
        source=operands.w.region((row, tap, first), (1, columns, wide)),
        target=panels.region((first // nr, r, column, 0), (1, 1, columns, nr)),
        panel=nr,
        axis=1,
    )
    row_of_taps = For(var=s, extent=S, body=block(taps)) if op.turned else taps
    rows = For(var=r, extent=R, body=block(row_of_taps))
    return Parallel(level=Level.TASK, var=first, extent=GROUPS, step=Const(nr), length=wide, body=block(rows))


def _scratch(operands: _Operands, blocking: DepthwiseBlocking) -> tuple[Buffer, ...]:
    dtype, thread = operands.op.accumulator, MemorySpace.THREAD
    halo = scratch("halo", dtype, thread, *window_of(operands.op, blocking.rows, Q), blocking.cb)
    sums = scratch("sums", dtype, thread, blocking.mr, blocking.nr)
    return (*(() if operands.reads_image else (halo,)), *(() if operands.sums_in_place else (sums,)))


def _tasks(operands: _Operands, blocking: DepthwiseBlocking, panels: Buffer, scratches: tuple[Buffer, ...]) -> Parallel:
    op = operands.op
    (down, right), (above, left) = op.stride, op.padding
    window, direct = (*window_of(op, 1, _PIXELS), _WIDE), operands.reads_image
    place = ((TOP + _LINE) * down - above, _PIXEL * right - left, _FIRST + _CHANNEL)
    tile = MicroKernel(
        intrinsic=depthwise_tile(op, blocking),
        a=operands.x.region((IMAGE, *place), (1, *window))
        if direct
        else scratches[0].region((_LINE * down, _PIXEL * right, _CHANNEL), window),
        masked=direct,
        b=panels.region(((_FIRST + _CHANNEL) // blocking.nr, 0, 0, 0), (1, R, S, blocking.nr)),
        c=operands.at(operands.y) if operands.sums_in_place else scratches[-1].region((0, 0), (_PIXELS, _WIDE)),
        epilogue=operands.epilogue(),
    )
    copies: tuple[Node, ...] = ()
    if not direct:
        copied = (*window_of(op, BAND, Q), _CHANNELS)
        source = operands.x.region((IMAGE, TOP * down - above, -left, _FIRST), (1, *copied))
        copies = (CopyTile(source=source, target=scratches[0].region((0, 0, 0), copied), masked=True),)
    loops: tuple[partial[For], ...] = (
        partial(For, var=_CHANNEL, extent=_CHANNELS, step=Const(blocking.nr), length=_WIDE),
        partial(For, var=_LINE, extent=BAND),
        partial(For, var=_PIXEL, extent=Q, step=Const(blocking.mr), length=_PIXELS),
    )
    if direct and blocking.inner:
        loops = (*loops[1:], loops[0])
    tiles: Node = tile
    for loop in reversed(loops):
        tiles = loop(body=block(tiles))
    task, bands, blocks = Var("task"), ceil_div(P, blocking.rows), ceil_div(GROUPS, blocking.cb)
    lets = (
        Let(var=IMAGE, value=task // (bands * blocks)),
        Let(var=TOP, value=task // blocks % bands * blocking.rows),
        Let(var=BAND, value=minimum(blocking.rows, P - TOP)),
        Let(var=_FIRST, value=task % blocks * blocking.cb),
        Let(var=_CHANNELS, value=minimum(blocking.cb, GROUPS - _FIRST)),
    )
    return Parallel(level=Level.TASK, var=task, extent=IMAGES * bands * blocks, body=block(*lets, *copies, tiles))


def depthwise_tile(op: Conv2dOp, blocking: DepthwiseBlocking) -> Intrinsic:
    """Return the tile of ``mr`` pixels of one row by ``nv`` vectors of channels, over all taps."""
    return Intrinsic(
        name="depthwise_tile",
        meaning=partial(channelwise_product, stride=op.stride, dilation=op.dilation),
        source="emitters/cpu/include/tracea/depthwise.h",
        attributes=(
            ("window", 1),
            ("channelwise", 1),
            ("mr", blocking.mr),
            ("nv", blocking.nv),
            ("nr", blocking.nr),
            ("rows", ",".join(map(str, blocking.pixels))),
            ("stride_rows", op.stride[0]),
            ("stride_columns", op.stride[1]),
            ("dilation_rows", op.dilation[0]),
            ("dilation_columns", op.dilation[1]),
        ),
    )


_ONE_CHANNEL = condition(
    "one channel and one filter a group",
    lambda op, _: op.w.shape[1] == 1 and op.w.shape[0] == op.groups,
    needed="groups = channels = filters",
    found=lambda op: f"groups = {op.groups}, channels = {op.x.shape[1]}, filters = {op.w.shape[0]}",
    remedy="use conv.packed, which takes any groups",
)

DEPTHWISE_ID = "conv.depthwise"
DEPTHWISE_PREPACKED_ID = "conv.depthwise_prepacked"
DEPTHWISE_PACK_ID = "conv.depthwise_pack_w"
DEPTHWISE = Variant(
    id=DEPTHWISE_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=(*CONV_REQUIREMENTS, _ONE_CHANNEL),
    preferences=(),
    priority=110,
    build=build_depthwise,
    space=depthwise_space,
    default_schedule=depthwise_default,
)
DEPTHWISE_PREPACKED = Variant(
    id=DEPTHWISE_PREPACKED_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=(*CONV_REQUIREMENTS, _ONE_CHANNEL),
    preferences=(),
    priority=112,
    build=build_depthwise_prepacked,
    space=depthwise_space,
    default_schedule=depthwise_default,
    constant_operand=1,
    build_pack=build_depthwise_pack,
    pack_type=depthwise_panel_type,
)
