"""Products with few rows, where B is read once and its bandwidth is the limit.

``gemm.stream``: B's rows are contiguous; whole rows stream past sums that stay in the first-level cache.
``gemm.dot``: B's columns are contiguous (a weight stored as it is applied, transposed) or B is one column; vectors lie
along K.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import Dim
from tracea.kernels.cores import fetches_far, waits_long
from tracea.kernels.gemm.blocking import MOST_UNROLLED, round_up
from tracea.kernels.gemm.operands import GemmOperands, K, M, N
from tracea.kernels.gemm.requirements import GEMM_REQUIREMENTS, ROWS_OF_B, contiguous, most, unit_stride
from tracea.kernels.operands import scratch, vector_lanes
from tracea.kernels.requirements import condition
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import Const, Index, Var, equal
from tracea.semantic.intrinsics import plain_product
from tracea.semantic.nodes import Level, MicroKernel
from tracea.semantic.schedule import MOST_OF_TILE, Schedule
from tracea.semantic.tile_kernel import Buffer, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = [
    "COLUMNS_OF_B",
    "DOT",
    "MOST_DOTTED_ROWS",
    "MOST_STREAMED_ROWS",
    "STREAM",
    "build_dot",
    "build_stream",
    "check_stream",
    "stream_tile",
]

_SOURCE = "emitters/cpu/include/tracea/gemv.h"
_JC, _NC = Var("jc"), Var("nc")
_IC, _MC = Var("ic"), Var("mc")

MOST_STREAMED_ROWS: Final = (
    4  # sums of a row are loaded and stored for every few rows of B: more rows want register tiles
)
MOST_DOTTED_ROWS: Final = 48
_SURELY_DOTTED: Final = 8  # rows up to which that is best everywhere
_STEPS_A_ROW: Final = 14  # from sums so many times as long as rows are many, their last additions cost less than panels
_MOST_SHARED_ROWS: Final = 4  # of a tile: what it reads of B serves as many
# Rows of B that a tile reads side by side, each a stream through memory of its own; and how far ahead it asks for each.
# Measured on 494 MB of weights of GPT-2, one row of A, share of the time of four neighbours: 4 streams 0.89 (and with
# requests 1.00), 6 0.87, 8 0.855, 12 0.856, 16 0.86, 24 0.88; 8 with requests 256 B to 2 KiB ahead 0.855 to 0.865.
_STREAMS: Final = (8, 6, 4)
_DOT_PREFETCH_BYTES: Final = 512
# A core that fetches far ahead itself follows two streams best, and requests hinder it. Measured on a Zen 5, GB/s of
# one core, the same weights: 8 streams with requests 31.8, 8 without 34, 4 38.0, 2 40.6.
_FOLLOWED: Final = 2
_MOST_CACHED: Final = 32  # rows of dot products of a B that the second-level cache holds
_MOST_DOTTED: Final = 8192  # columns of a task: their sums may need scratch


def build_stream(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the GEMM of ``op`` that streams rows of B; it is built for ``op.m`` rows exactly, which is a guard."""
    get = schedule.integer
    check_stream(schedule)
    schedule.check_range(1, "nc")
    rows, nc = get("rows"), round_up(get("nc"), vector_lanes(target, op.accumulator))
    operands = GemmOperands.of(op)
    sums = _sums(operands, (rows, nc))
    tile = MicroKernel(
        intrinsic=stream_tile(schedule),
        a=operands.at(operands.a, 0, 0, M, K),
        b=operands.at(operands.b, 0, _JC, K, _NC),
        c=sums[0].region((0, 0), (M, _NC)) if sums else operands.at(operands.c, 0, _JC, M, _NC),
        epilogue=operands.epilogue(Const(0), _JC, M, _NC),
    )
    # The same blocks for the same thread in every run: B's columns stay in the cache of the core that read them last.
    body = operands.tasks(var=_JC, extent=N, step=nc, length=_NC, body=(tile,), level=Level.TEAM)
    return operands.kernel(STREAM_ID, schedule, target, sums, body, assumptions=equal(M, rows))


def check_stream(schedule: Schedule) -> None:
    """Check the values that :func:`stream_tile` reads.

    Raises:
        InvalidSchedule: one is out of its range.
    """
    schedule.check_range(1, "rows", "steps", most=MOST_UNROLLED)
    schedule.check_range(0, "prefetch", most=MOST_OF_TILE)


def stream_tile(schedule: Schedule) -> Intrinsic:
    """Return the routine that streams rows of B past sums of ``rows`` rows, ``steps`` rows of B side by side."""
    attributes = tuple((name, schedule.integer(name)) for name in ("rows", "steps", "prefetch"))
    return Intrinsic(name="gemv_columns", meaning=plain_product, source=_SOURCE, attributes=attributes)


def build_dot(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the GEMM of ``op`` as dot products of rows of A and columns of B."""
    get = schedule.integer
    schedule.check_range(1, "rows", "columns", most=MOST_UNROLLED)
    schedule.check_range(1, "mc", "nc")
    schedule.check_range(0, "prefetch", most=MOST_OF_TILE)
    rows, columns = get("rows"), get("columns")
    operands = GemmOperands.of(op, b_unit=-2)
    by_rows = schedule.choice("split", "rows", "columns") == "rows"
    mc, nc = round_up(get("mc"), rows), round_up(get("nc"), columns)
    sums = _sums(operands, (mc, N) if by_rows else (M, nc))
    row, column = (_IC, Const(0)) if by_rows else (Const(0), _JC)
    high, wide = (_MC, N) if by_rows else (M, _NC)
    tile = MicroKernel(
        intrinsic=Intrinsic(
            name="dot_tile",
            meaning=plain_product,
            source=_SOURCE,
            attributes=(("rows", rows), ("columns", columns), ("prefetch", get("prefetch"))),
        ),
        a=operands.at(operands.a, row, 0, high, K),
        b=operands.at(operands.b, 0, column, K, wide),
        c=sums[0].region((0, 0), (high, wide)) if sums else operands.at(operands.c, row, column, high, wide),
        epilogue=operands.epilogue(row, column, high, wide),
    )
    if by_rows:
        body = operands.tasks(var=_IC, extent=M, step=mc, length=_MC, body=(tile,))
    else:
        body = operands.tasks(var=_JC, extent=N, step=nc, length=_NC, body=(tile,))
    return operands.kernel(DOT_ID, schedule, target, sums, body)


def _sums(operands: GemmOperands, tile: tuple[Index | int, Index | int]) -> tuple[Buffer, ...]:
    # K is not cut, so sums live for one block: where C cannot hold them, a block of scratch does.
    return () if operands.sums_in_place else (scratch("sums", operands.accumulator, MemorySpace.THREAD, *tile),)


def _stream_default(op: GemmOp, target: Target) -> Schedule:
    m, n = _known(op.m), _known(op.n)
    half_l1 = target.l1d_bytes // (2 * op.accumulator.nbytes * max(m, 1))
    lanes = vector_lanes(target, op.accumulator)
    # One block a core where sums allow: the shorter the piece of a row, the less the core reads ahead.
    nc = max(lanes, min(half_l1, -(-n // target.cores)))
    return Schedule(rows=max(m, 1), steps=4, prefetch=0, nc=round_up(nc, lanes))


def _stream_space(op: GemmOp, target: Target) -> ScheduleSpace:
    default = _stream_default(op, target)
    nc = int(default["nc"])
    axes: dict[str, tuple[Value, ...]] = {
        "rows": (default["rows"],),
        "steps": (2, 4, 8),
        "prefetch": (0, 64, 256),
        "nc": tuple(dict.fromkeys((nc, max(1, nc // 2), max(1, nc // 4), 2 * nc))),
    }
    registers = target.vector_registers if target.isa != "plain" else 32

    def valid(chosen: Mapping[str, Value]) -> bool:
        rows, steps = int(chosen["rows"]), int(chosen["steps"])
        return rows * steps + rows + 1 <= registers or steps == default["steps"]

    return ScheduleSpace.enumerated(axes, valid)


def _dot_default(op: GemmOp, target: Target) -> Schedule:
    m, n = _known(op.m), _known(op.n)
    tasks = 1 if target.cores == 1 else 4 * target.cores
    by_rows = n == 1 or m > n
    follows = fetches_far(target)
    streams = (_FOLLOWED,) if follows else _STREAMS
    rows = streams[0] if n == 1 else max(1, min(m, _MOST_SHARED_ROWS))
    fitting = (count for count in streams if count <= n and _dot_fits(rows, count, target))
    columns = 1 if n == 1 else next(fitting, min(n, streams[-1]))
    extent, step = (m, rows) if by_rows else (n, columns)
    share = round_up(min(-(-extent // tasks), _MOST_DOTTED), step)
    return Schedule(
        rows=rows,
        columns=columns,
        prefetch=0 if follows else _DOT_PREFETCH_BYTES // op.b.dtype.nbytes,
        mc=share if by_rows else m,
        nc=n if by_rows else share,
        split="rows" if by_rows else "columns",
    )


def _dot_space(op: GemmOp, target: Target) -> ScheduleSpace:
    default = _dot_default(op, target)

    def valid(chosen: Mapping[str, Value]) -> bool:
        rows, columns = int(chosen["rows"]), int(chosen["columns"])
        fits = _dot_fits(rows, columns, target) or (rows, columns) == (default["rows"], default["columns"])
        return fits and rows <= max(1, _known(op.m)) and columns <= max(1, _known(op.n))

    prefetch = _DOT_PREFETCH_BYTES // op.b.dtype.nbytes
    axes: dict[str, tuple[Value, ...]] = {
        "rows": tuple(dict.fromkeys((default["rows"], 1, 2, 3, 4, 8))),
        "columns": tuple(dict.fromkeys((default["columns"], 1, 2, 3, 4, 6, 8))),
        "prefetch": tuple(dict.fromkeys((default["prefetch"], prefetch, 0, prefetch // 2, 2 * prefetch))),
        "mc": (default["mc"],),
        "nc": (default["nc"],),
        "split": (default["split"],),
    }
    return ScheduleSpace.enumerated(axes, valid)


def _dot_fits(rows: int, columns: int, target: Target) -> bool:
    """Whether the sums, the elements of A and a vector of B fit the registers; the plain build's fit none anyway."""
    return rows * columns + rows + 1 <= (target.vector_registers if target.isa != "plain" else 32)


def _known(dim: Dim) -> int:
    return dim if isinstance(dim, int) else dim.maximum or 1024


def _dot_shaped(op: GemmOp) -> bool:
    few = isinstance(op.m, int) and op.m <= MOST_DOTTED_ROWS
    return few or op.n == 1


def _by_rows(op: GemmOp, target: Target) -> float:
    m = _known(op.m)
    if m <= _SURELY_DOTTED or op.n == 1:
        return 0.0
    # 0.55 to 0.97 of packed's time (benchmarks/NOTES.md, 2026-11-27); below matrix tiles and panels that are there.
    # A panel holds what is stored in another type converted, where each tile of rows would convert it again. Many rows
    # use what the cache holds often enough for panels (1.1 of packed's time; NOTES, 2026-11-28).
    long, as_is = _known(op.k) >= _STEPS_A_ROW * m, op.b.dtype is op.accumulator
    cached = m > _MOST_CACHED and _known(op.k) * _known(op.n) * op.b.dtype.nbytes <= target.l2_bytes
    return -13.0 if long and as_is and not cached and waits_long(target) else -40.0


COLUMNS_OF_B = condition(
    "columns of B contiguous",
    lambda op, _: unit_stride(op, "b", -2),
    needed="stride 1 along K in b",
    found=lambda op: str(op.b),
    remedy="use gemm.stream for contiguous rows of B, else gemm.packed",
)
_DOT_SHAPE = condition(
    "few dot products a row",
    lambda op, _: _dot_shaped(op),
    needed=f"m <= {MOST_DOTTED_ROWS} or n = 1",
    found=lambda op: f"m = {op.m}, n = {op.n}",
    remedy="use gemm.packed",
)

STREAM_ID = "gemm.stream"
STREAM = Variant(
    id=STREAM_ID,
    op_type=GemmOp,
    backend="cpu",
    requirements=(*GEMM_REQUIREMENTS, most("m", MOST_STREAMED_ROWS), ROWS_OF_B),
    preferences=(),
    priority=70,
    build=build_stream,
    space=_stream_space,
    default_schedule=_stream_default,
)

DOT_ID = "gemm.dot"
DOT = Variant(
    id=DOT_ID,
    op_type=GemmOp,
    backend="cpu",
    requirements=(*GEMM_REQUIREMENTS, _DOT_SHAPE, contiguous("a", "rows of A"), COLUMNS_OF_B),
    preferences=(Preference(name="few rows", score=_by_rows),),
    priority=70,
    build=build_dot,
    space=_dot_space,
    default_schedule=_dot_default,
)
