"""Softmax, log-softmax, layer norm and RMS norm: blocks of rows are tasks, a row stays in cache between its passes.

What comes before (the prologue) is evaluated while the row is read, and what comes after (weight, bias, residual,
activation) on
the way out: each tensor is touched once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracea.core.dtype import DType
from tracea.core.ops.rows import RowOp
from tracea.errors import InvalidSchedule
from tracea.kernels.axes import AxisPlan
from tracea.kernels.operands import scratch, vector_lanes
from tracea.kernels.pointwise.tile import compute_type
from tracea.kernels.requirements import CPU_VECTORS, element_types, non_negative_strides, strided_layouts
from tracea.kernels.rows.operands import RowOperands, known, row_types
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import Index, ceil_div
from tracea.semantic.nodes import EpilogueCall, Node, RowTile
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["NORMALIZE", "build_normalize", "normalize_plan", "normalize_types"]

_BLOCK_BYTES = 1 << 18  # a task's share of a tensor: far more than handing out the task costs


def normalize_plan(op: RowOp) -> AxisPlan:
    """Return the merging of the axes before the last one, which is at least one."""
    shape = op.shape
    return AxisPlan.of(shape, (*op.operands, op.infer()), keep=frozenset({len(shape) - 1})).with_row_axis()


def normalize_types(op: RowOp, like: RowOp | None = None) -> dict[str, Any]:
    """Return the type of each buffer; axes are merged as for ``like``, the op that the kernel is built for."""
    return row_types(op, normalize_plan(like or op))


def build_normalize(op: RowOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of a row op."""
    operands = RowOperands.of(op, normalize_plan(op))
    compute = compute_type(*(type_.dtype for type_ in (*op.operands, op.infer())))
    lanes = vector_lanes(target, compute)
    columns = operands.sizes[-1]
    row = scratch("row", compute, MemorySpace.THREAD, ceil_div(columns, lanes) * lanes)
    xs, extras = operands.inputs[: len(op.x)], operands.inputs[len(op.x) :]

    def tile(offset: tuple[Index, ...], extent: tuple[Index, ...]) -> Node:
        return RowTile(
            kind=op.kind,
            intrinsic=Intrinsic(
                name=f"{op.kind.value}_rows",
                meaning=_as_given,
                source="emitters/cpu/include/tracea/row_tiles.h",
                attributes=(
                    ("compute", compute.value),
                    ("prefetch", schedule.integer("prefetch")),
                    ("streaming", schedule.integer("streaming")),
                ),
            ),
            inputs=tuple(operands.window(buffer, offset, extent) for buffer in xs),
            prologue=op.prologue,
            epilogue=EpilogueCall(
                expr=op.epilogue.expr,
                operands=tuple(operands.window(buffer, offset, extent) for buffer in extras),
            ),
            target=operands.window(operands.y, offset, extent),
            scratch=row.whole(),
            eps=op.eps,
        )

    if schedule.integer("rows") < 1 or schedule.word("split") not in ("rows", "outer"):
        raise InvalidSchedule(
            field="schedule", got=schedule.key, expected="rows >= 1, split rows | outer", remedy="see the space"
        )
    axis = operands.rank - 2 if schedule.word("split") == "rows" or operands.rank == 2 else -1
    body = operands.over_blocks(axis, schedule.integer("rows"), tile)
    return operands.kernel(NORMALIZE_ID, schedule, target, (row,), body)


def default_blocks(dims: Sequence[int], nbytes: int, target: Target) -> tuple[int, str]:
    """Return the rows of a task and which axis makes the tasks: enough for every core, each worth its hand-out."""
    rows = dims[-2] if len(dims) > 1 else 1
    by_bytes = max(1, _BLOCK_BYTES // max(1, dims[-1] * nbytes))
    by_cores = max(1, -(-rows // (4 * target.cores)))
    outer = len(dims) > 2 and dims[0] >= 4 * target.cores and dims[0] > rows
    return max(1, min(by_bytes, by_cores)), "outer" if outer else "rows"


def streams(result_bytes: int, target: Target) -> bool:
    """Whether a result is too large to be found in a cache by who reads it next."""
    return result_bytes > (target.l3_bytes // 2 if target.l3_bytes else 8 * target.l2_bytes)


def _default(op: RowOp, target: Target) -> Schedule:
    dims = [known(dim) for dim in normalize_plan(op).dims(op.shape)]
    result = op.infer()
    rows, split = default_blocks(dims, result.dtype.nbytes, target)
    total = result.dtype.nbytes
    for dim in dims:
        total *= dim
    return Schedule(rows=rows, split=split, prefetch=1, streaming=int(streams(total, target) and result.dtype.is_float))


def _space(op: RowOp, target: Target) -> ScheduleSpace:
    default = _default(op, target)
    rows = int(default["rows"])
    axes: Mapping[str, tuple[Value, ...]] = {
        "rows": tuple(dict.fromkeys((rows, max(1, rows // 4), 4 * rows, 16 * rows))),
        "split": (default["split"],),
        "prefetch": (0, 1),
        "streaming": (0, 1) if op.infer().dtype.is_float else (0,),
    }
    return ScheduleSpace.enumerated(axes)


def _as_given(value: Any) -> Any:
    return value


NORMALIZE_ID = "rows.normalize"
NORMALIZE = Variant(
    id=NORMALIZE_ID,
    op_type=RowOp,
    backend="cpu",
    requirements=(CPU_VECTORS, element_types(DType), strided_layouts, non_negative_strides),
    preferences=(),
    priority=50,
    build=build_normalize,
    space=_space,
    default_schedule=_default,
)
