"""Packed GEMM: blocks of A and B are copied into panels that the register tile reads in order.

``split=rows``: the team packs a K block of B once and shares it; row blocks are tasks that pack their part of A.
``split=columns``: column blocks are tasks; each packs A's K block and its own panels of B, and no thread waits for another.

Source: the blocking of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34 (2008).
"""

from __future__ import annotations

from collections.abc import Sequence

from tracea.core.ops.gemm import GemmOp
from tracea.kernels.gemm.blocking import PANELS_PER_SWEEP, Blocking, packed_default, packed_space
from tracea.kernels.gemm.operands import GemmOperands, K, M, N, gemm_tile
from tracea.kernels.gemm.requirements import GEMM_REQUIREMENTS
from tracea.kernels.operands import scratch
from tracea.kernels.variant import Variant
from tracea.semantic.index import Const, Index, Var, ceil_div
from tracea.semantic.nodes import Barrier, For, Level, MicroKernel, Node, Pack, Parallel, Region, block
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["PACKED", "build_packed", "panel_buffer", "sums_region", "tile_loops"]

_JC, _NC = Var("jc"), Var("nc")
_PC, _KC = Var("pc"), Var("kc")
_IC, _MC = Var("ic"), Var("mc")
_JP, _PW = Var("jp"), Var("pw")  # a sweep of packing: first column, width
_JR, _COLUMNS = Var("jr"), Var("columns")
_IR, _ROWS = Var("ir"), Var("rows")


def build_packed(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the packed GEMM of ``op``."""
    blocking = Blocking.of(schedule, op, target)
    operands = GemmOperands.of(op)
    if blocking.split == "rows":
        return _by_rows(operands, blocking, schedule, target)
    return _by_columns(operands, blocking, schedule, target)


def _by_rows(operands: GemmOperands, blocking: Blocking, schedule: Schedule, target: Target) -> TileKernel:
    dtype, kc, nr, mr = operands.accumulator, blocking.kc, blocking.nr, blocking.mr
    b_panels = panel_buffer("b_panels", operands, MemorySpace.TEAM, blocking.nc // nr, kc, nr)
    a_panels = panel_buffer("a_panels", operands, MemorySpace.THREAD, blocking.mc // mr, kc, mr)
    sums = () if operands.sums_in_place else (scratch("sums", dtype, MemorySpace.TEAM, M, blocking.nc),)
    pack_b = Parallel(
        level=Level.TASK,
        var=_JP,
        extent=_NC,
        step=PANELS_PER_SWEEP * nr,
        length=_PW,
        body=block(
            Pack(
                source=operands.at(operands.b, _PC, _JC + _JP, _KC, _PW),
                target=b_panels.region((_JP // nr, 0, 0), (ceil_div(_PW, nr), _KC, nr)),
                panel=nr,
                axis=1,
            )
        ),
    )
    multiply = Parallel(
        level=Level.TASK,
        var=_IC,
        extent=M,
        step=blocking.mc,
        length=_MC,
        body=block(
            _pack_a(operands, a_panels, _IC, _MC, mr),
            *tile_loops(operands, blocking, a_panels, b_panels, sums, row=_IC, column=_JC, b_panel=_JR // nr),
        ),
    )
    # The second barrier: nobody overwrites the panels of B while another thread still multiplies with them.
    k_loop = For(var=_PC, extent=K, step=kc, length=_KC, body=block(pack_b, Barrier(), multiply, Barrier()))
    j_loop = For(var=_JC, extent=N, step=blocking.nc, length=_NC, body=block(k_loop))
    return operands.kernel(PACKED_ID, schedule, target, (b_panels, a_panels, *sums), operands.over_batch((j_loop,)))


def _by_columns(operands: GemmOperands, blocking: Blocking, schedule: Schedule, target: Target) -> TileKernel:
    dtype, kc, nr, mr = operands.accumulator, blocking.kc, blocking.nr, blocking.mr
    b_panels = panel_buffer("b_panels", operands, MemorySpace.THREAD, PANELS_PER_SWEEP, kc, nr)
    a_panels = panel_buffer("a_panels", operands, MemorySpace.THREAD, ceil_div(M, mr), kc, mr)
    sums = () if operands.sums_in_place else (scratch("sums", dtype, MemorySpace.THREAD, M, blocking.nc),)
    sweep = For(
        var=_JP,
        extent=_NC,
        step=PANELS_PER_SWEEP * nr,
        length=_PW,
        body=block(
            Pack(
                source=operands.at(operands.b, _PC, _JC + _JP, _KC, _PW),
                target=b_panels.region((0, 0, 0), (ceil_div(_PW, nr), _KC, nr)),
                panel=nr,
                axis=1,
            ),
            *tile_loops(
                operands,
                blocking,
                a_panels,
                b_panels,
                sums,
                row=None,
                column=_JC + _JP,
                b_panel=_JR // nr,
                sums_column=_JP,
                extents=(M, _PW),
            ),
        ),
    )
    k_loop = For(
        var=_PC, extent=K, step=kc, length=_KC, body=block(_pack_a(operands, a_panels, Const(0), M, mr), sweep)
    )
    body = operands.tasks(var=_JC, extent=N, step=blocking.nc, length=_NC, body=(k_loop,))
    return operands.kernel(PACKED_ID, schedule, target, (b_panels, a_panels, *sums), body)


def panel_buffer(
    name: str, operands: GemmOperands, space: MemorySpace, panels: Index | int, depth: int, panel: int
) -> Buffer:
    """Return scratch for panels of ``panel`` lines, ``depth`` steps deep."""
    return scratch(name, operands.accumulator, space, panels, depth, panel)


def _pack_a(operands: GemmOperands, a_panels: Buffer, row: Index, rows: Index, mr: int) -> Pack:
    return Pack(
        source=operands.at(operands.a, row, _PC, rows, _KC),
        target=a_panels.region((0, 0, 0), (ceil_div(rows, mr), _KC, mr)),
        panel=mr,
        axis=0,
    )


def tile_loops(
    operands: GemmOperands,
    blocking: Blocking,
    a_panels: Buffer,
    b_panels: Buffer,
    sums: Sequence[Buffer],
    *,
    row: Index | None,
    column: Index,
    b_panel: Index,
    b_step: Index = Const(0),
    sums_column: Index = Const(0),
    extents: tuple[Index, Index] = (_MC, _NC),
) -> tuple[Node, ...]:
    """Return the loops over the register tiles of a block that begins at (``row``, ``column``) and has these ``extents``.

    A's panels are those of the block; B's panel of a tile is ``b_panel``, from step ``b_step`` on.
    """
    mr, nr = blocking.mr, blocking.nr
    c_row = _IR if row is None else row + _IR
    c_column = column + _JR
    tile = MicroKernel(
        intrinsic=gemm_tile(
            panels=(True, True),
            mr=mr,
            nv=blocking.nv,
            unroll=blocking.unroll,
            prefetch=(blocking.prefetch_a, blocking.prefetch_b),
            rows=blocking.rows,
        ),
        a=a_panels.region((_IR // mr, 0, 0), (1, _KC, mr)),
        b=b_panels.region((b_panel, b_step, 0), (1, _KC, nr)),
        c=sums_region(operands, sums, c_row, c_column, sums_column + _JR, _ROWS, _COLUMNS),
        accumulate=_PC > 0,
        finish=_PC + _KC >= K,
        epilogue=operands.epilogue(c_row, c_column, _ROWS, _COLUMNS),
    )
    rows = For(var=_IR, extent=extents[0], step=mr, length=_ROWS, body=block(tile))
    return (For(var=_JR, extent=extents[1], step=nr, length=_COLUMNS, body=block(rows)),)


def sums_region(
    operands: GemmOperands,
    sums: Sequence[Buffer],
    row: Index,
    column: Index,
    sums_column: Index,
    rows: Index,
    columns: Index,
) -> Region:
    """Return where a tile's sums are kept between K blocks: in C, or in the scratch that stands for it."""
    if not sums:
        return operands.at(operands.c, row, column, rows, columns)
    return sums[0].region((row, sums_column), (rows, columns))


PACKED_ID = "gemm.packed"
PACKED = Variant(
    id=PACKED_ID,
    op_type=GemmOp,
    backend="cpu",
    requirements=GEMM_REQUIREMENTS,
    preferences=(),
    priority=50,
    build=build_packed,
    space=packed_space,
    default_schedule=packed_default,
)
