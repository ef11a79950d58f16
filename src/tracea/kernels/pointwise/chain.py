"""A chain of elementwise work in one pass: any broadcasts, strides and mixed element types."""

from __future__ import annotations

import math
from typing import Any

from tracea.core.ops.pointwise import PointwiseOp
from tracea.core.tensor_type import TensorType
from tracea.kernels.axes import AxisPlan
from tracea.kernels.operands import window
from tracea.kernels.pointwise.tile import compute_type, map_tile
from tracea.kernels.requirements import CPU_ELEMENTS, CPU_VECTORS, non_negative_strides, strided_layouts
from tracea.kernels.rows.blocks import (
    PREFETCH,
    PREFETCH_SEVERAL,
    RETURNING_TASKS,
    TASKS,
    asked_ahead,
    default_blocks,
    level,
    passes_by,
    piece_of_row,
    prefetched,
    returns,
    streams,
)
from tracea.kernels.rows.operands import RowOperands, known, row_types
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.index import Index
from tracea.semantic.nodes import Node, PointwiseTile
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.target import Target

__all__ = ["CHAIN", "build_chain", "chain_plan", "chain_types"]

_COLUMNS = 1 << 14  # elements of a piece of a long row
_FEW_BYTES = 16  # of a row of the result at most, for which other rows are sought: half of a vector of AVX
_MANY = 8  # elements of those at least


def chain_plan(op: PointwiseOp) -> AxisPlan:
    """Return the merging of axes that all tensors walk alike, outermost the one whose step in the result is longest.

    Where that leaves rows of a few elements, the innermost axis is the one along which the operands are contiguous.
    """
    result = op.infer()
    types = (*op.inputs, result)
    order = () if result.is_contiguous else _by_step(result)
    plan = AxisPlan.of(op.shape, types, order=order)
    inner = _contiguous_group(op, plan) if result.is_static else None
    if inner is None:
        return plan
    others = [axis for group in plan.groups if group != inner for axis in group]
    return AxisPlan.of(op.shape, types, order=(*others, *inner))


def _by_step(type_: TensorType) -> tuple[int, ...]:
    """Return the axes by their strides, the longest first; an axis of extent 1 takes no step, and is outermost."""
    return tuple(sorted(range(type_.rank), key=lambda axis: (type_.shape[axis] != 1, -type_.strides[axis])))


def _contiguous_group(op: PointwiseOp, plan: AxisPlan) -> tuple[int, ...] | None:
    """Return the axes along which all operands of the result's size are contiguous; None where rows are long already.

    A copy of (115920, 2) of strides (1, 115920): two rows whose elements are written one by one, 0.2 of the time of
    115920 rows of two on a Xeon. With a third axis what lies between a row's elements leaves the caches.
    """
    dims = [known(dim) for dim in plan.dims(op.shape)]
    if len(dims) != 2 or dims[-1] * op.out_dtype.nbytes > _FEW_BYTES or dims[0] < _MANY:
        return None
    whole = [type_ for type_ in op.inputs if type_.elements == math.prod(dims)]
    strides = [plan.apply(type_, op.shape).strides for type_ in whole]
    found = [
        group
        for axis, group in enumerate(plan.groups)
        if strides and dims[axis] >= _MANY and all(steps[axis] == 1 for steps in strides)
    ]
    return found[0] if found else None


def _crosses_rows(op: PointwiseOp) -> bool:
    """Whether rows of the kernel are not the result's: neighbours there are of different rows, and so of one task."""
    y = chain_types(op)["y"]
    steps = [step for step, dim in zip(y.strides, y.shape, strict=True) if known(dim) != 1]
    return len(steps) > 1 and steps[-1] > min(steps)


def chain_types(op: PointwiseOp, like: PointwiseOp | None = None) -> dict[str, Any]:
    """Return the type of each buffer; axes are merged as for ``like``, the op that the kernel is built for."""
    return row_types(op, chain_plan(like or op))


def build_chain(op: PointwiseOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of a pointwise op."""
    operands = RowOperands.of(op, chain_plan(op))
    compute = compute_type(*(type_.dtype for type_ in (*op.inputs, op.infer())))
    schedule.check_range(1, "rows", "columns")
    split = schedule.choice("split", "rows", "columns", "outer")
    rows, columns = schedule.integer("rows"), schedule.integer("columns")
    intrinsic = map_tile(
        compute,
        streaming=bool(schedule.integer("streaming")),
        prefetch=prefetched(schedule),
        together=_together(schedule),
    )

    def tile(offset: tuple[Index, ...], extent: tuple[Index, ...]) -> Node:
        return PointwiseTile(
            intrinsic=intrinsic,
            expr=op.expr,
            inputs=tuple(window(buffer, offset, extent) for buffer in operands.inputs),
            target=window(operands.y, offset, extent),
        )

    if operands.rank == 1 or split == "columns":
        body = operands.over_blocks(operands.rank - 1, columns, tile, level(schedule))
    else:
        body = operands.over_blocks(
            -1 if split == "outer" and operands.rank > 2 else operands.rank - 2, rows, tile, level(schedule)
        )
    return operands.kernel(CHAIN_ID, schedule, target, (), body)


def _default(op: PointwiseOp, target: Target) -> Schedule:
    dims = [known(dim) for dim in chain_plan(op).dims(op.shape)]
    result = op.infer()
    nbytes = result.dtype.nbytes
    far = streams(nbytes * math.prod(dims), target)
    streaming = (far or passes_by(op.inputs, result, target)) and result.dtype.is_float
    fixed = returns(op.inputs if streaming else (*op.inputs, result), target)
    tasks = RETURNING_TASKS if fixed else TASKS
    rows, split = default_blocks(dims, nbytes, target, tasks)
    few_rows = len(dims) > 1 and split == "rows" and dims[-2] < 4 * target.cores and dims[-1] > 2 * _COLUMNS
    in_pieces = few_rows or len(dims) == 1 or _crosses_rows(op)
    return Schedule(
        rows=rows,
        columns=piece_of_row(dims[-1], nbytes, target, tasks) if in_pieces else _COLUMNS,
        split="columns" if in_pieces else split,
        prefetch=asked_ahead(_streams(op), target) if far else 0,
        streaming=int(streaming),
        fixed=int(fixed),
        together=2 if streaming and not in_pieces and _shares_columns(op, dims[-1], target) else 1,
    )


def _together(schedule: Schedule) -> int:
    if "together" not in schedule:  # recorded before there was a choice
        return 1
    schedule.check_range(1, "together", most=2)
    return schedule.integer("together")


def _streams(op: PointwiseOp) -> int:
    """Return how many operands have an element for each of the result's."""
    whole = math.prod(known(dim) for dim in op.shape)
    return sum(math.prod(known(dim) for dim in type_.shape) == whole for type_ in op.inputs)


def _shares_columns(op: PointwiseOp, columns: int, target: Target) -> bool:
    """Whether one row and the vectors that all rows have in common are more than a first-level cache holds.

    Then they come once for two rows. Measured on 32 KiB (Zen 4), 4096²: relu(x*s+b) 0.80 and 0.72 of the time by one
    and two threads; gelu(x+b)+r, which reads two streams, 1.1 times, so not with several.
    """
    shared = [type_ for type_ in op.inputs if math.prod(map(known, type_.shape)) == columns]
    in_common = sum(columns * type_.dtype.nbytes for type_ in shared)
    return _streams(op) == 1 and in_common > 0 and columns * op.out_dtype.nbytes + in_common > target.l1d_bytes


def _space(op: PointwiseOp, target: Target) -> ScheduleSpace:
    default = _default(op, target)
    rows = int(default["rows"])
    return ScheduleSpace.enumerated(
        {
            "rows": tuple(dict.fromkeys((rows, max(1, rows // 4), 4 * rows))),
            "columns": tuple(dict.fromkeys((int(default["columns"]), _COLUMNS, 4 * _COLUMNS))),
            "split": (default["split"],),
            "prefetch": tuple(
                dict.fromkeys((default["prefetch"], 0, PREFETCH_SEVERAL, PREFETCH // 2, PREFETCH, 2 * PREFETCH))
            ),
            "streaming": (0, 1) if op.out_dtype.is_float else (0,),
            "fixed": (0, 1),
            "together": (1,) if len(op.shape) == 1 else (1, 2),
        }
    )


CHAIN_ID = "pointwise.chain"
CHAIN = Variant(
    id=CHAIN_ID,
    op_type=PointwiseOp,
    backend="cpu",
    requirements=(CPU_VECTORS, CPU_ELEMENTS, strided_layouts, non_negative_strides),
    preferences=(),
    priority=50,
    build=build_chain,
    space=_space,
    default_schedule=_default,
)
