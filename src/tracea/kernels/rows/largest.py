"""The places of the largest few of each row, kept in order as they come: blocks of rows are tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.indexed_meaning import first_places
from tracea.core.ops.indexed import LargestOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.kernels.axes import AxisPlan
from tracea.kernels.gemm.blocking import round_up
from tracea.kernels.operands import tensor_buffer, vector_lanes
from tracea.kernels.pointwise.tile import compute_type
from tracea.kernels.requirements import condition
from tracea.kernels.rows.indexed import FLOATS, REQUIREMENTS, TASK_BYTES, Made, block_schedule, row_blocks
from tracea.kernels.rows.operands import known
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import Const, Index, Param
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import BufferRole, TileKernel
from tracea.targets.target import Target

__all__ = ["LARGEST", "MOST_LARGEST", "largest_cycles", "largest_plan", "largest_types"]

MOST_LARGEST: Final = 128  # that a row keeps: they lie in a first cache
_MOST_PLACES: Final = 1 << 24  # numbers of places that f32 holds
# Cycles of a Sapphire Rapids, of the k largest: a row alone passes an element in a fraction of one, looks at another in
# 40 and steps past half of the k; rows side by side pass a column, begin to insert, and step past all. A vector of rows
# comes by transposing a block, a vector of a turned row element by element.
_PASSED, _PASSED_TURNED = (0.7, 20.0), (3.0, 6.0)
_LOOKED_AT, _INSERTED, _STEP = 40.0, 10.0, 4.5


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


def _default_largest(op: LargestOp, target: Target) -> Schedule:
    dims = [known(dim) for dim in largest_plan(op).dims(op.x.shape)]
    blocked = len(dims) - 2
    lanes = vector_lanes(target, compute_type(op.x.dtype))
    rows = max(1, TASK_BYTES // max(1, dims[-1] * op.x.dtype.nbytes))
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


def _space(op: LargestOp, target: Target) -> ScheduleSpace:
    chosen = _default_largest(op, target)
    block = chosen.integer("block")
    return ScheduleSpace.enumerated(
        {
            "block": tuple(dict.fromkeys((block, 4 * block, max(1, block // 4)))),
            "tasks": (chosen.integer("tasks"),),
            "across": (0, 1) if known(op.x.shape[-1]) <= _MOST_PLACES else (0,),
        }
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
    space=_space,
    default_schedule=_default_largest,
)
