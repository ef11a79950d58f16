"""Softmax, log-softmax, layer norm and RMS norm: blocks of rows are tasks, a row stays in cache between its passes.

What comes before (the prologue) is evaluated while the row is read, and what comes after (weight, bias, residual,
activation) on
the way out: each tensor is touched once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tracea.core.dtype import DType
from tracea.core.ops.rows import RowKind, RowOp
from tracea.errors import InvalidSchedule
from tracea.kernels.axes import AxisPlan
from tracea.kernels.operands import scratch, vector_lanes
from tracea.kernels.pointwise.tile import compute_type
from tracea.kernels.requirements import CPU_VECTORS, element_types, non_negative_strides, strided_layouts
from tracea.kernels.rows.blocks import (
    PREFETCH,
    RETURNING_TASKS,
    TASKS,
    default_blocks,
    kept,
    level,
    passes_by,
    prefetched,
    returns,
    streams,
)
from tracea.kernels.rows.operands import RowOperands, known, row_types
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic, as_given
from tracea.semantic.index import Index, ceil_div
from tracea.semantic.nodes import EpilogueCall, Node, RowTile
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["NORMALIZE", "build_normalize", "normalize_plan", "normalize_types"]

_SPREAD = 4  # vectors between buffered rows: normalize_pitch of the header
_COMPUTED_BYTES = 4  # of a buffered element, at least
_PAIR = 2  # rows whose passes are made together with ``overlap=2``
_PASSES = {RowKind.SOFTMAX: 3, RowKind.LOG_SOFTMAX: 3, RowKind.LAYER_NORM: 2, RowKind.RMS_NORM: 2}


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
    overlap = _overlap(op, schedule)
    pitch = (ceil_div(columns, lanes) + _SPREAD) * lanes
    kept = (1, _PASSES[op.kind], 2 * _PAIR)[overlap]  # normalize_rows_kept of the header
    row = scratch("row", compute, MemorySpace.THREAD, pitch * kept)
    xs, extras = operands.inputs[: len(op.x)], operands.inputs[len(op.x) :]

    def tile(offset: tuple[Index, ...], extent: tuple[Index, ...]) -> Node:
        return RowTile(
            kind=op.kind,
            intrinsic=Intrinsic(
                name=f"{op.kind.value}_rows",
                meaning=as_given,
                source="emitters/cpu/include/tracea/normalize.h",
                attributes=(
                    ("compute", compute.value),
                    ("overlap", overlap),
                    ("prefetch", prefetched(schedule)),
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

    schedule.check_range(1, "rows")
    split = schedule.choice("split", "rows", "outer")
    axis = operands.rank - 2 if split == "rows" or operands.rank == 2 else -1
    body = operands.over_blocks(axis, schedule.integer("rows"), tile, level(schedule))
    return operands.kernel(NORMALIZE_ID, schedule, target, (row,), body)


def _overlap(op: RowOp, schedule: Schedule) -> int:
    """Return how passes over rows overlap: 0 not at all, 1 row by row, 2 in pairs of rows.

    Raises:
        InvalidSchedule: another number, or pairs of rows that take three passes.
    """
    if "overlap" not in schedule:  # recorded before there was a choice
        return 0
    schedule.check_range(0, "overlap")
    overlap, most = schedule.integer("overlap"), _most_overlap(op)
    if overlap > most:
        raise InvalidSchedule(
            field="overlap",
            got=overlap,
            expected=f"0 to {most}",
            remedy="only kinds with two passes take pairs of rows: layer_norm and rms_norm",
        )
    return overlap


def _most_overlap(op: RowOp) -> int:
    return 2 if _PASSES[op.kind] == 2 else 1


def _shares_columns(op: RowOp) -> bool:
    """Whether what follows the norm reads two vectors or more that all rows have in common, such as weight and bias.

    Beside two rows they are more than a first-level cache holds, and come once for a pair of rows. Measured, 4096²:
    layer norm with both 4 to 8 % faster in pairs, RMS norm with a weight 4 to 11 % slower.
    """
    shared = [type_ for type_ in op.epilogue.operands if math.prod(map(known, type_.shape[:-1])) == 1]
    return _PASSES[op.kind] == 2 and len(shared) > 1


def _default(op: RowOp, target: Target) -> Schedule:
    dims = [known(dim) for dim in normalize_plan(op).dims(op.shape)]
    result = op.infer()
    nbytes = result.dtype.nbytes
    far = streams(nbytes * math.prod(dims), target)
    stream = (far or passes_by(op.operands, result, target)) and result.dtype.is_float
    fixed = returns(op.operands if stream else (*op.operands, result), target)
    rows, split = default_blocks(dims, nbytes, target, RETURNING_TASKS if fixed else TASKS)
    # Two passes have less to overlap: it pays where the rows come from beyond the second-level cache.
    fits = 2 * _PASSES[op.kind] * dims[-1] * max(nbytes, _COMPUTED_BYTES) <= target.l2_bytes
    comes = stream or not kept((*op.operands, result), target)
    overlaps = fits and rows >= _PASSES[op.kind] and (comes or _PASSES[op.kind] > 2)
    return Schedule(
        rows=rows,
        split=split,
        overlap=2 if overlaps and rows >= 2 * _PAIR and _shares_columns(op) else int(overlaps),
        prefetch=PREFETCH if far else 0,
        streaming=int(stream),
        fixed=int(fixed),
    )


def _space(op: RowOp, target: Target) -> ScheduleSpace:
    default = _default(op, target)
    rows = int(default["rows"])
    axes: Mapping[str, tuple[Value, ...]] = {
        "rows": tuple(dict.fromkeys((rows, max(1, rows // 4), 4 * rows, 16 * rows))),
        "split": (default["split"],),
        "overlap": tuple(range(_most_overlap(op) + 1)),
        "prefetch": (0, PREFETCH),
        "streaming": (0, 1) if op.infer().dtype.is_float else (0,),
        "fixed": (0, 1),
    }
    return ScheduleSpace.enumerated(axes)


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
