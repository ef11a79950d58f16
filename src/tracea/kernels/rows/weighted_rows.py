"""Weighted sums of rows of a table: blocks of sums are tasks, each of which reads its rows once for each sum."""

from __future__ import annotations

from typing import Final

from tracea.core.dtype import DType
from tracea.core.indexed_meaning import weighted_sums
from tracea.core.ops.weighted_rows import WeightedRowsOp
from tracea.core.tensor_type import TensorType
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, tensor_buffer
from tracea.kernels.pointwise.tile import compute_type
from tracea.kernels.requirements import (
    CPU_VECTORS,
    condition,
    element_types,
    non_negative_strides,
    strided_layouts,
)
from tracea.kernels.rows.statistics import loops_over
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import Const, Param, Var
from tracea.semantic.nodes_fragments import FragmentOp
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import BufferRole, TileKernel
from tracea.targets.target import Target

__all__ = ["WEIGHTED_ROWS", "weighted_rows_types"]

_FLOATS: Final = (DType.F64, DType.F32, DType.F16, DType.BF16)
_TASK_BYTES: Final = 1 << 18  # of results, a task: far more than handing it out costs


def weighted_rows_types(op: WeightedRowsOp, like: WeightedRowsOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer, those of the op."""
    del like
    return {"x0": op.table, "x1": op.indices, "x2": op.weights, "y": op.infer()}


def build_weighted_rows(op: WeightedRowsOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of weighted sums of rows."""
    schedule.check_range(1, "block")
    types = weighted_rows_types(op)
    batch, rows, columns, sums = Param("batch"), Param("rows"), Param("columns"), Param("sums")
    pair = (sums, Const(op.count))
    table = tensor_buffer("x0", types["x0"], (batch, rows, columns), types["x0"].shape, BufferRole.INPUT)
    indices = tensor_buffer("x1", types["x1"], pair, types["x1"].shape, BufferRole.INPUT)
    weights = tensor_buffer("x2", types["x2"], pair, types["x2"].shape, BufferRole.INPUT)
    y = tensor_buffer("y", types["y"], (batch, sums, columns), types["y"].shape, BufferRole.OUTPUT)
    one, start, length = Var("i0"), Var("start"), Var("length")
    node = FragmentOp(
        intrinsic=Intrinsic(
            name="weighted_rows",
            meaning=weighted_sums,
            source="emitters/cpu/include/tracea/weighted_rows.h",
            attributes=(
                ("compute", compute_type(op.table.dtype, op.weights.dtype, op.infer().dtype).value),
                ("count", op.count),
            ),
        ),
        inputs=(
            table.region((one, 0, 0), (1, rows, columns)),
            indices.region((start, 0), (length, op.count)),
            weights.region((start, 0), (length, op.count)),
        ),
        outputs=(y.region((one, start, 0), (1, length, columns)),),
    )
    step, tasks = Const(schedule.integer("block")), schedule.integer("tasks")
    buffers = (table, indices, weights, y)
    return TileKernel(
        name=kernel_name(op.key, WEIGHTED_ROWS_ID, schedule, target),
        op=op,
        variant=WEIGHTED_ROWS_ID,
        schedule=schedule,
        target=target.name,
        params=params_of(buffers),
        buffers=buffers,
        body=loops_over((node,), [0, 1], sizes=(batch, sums, columns), blocked=1, step=step, tasks=tasks),
    )


def _default(op: WeightedRowsOp, target: Target) -> Schedule:
    batch, sums, columns = op.infer().static_shape
    row_bytes = max(1, columns * op.infer().dtype.nbytes)
    block = max(1, min(_TASK_BYTES // row_bytes, -(-sums * max(1, batch) // (4 * target.cores)), sums))
    return Schedule(block=block, tasks=0 if batch > -(-sums // block) else 1)


def _space(op: WeightedRowsOp, target: Target) -> ScheduleSpace:
    chosen = _default(op, target)
    block = chosen.integer("block")
    blocks = tuple(dict.fromkeys((block, 4 * block, max(1, block // 4))))
    return ScheduleSpace.enumerated({"block": blocks, "tasks": (chosen.integer("tasks"),)})


_STATIC = condition(
    "known extents",
    lambda op, _: all(type_.is_static for type_ in op.operands),
    needed="extents that are numbers, by which the sums are cut",
    found=lambda op: " | ".join(map(str, op.operands)),
    remedy="bind the symbolic extents",
)

WEIGHTED_ROWS_ID = "rows.weighted"
WEIGHTED_ROWS = Variant(
    id=WEIGHTED_ROWS_ID,
    op_type=WeightedRowsOp,
    backend="cpu",
    requirements=(
        CPU_VECTORS,
        strided_layouts,
        non_negative_strides,
        _STATIC,
        element_types((*_FLOATS, DType.I64, DType.I32)),
    ),
    preferences=(),
    priority=50,
    build=build_weighted_rows,
    space=_space,
    default_schedule=_default,
)
