"""Cumulative sums, rows of a table by index, and the places of the largest: blocks of rows or columns are tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.indexed_meaning import first_places, gathered_rows, running_sums
from tracea.core.ops.base import Op
from tracea.core.ops.indexed import CumulativeSumOp, GatherRowsOp, LargestOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.kernels.axes import AxisPlan
from tracea.kernels.gemm.blocking import round_up
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, tensor_buffer, vector_lanes
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
    "LARGEST",
    "MOST_LARGEST",
    "REQUIREMENTS",
    "SCAN",
    "Made",
    "block_schedule",
    "gather_types",
    "largest_cycles",
    "largest_plan",
    "largest_types",
    "row_blocks",
    "scan_types",
]

MOST_LARGEST: Final = 128  # that a row keeps: they lie in a first cache
_TASK_BYTES: Final = 256 << 10
_SIDE: Final = 64  # rows or columns of a scan's task, in whole square blocks of every instruction set
_MOST_PLACES: Final = 1 << 24  # numbers of places that f32 holds
# Cycles of a Sapphire Rapids, of the k largest: a row alone passes an element in a fraction of one, looks at another in
# 40 and steps past half of the k; rows side by side pass a column, begin to insert, and step past all. A vector of rows
# comes by transposing a block, a vector of a turned row element by element.
_PASSED, _PASSED_TURNED = (0.7, 20.0), (3.0, 6.0)
_LOOKED_AT, _INSERTED, _STEP = 40.0, 10.0, 4.5
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


# ---- the largest ----------------------------------------------------------------------------------------------------


def largest_plan(op: LargestOp) -> AxisPlan:
    """Return how the axes merge: all but the last one, whose elements are a row."""
    last = op.x.rank - 1
    # The result's rows are walked as those of a tensor of x's extents would be.
    result = TensorType(op.x.shape, DType.I64, StridedLayout(op.infer().strides))
    return AxisPlan.of(op.x.shape, (op.x, result), keep=frozenset({last})).with_row_axis()


def largest_types(op: LargestOp, like: LargestOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer, leading axes merged as for ``like``."""
    plan = largest_plan(like or op)
    y = op.infer()
    return {"x0": plan.apply(op.x, op.x.shape), "y": plan.apply(y, y.shape)}


def _build_largest(op: LargestOp, schedule: Schedule, target: Target) -> TileKernel:
    plan, types = largest_plan(op), largest_types(op)
    dims = plan.dims(op.x.shape)
    rank = len(dims)
    across = "across" in schedule and schedule.integer("across") == 1  # recorded before there was a choice: none
    columns = Param(f"n{rank - 1}", minimum=op.k)
    if across:
        columns = replace(columns, maximum=_MOST_PLACES)
    sizes: tuple[Index, ...] = (*(Param(f"n{axis}") for axis in range(rank - 1)), columns)
    x = tensor_buffer("x0", types["x0"], sizes, dims, BufferRole.INPUT)
    y = tensor_buffer("y", types["y"], (*sizes[:-1], Const(op.k)), (*dims[:-1], op.k), BufferRole.OUTPUT)
    intrinsic = Intrinsic(
        name="largest_across_rows" if across else "largest_of_rows",
        meaning=_Places(op.k, op.smallest),
        source="emitters/cpu/include/tracea/indexed.h",
        attributes=(("compute", compute_type(op.x.dtype).value), ("k", op.k), ("smallest", int(op.smallest))),
    )
    loops = list(range(rank - 1))
    made = Made(op, LARGEST_ID, schedule, target)
    return row_blocks(made, intrinsic, x, y, sizes=sizes, loops=loops, blocked=rank - 2)


@dataclass(frozen=True, slots=True)
class _Places:
    """The meaning of the routine for one k: the same places, by a stable sort."""

    k: int
    smallest: bool

    def __call__(self, x: Any) -> Any:
        """Return the places of the k first of each row."""
        return first_places(x.astype(np.float64), self.k, smallest=self.smallest)


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
    return Schedule(block=max(1, min(_TASK_BYTES // row_bytes, -(-count // (4 * target.cores)))))


def _default_largest(op: LargestOp, target: Target) -> Schedule:
    dims = [known(dim) for dim in largest_plan(op).dims(op.x.shape)]
    blocked = len(dims) - 2
    lanes = vector_lanes(target, compute_type(op.x.dtype))
    rows = max(1, _TASK_BYTES // max(1, dims[-1] * op.x.dtype.nbytes))
    rows = min(rows, -(-dims[blocked] // 4))
    *_, row_step, step = largest_types(op)["x0"].strides
    across = _is_less_across(op.k, min(lanes, dims[blocked]), dims[-1], turned=row_step == 1 != step)
    if across:
        rows = round_up(rows, lanes)
    return Schedule(block_schedule(dims, list(range(len(dims) - 1)), blocked, rows), across=int(across))


def _is_less_across(k: int, rows: int, columns: int, *, turned: bool) -> bool:
    """Whether as many rows side by side take less time than one after the other, by the cycles of either.

    Alone a row is passed over by vectors, and each of the k (1 + log(columns / k)) elements that are among the first
    when they come, if their order is random, is looked at by itself. Side by side a column is passed over by one
    vector, and all rows take the steps of the one that has such an element.
    """
    alone, together = largest_cycles(k, rows, columns, turned=turned)
    return columns <= _MOST_PLACES and together < alone


def largest_cycles(k: int, rows: int, columns: int, *, turned: bool) -> tuple[float, float]:
    """Return the cycles of as many rows one after the other, and side by side."""
    found = k * (1 + math.log(columns / k))
    passed, passed_across = _PASSED_TURNED if turned else _PASSED
    alone = rows * (passed * columns + found * (_LOOKED_AT + k))
    return alone, passed_across * columns + min(columns, rows * found) * (_INSERTED + _STEP * k)


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
        if isinstance(op, LargestOp):
            axes["across"] = (0, 1) if known(op.x.shape[-1]) <= _MOST_PLACES else (0,)
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
_FEW = condition(
    "few of a row",
    lambda op, _: op.k <= MOST_LARGEST,
    needed=f"at most {MOST_LARGEST} of a row, which are kept in order as they come",
    found=lambda op: f"{op.k}",
    remedy="sort the rows: variant rows.sorted",
)
_OF_FLOATS = condition(
    "floats",
    lambda op, _: op.x.dtype in FLOATS,
    needed=" | ".join(dtype.value for dtype in FLOATS),
    found=lambda op: op.x.dtype.value,
    remedy="sort the rows, which compares whole numbers as they are: variant rows.sorted",
)
LARGEST_ID = "rows.largest"
LARGEST = Variant(
    id=LARGEST_ID,
    op_type=LargestOp,
    backend="cpu",
    requirements=(*REQUIREMENTS, _OF_FLOATS, _FEW),
    preferences=(),
    priority=50,
    build=_build_largest,
    space=_space_of(_default_largest),
    default_schedule=_default_largest,
)
