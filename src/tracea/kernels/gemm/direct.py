"""GEMM without packing: the register tile reads rows or columns of A, and rows of B, where they lie.

For few rows, where packing would cost as much as the product, and for small problems. ``split=columns`` makes tasks
of column blocks, ``split=rows`` of row blocks; batch indices are tasks of their own. K is cut into blocks so that the
pages of B that one block touches stay known to the core while its columns are walked.

Columns of A that are next to each other, as those of ``A.T``, have one address a step for all rows of a tile, which
may then be high; they are read so where a step of them is a few cache lines, or where the tile multiplies so long that
the second-level cache brings the next step meanwhile.

The tile of the last rows has code for exactly ``tail`` rows: the schedule is for one value of m modulo mr, which is a
guard.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import Dim
from tracea.kernels.cores import waits_long
from tracea.kernels.gemm.blocking import (
    MOST_UNROLLED,
    check_tile,
    equal_blocks,
    fits_registers,
    round_up,
    row_block_cost,
    tile_cycles,
)
from tracea.kernels.gemm.gemv import MOST_STREAMED_ROWS
from tracea.kernels.gemm.operands import GemmOperands, K, M, N, gemm_tile
from tracea.kernels.gemm.requirements import GEMM_REQUIREMENTS, ROWS_OF_B, STORED_AS_SUMMED, unit_stride
from tracea.kernels.operands import scratch, vector_lanes
from tracea.kernels.requirements import condition
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.index import Const, Index, Var, equal
from tracea.semantic.nodes import For, MicroKernel, block
from tracea.semantic.schedule import MOST_OF_TILE, Schedule
from tracea.semantic.tile_kernel import Buffer, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["DIRECT", "MOST_TURNED_COLUMNS", "build_direct", "is_better_turned", "row_height", "row_tile", "row_width"]

_JC, _NC = Var("jc"), Var("nc")
_IC, _MC = Var("ic"), Var("mc")
_PC, _KC = Var("pc"), Var("kc")
_JR, _COLUMNS = Var("jr"), Var("columns")
_IR, _ROWS = Var("ir"), Var("rows")

_MOST_ROWS: Final = 6
_FULLER: Final = 0.9  # of the cycles, for which a tile is not as high as it could be
_FEWER_ROWS: Final = 3  # at least: each reads all of B from the second-level cache
_AS_LARGE: Final = 0.85  # of the products of a step, at least, for its loads
_MOST_COLUMN_ROWS: Final = 14  # of a tile that reads columns of A
_MOST_VECTORS: Final = 8
_NEAR_LINES: Final = (4, 8)  # of a step of A's columns; the same where packing waits for B
_LONG_STEP: Final = 20  # cycles of products, in which the second-level cache brings what the next step of A and B reads
_SAME_SETS_BYTES: Final = 512  # from row to row: an eighth of the sets of a first-level cache
_UNPAID_ROWS: Final = 48  # of a product that does not repay the packing of B
# The same where the second-level cache holds B, in rows that begin on cache lines: of one core, and of each team.
_UNPAID_NEAR: Final = (512, 384)
_SURELY_UNPAID: Final = 256  # beyond it a B that fills the cache is brought again and again
_FEW_SUMS: Final = 8  # the second-level cache holds so many times a product's
_FEWEST_STEPS: Final = 128  # of a sum: each tile of a short one waits for its result
_UNEVEN: Final = 1.15  # times the work of the core that is last, from which on other tasks are worth it
MOST_TURNED_COLUMNS: Final = 112
_FEW_TURNED: Final = 256  # rows of a product whose columns of A are near each other
_K_BLOCK: Final = 256  # rows of B: as many pages where a row is longer than a page
_REREAD: Final = 128  # the same where several tiles of rows read them, one after the other, out of the cache


def build_direct(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the GEMM of ``op`` that reads A and B in place."""
    get = schedule.integer
    schedule.check_range(1, "mr", "nv", "kc", "mc", "nc")
    schedule.check_range(1, "unroll", most=MOST_UNROLLED)
    schedule.check_range(0, "prefetch_b", most=MOST_OF_TILE)
    check_tile(schedule, target)
    mr, nv, tail, split = get("mr"), get("nv"), get("tail"), schedule.word("split")
    nr = nv * vector_lanes(target, op.accumulator)
    operands = GemmOperands.of(op)
    by_rows = split == "rows"
    mc, nc = round_up(get("mc"), mr), round_up(get("nc"), nr)
    origin: tuple[Index, Index] = (_IC, Const(0)) if by_rows else (Const(0), _JC)
    extents: tuple[Index, Index] = (_MC, N) if by_rows else (M, _NC)
    sums: tuple[Buffer, ...] = ()
    if not operands.sums_in_place:
        sums = (scratch("sums", op.accumulator, MemorySpace.THREAD, *((mc, N) if by_rows else (M, nc))),)
    row, column = origin[0] + _IR, origin[1] + _JR
    tile = MicroKernel(
        intrinsic=gemm_tile(
            panels=(False, False),
            mr=mr,
            nv=nv,
            nr=nr,
            unroll=get("unroll"),
            prefetch=(0, get("prefetch_b")),
            rows=(mr, tail) if tail else (mr,),
            columns_of_a=_has_columns(op),
        ),
        a=operands.at(operands.a, row, _PC, _ROWS, _KC),
        b=operands.at(operands.b, _PC, column, _KC, _COLUMNS),
        c=sums[0].region((_IR, _JR), (_ROWS, _COLUMNS))
        if sums
        else operands.at(operands.c, row, column, _ROWS, _COLUMNS),
        accumulate=_PC > 0,
        finish=_PC + _KC >= K,
        epilogue=operands.epilogue(row, column, _ROWS, _COLUMNS),
    )
    rows = For(var=_IR, extent=extents[0], step=Const(mr), length=_ROWS, body=block(tile))
    columns = For(var=_JR, extent=extents[1], step=Const(nr), length=_COLUMNS, body=block(rows))
    k_loop = For(var=_PC, extent=K, step=Const(get("kc")), length=_KC, body=block(columns))
    if by_rows:
        body = operands.tasks(var=_IC, extent=M, step=mc, length=_MC, body=(k_loop,))
    else:
        body = operands.tasks(var=_JC, extent=N, step=nc, length=_NC, body=(k_loop,))
    return operands.kernel(DIRECT_ID, schedule, target, sums, body, assumptions=equal(M % mr, tail))


def _default(op: GemmOp, target: Target) -> Schedule:
    m, n, k = (_known(dim) for dim in (op.m, op.n, op.k))
    lanes = vector_lanes(target, op.accumulator)
    mr, nv = _column_tile(op, target) if _has_columns(op) else row_tile(m, n, lanes, target)
    nr = nv * lanes
    by_rows = m > n
    return Schedule(
        mr=mr,
        nv=nv,
        unroll=2,
        # Rows of B ahead of their use pay where B comes from memory; in a cache they only cost.
        prefetch_b=0 if k * n * op.b.dtype.nbytes <= target.l2_bytes else 8,
        kc=_column_steps(op, target, (mr, nv)) if _has_columns(op) else _row_steps(op, target),
        mc=_task_step(m, mr, op, target) if by_rows else round_up(m, mr),
        nc=round_up(n, nr) if by_rows else _task_step(n, nr, op, target),
        tail=m % mr,
        split="rows" if by_rows else "columns",
    )


def _task_step(extent: int, tile: int, op: GemmOp, target: Target) -> int:
    """Return the rows or columns of a task: two tasks a core, but where another number leaves less to the last core."""
    if target.cores == 1:
        return round_up(extent, tile)
    usual = round_up(-(-extent // (2 * target.cores)), tile)
    if op.batch:
        return usual

    def cost(step: int) -> float:
        return row_block_cost(extent, step, target.cores)

    even = min(range(tile, round_up(extent, tile) + 1, tile), key=cost, default=usual)
    return even if cost(usual) > _UNEVEN * cost(even) else usual


def _column_steps(op: GemmOp, target: Target, tile: tuple[int, int]) -> int:
    """Return the K block of a tile that reads columns of A: all of them, and its panel of B, stay in one cache."""
    nbytes = target.l2_bytes * 3 // 4 if _is_long(tile, target) else target.l1d_bytes * 7 // 8
    step = (_known(op.m) + tile[1] * vector_lanes(target, op.accumulator)) * op.accumulator.nbytes
    return equal_blocks(_known(op.k), max(1, nbytes // step))


def _row_steps(op: GemmOp, target: Target) -> int:
    k = _known(op.k)
    if _known(op.m) > _MOST_ROWS and waits_long(target) and not _is_small(op, target):
        return equal_blocks(k, _REREAD)
    if _known(op.n) * op.accumulator.nbytes >= target.page_bytes:
        return equal_blocks(k, _K_BLOCK)
    return max(1, min(k, 4 * _K_BLOCK))


def _is_long(tile: tuple[int, int], target: Target) -> bool:
    """Whether the products of one step of a tile take long; how long those of a plain build take, nobody knows."""
    return target.isa != "plain" and tile[0] * tile[1] >= _LONG_STEP * target.fma_per_cycle


def _space(op: GemmOp, target: Target) -> ScheduleSpace:
    default = _default(op, target)
    m = _known(op.m)
    highest = _MOST_COLUMN_ROWS if _has_columns(op) else _MOST_ROWS
    tiles = {(int(default["mr"]), int(default["nv"])), *_tiles(highest, target)}
    latency = target.fma_per_cycle * target.fma_latency_cycles

    def valid(chosen: Mapping[str, Value]) -> bool:
        mr, nv, tail = (int(chosen[name]) for name in ("mr", "nv", "tail"))
        fits = (mr, nv) in tiles and mr <= max(m, 1) and tail == m % mr
        return fits and (mr * nv >= latency or (mr, nv) == (default["mr"], default["nv"]))

    axes: dict[str, tuple[Value, ...]] = {
        "mr": tuple(sorted({mr for mr, _ in tiles})),
        "nv": tuple(sorted({nv for _, nv in tiles})),
        "unroll": (1, 2),
        "prefetch_b": (0, 8),
        "kc": tuple(dict.fromkeys((default["kc"], 128, 256, 512))),
        "mc": (default["mc"],),
        "nc": (default["nc"],),
        "tail": tuple(sorted({m % mr for mr, _ in tiles})),
        "split": (default["split"],),
    }
    return ScheduleSpace.enumerated(axes, valid)


def row_height(m: int, target: Target) -> int:
    """Return the rows of a register tile that reads rows of A where they lie."""
    # Equal row blocks, the fewest: 16 rows are tiles of 6, 6 and 4 rows by 4 vectors. Each row has an address of its
    # own, and more than 6 do not fit the integer registers beside the rest.
    registers = target.vector_registers if target.isa != "plain" else 32
    return equal_blocks(max(m, 1), min((registers - 4) // 3, _MOST_ROWS))


def row_width(mr: int, n: int, lanes: int, target: Target) -> int:
    """Return the vectors of a register tile of ``mr`` rows that lie where they are."""
    registers = target.vector_registers if target.isa != "plain" else 32
    widths = range(1, max(1, min(_MOST_VECTORS, (registers - 1) // (mr + 1))) + 1)

    def worth(nv: int) -> float:
        # Products for each load, times the share of lanes that the last tile of a row does not waste.
        used = max(n, 1) / (round_up(n, nv * lanes))
        return used * mr * nv / (mr * nv + mr + nv)

    return max(widths, key=worth)


def row_tile(m: int, n: int, lanes: int, target: Target) -> tuple[int, int]:
    """Return rows and vectors of a register tile that reads rows of A where they lie."""

    def cycles(tile: tuple[int, int]) -> int:
        return tile_cycles(m, n, tile, lanes, target)

    mr = row_height(m, target)
    tile = mr, row_width(mr, n, lanes, target)
    # Fewer rows have registers for more vectors: 5 by 5 for 65 to 80 columns, where 6 by 3 computes 96.
    fewer = [
        other for other in _tiles(mr - 1, target) if other[0] >= _FEWER_ROWS and prod(other) >= _AS_LARGE * prod(tile)
    ]
    fuller = min(fewer, key=lambda other: (cycles(other), sum(other) / prod(other)), default=tile)
    return fuller if cycles(fuller) < _FULLER * cycles(tile) else tile


def _column_tile(op: GemmOp, target: Target) -> tuple[int, int]:
    """Return rows and vectors of a register tile that reads columns of A where they lie: the fewest cycles a step."""
    m, n, lanes = _known(op.m), _known(op.n), vector_lanes(target, op.accumulator)
    highest = max(1, min(m, _MOST_COLUMN_ROWS))
    # Few rows read B often, and a vector across two lines costs two reads.
    lowest = min(highest, _FEWER_ROWS if _has_lines(op, target) else _MOST_ROWS)

    def cost(tile: tuple[int, int]) -> tuple[int, ...]:
        mr, nv = tile
        tiles = -(-m // mr) * -(-n // (nv * lanes))  # each reads and writes its sums once a K block
        return tile_cycles(m, n, tile, lanes, target), tiles, -m % mr, -mr

    fitting = _tiles(highest, target)
    return min([tile for tile in fitting if tile[0] >= lowest] or fitting, key=cost)


def _tiles(highest: int, target: Target) -> list[tuple[int, int]]:
    return [
        (mr, nv) for mr in range(1, highest + 1) for nv in range(1, _MOST_VECTORS + 1) if fits_registers(mr, nv, target)
    ]


def _has_columns(op: GemmOp) -> bool:
    """Whether columns of A, and not its rows, are next to each other."""
    return unit_stride(op, "a", -2) and not unit_stride(op, "a", -1)


def _known(dim: Dim) -> int:
    return dim if isinstance(dim, int) else dim.maximum or 1024


def _few_rows(op: GemmOp, target: Target) -> float:
    m = _known(op.m)
    if m <= _MOST_VECTORS:
        return 20.0
    room = target.l2_bytes if m <= _SURELY_UNPAID else target.l2_bytes * 3 // 4
    near = m <= _UNPAID_NEAR[target.cores > 1] and _has_lines(op, target) and _b_bytes(op) <= room
    unpaid = m <= _UNPAID_ROWS or near
    if unpaid and _has_columns(op) and _column_score(op, target) > 0:
        return 0.0  # that says it: both together would come before matrix tiles, which take 0.8 to 0.95 of the time
    # 0.6 to 0.98 of the time of packed; below matrix tiles and panels that are there (NOTES, 2026-11-27 and 28).
    return 12.0 if unpaid and _has_near_steps(op, target) and waits_long(target) else -20.0


def _small(op: GemmOp, target: Target) -> float:
    return 45.0 if _is_small(op, target) else 0.0


def _is_small(op: GemmOp, target: Target) -> bool:
    # Rows that do not begin on a cache line cost a second line for every vector: packing repays that unless B is small.
    if _has_lines(op, target) and not _repays_packing(op, target):
        return _b_bytes(op) <= target.l2_bytes // 4
    return _b_bytes(op) <= target.l2_bytes // (16 if _has_lines(op, target) else 32)


def _repays_packing(op: GemmOp, target: Target) -> bool:
    """Whether many rows read columns beside whole tiles, masked, or rows of B meet in few sets of the first cache.

    Measured with vectors of half a line (Zen 3), from a B beyond 32 KiB on, of the time by packing: 112³ 1.08,
    64x112x112 1.04, 160³ 1.05, 256x160x160 0.97; 128³ 1.05, 512x128x128 1.13, 48x128x128 1.0. Of 24 rows 0.94, of 96³
    and 144³, which are whole tiles in other sets, 0.89 and 0.93.
    """
    m, n, lanes = _known(op.m), _known(op.n), vector_lanes(target, op.accumulator)
    is_partial = n % (row_tile(m, n, lanes, target)[1] * lanes) != 0
    meets = n * op.b.dtype.nbytes % _SAME_SETS_BYTES == 0
    return target.isa == "avx2" and m >= _UNPAID_ROWS * (1 if is_partial else 2) and (is_partial or meets)


def _has_lines(op: GemmOp, target: Target) -> bool:
    """Whether rows of B begin on cache lines if the first one does."""
    return _known(op.n) * op.b.dtype.nbytes % target.cache_line_bytes == 0


def _b_bytes(op: GemmOp) -> int:
    return _known(op.k) * _known(op.n) * op.b.dtype.nbytes


def is_better_turned(op: GemmOp, target: Target) -> bool:
    """Whether ``Cᵀ = Bᵀ Aᵀ``, which reads columns of A where they lie, is faster than this product of few columns.

    Each result is stored through a transpose, which sums of fewer steps do not repay; and short columns of A are read
    well by tiles whose vectors the columns of B fill (benchmarks/NOTES.md, 2026-11-28).
    """
    m, n, lanes = _known(op.m), _known(op.n), vector_lanes(target, op.accumulator)
    few = MOST_STREAMED_ROWS < n <= MOST_TURNED_COLUMNS and n < m and n <= _known(op.k)
    known = all(type_.is_static for type_ in (*op.operands, op.infer()))
    if not (few and known and _has_columns(op)):
        return False
    fills = unit_stride(op, "b", -1) and n % (2 * lanes) == 0 and m <= _FEW_TURNED
    return not fills or _column_score(op, target) <= 0


def _near_steps(op: GemmOp, target: Target) -> float:
    # Columns of C that leave most of a vector empty are better lanes where the product is turned.
    if not _has_columns(op):
        return 0.0
    if _known(op.n) <= MOST_STREAMED_ROWS or is_better_turned(op, target):
        return -200.0
    return _column_score(op, target)


def _column_score(op: GemmOp, target: Target) -> float:
    # Rows of A that lie far from step to step are a line a step, all in few sets of the first cache: they are packed,
    # but where products take longer than their lines.
    m, n, nbytes = _known(op.m), _known(op.n), op.a.dtype.nbytes
    tile = _column_tile(op, target)
    if max(m, n) * nbytes <= target.page_bytes and _known(op.k) >= _FEWEST_STEPS:
        if _is_long(tile, target) and m * n * nbytes <= target.l2_bytes:
            return 40.0  # faster than packed by 1.03 to 1.25 on one core, by more on two (NOTES, 2026-11-26)
        if waits_long(target) and _FEW_SUMS * m * n * nbytes <= target.l2_bytes:
            return 36.0  # than packed, which waits for B, by 1.08 to 1.6 (NOTES, 2026-11-28); below matrix tiles
    return 0.0 if _has_near_steps(op, target) else -200.0


def _has_near_steps(op: GemmOp, target: Target) -> bool:
    """Whether a step of a tile reads A in a few cache lines, or along rows of A."""
    lines = _NEAR_LINES[waits_long(target)]
    return not _has_columns(op) or _known(op.m) * op.a.dtype.nbytes <= lines * target.cache_line_bytes


_A_IN_PLACE = condition(
    "rows or columns of A contiguous",
    lambda op, _: unit_stride(op, "a", -1) or unit_stride(op, "a", -2),
    needed="stride 1 along one of the last two axes of a",
    found=lambda op: str(op.a),
    remedy="use gemm.packed, which takes any strides",
)

DIRECT_ID = "gemm.direct"
DIRECT = Variant(
    id=DIRECT_ID,
    op_type=GemmOp,
    backend="cpu",
    requirements=(*GEMM_REQUIREMENTS, STORED_AS_SUMMED, _A_IN_PLACE, ROWS_OF_B),
    preferences=(
        Preference(name="few rows", score=_few_rows),
        Preference(name="small", score=_small),
        Preference(name="steps of A near", score=_near_steps),
    ),
    priority=45,
    build=build_direct,
    space=_space,
    default_schedule=_default,
)
