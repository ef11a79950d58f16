"""Sums of rows by index, the gradient of rows of a table: a task has a block of the table's rows and of its columns.

It lists which rows of x are of each of its own, in their order, and writes each of its rows once: their sum, or zero.
What no two tasks share needs no order between them, so the bits depend on neither threads nor the schedule.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.ops.indexed import SumRowsOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidOp
from tracea.kernels.gemm.blocking import round_up
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, scratch, tensor_buffer
from tracea.kernels.pointwise.tile import compute_type
from tracea.kernels.requirements import CPU_VECTORS, condition, element_types, non_negative_strides, strided_layouts
from tracea.kernels.rows.blocks import TASKS, streams
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import Const, Param, Var, ceil_div, minimum
from tracea.semantic.nodes import Let, Level, Parallel, block
from tracea.semantic.nodes_fragments import FragmentOp
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["SUM_ROWS", "build_sum_rows", "chained_rows", "sum_rows_types", "sums_of_chains"]

_FLOATS: Final = (DType.F64, DType.F32, DType.F16, DType.BF16)
_ROWS, _COLUMNS, _COUNT = Param("rows"), Param("columns", minimum=1, maximum=2**24), Param("count")
_HEADER: Final = "emitters/cpu/include/tracea/row_sums.h"
_NO_ROW: Final = -1
_LEAST_BYTES: Final = 128  # of a block of columns: two lines, which are fetched together
# What a task spends on one index, in bytes of rows that it could have summed: 1.3 cycles, at 8 bytes each.
_INDEX_BYTES: Final = 10
_LISTING: Final = 10  # one part in so many of the time may go into it


def sum_rows_types(op: SumRowsOp, like: SumRowsOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer; indices are a column, beside the rows of x.

    Raises:
        InvalidOp: the row that is skipped is another than that of ``like``, the op that the kernel is built for.
    """
    if like is not None and op.skipped != like.skipped:
        raise InvalidOp(
            field="sum_rows.skipped",
            got=op.skipped,
            expected=like.skipped,
            remedy="build the kernel for this row",
        )
    indices = op.indices
    column = TensorType((indices.shape[0], 1), indices.dtype, StridedLayout((indices.strides[0], 0)))
    return {"x0": op.x, "x1": column, "y": op.infer()}


def build_sum_rows(op: SumRowsOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of sums of rows by index."""
    schedule.check_range(1, "rows", "columns")
    schedule.check_range(0, "streaming", most=1)
    tall, wide = Const(schedule.integer("rows")), Const(schedule.integer("columns"))
    types = sum_rows_types(op)
    x = tensor_buffer("x0", types["x0"], (_COUNT, _COLUMNS), types["x0"].shape, BufferRole.INPUT)
    indices = tensor_buffer("x1", types["x1"], (_COUNT, Const(1)), types["x1"].shape, BufferRole.INPUT)
    y = tensor_buffer("y", types["y"], (_ROWS, _COLUMNS), types["y"].shape, BufferRole.OUTPUT)
    heads = scratch("heads", DType.I32, MemorySpace.THREAD, 1, minimum(tall, _ROWS))
    links = scratch("links", DType.I32, MemorySpace.THREAD, 1, _COUNT)
    task, start, length, first, width = (Var(name) for name in ("task", "start", "length", "first", "width"))
    pieces = ceil_div(_COLUMNS, wide)
    lists = heads.region((0, 0), (1, length)), links.whole()
    chain = FragmentOp(
        intrinsic=Intrinsic(
            name="chain_rows",
            meaning=partial(chained_rows, skipped=op.skipped),
            source=_HEADER,
            attributes=(("skipped", _NO_ROW if op.skipped is None else op.skipped),),
        ),
        inputs=(indices.whole(),),
        outputs=lists,
        indices=(start, length),
    )
    total = FragmentOp(
        intrinsic=Intrinsic(
            name="sum_chained_rows",
            meaning=sums_of_chains,
            source=_HEADER,
            attributes=(
                ("compute", compute_type(op.x.dtype, op.infer().dtype).value),
                ("streaming", schedule.integer("streaming")),
            ),
        ),
        inputs=(*lists, x.region((0, first), (_COUNT, width))),
        outputs=(y.region((start, first), (length, width)),),
    )
    body = block(
        Let(var=start, value=task // pieces * tall),
        Let(var=length, value=minimum(tall, _ROWS - start)),
        Let(var=first, value=task % pieces * wide),
        Let(var=width, value=minimum(wide, _COLUMNS - first)),
        chain,
        total,
    )
    buffers = (x, indices, y, heads, links)
    return TileKernel(
        name=kernel_name(op.key, SUM_ROWS_ID, schedule, target),
        op=op,
        variant=SUM_ROWS_ID,
        schedule=schedule,
        target=target.name,
        params=params_of(buffers),
        buffers=buffers,
        body=block(Parallel(level=Level.TASK, var=task, extent=ceil_div(_ROWS, tall) * pieces, body=body)),
    )


def chained_rows(indices: Any, start: int, length: int, *, skipped: int | None) -> tuple[Any, Any]:
    """Return the first place of each index from ``start`` on, so many of them, and after each place the next one."""
    heads, links = np.full(length, _NO_ROW, np.int32), np.full(indices.size, _NO_ROW, np.int32)
    numbers: list[int] = indices.reshape(-1).tolist()
    for place in reversed(range(len(numbers))):
        index = numbers[place]
        if start <= index < start + length:
            links[place], heads[index - start] = heads[index - start], place
    if skipped is not None and start <= skipped < start + length:
        heads[skipped - start] = _NO_ROW
    return heads, links


def sums_of_chains(heads: Any, links: Any, x: Any) -> Any:
    """Return for each list the sum of its rows."""
    following = links.reshape(-1).tolist()
    sums = np.zeros((heads.size, x.shape[-1]))
    for row, head in enumerate(heads.reshape(-1).tolist()):
        place = head
        while place != _NO_ROW:
            sums[row] += x[place].astype(np.float64)
            place = following[place]
    return sums


def _default(op: SumRowsOp, target: Target) -> Schedule:
    """Cut columns for each core first, so that indices that are all one keep all busy; then rows, as listing allows."""
    rows, columns = op.infer().static_shape
    count, nbytes = op.indices.elements, op.x.dtype.nbytes
    row_bytes = columns * nbytes
    pieces = max(1, min(target.cores, row_bytes // _LEAST_BYTES))
    wide = min(round_up(-(-columns // pieces), _LEAST_BYTES // nbytes), max(1, columns))
    affordable = (count + rows) * row_bytes // max(1, count * _INDEX_BYTES * _LISTING)
    tasks = max(target.cores, min(TASKS * target.cores, affordable))
    tall = -(-rows // max(1, tasks // pieces))
    return Schedule(rows=max(1, tall), columns=wide, streaming=int(streams(op.infer().nbytes, target)))


def _space(op: SumRowsOp, target: Target) -> ScheduleSpace:
    chosen = _default(op, target)
    tall, wide = chosen.integer("rows"), chosen.integer("columns")
    return ScheduleSpace.enumerated(
        {
            "rows": tuple(dict.fromkeys((tall, max(1, tall // 4), 4 * tall))),
            "columns": tuple(dict.fromkeys((wide, max(wide, op.x.static_shape[1])))),
            "streaming": (0, 1),
        }
    )


_STATIC = condition(
    "known extents",
    lambda op, _: all(type_.is_static for type_ in op.operands),
    needed="extents that are numbers, by which the table is cut",
    found=lambda op: " | ".join(map(str, op.operands)),
    remedy="bind the symbolic extents",
)
_NON_EMPTY = condition(
    "columns",
    lambda op, _: not op.x.is_static or op.x.static_shape[1] > 0,
    needed="a column, at least",
    found=lambda op: str(op.x),
    remedy="a result of no elements needs no kernel",
)

SUM_ROWS_ID = "rows.sum_by_index"
SUM_ROWS = Variant(
    id=SUM_ROWS_ID,
    op_type=SumRowsOp,
    backend="cpu",
    requirements=(
        CPU_VECTORS,
        strided_layouts,
        non_negative_strides,
        _STATIC,
        _NON_EMPTY,
        element_types((*_FLOATS, DType.I64, DType.I32)),
    ),
    preferences=(),
    priority=50,
    build=build_sum_rows,
    space=_space,
    default_schedule=_default,
)
