"""Products with few rows, where B is read once and its bandwidth is the limit.

``gemm.stream``: B's rows are contiguous; whole rows stream past sums that stay in the first-level cache.
``gemm.dot``: B's columns are contiguous (a weight stored as it is applied, transposed) or B is one column; vectors lie
along K.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import Dim
from tracea.kernels.gemm.blocking import round_up
from tracea.kernels.gemm.operands import GemmOperands, K, M, N
from tracea.kernels.gemm.requirements import GEMM_REQUIREMENTS, ROWS_OF_B, contiguous, most, unit_stride
from tracea.kernels.operands import scratch, vector_lanes
from tracea.kernels.requirements import condition
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import Const, Index, Var, equal
from tracea.semantic.intrinsics import plain_product
from tracea.semantic.nodes import For, Level, MicroKernel, Node, block
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["DOT", "MOST_STREAMED_ROWS", "STREAM", "build_dot", "build_stream", "stream_tile"]

_SOURCE = "emitters/cpu/include/tracea/gemv.h"
_JC, _NC = Var("jc"), Var("nc")
_IC, _MC = Var("ic"), Var("mc")
_JR, _COLUMNS = Var("jr"), Var("columns")
_IR, _ROWS = Var("ir"), Var("rows")

MOST_STREAMED_ROWS: Final = (
    4  # sums of a row are loaded and stored for every few rows of B: more rows want register tiles
)
_MOST_DOTTED_ROWS: Final = 8


def build_stream(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the GEMM of ``op`` that streams rows of B; it is built for ``op.m`` rows exactly, which is a guard."""
    get = schedule.integer
    schedule.check_range(1, "rows", "steps", "nc")
    schedule.check_range(0, "prefetch")
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


def stream_tile(schedule: Schedule) -> Intrinsic:
    """Return the routine that streams rows of B past sums of ``rows`` rows, ``steps`` rows of B side by side."""
    attributes = tuple((name, schedule.integer(name)) for name in ("rows", "steps", "prefetch"))
    return Intrinsic(name="gemv_columns", meaning=plain_product, source=_SOURCE, attributes=attributes)


def build_dot(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the GEMM of ``op`` as dot products of rows of A and columns of B."""
    get = schedule.integer
    schedule.check_range(1, "rows", "columns", "mc", "nc")
    schedule.check_range(0, "prefetch")
    rows, columns = get("rows"), get("columns")
    operands = GemmOperands.of(op, b_unit=-2)
    sums = _sums(operands, (rows, columns))
    by_rows = schedule.choice("split", "rows", "columns") == "rows"
    origin: tuple[Index, Index] = (_IC, Const(0)) if by_rows else (Const(0), _JC)
    extents: tuple[Index, Index] = (_MC, N) if by_rows else (M, _NC)
    row, column = origin[0] + _IR, origin[1] + _JR
    tile = MicroKernel(
        intrinsic=Intrinsic(
            name="dot_tile",
            meaning=plain_product,
            source=_SOURCE,
            attributes=(("rows", rows), ("columns", columns), ("prefetch", get("prefetch"))),
        ),
        a=operands.at(operands.a, row, 0, _ROWS, K),
        b=operands.at(operands.b, 0, column, K, _COLUMNS),
        c=sums[0].region((0, 0), (_ROWS, _COLUMNS)) if sums else operands.at(operands.c, row, column, _ROWS, _COLUMNS),
        epilogue=operands.epilogue(row, column, _ROWS, _COLUMNS),
    )
    inner = For(var=_IR, extent=extents[0], step=Const(rows), length=_ROWS, body=block(tile))
    loops: Sequence[Node] = (For(var=_JR, extent=extents[1], step=Const(columns), length=_COLUMNS, body=block(inner)),)
    if by_rows:
        body = operands.tasks(var=_IC, extent=M, step=round_up(get("mc"), rows), length=_MC, body=loops)
    else:
        body = operands.tasks(var=_JC, extent=N, step=round_up(get("nc"), columns), length=_NC, body=loops)
    return operands.kernel(DOT_ID, schedule, target, sums, body)


def _sums(operands: GemmOperands, tile: tuple[int, int]) -> tuple[Buffer, ...]:
    # K is not cut, so sums live for one tile: where C cannot hold them, a tile of scratch does.
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
    rows, columns = (8, 1) if n == 1 else (max(1, min(m, 4)), 4)
    return Schedule(
        rows=rows,
        columns=columns,
        prefetch=256,
        mc=round_up(-(-m // tasks), rows) if by_rows else m,
        nc=n if by_rows else round_up(-(-n // tasks), columns),
        split="rows" if by_rows else "columns",
    )


def _dot_space(op: GemmOp, target: Target) -> ScheduleSpace:
    default = _dot_default(op, target)
    registers = target.vector_registers if target.isa != "plain" else 32

    def valid(chosen: Mapping[str, Value]) -> bool:
        rows, columns = int(chosen["rows"]), int(chosen["columns"])
        return (
            rows * columns + rows + 1 <= registers and rows <= max(1, _known(op.m)) and columns <= max(1, _known(op.n))
        )

    axes: dict[str, tuple[Value, ...]] = {
        "rows": tuple(dict.fromkeys((default["rows"], 1, 2, 4, 8))),
        "columns": tuple(dict.fromkeys((default["columns"], 1, 2, 4, 8))),
        "prefetch": (0, 128, 256, 512),
        "mc": (default["mc"],),
        "nc": (default["nc"],),
        "split": (default["split"],),
    }
    return ScheduleSpace.enumerated(axes, valid)


def _known(dim: Dim) -> int:
    return dim if isinstance(dim, int) else dim.maximum or 1024


def _dot_shaped(op: GemmOp) -> bool:
    few = isinstance(op.m, int) and op.m <= _MOST_DOTTED_ROWS
    return few or op.n == 1


_COLUMNS_OF_B = condition(
    "columns of B contiguous",
    lambda op, _: unit_stride(op, "b", -2),
    needed="stride 1 along K in b",
    found=lambda op: str(op.b),
    remedy="use gemm.stream for contiguous rows of B, else gemm.packed",
)
_DOT_SHAPE = condition(
    "few dot products a row",
    lambda op, _: _dot_shaped(op),
    needed=f"m <= {_MOST_DOTTED_ROWS} or n = 1",
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
    requirements=(*GEMM_REQUIREMENTS, _DOT_SHAPE, contiguous("a", "rows of A"), _COLUMNS_OF_B),
    preferences=(),
    priority=70,
    build=build_dot,
    space=_dot_space,
    default_schedule=_dot_default,
)
