"""Convolution of few channels on matrix tiles: taps and channels of whole rows of a window fill a granule.

A task copies the rows that it reads, padded with zeros and channels last, and splits them into a halo of bf16 terms in
which a pixel holds whole rows of taps, as many as 32 lanes do: all 27 of 3x3 taps of 3 channels, 21 of a row of 7x7.
The product is that of ``conv.amx``, with fewer taps. Few channels alone would leave most of every granule to zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tracea.core.dtype import DType
from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import TensorType, static
from tracea.kernels.conv.amx import amx_space_of, band_numbers, panel_width, pixel_width
from tracea.kernels.conv.operands import (
    BAND,
    FILTERS,
    FIRST,
    GROUP,
    IMAGE,
    TOP,
    ConvOperands,
    K,
    Q,
    R,
    S,
    conv_kernel,
    own_sizes,
)
from tracea.kernels.conv.requirements import CONV_REQUIREMENTS, FLAT_RESULT, NEAR_WINDOWS
from tracea.kernels.gemm.amx import MATRIX_TILES, terms_hold
from tracea.kernels.gemm.blocking import equal_blocks, round_up
from tracea.kernels.gemm.matrix_tiles import GRANULE, TILE, marks_of
from tracea.kernels.operands import scratch
from tracea.kernels.requirements import condition
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import Const, Index, Var, ceil_div, equal, minimum
from tracea.semantic.intrinsics import terms_of, terms_window_product
from tracea.semantic.nodes import (
    Barrier,
    CopyTile,
    For,
    Let,
    Level,
    MicroKernel,
    Node,
    Pack,
    Parallel,
    block,
)
from tracea.semantic.nodes_halo import Halo
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["STEM", "STEM_PREPACKED", "build_stem", "build_stem_pack", "build_stem_prepacked"]

_FILLED: Final = 0.45  # of granules: below, vectors are faster
_DEEP: Final = 4  # granules: sums of fewer take less time than storing them, and vectors store while they multiply
_TASKS_PER_CORE: Final = 3


@dataclass(frozen=True, slots=True)
class _Windows:
    """An op's windows in numbers: ``rows`` of taps are in one granule, ``taps`` granules in a window."""

    channels: int
    wide: int
    rows: int
    taps: int
    down: int
    right: int

    @classmethod
    def of(cls, op: Conv2dOp) -> _Windows:
        _, channels, r, s = op.w.static_shape
        fitting = [rows for rows in range(1, r + 1) if r % rows == 0 and rows * s * channels <= GRANULE]
        rows = max(fitting, default=1)
        return cls(channels, s, rows, r // rows, *op.stride)

    @property
    def lanes(self) -> int:
        """Lanes of a granule that are not zero."""
        return self.rows * self.wide * self.channels

    def image(self, rows: Index | int, columns: Index | int) -> tuple[Index, Index]:
        """Return the rows and columns of the image that windows of so many results lie in."""
        high, wide = self.rows * self.taps, self.wide
        return (rows - 1) * self.down + high, (columns - 1) * self.right + wide  # type: ignore[return-value]

    def halo(self, rows: Index | int) -> Index:
        """Return the rows of the halo that windows of so many results lie in."""
        return (rows - 1) * self.down + (self.taps - 1) * self.rows + 1  # type: ignore[return-value]


def build_stem(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the convolution of ``op`` that packs the filters before it begins."""
    rows, filters = band_numbers(schedule)
    operands, windows = ConvOperands.of(op, flat=True, fixed_taps=True), _Windows.of(op)
    panels = _panels(operands, windows, "panels", BufferRole.SCRATCH)
    scratches = _scratch(op, windows, rows)
    body = (_pack(operands, windows, panels), Barrier(), _tasks(operands, panels, scratches, rows, filters))
    return _kernel(operands, STEM_ID, schedule, target, scratches=(panels, *scratches), body=body)


def build_stem_prepacked(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the convolution of ``op`` whose filters are the result of :func:`build_stem_pack`."""
    rows, filters = band_numbers(schedule)
    windows = _Windows.of(op)
    panels = _panels(ConvOperands.of(op, fixed_taps=True), windows, "w", BufferRole.CONSTANT)
    operands = ConvOperands.of(op, w=panels, flat=True, fixed_taps=True)
    scratches = _scratch(op, windows, rows)
    body = (_tasks(operands, panels, scratches, rows, filters),)
    return _kernel(operands, STEM_PREPACKED_ID, schedule, target, scratches=scratches, body=body)


def build_stem_pack(op: Conv2dOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel that packs ``op``'s filters: buffers ``w`` and ``panels``."""
    operands, windows = ConvOperands.of(op, fixed_taps=True), _Windows.of(op)
    panels = _panels(operands, windows, "panels", BufferRole.OUTPUT)
    body = (_pack(operands, windows, panels),)
    return conv_kernel(op, STEM_PACK_ID, schedule, target, buffers=(operands.w, panels), body=body)


def stem_panel_type(op: Conv2dOp, schedule: Schedule, target: Target) -> TensorType:
    """Return the type of the filters in panels of terms: a granule for each rows of taps that share one."""
    del schedule, target
    panels = -(-op.w.static_shape[0] // op.groups // TILE)
    return TensorType((op.groups, panels, 1, _Windows.of(op).taps, 1, GRANULE, panel_width(op)), DType.BF16)


def _panels(operands: ConvOperands, windows: _Windows, name: str, role: BufferRole) -> Buffer:
    one = Const(1)
    return Buffer(
        name=name,
        dtype=DType.BF16,
        space=MemorySpace.TEAM if role is BufferRole.SCRATCH else MemorySpace.GLOBAL,
        shape=(
            operands.groups,
            ceil_div(K, TILE),
            one,
            Const(windows.taps),
            one,
            Const(GRANULE),
            Const(panel_width(operands.op)),
        ),
        role=role,
    )


def _pack(operands: ConvOperands, windows: _Windows, panels: Buffer) -> Parallel:
    """Return the packing of all filters: a task is a panel, granule after granule."""
    task, group, first, wide = Var("pack_task"), Var("pack_group"), Var("pack_first"), Var("pack_wide")
    count, grouped, tap = ceil_div(K, TILE), operands.groups != Const(1), Var("pack_tap")
    terms, width = terms_of(operands.op.x.dtype), panel_width(operands.op)
    lets = (
        Let(var=group, value=task // count if grouped else Const(0)),
        Let(var=first, value=(task % count if grouped else task) * TILE),
        Let(var=wide, value=minimum(TILE, K - first)),
    )
    extents = (1, windows.rows, windows.wide, windows.channels, wide)
    granule = Pack(
        source=operands.w.region((group, tap * windows.rows, 0, 0, first), extents),
        target=panels.region((group, first // TILE, 0, tap, 0, 0, 0), (1, 1, 1, 1, 1, GRANULE, width)),
        panel=TILE,
        axis=1,
        terms=terms,
        marks=marks_of(terms),
        granule=GRANULE,
        merged=3,
    )
    taps = For(var=tap, extent=Const(windows.taps), body=block(granule))
    return Parallel(level=Level.TASK, var=task, extent=operands.groups * count, body=block(*lets, taps))


def _scratch(op: Conv2dOp, windows: _Windows, rows: int) -> tuple[Buffer, Buffer]:
    """Return a band of the image, and its halo: whole steps of windows, and rows that the last tile reads and drops."""
    high, wide = windows.image(rows, Q)
    height = ceil_div(windows.halo(rows), windows.down) + _spare_rows(op)
    thread = MemorySpace.THREAD
    return (
        scratch("band_of_image", DType.F32, thread, high, wide, windows.channels),
        scratch("halo", DType.BF16, thread, 1, height * windows.down, Q, pixel_width(op)),
    )


def _spare_rows(op: Conv2dOp) -> int:
    return -(-TILE // static(op.shape[3]))


def _kernel(
    operands: ConvOperands,
    variant: str,
    schedule: Schedule,
    target: Target,
    *,
    scratches: tuple[Buffer, ...],
    body: tuple[Node, ...],
) -> TileKernel:
    """Return the kernel, with guards: the taps are the op's own, and its spare rows hold a tile."""
    op = operands.op
    _, _, r, s = op.w.static_shape
    guard, spare = equal(R, r) & equal(S, s), _spare_rows(op)
    if spare < TILE:  # else a row of one result holds it
        guard = (Q * spare >= TILE) & guard
    kernel = operands.kernel(variant, schedule, target, scratches, body, assumptions=guard)
    return own_sizes(replace(kernel, params=(*kernel.params, R, S)))


def _tasks(
    operands: ConvOperands, panels: Buffer, scratches: tuple[Buffer, Buffer], rows: int, filters: int
) -> Parallel:
    op, (image, halo), windows = operands.op, scratches, _Windows.of(operands.op)
    (down, _), (above, left) = op.stride, op.padding
    copied = (*windows.image(BAND, Q), windows.channels)
    taps = windows.taps
    copy = CopyTile(
        source=operands.x.region((IMAGE, GROUP, TOP * down - above, -left, 0), (1, 1, *copied)),
        target=image.region((0, 0, 0), copied),
        masked=True,
    )
    window = halo.region((0, 0, 0, 0), (1, windows.halo(BAND), Q, pixel_width(op)))
    split = Halo(
        source=image.region((0, 0, 0), copied),
        target=window,
        lanes=GRANULE,
        terms=terms_of(op.x.dtype),
        steps=op.stride,
        taps=(Const(taps), Const(1)),
        gaps=(windows.rows, 1),
        merged=(windows.rows, windows.wide),
    )
    place, extents = (TOP, Const(0), FIRST), (BAND, Q, FILTERS)
    product = MicroKernel(
        intrinsic=_stem_conv(op),
        a=window,
        b=panels.region(
            (GROUP, FIRST // TILE, 0, 0, 0, 0, 0), (1, ceil_div(FILTERS, TILE), 1, taps, 1, GRANULE, panel_width(op))
        ),
        c=operands.at(operands.y, *place, extents),
        epilogue=operands.applied(*place, extents),
    )
    return operands.tasks(rows, filters, (copy, split, product))


def _stem_conv(op: Conv2dOp) -> Intrinsic:
    """Return the routine of a band of results on matrix tiles, each result with a pixel of the halo of its own."""
    windows, terms = _Windows.of(op), terms_of(op.x.dtype)
    marks, stride, dilation = marks_of(terms), (windows.down, 1), (windows.rows, 1)
    return Intrinsic(
        name="amx_conv",
        meaning=partial(terms_window_product, terms=terms, marks=marks, stride=stride, dilation=dilation),
        source="emitters/cpu/include/tracea/conv_amx.h; TDPBF16PS: Intel 64 and IA-32 SDM vol. 2",
        attributes=(
            ("window", 1),
            ("terms", terms),
            ("marks", marks),
            ("tile", TILE),
            ("lanes", GRANULE),
            ("spare_rows", _spare_rows(op)),
            ("stride_rows", windows.down),
            ("stride_columns", 1),
            ("dilation_rows", windows.rows),
            ("dilation_columns", 1),
            ("merged_rows", windows.rows),
            ("merged_columns", windows.wide),
            ("columns_apart", windows.right),
        ),
    )


def stem_default(op: Conv2dOp, target: Target) -> Schedule:
    """Return the schedule that needs no tuning."""
    windows = _Windows.of(op)
    height, width = (static(size) for size in op.shape[2:])
    filters = static(op.w.shape[0]) // op.groups
    columns = (width - 1) * windows.right + windows.wide
    row_bytes = width * 2 * pixel_width(op) + columns * windows.channels * DType.F32.nbytes
    result_bytes = width * filters * op.infer().dtype.nbytes
    beside = max(0, windows.rows * windows.taps - windows.down) * row_bytes  # rows that two bands read
    rows = (target.l2_bytes // 2 - beside) // (windows.down * row_bytes + result_bytes)
    rows = equal_blocks(height, min(height, max(1, rows)))
    wanted = 1 if target.cores == 1 else _TASKS_PER_CORE * target.cores
    while static(op.shape[0]) * op.groups * -(-height // rows) < wanted and rows > 1:
        rows = equal_blocks(height, max(1, rows // 2))
    return Schedule(rows=rows, kb=round_up(filters, TILE))


def stem_space(op: Conv2dOp, target: Target) -> ScheduleSpace:
    """Return the schedules worth measuring, the default among them."""
    return amx_space_of(op, stem_default(op, target))


_ONE_GRANULE = condition(
    "a row of taps in a granule",
    lambda op, _: op.w.static_shape[1] * op.w.static_shape[3] <= GRANULE and op.dilation == (1, 1) and not op.turned,
    needed=f"at most {GRANULE} taps of a row times channels of a group, next to each other and in order",
    found=lambda op: f"{op.w.static_shape[3]} x {op.w.static_shape[1]}, dilation {op.dilation}, turned {op.turned}",
    remedy="use conv.amx or conv.packed",
)


def _by_shape(op: Conv2dOp, target: Target) -> float:
    if target.isa == "plain":
        return -200.0  # arrays in place of registers: there to be read by sanitizers
    filters, channels = static(op.w.shape[0]) // op.groups, static(op.w.shape[1])
    panels = filters / round_up(filters, TILE)
    if channels / GRANULE >= _FILLED:  # conv.amx fills its granules itself, and copies nothing twice
        return -60.0
    windows = _Windows.of(op)
    return 40.0 if windows.taps >= _DEEP and windows.lanes / GRANULE * panels >= _FILLED else -60.0


_SHAPE = Preference(name="granules filled by taps", score=_by_shape)
_HELD = terms_hold("x", "w", remedy="use conv.packed")
_REQUIREMENTS = (*CONV_REQUIREMENTS, NEAR_WINDOWS, MATRIX_TILES, _HELD, FLAT_RESULT, _ONE_GRANULE)

STEM_ID = "conv.amx_stem"
STEM_PREPACKED_ID = "conv.amx_stem_prepacked"
STEM_PACK_ID = "conv.amx_stem_pack_w"
STEM = Variant(
    id=STEM_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=(_SHAPE,),
    priority=51,
    build=build_stem,
    space=stem_space,
    default_schedule=stem_default,
)
STEM_PREPACKED = Variant(
    id=STEM_PREPACKED_ID,
    op_type=Conv2dOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=(_SHAPE,),
    priority=61,
    build=build_stem_prepacked,
    space=stem_space,
    default_schedule=stem_default,
    constant_operand=1,
    build_pack=build_stem_pack,
    pack_type=stem_panel_type,
)
