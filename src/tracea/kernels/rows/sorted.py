"""The places of any number of a row's elements in their order: rows are sorted, blocks of them are tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.indexed_meaning import first_places
from tracea.core.ops.indexed import LargestOp
from tracea.kernels.operands import scratch, tensor_buffer, vector_lanes
from tracea.kernels.pointwise.tile import compute_type
from tracea.kernels.requirements import condition
from tracea.kernels.rows.indexed import FLOATS, REQUIREMENTS, Made, block_schedule, row_blocks
from tracea.kernels.rows.largest import MOST_LARGEST, largest_cycles, largest_plan, largest_types
from tracea.kernels.rows.operands import known
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import Const, Index, Param
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["SORTED", "build_sorted"]

_KEYS: Final = (*FLOATS, DType.I64, DType.I32, DType.I8, DType.U8)
_TASK_ELEMENTS: Final = 1 << 12  # 40 us of sorting: far more than handing out a task costs
# Of so few elements, in bytes each, the places are counted; of the k largest at most so many are always kept in order.
_COUNTED: Final = {8: 256, 4: 256, 2: 96}
_KEPT: Final = 64
# Cycles an element of a radix sort by the bytes of one: of all, and where the first are at most half of them.
_SORTED: Final = {8: (55.0, 14.0), 4: (32.0, 8.0), 2: (24.0, 7.0)}


def build_sorted(op: LargestOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel that sorts rows."""
    plan, types = largest_plan(op), largest_types(op)
    dims = plan.dims(op.x.shape)
    rank = len(dims)
    columns = Param(f"n{rank - 1}", minimum=op.k)
    sizes: tuple[Index, ...] = (*(Param(f"n{axis}") for axis in range(rank - 1)), columns)
    x = tensor_buffer("x0", types["x0"], sizes, dims, BufferRole.INPUT)
    y = tensor_buffer("y", types["y"], (*sizes[:-1], Const(op.k)), (*dims[:-1], op.k), BufferRole.OUTPUT)
    words = 2 * max(1, op.x.dtype.nbytes // 4)  # of two lists of pairs of a key and a place, an element
    room = scratch("room", DType.I64, MemorySpace.THREAD, words * columns)
    intrinsic = Intrinsic(
        name="sort_rows",
        meaning=_Sorted(op.k, op.smallest, words),
        source="emitters/cpu/include/tracea/sort.h",
        attributes=(("k", op.k), ("smallest", int(op.smallest))),
    )
    made = Made(op, SORTED_ID, schedule, target)
    return row_blocks(made, intrinsic, x, y, sizes=sizes, loops=list(range(rank - 1)), blocked=rank - 2, room=room)


@dataclass(frozen=True, slots=True)
class _Sorted:
    """The meaning of the routine for one k: the places by a stable sort; what is left in its room is not said."""

    k: int
    smallest: bool
    words: int

    def __call__(self, x: Any) -> tuple[Any, Any]:
        """Return the places of the k first of each row, and room."""
        exact = x if np.issubdtype(x.dtype, np.integer) else x.astype(np.float64)
        return first_places(exact, self.k, smallest=self.smallest), np.zeros(self.words * x.shape[-1], np.int64)


def _default(op: LargestOp, target: Target) -> Schedule:
    del target
    dims = [known(dim) for dim in largest_plan(op).dims(op.x.shape)]
    blocked = len(dims) - 2
    rows = min(max(1, _TASK_ELEMENTS // max(1, dims[-1])), -(-dims[blocked] // 4))
    return block_schedule(dims, list(range(len(dims) - 1)), blocked, rows)


def _space(op: LargestOp, target: Target) -> ScheduleSpace:
    chosen = _default(op, target)
    block = chosen.integer("block")
    blocks = tuple(dict.fromkeys((block, 4 * block, max(1, block // 4))))
    return ScheduleSpace.enumerated({"block": blocks, "tasks": (chosen.integer("tasks"),)})


def _against_insertion(op: LargestOp, target: Target) -> float:
    """Score rows that take less time sorted than with their first ones kept in order as they come."""
    if not _KEPT < op.k <= MOST_LARGEST or op.x.dtype not in FLOATS or not op.x.is_static:
        return 0.0
    nbytes, columns = op.x.dtype.nbytes, known(op.x.shape[-1])
    *_, step = largest_types(op)["x0"].strides
    rows = min(vector_lanes(target, compute_type(op.x.dtype)), max(1, op.x.elements // columns))
    least = min(largest_cycles(op.k, rows, columns, turned=step != 1))
    each = 44.0 + columns * nbytes / 16 if columns <= _COUNTED[nbytes] else _SORTED[nbytes][2 * op.k <= columns]
    return 20.0 if rows * columns * each < least else 0.0


_KEY_TYPES = condition(
    "element types",
    lambda op, _: op.x.dtype in _KEYS,
    needed=" | ".join(dtype.value for dtype in _KEYS),
    found=lambda op: op.x.dtype.value,
    remedy="cast the operand first",
)
SORTED_ID = "rows.sorted"
SORTED = Variant(
    id=SORTED_ID,
    op_type=LargestOp,
    backend="cpu",
    requirements=(*REQUIREMENTS, _KEY_TYPES),
    preferences=(Preference(name="many of a row", score=_against_insertion),),
    priority=40,
    build=build_sorted,
    space=_space,
    default_schedule=_default,
)
