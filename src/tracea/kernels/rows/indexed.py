"""Cumulative sums, and rows of a table by index: blocks of rows or columns are tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tracea.core.dtype import DType
from tracea.core.indexed_meaning import gathered_rows, running_sums
from tracea.core.ops.base import Op
from tracea.core.ops.indexed import CumulativeSumOp, GatherRowsOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.kernels.axes import AxisPlan
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, tensor_buffer
from tracea.kernels.pointwise.tile import compute_type
from tracea.kernels.requirements import (
    CPU_ELEMENTS,
    CPU_VECTORS,
    condition,
    non_negative_strides,
    strided_layouts,
)
from tracea.kernels.rows.operands import known
from tracea.kernels.rows.statistics import loops_over
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import Const, Index, Param, Var
from tracea.semantic.nodes import Block
from tracea.semantic.nodes_fragments import FragmentOp
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, TileKernel
from tracea.targets.target import Target

__all__ = [
    "FLOATS",
    "GATHER",
    "REQUIREMENTS",
    "SCAN",
    "TASK_BYTES",
    "Made",
    "block_schedule",
    "gather_types",
    "row_blocks",
    "scan_types",
]

TASK_BYTES: Final = 256 << 10
_SIDE: Final = 64  # rows or columns of a scan's task, in whole square blocks of every instruction set
# Elements of a row, up to which vectors go across rows. Measured on a Sapphire Rapids, of the time of a vector a row:
# 2, 3, 4 and 5 elements of f32 0.5, 0.67, 0.9 and 1.1, of f64 0.6, 0.75, 0.95 and 1.1, 2 and 3 of bf16 0.88, 1.14.
_SHORT_ROW: Final = {4: 4, 8: 4, 2: 2}  # by the bytes of an element
_ACROSS: Final = 16  # rows side by side, at least: a vector of the widest
FLOATS: Final = (DType.F64, DType.F32, DType.F16, DType.BF16)


# ---- cumulative sums ------------------------------------------------------------------------------------------------


def _scan_plan(op: CumulativeSumOp) -> tuple[tuple[int, ...], AxisPlan, bool]:
    """Return the order of the axes, their merging, and whether sums go along rows, else down columns.

    Columns are what lies nearer in memory than what is summed; of rows of few elements, the rows.
    """
    x, y = op.x, op.infer()
    steps = x.strides
    far_first = sorted(range(x.rank), key=lambda axis: (x.shape[axis] != 1, -steps[axis]))
    kept = [axis for axis in far_first if axis != op.axis]
    inner = [axis for axis in kept if x.shape[axis] != 1 and 0 < steps[axis] < steps[op.axis]]
    short = not inner and 1 < known(x.shape[op.axis]) <= _SHORT_ROW.get(x.dtype.nbytes, 0)
    aside = kept if short else inner
    for columns in (aside, aside[-1:], []):
        if short and columns and math.prod(known(x.shape[axis]) for axis in columns) < _ACROSS:
            continue
        outer = [axis for axis in kept if axis not in columns]
        order = (*outer, op.axis, *columns)
        dims = [x.shape[axis] for axis in order]
        types = [type_.permuted(order) for type_ in (x, y)]
        plan = AxisPlan.of(dims, types, keep=frozenset({len(outer)})).with_row_axis()
        if len(plan.groups) - 1 - plan.group_of(len(outer)) == (1 if columns else 0):
            return order, plan, not columns
        if not columns:
            break
    return order, plan, True


def scan_types(op: CumulativeSumOp, like: CumulativeSumOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer in merged axes, those of ``like``, the op that the kernel is built for."""
    order, plan, _ = _scan_plan(like or op)
    dims = [op.x.shape[axis] for axis in order]
    return {"x0": plan.apply(op.x.permuted(order), dims), "y": plan.apply(op.infer().permuted(order), dims)}


def _build_scan(op: CumulativeSumOp, schedule: Schedule, target: Target) -> TileKernel:
    order, plan, along_rows = _scan_plan(op)
    dims, types = plan.dims([op.x.shape[axis] for axis in order]), scan_types(op)
    rank = len(dims)
    scanned = rank - 1 if along_rows else rank - 2
    blocked = rank - 2 if along_rows else rank - 1
    sizes = tuple(Param(f"n{axis}") for axis in range(rank))
    x = tensor_buffer("x0", types["x0"], sizes, dims, BufferRole.INPUT)
    y = tensor_buffer("y", types["y"], sizes, dims, BufferRole.OUTPUT)
    intrinsic = Intrinsic(
        name="scan_rows" if along_rows else "scan_columns",
        meaning=partial(running_sums, axis=-1 if along_rows else -2, backward=op.backward),
        source="emitters/cpu/include/tracea/scan.h",
        attributes=(
            ("compute", compute_type(op.x.dtype, op.infer().dtype).value),
            *((("backward", 1),) if op.backward else ()),
        ),
    )
    loops = [axis for axis in range(rank) if axis != scanned]
    made = Made(op, SCAN_ID, schedule, target)
    return row_blocks(made, intrinsic, x, y, sizes=sizes, loops=loops, blocked=blocked)


# ---- rows of a table ------------------------------------------------------------------------------------------------


def gather_types(op: GatherRowsOp, like: GatherRowsOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer; indices are a column, beside the result's rows."""
    del like
    indices = op.indices
    column = TensorType((indices.shape[0], 1), indices.dtype, StridedLayout((indices.strides[0], 0)))
    return {"x0": op.table, "x1": column, "y": op.infer()}


def _build_gather(op: GatherRowsOp, schedule: Schedule, target: Target) -> TileKernel:
    types = gather_types(op)
    rows, columns, count = Param("rows"), Param("columns"), Param("count")
    table = tensor_buffer("x0", types["x0"], (rows, columns), types["x0"].shape, BufferRole.INPUT)
    indices = tensor_buffer("x1", types["x1"], (count, Const(1)), types["x1"].shape, BufferRole.INPUT)
    y = tensor_buffer("y", types["y"], (count, columns), types["y"].shape, BufferRole.OUTPUT)
    schedule.check_range(1, "block")
    start, length = Var("start"), Var("length")
    node = FragmentOp(
        intrinsic=Intrinsic(
            name="gather_rows", meaning=_gathered, source="emitters/cpu/include/tracea/indexed.h", attributes=()
        ),
        inputs=(table.whole(), indices.region((start, 0), (length, 1))),
        outputs=(y.region((start, 0), (length, columns)),),
    )
    body = loops_over((node,), [0], sizes=(count, columns), blocked=0, step=Const(schedule.integer("block")), tasks=0)
    return Made(op, GATHER_ID, schedule, target).kernel((table, indices, y), body)


def _gathered(table: Any, indices: Any) -> Any:
    return gathered_rows(table, indices.reshape(-1))


# ---- what they share ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Made:
    """What a kernel is built from."""

    op: Op
    variant: str
    schedule: Schedule
    target: Target

    def kernel(self, buffers: tuple[Buffer, ...], body: Block) -> TileKernel:
        """Return the kernel with these buffers in the op's order, the result last."""
        return TileKernel(
            name=kernel_name(self.op.key, self.variant, self.schedule, self.target),
            op=self.op,
            variant=self.variant,
            schedule=self.schedule,
            target=self.target.name,
            params=params_of(buffers),
            buffers=buffers,
            body=body,
        )


def row_blocks(
    made: Made,
    intrinsic: Intrinsic,
    x: Buffer,
    y: Buffer,
    *,
    sizes: Sequence[Index],
    loops: Sequence[int],
    blocked: int,
    room: Buffer | None = None,
) -> TileKernel:
    """Return the kernel that applies a routine to blocks of an axis of whole others, with ``room`` or without."""
    schedule = made.schedule
    schedule.check_range(1, "block")
    start, length = Var("start"), Var("length")

    def window(buffer: Buffer) -> Any:
        offset: list[Index] = [Var(f"i{axis}") if axis in loops else Const(0) for axis in range(len(sizes))]
        extent: list[Index] = [Const(1) if axis in loops else size for axis, size in enumerate(buffer.shape)]
        offset[blocked], extent[blocked] = start, length
        single = [size == Const(1) for size in buffer.shape]
        return buffer.region(
            tuple(Const(0) if one else first for one, first in zip(single, offset, strict=True)),
            tuple(Const(1) if one else size for one, size in zip(single, extent, strict=True)),
        )

    rooms = () if room is None else (room,)
    outputs = (window(y), *(buffer.whole() for buffer in rooms))
    node = FragmentOp(intrinsic=intrinsic, inputs=(window(x),), outputs=outputs)
    tasks, step = schedule.integer("tasks"), Const(schedule.integer("block"))
    body = loops_over((node,), loops, sizes=sizes, blocked=blocked, step=step, tasks=tasks)
    return made.kernel((x, y, *rooms), body)


def _default_scan(op: CumulativeSumOp, target: Target) -> Schedule:
    del target
    order, plan, along_rows = _scan_plan(op)
    dims = [known(dim) for dim in plan.dims([op.x.shape[axis] for axis in order])]
    rank = len(dims)
    scanned, blocked = (rank - 1, rank - 2) if along_rows else (rank - 2, rank - 1)
    return block_schedule(dims, [axis for axis in range(rank) if axis != scanned], blocked, _SIDE)


def _default_gather(op: GatherRowsOp, target: Target) -> Schedule:
    count, columns = (known(dim) for dim in op.shape)
    row_bytes = max(1, columns * op.table.dtype.nbytes)
    return Schedule(block=max(1, min(TASK_BYTES // row_bytes, -(-count // (4 * target.cores)))))


def block_schedule(dims: Sequence[int], loops: Sequence[int], blocked: int, block: int) -> Schedule:
    """Return blocks of one axis, and as tasks the axis that then makes most."""
    block = max(1, block)
    counts = {axis: -(-dims[axis] // block) if axis == blocked else dims[axis] for axis in loops}
    return Schedule(block=block, tasks=max(loops, key=lambda axis: counts[axis]))


def _space_of(default: Any) -> Any:

    def space(op: Any, target: Target) -> ScheduleSpace:
        chosen = default(op, target)
        block = chosen.integer("block")
        axes: dict[str, tuple[int, ...]] = {"block": tuple(dict.fromkeys((block, 4 * block, max(1, block // 4))))}
        if "tasks" in chosen:
            axes["tasks"] = (chosen.integer("tasks"),)
        return ScheduleSpace.enumerated(axes)

    return space


_STATIC = condition(
    "known extents",
    lambda op, _: all(type_.is_static for type_ in op.operands),
    needed="extents that are numbers, which say the order of the axes",
    found=lambda op: " | ".join(map(str, op.operands)),
    remedy="bind the symbolic extents",
)
REQUIREMENTS: Final = (CPU_VECTORS, strided_layouts, non_negative_strides, _STATIC)

SCAN_ID = "rows.scan"
SCAN = Variant(
    id=SCAN_ID,
    op_type=CumulativeSumOp,
    backend="cpu",
    requirements=(*REQUIREMENTS, CPU_ELEMENTS),
    preferences=(),
    priority=50,
    build=_build_scan,
    space=_space_of(_default_scan),
    default_schedule=_default_scan,
)
GATHER_ID = "rows.gather"
GATHER = Variant(
    id=GATHER_ID,
    op_type=GatherRowsOp,
    backend="cpu",
    requirements=(*REQUIREMENTS, CPU_ELEMENTS),
    preferences=(),
    priority=50,
    build=_build_gather,
    space=_space_of(_default_gather),
    default_schedule=_default_gather,
)
