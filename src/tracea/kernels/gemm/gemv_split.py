"""Products with few rows whose sum over K is split between the cores: each streams its own whole rows of B.

A block of columns a core, as ``gemm.stream`` deals them, makes of a row-major B many short pieces that lie a row apart.
Here a core reads one contiguous part of B and leaves a partial sum of every column in scratch of the team; behind a
barrier the partial sums are added, in the order of the parts, and the epilogue is applied. The parts are the
schedule's: the bits of a result do not depend on how many threads run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import Dim
from tracea.kernels.gemm.blocking import round_up
from tracea.kernels.gemm.gemv import MOST_STREAMED_ROWS, check_stream, stream_tile
from tracea.kernels.gemm.operands import GemmOperands, M, N
from tracea.kernels.gemm.requirements import GEMM_REQUIREMENTS, ROWS_OF_B, most
from tracea.kernels.operands import scratch, vector_lanes
from tracea.kernels.parts import sum_of_parts
from tracea.kernels.requirements import condition
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.index import INT32_MAX, Const, Param, Var, ceil_div, equal
from tracea.semantic.nodes import Barrier, EpilogueCall, For, Level, MicroKernel, Parallel, ReduceTile, block
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["NO_BATCH", "STREAM_SPLIT", "build_stream_split"]

_PC, _KC = Var("pc"), Var("kc")
_JC, _NC = Var("jc"), Var("nc")
_JF, _COLUMNS = Var("jf"), Var("columns")
_IR = Var("ir")

_GAP_BYTES: Final = 256  # between partial sums of two cores: what one prefetches beyond its own is not the other's
_MOST_PARTS: Final = 4096  # so their sums fit an address space; a longer K is refused
_STEPS: Final = (8, 4, 2)


def build_stream_split(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the GEMM of ``op`` over parts of K; it is built for ``op.m`` rows exactly, which is a guard."""
    check_stream(schedule)
    schedule.check_range(1, "kc", "nc", "fold")
    lanes = vector_lanes(target, op.accumulator)
    kc, nc, fold = schedule.integer("kc"), *(round_up(schedule.integer(name), lanes) for name in ("nc", "fold"))
    depth = Param("k", minimum=1, maximum=min(kc * _MOST_PARTS, INT32_MAX))
    operands = GemmOperands.of(op, depth=depth)
    gap = _GAP_BYTES // op.accumulator.nbytes
    pitch = ceil_div(N, gap) * gap + gap
    rows = schedule.integer("rows")
    partials = scratch("partials", op.accumulator, MemorySpace.TEAM, ceil_div(depth, kc), rows, pitch)
    tile = MicroKernel(
        intrinsic=stream_tile(schedule),
        a=operands.at(operands.a, 0, _PC, M, _KC),
        b=operands.at(operands.b, _PC, _JC, _KC, _NC),
        c=partials.region((_PC // kc, 0, _JC), (1, rows, _NC)),
    )
    columns = For(var=_JC, extent=N, step=Const(nc), length=_NC, body=block(tile))
    # The same part for the same thread in every run: what of B its cache still holds is what it reads again.
    parts = Parallel(level=Level.TEAM, var=_PC, extent=depth, step=Const(kc), length=_KC, body=block(columns))
    each_row = For(var=_IR, extent=M, body=block(_sum_of_parts(operands, partials)))
    finish = Parallel(level=Level.TEAM, var=_JF, extent=N, step=Const(fold), length=_COLUMNS, body=block(each_row))
    body = (parts, Barrier(), finish)
    return operands.kernel(STREAM_SPLIT_ID, schedule, target, (partials,), body, assumptions=equal(M, rows))


def _sum_of_parts(operands: GemmOperands, partials: Buffer) -> ReduceTile:
    """Return the node that adds the partial sums of a row's columns and stores what the epilogue makes of them."""
    epilogue = EpilogueCall(
        expr=operands.op.epilogue.expr,
        operands=tuple(operands.at(buffer, _IR, _JF, 1, _COLUMNS) for buffer in operands.extras),
    )
    target = operands.at(operands.c, _IR, _JF, 1, _COLUMNS)
    return sum_of_parts(partials, _IR, _JF, _COLUMNS, target=target, compute=operands.accumulator, epilogue=epilogue)


def _default(op: GemmOp, target: Target) -> Schedule:
    m, n, k = (_known(dim) for dim in (op.m, op.n, op.k))
    lanes, rows = vector_lanes(target, op.accumulator), max(m, 1)
    steps = next((steps for steps in _STEPS if _fits(rows, steps, target)), 1)
    half_l1 = target.l1d_bytes // (2 * op.accumulator.nbytes * rows)
    return Schedule(
        rows=rows,
        steps=steps,
        prefetch=0,
        kc=round_up(-(-k // target.cores), steps),
        nc=round_up(max(lanes, min(half_l1, n)), lanes),
        fold=round_up(-(-n // target.cores), target.cache_line_bytes // op.accumulator.nbytes),
    )


def _space(op: GemmOp, target: Target) -> ScheduleSpace:
    default = _default(op, target)
    kc, nc, rows = (int(default[name]) for name in ("kc", "nc", "rows"))
    axes: dict[str, tuple[Value, ...]] = {
        "rows": (rows,),
        "steps": tuple(dict.fromkeys((default["steps"], *_STEPS))),
        "prefetch": (0, 64, 256),
        "kc": tuple(dict.fromkeys((kc, -(-kc // 2), -(-kc // 4)))),
        "nc": tuple(dict.fromkeys((nc, -(-nc // 2), -(-nc // 4)))),
        "fold": (default["fold"],),
    }

    def valid(chosen: Mapping[str, Value]) -> bool:
        return chosen["steps"] == default["steps"] or _fits(rows, int(chosen["steps"]), target)

    return ScheduleSpace.enumerated(axes, valid)


def _fits(rows: int, steps: int, target: Target) -> bool:
    """Whether the elements of A, a vector of B and the sums fit the registers; the plain build's fit none anyway."""
    return rows * steps + rows + 1 <= (target.vector_registers if target.isa != "plain" else 32)


def _known(dim: Dim) -> int:
    return dim if isinstance(dim, int) else dim.maximum or 1024


def _shared(op: GemmOp, target: Target) -> float:
    # The barrier costs what a core reads from its cache meanwhile: B has to be worth it, and there has to be a core.
    weight = _known(op.k) * _known(op.n) * op.b.dtype.nbytes
    return _WORTH if target.cores > 1 and 2 * weight >= target.l2_bytes else 0.0


_WORTH: Final = 25.0
NO_BATCH = condition(
    "one product",
    lambda op, _: not op.batch,
    needed="no batch axes",
    found=lambda op: f"batch {op.batch}",
    remedy="use gemm.packed, or gemm.stream of few rows, which share the products of a batch",
)

STREAM_SPLIT_ID = "gemm.stream_split"
STREAM_SPLIT = Variant(
    id=STREAM_SPLIT_ID,
    op_type=GemmOp,
    backend="cpu",
    requirements=(*GEMM_REQUIREMENTS, NO_BATCH, most("m", MOST_STREAMED_ROWS), ROWS_OF_B),
    preferences=(Preference(name="shared by cores", score=_shared),),
    priority=50,  # above gemm.stream where it is preferred
    build=build_stream_split,
    space=_space,
    default_schedule=_default,
)
