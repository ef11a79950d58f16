"""Grouped GEMM: parts of the rows, each multiplied with the matrix of its group; the kernel knows no routing.

Tables say which rows are a part and whose they are: a tile table's tiles of ragged groups. A task is a block of
columns of one part. It packs the part's rows of A and its own panels of B, a K block at a time, as ``gemm.packed``
does with ``split=columns``; no thread waits for another. Rows of no group are made zero by tasks of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.expr import Constant, Input
from tracea.core.ops.grouped_gemm import GroupedGemmOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.amx import MATRIX_TILES, terms_hold
from tracea.kernels.gemm.amx_blocking import amx_blocking
from tracea.kernels.gemm.blocking import Blocking, equal_blocks, round_up, wide_tile
from tracea.kernels.gemm.matrix_tiles import GRANULE, TERMS_OF_FLOAT, TILE
from tracea.kernels.gemm.operands import K, M, N, kernel_name
from tracea.kernels.gemm.packed import column_sweep, pack_a, panel_buffer
from tracea.kernels.gemm.requirements import FLOATS
from tracea.kernels.operands import params_of, scratch, tensor_buffer, vector_lanes
from tracea.kernels.pointwise.tile import map_tile
from tracea.kernels.requirements import CPU_VECTORS, condition, non_negative_strides, strided_layouts
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.access import Region
from tracea.semantic.group_tables import GroupTables
from tracea.semantic.index import Const, Index, Param, Var, ceil_div, minimum
from tracea.semantic.intrinsics import terms_of
from tracea.semantic.nodes import EpilogueCall, For, If, Let, Level, Parallel, PointwiseTile, block
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.semantic.tile_table import TileTable
from tracea.targets.target import Target

__all__ = [
    "GROUPED",
    "GROUPED_AMX",
    "PARTS",
    "PART_ROWS",
    "build_grouped",
    "build_grouped_amx",
    "grouped_types",
    "part_tables",
    "parts_of",
]

Array = np.ndarray[Any, Any]

GROUPS = Param("groups", maximum=2**31 - 2)  # a table of 32 bits says the number after the last too
PARTS: Final = Param("parts", maximum=2**31 - 1)
_TASK, _PART, _GROUP = Var("task"), Var("part"), Var("group")
_FIRST, _HEIGHT = Var("part_begin"), Var("part_rows")  # the part's first row, its rows
_JC, _NC = Var("jc"), Var("nc")  # the task's first column, its columns
_IC, _MC = Var("ic"), Var("mc")
_PC, _KC = Var("pc"), Var("kc")
_JP, _PW = Var("jp"), Var("pw")
_IR, _JR = Var("ir"), Var("jr")  # of a tile

PART_ROWS: Final = 256  # at most, of a part: rows of A and a K block stay in a cache, and threads find enough tasks
_COLUMNS: Final = 512  # of a task: A is packed once for each
_TASKS: Final = 4  # of each core at least, where groups have few rows
_DEPTH: Final = 384  # bytes / 4 of a K block
_FETCHED: Final = 192  # the same where tiles fetch the rows that the next panel is packed from (benchmarks/NOTES.md)
_LINES_EACH: Final = 2  # steps for each line that a tile asks for


def grouped_types(op: GroupedGemmOp, like: GroupedGemmOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer; the bias has one row for each group, which all rows of a tile share."""
    del like
    bias = {} if op.bias is None else {"bias": _rows_of(op.bias)}
    return {"a": op.x, "b": op.weights, **bias, "c": op.infer()}


def _rows_of(bias: TensorType) -> TensorType:
    (groups, columns), (outer, inner) = bias.shape, bias.strides
    return TensorType((groups, 1, columns), bias.dtype, StridedLayout((outer, 0, inner)))


def parts_of(rows: int, groups: int) -> int:
    """Return how many parts of at most ``PART_ROWS`` rows there may be, whatever the groups' rows and those of none."""
    return groups + 1 + rows // PART_ROWS


def part_tables(table: TileTable, groups: int, parts: int) -> tuple[Array, Array]:
    """Return the tables that the kernels read of tiles of ragged groups: first and number, with room for ``parts``.

    Raises:
        InvalidSchedule: the tiles are not all rows in turn, each with all columns, or more than ``parts``.
    """
    rows, *_ = table.extents
    begins, ends, number = (table.launched(name).astype(np.int64) for name in ("m0", "m1", "group"))
    whole = all(np.all(table.launched(f"{axis}0") == 0) for axis in "nk")
    first = np.concatenate([begins, np.full(parts + 1 - min(len(table), parts + 1), rows)])
    if len(table) > parts or not whole or np.any(first[1 : len(table) + 1] != ends) or first[0] != 0:
        raise InvalidSchedule(
            field="tile table",
            got=str(table),
            expected=f"at most {parts} tiles, one after the other, of whole rows",
            remedy="use ragged_tiles with all columns in a tile, in the order of rows",
        )
    number = np.concatenate([number, np.full(parts - len(table), groups)])
    return first.astype(np.int32), number.astype(np.int32)


@dataclass(frozen=True, slots=True)
class _Operands:
    """The buffers of a grouped GEMM in the words of those of a GEMM: B is the group's matrix."""

    op: GroupedGemmOp
    a: Buffer
    b: Buffer
    bias: tuple[Buffer, ...]
    c: Buffer

    @classmethod
    def of(cls, op: GroupedGemmOp) -> _Operands:
        shape, dims = (GROUPS, K, N), (op.groups, op.k, op.n)
        bias = () if op.bias is None else (op.bias,)
        return cls(
            op=op,
            a=tensor_buffer("a", op.x, (M, K), (op.m, op.k), BufferRole.INPUT),
            b=tensor_buffer("b", op.weights, shape, dims, BufferRole.INPUT),
            bias=tuple(
                tensor_buffer("bias", _rows_of(type_), (GROUPS, Const(1), N), (op.groups, 1, op.n), BufferRole.INPUT)
                for type_ in bias
            ),
            c=tensor_buffer("c", op.infer(), (M, N), (op.m, op.n), BufferRole.OUTPUT),
        )

    @property
    def accumulator(self) -> DType:
        return self.op.accumulator

    @property
    def sums_in_place(self) -> bool:
        return self.c.dtype is self.accumulator and self.c.element_strides[-1] == Const(1)

    def at(
        self, buffer: Buffer, row: Index | int, column: Index | int, rows: Index | int, columns: Index | int
    ) -> Region:
        outer, one = ((_GROUP,), (1,)) if buffer is self.b else ((), ())
        return buffer.region((*outer, row, column), (*one, rows, columns))

    def epilogue(self, row: Index, column: Index, rows: Index, columns: Index) -> EpilogueCall | None:
        if self.sums_in_place and self.op.expr == Input(0):
            return None
        return EpilogueCall(
            expr=self.op.expr,
            operands=tuple(buffer.region((_GROUP, 0, column), (1, 1, columns)) for buffer in self.bias),
            target=None if self.sums_in_place else self.at(self.c, row, column, rows, columns),
        )


def build_grouped(op: GroupedGemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel on vectors.

    Raises:
        InvalidSchedule: tiles are to ask for rows that the matrices have not.
    """
    if schedule.integer("upcoming") and not _has_rows(op):
        raise InvalidSchedule(
            field="upcoming",
            got=schedule.integer("upcoming"),
            expected=f"0 where weights have strides {op.weights.strides} and are {op.weights.dtype.value}",
            remedy="upcoming=0",
        )
    return _build(GROUPED_ID, op, Blocking.of(schedule, op, target), schedule, target)


def build_grouped_amx(op: GroupedGemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel on matrix tiles: both factors as sums of bf16 terms."""
    return _build(GROUPED_AMX_ID, op, amx_blocking(schedule, op.x.dtype), schedule, target)


def _build(variant: str, op: GroupedGemmOp, blocking: Blocking, schedule: Schedule, target: Target) -> TileKernel:
    operands = _Operands.of(op)
    dtype, kc, nr, mr, mc = operands.accumulator, blocking.kc, blocking.nr, blocking.mr, blocking.mc
    a_panels = panel_buffer("a_panels", dtype, MemorySpace.THREAD, blocking, (mc // mr, kc, mr))
    b_panels = panel_buffer("b_panels", dtype, MemorySpace.THREAD, blocking, (blocking.sweep, kc, nr))
    sums = () if operands.sums_in_place else (scratch("sums", dtype, MemorySpace.THREAD, mc, blocking.nc),)
    tables = GroupTables(parts=PARTS, rows=M, groups=GROUPS)
    columns = ceil_div(N, blocking.nc)
    row = _FIRST + _IC
    sweep = column_sweep(
        operands,
        operands.b,
        blocking,
        panels=(a_panels, b_panels),
        sums=sums,
        rows=(row, _MC),
        next_rows=_next_rows(operands, blocking) if blocking.upcoming else None,
        heights=_heights(mr),
    )
    steps = For(
        var=_PC,
        extent=K,
        step=Const(kc),
        length=_KC,
        body=block(pack_a(operands, a_panels, (row, _MC), blocking), sweep),
    )
    products = For(var=_IC, extent=_HEIGHT, step=Const(mc), length=_MC, body=block(steps))
    zeros = PointwiseTile(
        intrinsic=map_tile(dtype, streaming=False),
        expr=Constant(0.0),
        inputs=(),
        target=operands.at(operands.c, _FIRST, _JC, _HEIGHT, _NC),
    )
    task = Parallel(
        level=Level.TASK,
        var=_TASK,
        extent=PARTS * columns,
        body=block(
            Let(var=_PART, value=_TASK // columns),
            Let(var=_JC, value=_TASK % columns * blocking.nc),
            Let(var=_NC, value=minimum(blocking.nc, N - _JC)),
            Let(var=_FIRST, value=tables.begin(_PART)),
            Let(var=_HEIGHT, value=tables.rows_of(_PART)),
            Let(var=_GROUP, value=tables.group(_PART)),
            If(predicate=_GROUP < GROUPS, then=block(products), otherwise=block(zeros)),
        ),
    )
    buffers = (operands.a, operands.b, *operands.bias, operands.c, a_panels, b_panels, *sums)
    return TileKernel(
        name=kernel_name(op.key, variant, schedule, target),
        op=op,
        variant=variant,
        schedule=schedule,
        target=target.name,
        params=(*params_of(buffers), PARTS),
        buffers=buffers,
        body=block(task),
        tables=tables.tables,
    )


def _next_rows(operands: _Operands, blocking: Blocking) -> Region:
    """Return a tile's share of the rows that the panel after this one is packed from: ``upcoming`` of them."""
    rows = blocking.upcoming
    column = _JC + _JP + _JR + blocking.sweep * blocking.nr
    return operands.at(operands.b, _PC + _IR // blocking.mr * rows, column, rows, blocking.nr)


def _has_rows(op: GroupedGemmOp) -> bool:
    return op.weights.strides[-1] == 1 and op.weights.dtype is op.accumulator


def _heights(rows: int) -> Sequence[int]:
    """Return the row counts with code of their own: the rest of a group may be any, and is filled up to one of them."""
    return tuple(dict.fromkeys((rows, rows * 3 // 4, rows // 2, -(-rows // 4))))


def _default(op: GroupedGemmOp, target: Target) -> Schedule:
    mr, nv = wide_tile(target)
    lanes, narrow = vector_lanes(target, op.accumulator), op.accumulator.nbytes // 4
    fetches = _has_rows(op) and op.groups * op.k * op.n * op.accumulator.nbytes > target.l2_bytes
    kc = round_up(equal_blocks(op.k, (_FETCHED if fetches else _DEPTH) // narrow), 2)
    return Schedule(
        mr=mr,
        nv=nv,
        unroll=2,
        prefetch_a=0,
        prefetch_b=0,
        kc=kc,
        mc=round_up(min(op.m, PART_ROWS), mr),
        nc=_task_columns(op, target, nv * lanes),
        tail=0,
        sweep=1,
        upcoming=_share(op, kc, mr, nv) if fetches else 0,
        split="columns",
    )


def _share(op: GroupedGemmOp, kc: int, mr: int, nv: int) -> int:
    """Return how many rows of the next panel a tile asks for: a tile's share in an even group, or what it has time for.

    How many tiles a panel meets is each group's own. What a larger one asks for besides are rows of the K block after.
    """
    tiles = -(-op.m // max(1, op.groups * mr))
    return max(1, min(-(-kc // max(1, tiles)), kc // (_LINES_EACH * nv)))


def _default_amx(op: GroupedGemmOp, target: Target) -> Schedule:
    depth = _DEPTH * TERMS_OF_FLOAT // terms_of(op.x.dtype)
    kc, mc = round_up(equal_blocks(op.k, depth), GRANULE), round_up(min(op.m, PART_ROWS), TILE)
    return Schedule(kc=kc, mc=mc, nc=_task_columns(op, target, TILE), sweep=8, split="columns")


def _task_columns(op: GroupedGemmOp, target: Target, columns: int) -> int:
    """Return the columns of a task: many for each packing of A, few enough for all cores to have tasks."""
    parts = max(1, min(op.groups, op.m))
    tasks = max(-(-op.n // _COLUMNS), -(-_TASKS * target.cores // parts) if target.cores > 1 else 1)
    return round_up(-(-op.n // tasks), columns)


def _space(op: GroupedGemmOp, target: Target) -> ScheduleSpace:
    default = dict(_default(op, target))
    return ScheduleSpace.listed(_around(default, op))


def _space_amx(op: GroupedGemmOp, target: Target) -> ScheduleSpace:
    return ScheduleSpace.listed(_around(dict(_default_amx(op, target)), op))


def _around(default: dict[str, Value], op: GroupedGemmOp) -> list[dict[str, Value]]:
    """Return the default and the schedules with other blocks of K and of columns."""
    depths = dict.fromkeys((int(default["kc"]), 128, 192, 256, 512, 1024))
    columns = dict.fromkeys((int(default["nc"]), 256, 512, 1024))
    chosen = [{**default, "kc": kc, "nc": nc} for kc in depths for nc in columns]
    return [row for row in chosen if int(row["kc"]) < 2 * op.k + GRANULE or row == default]


def _types(op: GroupedGemmOp) -> set[DType]:
    return {type_.dtype for type_ in (*op.operands[:-2], op.infer())}


_ELEMENTS = condition(
    "element types",
    lambda op, _: (
        _types(op) <= set(FLOATS)
        and (_types(op) == {DType.F64}) == (op.accumulator is DType.F64)
        and (DType.F64 not in _types(op) or len(_types(op)) == 1)
    ),
    needed="f64 everywhere with f64 sums, or f32, f16 and bf16 with f32 sums",
    found=lambda op: ", ".join(sorted(dtype.value for dtype in _types(op))),
    remedy="cast the operands to one of the two",
)
_NOT_EMPTY = condition(
    "k >= 1", lambda op, _: op.k >= 1, needed="k >= 1", found=lambda op: f"k = {op.k}", remedy="an empty sum is zero"
)
_REQUIREMENTS = (CPU_VECTORS, _ELEMENTS, strided_layouts, non_negative_strides, _NOT_EMPTY)


def _on_tiles(op: GroupedGemmOp, target: Target) -> float:
    if target.isa == "plain":
        return -200.0  # arrays in place of registers: there to be read by sanitizers
    return 0.0


GROUPED_ID = "gemm.grouped"
GROUPED_AMX_ID = "gemm.amx_grouped"
GROUPED = Variant(
    id=GROUPED_ID,
    op_type=GroupedGemmOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=(),
    priority=50,
    build=build_grouped,
    space=_space,
    default_schedule=_default,
)
GROUPED_AMX = Variant(
    id=GROUPED_AMX_ID,
    op_type=GroupedGemmOp,
    backend="cpu",
    requirements=(*_REQUIREMENTS, MATRIX_TILES, terms_hold("x", "weights", remedy="use gemm.grouped")),
    preferences=(Preference(name="tiles", score=_on_tiles),),
    priority=60,
    build=build_grouped_amx,
    space=_space_amx,
    default_schedule=_default_amx,
)
