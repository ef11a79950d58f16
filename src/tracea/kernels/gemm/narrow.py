"""Products with few columns: A is read where it lies, and B, a few columns, is in panels.

With so few columns packing A would take as long as multiplying with it. Row blocks are tasks. ``gemm.narrow`` packs B
first, all of it, whatever its strides; ``gemm.narrow_prepacked`` reads a B that was packed once.

Guards: the tile of the last rows has code for exactly ``tail`` rows, panels in scratch have room for ``nc`` columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import Dim
from tracea.kernels.cores import waits_long
from tracea.kernels.gemm.blocking import Blocking, equal_blocks, fits_registers, round_up
from tracea.kernels.gemm.direct import row_tile
from tracea.kernels.gemm.gemv_split import NO_BATCH
from tracea.kernels.gemm.operands import GemmOperands, K, M, N, gemm_tile
from tracea.kernels.gemm.prepacked import PREPACKED, panels_of
from tracea.kernels.gemm.requirements import GEMM_REQUIREMENTS, STORED_AS_SUMMED, contiguous, most
from tracea.kernels.operands import scratch, vector_lanes
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.index import Const, Predicate, Var, ceil_div, equal
from tracea.semantic.nodes import Barrier, For, Level, MicroKernel, Node, Pack, Parallel, block
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["NARROW", "NARROW_PREPACKED", "build_narrow", "build_narrow_prepacked"]

_IC, _MC = Var("ic"), Var("mc")
_PC, _KC = Var("pc"), Var("kc")
_PK, _DEPTH = Var("pk"), Var("depth")  # the packing's steps
_JR, _COLUMNS = Var("jr"), Var("columns")
_IR, _ROWS = Var("ir"), Var("rows")

_MOST_COLUMNS: Final = 256
# Of a product that is faster so than with A in panels, by instruction set; and on Intel's servers, where rows are half
# as many or more.
_FEW_COLUMNS: Final[Mapping[str, int]] = {"avx512": 64, "avx2": 48}
_TASKS: Final = 4  # a core
_DEPTHS: Final = (1024, 256, 512, 4096)  # steps of a K block


def build_narrow(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the GEMM of ``op`` that packs B before it begins."""
    operands, blocking = GemmOperands.of(op), Blocking.of(schedule, op, target)
    nr = blocking.nr
    panels = scratch("b_panels", op.accumulator, MemorySpace.TEAM, blocking.nc // nr, K, nr)
    pack = Pack(
        source=operands.at(operands.b, _PK, 0, _DEPTH, N),
        target=panels.region((0, _PK, 0), (ceil_div(N, nr), _DEPTH, nr)),
        panel=nr,
        axis=1,
    )
    depths = Parallel(level=Level.TASK, var=_PK, extent=K, step=Const(blocking.kc), length=_DEPTH, body=block(pack))
    body = (depths, Barrier(), *_row_blocks(operands, panels, blocking))
    scratches, guard = (panels, *_sums(operands, blocking)), _rows_left(blocking) & (blocking.nc >= N)
    return operands.kernel(NARROW_ID, schedule, target, scratches, body, assumptions=guard)


def build_narrow_prepacked(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the GEMM of ``op`` on a B that was packed for the same schedule, as for ``gemm.prepacked``."""
    blocking = Blocking.of(schedule, op, target)
    operands = GemmOperands.of(op, b=panels_of(op, blocking, BufferRole.CONSTANT))
    body = _row_blocks(operands, operands.b, blocking)
    sums = _sums(operands, blocking)
    return operands.kernel(NARROW_PREPACKED_ID, schedule, target, sums, body, assumptions=_rows_left(blocking))


def _rows_left(blocking: Blocking) -> Predicate:
    return equal(M % blocking.mr, blocking.tail)


def _sums(operands: GemmOperands, blocking: Blocking) -> tuple[Buffer, ...]:
    if operands.sums_in_place:
        return ()
    return (scratch("sums", operands.accumulator, MemorySpace.THREAD, blocking.mc, N),)


def _row_blocks(operands: GemmOperands, panels: Buffer, blocking: Blocking) -> tuple[Node, ...]:
    """Return the tasks: each multiplies some rows of A with all panels, one K block after the other."""
    mr, nr = blocking.mr, blocking.nr
    row, sums = _IC + _IR, _sums(operands, blocking)
    tile = MicroKernel(
        intrinsic=gemm_tile(
            panels=(False, True),
            mr=mr,
            nv=blocking.nv,
            nr=nr,
            unroll=blocking.unroll,
            prefetch=(blocking.prefetch_a, blocking.prefetch_b),
            rows=blocking.rows,
        ),
        a=operands.at(operands.a, row, _PC, _ROWS, _KC),
        b=panels.region((_JR // nr, _PC, 0), (1, _KC, nr)),
        c=sums[0].region((_IR, _JR), (_ROWS, _COLUMNS)) if sums else operands.at(operands.c, row, _JR, _ROWS, _COLUMNS),
        accumulate=_PC > 0,
        finish=_PC + _KC >= K,
        epilogue=operands.epilogue(row, _JR, _ROWS, _COLUMNS),
    )
    rows = For(var=_IR, extent=_MC, step=Const(mr), length=_ROWS, body=block(tile))
    columns = For(var=_JR, extent=N, step=Const(nr), length=_COLUMNS, body=block(rows))
    depths = For(var=_PC, extent=K, step=Const(blocking.kc), length=_KC, body=block(columns))
    return operands.tasks(var=_IC, extent=M, step=blocking.mc, length=_MC, body=(depths,))


def _default(op: GemmOp, target: Target) -> Schedule:
    m, n, k = (_known(dim) for dim in (op.m, op.n, op.k))
    lanes = vector_lanes(target, op.accumulator)
    return _schedule(op, target, row_tile(m, n, lanes, target), equal_blocks(k, _DEPTHS[0]))


def _schedule(op: GemmOp, target: Target, tile: tuple[int, int], kc: int) -> Schedule:
    (mr, nv), m = tile, _known(op.m)
    tasks = 1 if target.cores == 1 else _TASKS * target.cores
    return Schedule(
        mr=mr,
        nv=nv,
        unroll=2,
        prefetch_a=0,
        prefetch_b=0,
        kc=kc,
        mc=round_up(-(-m // tasks), mr),
        nc=round_up(_known(op.n), nv * vector_lanes(target, op.accumulator)),
        tail=m % mr,
        sweep=1,
        upcoming=0,
        split="rows",
    )


def _space(op: GemmOp, target: Target) -> ScheduleSpace:
    default, k = _default(op, target), _known(op.k)
    most = -(-_known(op.n) // vector_lanes(target, op.accumulator))
    tiles = [(mr, nv) for nv in range(1, most + 1) for mr in (6, 8, 4, 14) if fits_registers(mr, nv, target)]
    depths = dict.fromkeys(equal_blocks(k, depth) for depth in _DEPTHS)
    others = [dict(_schedule(op, target, tile, kc)) for tile in tiles for kc in depths]
    return ScheduleSpace.listed([dict(default), *(each for each in others if each != dict(default))])


def _known(dim: Dim) -> int:
    return dim if isinstance(dim, int) else dim.maximum or 1024


def _few_columns(op: GemmOp, target: Target) -> float:
    """Tell how much better than panels of A this is.

    Measured on a Xeon without its tiles, share of the time of ``gemm.packed``: 512x24x768 0.75, 2048x32x1024 0.67,
    3000x7x33 0.38, 8192x64x64 0.57, 512x128x768 0.92, 2048x128x1024 0.88, 40x256x512 1.08; by AVX2 3000x40x64 0.90,
    512x64x768 1.04 (benchmarks/NOTES.md, 2026-11-28).
    """
    is_few = _known(op.n) <= _FEW_COLUMNS.get(target.isa, 0)
    return 0.0 if is_few or (waits_long(target) and 2 * _known(op.m) >= _known(op.n)) else -20.0


def _few_columns_packed(op: GemmOp, target: Target) -> float:
    """Tell the same where B is packed already: 0.38 to 1.0 of ``gemm.prepacked``, whatever the rows.

    Of 64 columns and more it is faster than dot products of 8 rows too, 0.35 to 0.88 of their time.
    """
    if waits_long(target):
        return 4.0 if _known(op.n) >= _FEW_COLUMNS["avx512"] else 0.0
    return 0.0 if _known(op.n) <= _FEW_COLUMNS.get(target.isa, 0) else -20.0


_REQUIREMENTS = (
    *GEMM_REQUIREMENTS,
    NO_BATCH,
    STORED_AS_SUMMED,
    most("n", _MOST_COLUMNS),
    contiguous("a", "rows of A"),
)
NARROW_ID = "gemm.narrow"
NARROW_PREPACKED_ID = "gemm.narrow_prepacked"
NARROW = Variant(
    id=NARROW_ID,
    op_type=GemmOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=(Preference(name="few columns", score=_few_columns),),
    priority=51,
    build=build_narrow,
    space=_space,
    default_schedule=_default,
)
NARROW_PREPACKED = replace(
    PREPACKED,
    id=NARROW_PREPACKED_ID,
    requirements=(*PREPACKED.requirements, *_REQUIREMENTS[len(GEMM_REQUIREMENTS) :]),
    preferences=(Preference(name="few columns", score=_few_columns_packed),),
    priority=PREPACKED.priority + 1,
    build=build_narrow_prepacked,
    space=_space,
    default_schedule=_default,
)
