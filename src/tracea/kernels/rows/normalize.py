"""Softmax, log-softmax, layer norm and RMS norm: blocks of rows are tasks, a row stays in cache between its passes.

What comes before (the prologue) is evaluated while the row is read, and what comes after (weight, bias, residual,
activation) on
the way out: each tensor is touched once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tracea.core.ops.rows import RowKind, RowOp
from tracea.kernels.axes import AxisPlan
from tracea.kernels.cores import fetches_far
from tracea.kernels.operands import scratch, vector_lanes, window
from tracea.kernels.pointwise.tile import compute_type
from tracea.kernels.requirements import CPU_ELEMENTS, CPU_VECTORS, non_negative_strides, strided_layouts
from tracea.kernels.rows.blocks import (
    PREFETCH,
    PREFETCH_PASSES,
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
_PAIR = 2  # rows whose passes are made together: two passes, overlap=2
_REGISTERS_OF_A_PAIR = 32  # what two rows sum, keep and read at a time is more than 16
_SMALL_CACHE_BYTES = 32 << 10  # of the first level: what was measured to want another order than 48 KiB
_MOST_OVERLAP = 2
_PREFETCH_ROW = 256  # vectors: a row of 4096 elements, where rows are read one at a time
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
    overlap = _overlap(schedule)
    pitch = (ceil_div(columns, lanes) + _SPREAD) * lanes
    passes = _PASSES[op.kind]
    kept = (1, passes, 2 * _PAIR if passes == 2 else 2)[overlap]  # normalize_rows_kept of the header
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
                    *((("near", 1),) if _is_near(schedule) else ()),
                ),
            ),
            inputs=tuple(window(buffer, offset, extent) for buffer in xs),
            prologue=op.prologue,
            epilogue=EpilogueCall(
                expr=op.epilogue.expr,
                operands=tuple(window(buffer, offset, extent) for buffer in extras),
            ),
            target=window(operands.y, offset, extent),
            scratch=row.whole(),
            eps=op.eps,
        )

    schedule.check_range(1, "rows")
    split = schedule.choice("split", "rows", "outer")
    axis = operands.rank - 2 if split == "rows" or operands.rank == 2 else -1
    body = operands.over_blocks(axis, schedule.integer("rows"), tile, level(schedule))
    return operands.kernel(NORMALIZE_ID, schedule, target, (row,), body)


def _overlap(schedule: Schedule) -> int:
    """Return how passes over rows overlap: 0 not at all, 1 row by row, 2 by what the passes leave.

    Of two passes 2 makes each over two rows at a time. Of three it makes them over three rows, as 1 does, but in turns
    of a few vectors and over what one row leaves.

    Raises:
        OutOfRange: another number.
    """
    if "overlap" not in schedule:  # recorded before there was a choice
        return 0
    schedule.check_range(0, "overlap", most=_MOST_OVERLAP)
    return schedule.integer("overlap")


def _is_near(schedule: Schedule) -> bool:
    """Whether rows are asked for into the first cache, not the second.

    Raises:
        OutOfRange: it is neither 0 nor 1.
    """
    if "near" not in schedule:  # recorded before there was a choice
        return False
    schedule.check_range(0, "near", most=1)
    return schedule.integer("near") == 1


def _overlap_beyond(op: RowOp, row_bytes: int, target: Target) -> int:
    """Return how passes overlap over rows that come from beyond the second-level cache: by what is at hand at a time.

    With three passes those are three rows: what is read, what was read before, and its exponentials. Measured, softmax
    4096² on 32 KiB (Zen 4): at 0.72 of a copy by passes one after the other, 0.82 in turns; on 48 KiB three rows fit.

    With two passes those are two rows and the vectors that all rows have in common, such as weight and bias, which come
    once for a pair. Measured, 4096² on 48 KiB: layer norm with both 4 to 8 % faster in pairs, RMS norm with a weight,
    which fits, 4 to 11 % slower; on 32 KiB 0.79 and 0.92 of the time. All that is on 32 registers.

    With 16, whose vectors are half a line, rows of a pair take turns of some vectors. Of the time row by row (Zen 3,
    32 KiB, one thread, six processes): layer norm 4096² 0.86 to 0.90, once 1.11, RMS norm 0.87 to 0.94, 8192 columns
    0.83 to 0.90; no gain where two rows and the shared vectors fit, none without such vectors, and by two threads 0.93
    to 1.15. Softmax takes 0.60 to 0.65 in turns, also where three rows fit.

    On 32 KiB (Zen 4), of the time of pairs: where nothing is shared, passes row by row 1.1 to 1.2; a row at a time,
    where two rows and the shared vectors leave room, by one thread 0.76 to 0.95 (layer norm of 768 to 1536 columns, RMS
    norm of 1024 and 2048, bare ones of 1024 and 4096), by two 1.0 and, bare, 1.1 to 1.15.

    A core that fetches far ahead itself (Zen 5, 48 KiB) makes three passes over rows of 8192 columns too 0.88 of the
    time; with two shared vectors and one thread, layer norm of 4096 and 8192 columns row by row 0.78 and 0.90, of 768
    to 2048, which fit in pairs, 1.0 to 1.26.
    """
    few = target.vector_registers < _REGISTERS_OF_A_PAIR
    if _PASSES[op.kind] > 2:
        return 2 if few or (3 * row_bytes > target.l1d_bytes and not fetches_far(target)) else 1
    shared = _shared_vectors(op)
    at_hand = (2 + shared) * row_bytes
    if fetches_far(target) and target.cores == 1 and shared > 1 and at_hand > target.l1d_bytes:
        return 0
    if few:
        return 2 if target.cores == 1 and shared > 0 and at_hand > target.l1d_bytes else 1
    if target.l1d_bytes <= _SMALL_CACHE_BYTES:
        leaves_room = at_hand < target.l1d_bytes or (shared == 0 and at_hand == target.l1d_bytes)
        return 0 if target.cores == 1 and leaves_room else 2
    return 2 if shared > 1 or (shared > 0 and at_hand > target.l1d_bytes) else 1


def _shared_vectors(op: RowOp) -> int:
    """Return how many operands of the epilogue all rows have in common."""
    return sum(math.prod(map(known, type_.shape[:-1])) == 1 for type_ in op.epilogue.operands)


def _default(op: RowOp, target: Target) -> Schedule:
    dims = [known(dim) for dim in normalize_plan(op).dims(op.shape)]
    result = op.infer()
    nbytes = result.dtype.nbytes
    far = streams(nbytes * math.prod(dims), target)
    stream = (far or passes_by(op.operands, result, target)) and result.dtype.is_float
    fixed = returns(op.operands if stream else (*op.operands, result), target)
    rows, split = default_blocks(dims, nbytes, target, RETURNING_TASKS if fixed else TASKS)
    passes, row_bytes = _PASSES[op.kind], dims[-1] * max(nbytes, _COMPUTED_BYTES)
    # Two passes have less to overlap: it pays where the rows come from beyond the second-level cache.
    fits = 2 * passes * row_bytes <= target.l2_bytes
    comes = stream or not kept((*op.operands, result), target)
    overlaps = fits and rows >= passes and (comes or passes > 2)
    enough = passes > 2 or rows >= 2 * _PAIR
    overlap = _overlap_beyond(op, row_bytes, target) if overlaps and comes and enough else int(overlaps)
    # A row at a time that the first cache keeps beside the shared vectors is read in one go: asking ahead costs 0.1.
    alone = overlaps and overlap == 0 and _shared_vectors(op) > 0
    return Schedule(
        rows=rows,
        split=split,
        overlap=overlap,
        prefetch=_prefetch(overlap, alone, target) if far else 0,
        streaming=int(stream),
        fixed=int(fixed),
        # Measured on a Zen 5, one thread, 4096²: RMS norm 0.86 of the time, layer norm 0.93, softmax 1.04.
        near=int(far and passes == 2 and fetches_far(target)),
    )


def _prefetch(overlap: int, alone: bool, target: Target) -> int:
    """Return the vectors ahead at which rows are asked for: far, where the core does so and a pass waits for them."""
    if fetches_far(target):
        return (_PREFETCH_ROW, PREFETCH_PASSES, PREFETCH)[overlap]
    return 0 if alone else PREFETCH


def _space(op: RowOp, target: Target) -> ScheduleSpace:
    default = _default(op, target)
    rows = int(default["rows"])
    axes: Mapping[str, tuple[Value, ...]] = {
        "rows": tuple(dict.fromkeys((rows, max(1, rows // 4), 4 * rows, 16 * rows))),
        "split": (default["split"],),
        "overlap": tuple(range(_MOST_OVERLAP + 1)),
        "prefetch": (0, PREFETCH, PREFETCH_PASSES, _PREFETCH_ROW),
        "streaming": (0, 1) if op.infer().dtype.is_float else (0,),
        "fixed": (0, 1),
        "near": (0, 1),
    }
    return ScheduleSpace.enumerated(axes)


NORMALIZE_ID = "rows.normalize"
NORMALIZE = Variant(
    id=NORMALIZE_ID,
    op_type=RowOp,
    backend="cpu",
    requirements=(CPU_VECTORS, CPU_ELEMENTS, strided_layouts, non_negative_strides),
    preferences=(),
    priority=50,
    build=build_normalize,
    space=_space,
    default_schedule=_default,
)
