"""Low-rank product on matrix tiles: float32 as sums of three bf16 terms, in the loops of the product on vectors.

The team splits both factors into panels of terms. A task multiplies its rows of ``x`` where they lie, which its routine
splits under the products; what lies between is split once more, and is the first factor of the second product.

See :mod:`tracea.kernels.gemm.matrix_tiles` for the arithmetic and docs/adr/0004.
"""

from __future__ import annotations

from typing import Final

from tracea.core.dtype import DType
from tracea.core.ops.low_rank import LowRankOp
from tracea.kernels.gemm.amx import MATRIX_TILES
from tracea.kernels.gemm.blocking import equal_blocks, round_up
from tracea.kernels.gemm.low_rank import NOT_EMPTY, ONE_ARITHMETIC, R, second_product
from tracea.kernels.gemm.matrix_tiles import GRANULE, TILE, amx_block, amx_rows
from tracea.kernels.gemm.operands import GemmOperands, K, M, N, kernel_name
from tracea.kernels.gemm.requirements import FLOATS
from tracea.kernels.operands import params_of, scratch, tensor_buffer
from tracea.kernels.requirements import CPU_VECTORS, condition, element_types, non_negative_strides, strided_layouts
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.index import Const, Index, Var, ceil_div
from tracea.semantic.nodes import Barrier, Level, MicroKernel, Node, Pack, Parallel, block
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["LOW_RANK_AMX", "build_low_rank_amx"]

_IC, _MC = Var("ic"), Var("mc")
_JP, _PW = Var("jp"), Var("pw")  # columns of a factor that is split
_JQ, _QW = Var("jq"), Var("qw")

_TERMS: Final = 3
_WIDTH: Final = TILE * _TERMS
# Measured, benchmarks/NOTES.md.
_TASK_ROWS: Final = 64
_WIDE_RANK: Final = 65  # from here on panels of the second factor leave the cache, and more rows share what is read
_WIDE_TASK_ROWS: Final = 128
_LEAST_RANK: Final = 17  # a granule holds 32 steps, filled or not
_LEAST_ROWS: Final = 64
_LEAST_EXTENT: Final = 96  # of columns and of steps
_SWEEP: Final = 4  # panels that one task splits


def build_low_rank_amx(op: LowRankOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of ``op``."""
    schedule.check_range(1, "mc")
    mc = round_up(schedule.integer("mc"), TILE)
    second = GemmOperands.of(second_product(op), depth=R)
    x = tensor_buffer("x", op.x, (M, K), (op.m, op.k), BufferRole.INPUT, unit_axis=-1)
    a = tensor_buffer("a", op.a, (K, R), (op.k, op.r), BufferRole.INPUT)
    a_panels, b_panels = _panels("a_panels", R, K), _panels("b_panels", N, R)
    inner = scratch("inner", op.accumulator, MemorySpace.THREAD, mc, R)
    inner_panels = scratch("inner_panels", DType.BF16, MemorySpace.THREAD, mc // TILE, _granules(R), _WIDTH)
    sums = () if second.sums_in_place else (scratch("sums", op.accumulator, MemorySpace.THREAD, mc, N),)
    into_rank = MicroKernel(
        intrinsic=amx_rows(_TERMS),
        a=x.region((_IC, 0), (_MC, K)),
        b=a_panels.region((0, 0, 0), (ceil_div(R, TILE), K, _WIDTH)),
        c=inner.region((0, 0), (_MC, R)),
        granule=GRANULE,
    )
    split = Pack(
        source=inner.region((0, 0), (_MC, R)),
        target=inner_panels.region((0, 0, 0), (ceil_div(_MC, TILE), R, _WIDTH)),
        panel=TILE,
        axis=0,
        terms=_TERMS,
        granule=GRANULE,
    )
    out_of_rank = MicroKernel(
        intrinsic=amx_block(_TERMS),
        a=inner_panels.region((0, 0, 0), (ceil_div(_MC, TILE), R, _WIDTH)),
        b=b_panels.region((0, 0, 0), (ceil_div(N, TILE), R, _WIDTH)),
        c=sums[0].region((0, 0), (_MC, N)) if sums else second.c.region((_IC, 0), (_MC, N)),
        epilogue=second.epilogue(_IC, Const(0), _MC, N),
        granule=GRANULE,
    )
    task = Parallel(
        level=Level.TASK,
        var=_IC,
        extent=M,
        step=Const(mc),
        length=_MC,
        body=block(into_rank, split, out_of_rank),
    )
    buffers = (x, a, second.b, *second.extras, second.c, a_panels, b_panels, inner, inner_panels, *sums)
    return TileKernel(
        name=kernel_name(op.key, LOW_RANK_AMX_ID, schedule, target),
        op=op,
        variant=LOW_RANK_AMX_ID,
        schedule=schedule,
        target=target.name,
        params=params_of(buffers),
        buffers=buffers,
        body=block(
            _packing(a, a_panels, (_JP, _PW), panels_each=1), _packing(second.b, b_panels, (_JQ, _QW)), Barrier(), task
        ),
    )


def _granules(steps: Index) -> Index:
    return ceil_div(steps, GRANULE) * GRANULE


def _panels(name: str, columns: Index, steps: Index) -> Buffer:
    return scratch(name, DType.BF16, MemorySpace.TEAM, ceil_div(columns, TILE), _granules(steps), _WIDTH)


def _packing(factor: Buffer, panels: Buffer, columns: tuple[Var, Var], *, panels_each: int = _SWEEP) -> Node:
    """Return the loop over a factor's columns that splits ``panels_each`` panels of it in a task."""
    column, wide = columns
    depth, width = factor.shape
    pack = Pack(
        source=factor.region((0, column), (depth, wide)),
        target=panels.region((column // TILE, 0, 0), (ceil_div(wide, TILE), depth, _WIDTH)),
        panel=TILE,
        axis=1,
        terms=_TERMS,
        granule=GRANULE,
    )
    return Parallel(
        level=Level.TASK, var=column, extent=width, step=Const(panels_each * TILE), length=wide, body=block(pack)
    )


def _default(op: LowRankOp, target: Target) -> Schedule:
    share = -(-_known(op.m) // target.cores)
    most = _TASK_ROWS if _known(op.r) < _WIDE_RANK else _WIDE_TASK_ROWS
    return Schedule(mc=round_up(equal_blocks(share, most), TILE))


def _space(op: LowRankOp, target: Target) -> ScheduleSpace:
    rows = dict.fromkeys((int(_default(op, target)["mc"]), 32, 64, 96, 128))
    return ScheduleSpace.listed([{"mc": mc} for mc in rows])


def _known(dim: object) -> int:
    return dim if isinstance(dim, int) else 1024


def _on_tiles(op: LowRankOp, target: Target) -> float:
    if target.isa == "plain":
        return -200.0  # arrays in place of registers: there to be read by sanitizers
    pays = (
        _known(op.m) >= _LEAST_ROWS and _known(op.r) >= _LEAST_RANK and min(_known(op.n), _known(op.k)) >= _LEAST_EXTENT
    )
    return 0.0 if pays else -60.0


_FLOAT32 = condition(
    "float32 operands",
    lambda op, _: op.x.dtype is op.a.dtype is op.b.dtype is DType.F32,
    needed="x, a and b of f32",
    found=lambda op: f"{op.x.dtype.value}, {op.a.dtype.value}, {op.b.dtype.value}",
    remedy="use gemm.low_rank",
)
_ROWS = condition(
    "rows of x",
    lambda op, _: op.x.shape[-1] == 1 or op.x.strides[-1] == 1,
    needed="contiguous rows of x",
    found=lambda op: f"strides {op.x.strides}",
    remedy="use gemm.low_rank, which packs x",
)

LOW_RANK_AMX_ID = "gemm.amx_low_rank"
LOW_RANK_AMX = Variant(
    id=LOW_RANK_AMX_ID,
    op_type=LowRankOp,
    backend="cpu",
    requirements=(
        CPU_VECTORS,
        element_types(FLOATS),
        strided_layouts,
        non_negative_strides,
        NOT_EMPTY,
        ONE_ARITHMETIC,
        MATRIX_TILES,
        _FLOAT32,
        _ROWS,
    ),
    preferences=(Preference(name="tiles", score=_on_tiles),),
    priority=60,
    build=build_low_rank_amx,
    space=_space,
    default_schedule=_default,
)
