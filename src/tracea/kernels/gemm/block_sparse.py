"""Block-sparse GEMM: only the blocks of B that tables list are packed and multiplied; the kernel knows no mask.

The team packs the listed blocks, one task a block. A task then packs its rows of A, a chunk of the depth at a time,
and walks the lines, blocks of columns of C: a tile sums all blocks of its line in that chunk in registers. On matrix
tiles one routine walks all lines, as a line may be too short to hide its beginning and its end. Every task
has the same work, whatever the mask: threads are balanced by what is listed.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.expr import Expr, Input
from tracea.core.ops.block_sparse import BlockSparseOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.amx import MATRIX_TILES, terms_hold
from tracea.kernels.gemm.blocking import MOST_UNROLLED, check_tile, equal_blocks, round_up, row_block_cost
from tracea.kernels.gemm.matrix_tiles import GRANULE, TILE, amx_block, marks_of
from tracea.kernels.gemm.operands import gemm_tile, kernel_name
from tracea.kernels.gemm.requirements import FLOATS
from tracea.kernels.operands import params_of, scratch, tensor_buffer, vector_lanes
from tracea.kernels.requirements import CPU_VECTORS, condition, non_negative_strides, strided_layouts
from tracea.kernels.rows.blocks import streams
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.index import Const, Index, Lookup, Param, Var, ceil_div, minimum
from tracea.semantic.intrinsics import terms_of
from tracea.semantic.nodes import Barrier, Block, EpilogueCall, For, Let, Level, Node, Pack, Parallel, block
from tracea.semantic.nodes_sparse import RunProduct, Runs, runs_fault
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.semantic.tile_table import TileTable
from tracea.targets.target import Target

__all__ = [
    "BLOCK_SPARSE",
    "BLOCK_SPARSE_AMX",
    "block_sparse_types",
    "build_block_sparse",
    "build_block_sparse_amx",
    "run_tables",
]

Array = np.ndarray[Any, Any]

# The largest extents keep the size of all blocks in panels within 64 bits.
M, N, K = Param("m"), Param("n", maximum=2**22), Param("k", minimum=1, maximum=2**22)
_E, _STEP, _LINE, _HIGH, _WIDE = Var("e"), Var("block_step"), Var("block_line"), Var("high"), Var("wide")
_IC, _MC = Var("ic"), Var("mc")
_PC, _KC = Var("pc"), Var("kc")
_JG, _NG = Var("jg"), Var("ng")  # a line: its first column, its columns
_JR, _COLUMNS = Var("jr"), Var("columns")
_IR, _ROWS = Var("ir"), Var("rows")

# From a density on: steps. Vectors pass over C once where few blocks are listed: 2048^3 at densities 0.05, 0.1 and 0.25
# took 0.88, 0.91 and 0.99 of the time of 1024 steps in tasks of 56 rows on a Zen 4 with 1 MiB, at 0.5 it took 1.02.
_CHUNKS: Final = ((0.6, 512), (0.0, 1024))
_VECTOR_CHUNKS: Final = ((0.6, 512), (0.3, 1024), (0.0, 2048))
# On matrix tiles 0.05 and 0.1 took 0.78 and 0.87 of the time of 1024 steps, and 0.25 took 1.02, on a Xeon with 2 MiB.
_TILE_CHUNKS: Final = ((0.6, 512), (0.2, 1024), (0.0, 2048))
# Rows of a task on tiles whose one chunk is deeper than the shortest: lines of C lie in as many pages, and a prefetcher
# follows 32. 2048^2 of 1024 steps at 0.05, 0.1 and 0.25 took 0.87, 0.86 and 0.94 of the time of 128 rows there.
_MOST_TILE_ROWS: Final = 64
# Rows of a task, in half of the second-level cache, that both kinds of deep chunks need room for. Tiles of six rows
# asked for A's next block and stored past the caches: 0.05, 0.1 and 0.25 took 0.80, 0.92 and 0.98 of the time of 1024
# steps without on a Zen 3 with 512 KiB (blocks of 32), 24 rows, 36 and 48 within 2 % of each other.
_DEEP_ROWS: Final = {"avx2": 24}
_MOST_DEEP_ROWS: Final = 56


def block_sparse_types(op: BlockSparseOp, like: BlockSparseOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer.

    Raises:
        InvalidSchedule: other blocks than those of ``like``, the op that the kernel is built for.
    """
    if like is not None and (op.block, op.chunk) != (like.block, like.chunk):
        raise InvalidSchedule(
            field="block, chunk",
            got=(op.block, op.chunk),
            expected=(like.block, like.chunk),
            remedy="build the kernel for blocks and chunks of this size",
        )
    return {"a": op.a, "b": op.b, "c": op.infer()}


def chunk_of(density: float, depth: int, block: int, target: Target) -> int:
    """Return how many blocks of the depth are summed before C is written: the sparser the factor, the more.

    Few pass over C more often, many leave room for fewer rows of A in the cache (benchmarks/NOTES.md).
    """
    rows = _DEEP_ROWS.get(target.isa, _MOST_DEEP_ROWS)
    has_room = target.l2_bytes >= 2 * _VECTOR_CHUNKS[-1][1] * rows * DType.F32.nbytes
    deep = _TILE_CHUNKS if MATRIX_TILES.check(None, target) is None else _VECTOR_CHUNKS
    chunks = deep if has_room else _CHUNKS
    steps = next(steps for least, steps in chunks if density >= least)
    return min(max(1, -(-depth // block)), max(1, steps // block))


def run_tables(table: TileTable, block: int, chunk: int) -> tuple[Array, Array, Array]:
    """Return the tables that the kernels read of a factor's tiles: first, line and step, with room for every block.

    Raises:
        InvalidSchedule: the table is none of blocks of the second factor.
    """
    _, columns, depth = table.extents
    lines, steps = -(-columns // block), -(-depth // block)
    runs = Runs(lines=Const(lines), steps=Const(steps), chunk=chunk)
    each_line, each_step = (table.launched(name).astype(np.int64) // block for name in ("n0", "k0"))
    run = each_step // chunk * lines + each_line
    ordered = np.lexsort((each_step, run))
    counts = np.bincount(run, minlength=lines * -(-steps // chunk))
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    line, step = np.zeros(lines * steps, np.int32), np.zeros(lines * steps, np.int32)
    used = min(len(table), lines * steps)
    line[:used], step[:used] = each_line[ordered][:used], each_step[ordered][:used]
    fault = runs_fault(runs, {runs.first: first, runs.line: line, runs.step: step})
    if fault:
        raise InvalidSchedule(
            field="tile table",
            got=fault,
            expected=f"blocks of {block} of the second factor, each once",
            remedy="use masked_factor_tiles with factor b",
        )
    return first, line, step


def build_block_sparse(op: BlockSparseOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel on vectors."""
    schedule = Schedule({"ahead": 0, "streaming": 0, **schedule.values_})  # those recorded before there was a choice
    get = schedule.integer
    schedule.check_range(1, "mr", "nv", "mc")
    schedule.check_range(0, "ahead", "streaming", most=1)
    schedule.check_range(1, "unroll", most=MOST_UNROLLED)
    check_tile(schedule.with_values(split="rows"), target)
    mr, nr = get("mr"), get("nv") * vector_lanes(target, op.accumulator)
    frame = _Frame(op, schedule, target, panel=nr, rows=mr)
    tail = get("tail")
    one = nr >= op.block  # panel for a line
    across, wide = (Const(0), _NG) if one else (_JR, _COLUMNS)
    row, column = _IC + _IR, _JG + across
    sums = scratch("sums", op.accumulator, MemorySpace.THREAD, frame.mc, N)
    store = frame.c.region((row, column), (_ROWS, wide))
    tile = RunProduct(
        intrinsic=gemm_tile(
            panels=(True, True),
            mr=mr,
            nv=get("nv"),
            nr=nr,
            unroll=get("unroll"),
            prefetch=(get("ahead"), 0),
            rows=(mr, tail) if tail else (mr,),
            upcoming_lines=1,
            streaming=frame.in_place and bool(get("streaming")),
        ),
        runs=frame.runs,
        line=_JG // op.block,
        chunk=_PC // frame.kc,
        size=op.block,
        depth=K,
        a=frame.a_panels.region((_IR // mr, 0, 0), (1, _KC, mr)),
        b=frame.b_panels.region((0, across // nr, 0, 0), (frame.room, 1, op.block, nr)),
        c=store if frame.in_place else sums.region((_IR, _JG + across), (_ROWS, wide)),
        accumulate=_PC > 0,
        finish=_PC + _KC >= K,
        epilogue=None if frame.in_place else EpilogueCall(expr=_stored(), target=store),
    )
    rows = For(var=_IR, extent=_MC, step=Const(mr), length=_ROWS, body=block(tile))
    columns = For(var=_JR, extent=_NG, step=Const(nr), length=_COLUMNS, body=block(rows))
    lines = For(var=_JG, extent=N, step=Const(op.block), length=_NG, body=block(rows if one else columns))
    return frame.kernel(BLOCK_SPARSE_ID, lines, () if frame.in_place else (sums,))


def build_block_sparse_amx(op: BlockSparseOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel on matrix tiles: both factors as sums of as many bf16 terms as their type needs."""
    schedule.check_range(1, "mc")
    terms = terms_of(op.a.dtype)
    frame = _Frame(op, schedule, target, panel=TILE, rows=TILE, terms=terms)
    sums = scratch("sums", op.accumulator, MemorySpace.THREAD, frame.mc, N)
    store = frame.c.region((_IC, 0), (_MC, N))
    width = frame.width(TILE)
    tile = RunProduct(
        intrinsic=amx_block(terms),
        runs=frame.runs,
        line=Const(0),
        lines=frame.runs.lines,
        chunk=_PC // frame.kc,
        size=op.block,
        depth=K,
        a=frame.a_panels.region((0, 0, 0), (ceil_div(_MC, TILE), _KC, width)),
        b=frame.b_panels.region((0, 0, 0, 0), (frame.room, -(-op.block // TILE), op.block, width)),
        c=store if frame.in_place else sums.region((0, 0), (_MC, N)),
        accumulate=_PC > 0,
        finish=_PC + _KC >= K,
        epilogue=None if frame.in_place else EpilogueCall(expr=_stored(), target=store),
        granule=GRANULE,
    )
    return frame.kernel(BLOCK_SPARSE_AMX_ID, tile, () if frame.in_place else (sums,))


class _Frame:
    """What both kernels share: buffers, tables, the packing of both factors, and the loops around a line.

    Without ``terms`` panels hold elements as they are.
    """

    def __init__(
        self, op: BlockSparseOp, schedule: Schedule, target: Target, *, panel: int, rows: int, terms: int = 0
    ) -> None:
        self.op, self.schedule, self.target = op, schedule, target
        self.terms, self.granule, self.panel, self.rows = max(1, terms), GRANULE if terms else 1, panel, rows
        self.marks = marks_of(terms) if terms else 0
        self.mc = round_up(schedule.integer("mc"), rows)
        self.a = tensor_buffer("a", op.a, (M, K), (op.m, op.k), BufferRole.INPUT)
        self.b = tensor_buffer("b", op.b, (K, N), (op.k, op.n), BufferRole.INPUT)
        self.c = tensor_buffer("c", op.infer(), (M, N), (op.m, op.n), BufferRole.OUTPUT)
        self.runs = Runs(lines=ceil_div(N, op.block), steps=ceil_div(K, op.block), chunk=op.chunk)
        self.kc = op.chunk * op.block
        self.room: Index = self.runs.lines * self.runs.steps
        kind = DType.BF16 if terms else op.accumulator
        self.a_panels = scratch("a_panels", kind, MemorySpace.THREAD, self.mc // rows, self.kc, self.width(rows))
        self.b_panels = scratch(
            "b_panels", kind, MemorySpace.TEAM, self.room, -(-op.block // panel), op.block, self.width(panel)
        )

    def width(self, panel: int) -> int:
        """Return the elements of a step of a panel."""
        return panel * self.terms + self.marks

    @property
    def in_place(self) -> bool:
        """Whether C holds the sums as they are: the accumulator's type, columns next to each other."""
        return self.c.dtype is self.op.accumulator and self.c.element_strides[-1] == Const(1)

    def kernel(self, variant: str, lines: Node, sums: tuple[Buffer, ...]) -> TileKernel:
        size, buffers = self.op.block, (self.a, self.b, self.c, self.a_panels, self.b_panels, *sums)
        pack_b = Parallel(
            level=Level.TASK,
            var=_E,
            extent=self.runs.begin(self.runs.count),
            body=block(
                Let(var=_STEP, value=Lookup(self.runs.step, _E)),
                Let(var=_LINE, value=Lookup(self.runs.line, _E)),
                Let(var=_HIGH, value=minimum(size, K - _STEP * size)),
                Let(var=_WIDE, value=minimum(size, N - _LINE * size)),
                Pack(
                    source=self.b.region((_STEP * size, _LINE * size), (_HIGH, _WIDE)),
                    target=self.b_panels.region(
                        (_E, 0, 0, 0), (1, ceil_div(_WIDE, self.panel), _HIGH, self.width(self.panel))
                    ),
                    panel=self.panel,
                    axis=1,
                    terms=self.terms,
                    marks=self.marks,
                    granule=self.granule,
                ),
            ),
        )
        pack_a = Pack(
            source=self.a.region((_IC, _PC), (_MC, _KC)),
            target=self.a_panels.region((0, 0, 0), (ceil_div(_MC, self.rows), _KC, self.width(self.rows))),
            panel=self.rows,
            axis=0,
            terms=self.terms,
            marks=self.marks,
            granule=self.granule,
        )
        chunks = For(var=_PC, extent=K, step=Const(self.kc), length=_KC, body=block(pack_a, lines))
        task = Parallel(level=Level.TASK, var=_IC, extent=M, step=Const(self.mc), length=_MC, body=block(chunks))
        return TileKernel(
            name=kernel_name(self.op.key, variant, self.schedule, self.target),
            op=self.op,
            variant=variant,
            schedule=self.schedule,
            target=self.target.name,
            params=params_of(buffers),
            buffers=buffers,
            body=Block(nodes=(pack_b, Barrier(), task)),
            tables=self.runs.tables,
        )


def _stored() -> Expr:
    return Input(0)


# Rows and vectors of a tile whose columns divide blocks of 32: by instruction set.
_TILES: Final = {"avx512": (14, 2), "avx2": (6, 2), "neon": (6, 4), "plain": (8, 2)}


def _default(op: BlockSparseOp, target: Target) -> Schedule:
    mr, nv = _TILES[target.isa]
    if op.block <= vector_lanes(target, op.accumulator):
        nv = 1
    rows, measured = _vector_rows(op, target, mr), target.isa == "avx2"  # others have both in their space
    past = measured and op.chunk >= op.steps and streams(op.infer().nbytes, target)
    return Schedule(mr=mr, nv=nv, unroll=2, mc=rows, tail=op.m % mr, ahead=int(measured), streaming=int(past))


def _default_amx(op: BlockSparseOp, target: Target) -> Schedule:
    rows = _task_rows(op, target, TILE, DType.BF16.nbytes * terms_of(op.a.dtype))
    deep = op.chunk >= op.steps and op.chunk * op.block > _TILE_CHUNKS[0][1]
    return Schedule(mc=min(rows, _MOST_TILE_ROWS) if deep else rows)


def _vector_rows(op: BlockSparseOp, target: Target, mr: int) -> int:
    """Return the rows of a task on vectors: what costs the last core least and half the cache holds."""
    room = target.l2_bytes // 2 // (op.accumulator.nbytes * op.chunk * op.block)
    most = max(mr, min(room, round_up(op.m, mr)) // mr * mr)
    return min(range(most, max(mr, most // 3) - 1, -mr), key=lambda mc: row_block_cost(op.m, mc, target.cores))


def _task_rows(op: BlockSparseOp, target: Target, rows: int, element_bytes: int) -> int:
    """Return the rows of a task: few enough for the cache and for all cores, whole tiles, equal blocks."""
    room = max(rows, target.l2_bytes * 2 // 5 // (element_bytes * op.chunk * op.block) // rows * rows)
    share = -(-op.m // target.cores)
    return round_up(equal_blocks(share, room), rows)


def _space(op: BlockSparseOp, target: Target) -> ScheduleSpace:
    default = dict(_default(op, target))
    mr = int(default["mr"])
    rows = dict.fromkeys((int(default["mc"]), *(round_up(most, mr) for most in (28, 56, 112, 224))))
    flags = [dict.fromkeys((default[name], 0, 1)) for name in ("ahead", "streaming")]
    return ScheduleSpace.listed(
        [
            {**default, "mc": mc, "unroll": unroll, "ahead": ahead, "streaming": past}
            for mc, unroll, ahead, past in product(rows, (2, 1), *flags)
        ]
    )


def _space_amx(op: BlockSparseOp, target: Target) -> ScheduleSpace:
    rows = dict.fromkeys((int(_default_amx(op, target)["mc"]), 32, 64, 96, 128, 192, 256))
    return ScheduleSpace.listed([{"mc": mc} for mc in rows])


def _factors(op: BlockSparseOp) -> set[DType]:
    return {op.a.dtype, op.b.dtype, op.infer().dtype}


_ELEMENTS = condition(
    "element types",
    lambda op, _: (
        _factors(op) <= set(FLOATS)
        and (_factors(op) == {DType.F64}) == (op.accumulator is DType.F64)
        and (DType.F64 not in _factors(op) or len(_factors(op)) == 1)
    ),
    needed="f64 everywhere with f64 sums, or f32, f16 and bf16 with f32 sums",
    found=lambda op: ", ".join(sorted(dtype.value for dtype in _factors(op))),
    remedy="cast the operands to one of the two",
)
_NOT_EMPTY = condition(
    "k >= 1", lambda op, _: op.k >= 1, needed="k >= 1", found=lambda op: f"k = {op.k}", remedy="an empty sum is zero"
)
_GRANULES = condition(
    "whole granules",
    lambda op, _: op.block % GRANULE == 0,
    needed=f"blocks of a multiple of {GRANULE}",
    found=lambda op: f"blocks of {op.block}",
    remedy="use gemm.block_sparse, which takes any block",
)
_REQUIREMENTS = (CPU_VECTORS, _ELEMENTS, strided_layouts, non_negative_strides, _NOT_EMPTY)


def _on_tiles(op: BlockSparseOp, target: Target) -> float:
    del op
    return -200.0 if target.isa == "plain" else 0.0  # arrays in place of registers: there to be read by sanitizers


BLOCK_SPARSE_ID = "gemm.block_sparse"
BLOCK_SPARSE_AMX_ID = "gemm.amx_block_sparse"
BLOCK_SPARSE = Variant(
    id=BLOCK_SPARSE_ID,
    op_type=BlockSparseOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=(),
    priority=50,
    build=build_block_sparse,
    space=_space,
    default_schedule=_default,
)
BLOCK_SPARSE_AMX = Variant(
    id=BLOCK_SPARSE_AMX_ID,
    op_type=BlockSparseOp,
    backend="cpu",
    requirements=(*_REQUIREMENTS, MATRIX_TILES, terms_hold("a", "b", remedy="use gemm.block_sparse"), _GRANULES),
    preferences=(Preference(name="tiles", score=_on_tiles),),
    priority=60,
    build=build_block_sparse_amx,
    space=_space_amx,
    default_schedule=_default_amx,
)
