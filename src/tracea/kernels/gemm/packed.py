"""Packed GEMM: blocks of A and B are copied into panels that the register tile reads in order.

``split=rows``: the team packs a K block of B once and shares it; row blocks are tasks that pack their part of A.
``split=columns``: column blocks are tasks; each packs A's K block and its own panels of B, and no thread waits for
another.

Source: the blocking of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34 (2008).
"""

from __future__ import annotations

from collections.abc import Sequence

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.blocking import Blocking, has_rows, packed_default
from tracea.kernels.gemm.matrix_tiles import matrix_tiles
from tracea.kernels.gemm.operands import BlockOperands, GemmOperands, K, M, N, gemm_tile
from tracea.kernels.gemm.packed_space import unpruned_space
from tracea.kernels.gemm.requirements import GEMM_REQUIREMENTS
from tracea.kernels.operands import scratch
from tracea.kernels.variant import Variant
from tracea.semantic.access import Region
from tracea.semantic.index import Const, Index, Var, ceil_div
from tracea.semantic.nodes import Barrier, For, Level, MicroKernel, Node, Pack, Parallel, block
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["PACKED", "build_blocked", "build_packed", "column_sweep", "pack_a", "panel_buffer", "tile_loops"]

_JC, _NC = Var("jc"), Var("nc")
_PC, _KC = Var("pc"), Var("kc")
_IC, _MC = Var("ic"), Var("mc")
_JP, _PW = Var("jp"), Var("pw")  # a sweep of packing: first column, width
_JR, _COLUMNS = Var("jr"), Var("columns")
_IR, _ROWS = Var("ir"), Var("rows")


def build_packed(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the packed GEMM of ``op``."""
    return build_blocked(PACKED_ID, op, Blocking.of(schedule, op, target), schedule, target)


def build_blocked(variant: str, op: GemmOp, blocking: Blocking, schedule: Schedule, target: Target) -> TileKernel:
    """Return the GEMM of ``op`` that packs both operands into the panels of ``blocking``, whatever its tiles are.

    Raises:
        InvalidSchedule: tiles are to ask for rows that B has not.
    """
    operands = GemmOperands.of(op)
    if blocking.split == "columns" and blocking.upcoming and not has_rows(op):
        raise InvalidSchedule(
            field="upcoming",
            got=blocking.upcoming,
            expected=f"0 with split=columns where b has strides {op.b.strides} and is {op.b.dtype.value}",
            remedy="upcoming=0",
        )
    if blocking.split == "rows":
        return _by_rows(variant, operands, blocking, schedule, target)
    return _by_columns(variant, operands, blocking, schedule, target)


def _by_rows(
    variant: str, operands: GemmOperands, blocking: Blocking, schedule: Schedule, target: Target
) -> TileKernel:
    dtype, kc, nr, mr = operands.accumulator, blocking.kc, blocking.nr, blocking.mr
    b_panels = panel_buffer("b_panels", dtype, MemorySpace.TEAM, blocking, (blocking.nc // nr, kc, nr))
    a_panels = panel_buffer("a_panels", dtype, MemorySpace.THREAD, blocking, (blocking.mc // mr, kc, mr))
    sums = () if operands.sums_in_place else (scratch("sums", dtype, MemorySpace.TEAM, M, blocking.nc),)
    pack_b = Parallel(
        level=Level.TASK,
        var=_JP,
        extent=_NC,
        step=Const(blocking.sweep * nr),
        length=_PW,
        body=block(
            Pack(
                source=operands.at(operands.b, _PC, _JC + _JP, _KC, _PW),
                target=b_panels.region((_JP // nr, 0, 0), (ceil_div(_PW, nr), _KC, blocking.width(nr))),
                panel=nr,
                axis=1,
                terms=blocking.terms,
                marks=blocking.marks,
                granule=blocking.granule,
            )
        ),
    )
    multiply = Parallel(
        level=Level.TASK,
        var=_IC,
        extent=M,
        step=Const(blocking.mc),
        length=_MC,
        body=block(
            pack_a(operands, a_panels, (_IC, _MC), blocking),
            *tile_loops(
                operands,
                blocking,
                panels=(a_panels, b_panels),
                sums=sums,
                origin=(_IC, _JC),
                extents=(_MC, _NC),
                b_origin=(Const(0), Const(0)),
                sums_origin=(_IC, Const(0)),
            ),
        ),
    )
    # The second barrier: nobody overwrites the panels of B while another thread still multiplies with them.
    k_loop = For(var=_PC, extent=K, step=Const(kc), length=_KC, body=block(pack_b, Barrier(), multiply, Barrier()))
    j_loop = For(var=_JC, extent=N, step=Const(blocking.nc), length=_NC, body=block(k_loop))
    return operands.kernel(variant, schedule, target, (b_panels, a_panels, *sums), operands.over_batch((j_loop,)))


def _by_columns(
    variant: str, operands: GemmOperands, blocking: Blocking, schedule: Schedule, target: Target
) -> TileKernel:
    dtype, kc, nr, mr = operands.accumulator, blocking.kc, blocking.nr, blocking.mr
    b_panels = panel_buffer("b_panels", dtype, MemorySpace.THREAD, blocking, (blocking.sweep, kc, nr))
    a_panels = panel_buffer("a_panels", dtype, MemorySpace.THREAD, blocking, (ceil_div(M, mr), kc, mr))
    sums = () if operands.sums_in_place else (scratch("sums", dtype, MemorySpace.THREAD, M, blocking.nc),)
    sweep = column_sweep(
        operands,
        operands.b,
        blocking,
        panels=(a_panels, b_panels),
        sums=sums,
        rows=(Const(0), M),
        next_rows=_next_rows(operands, blocking) if blocking.upcoming else None,
    )
    k_loop = For(
        var=_PC,
        extent=K,
        step=Const(kc),
        length=_KC,
        body=block(pack_a(operands, a_panels, (Const(0), M), blocking), sweep),
    )
    body = operands.tasks(var=_JC, extent=N, step=blocking.nc, length=_NC, body=(k_loop,))
    return operands.kernel(variant, schedule, target, (b_panels, a_panels, *sums), body)


def column_sweep(
    operands: BlockOperands,
    b: Buffer,
    blocking: Blocking,
    *,
    panels: tuple[Buffer, Buffer],
    sums: Sequence[Buffer],
    rows: tuple[Index, Index],
    next_rows: Region | None,
    heights: Sequence[int] = (),
) -> For:
    """Return the loop over a task's columns: a few panels of B are packed, and multiplied with all packed rows of A.

    ``rows`` are the first of A and C and their number, ``panels`` those of A and of B; sums, where there are any, are
    of these rows alone.
    """
    _, b_panels = panels
    nr = blocking.nr
    return For(
        var=_JP,
        extent=_NC,
        step=Const(blocking.sweep * nr),
        length=_PW,
        body=block(
            Pack(
                source=operands.at(b, _PC, _JC + _JP, _KC, _PW),
                target=b_panels.region((0, 0, 0), (ceil_div(_PW, nr), _KC, blocking.width(nr))),
                panel=nr,
                axis=1,
                terms=blocking.terms,
                marks=blocking.marks,
                granule=blocking.granule,
            ),
            *tile_loops(
                operands,
                blocking,
                panels=panels,
                sums=sums,
                origin=(rows[0], _JC + _JP),
                extents=(rows[1], _PW),
                b_origin=(Const(0), Const(0)),
                sums_origin=(Const(0), _JP),
                next_rows=next_rows,
                heights=heights,
            ),
        ),
    )


def _next_rows(operands: GemmOperands, blocking: Blocking) -> Region:
    """Return a tile's share of the rows of B that the panels after this sweep are packed from."""
    rows = blocking.upcoming_rows(blocking.mc)
    column = _JC + _JP + _JR + blocking.sweep * blocking.nr
    return operands.at(operands.b, _PC + _IR // blocking.mr * rows, column, rows, blocking.nr)


def panel_buffer(
    name: str, dtype: DType, space: MemorySpace, blocking: Blocking, shape: tuple[Index | int, int, int]
) -> Buffer:
    """Return scratch for panels: how many, how deep, how wide; of ``dtype``, or of the terms that matrix tiles take."""
    panels, depth, width = shape
    return scratch(name, DType.BF16 if blocking.matrix_tiles else dtype, space, panels, depth, blocking.width(width))


def pack_a(operands: BlockOperands, a_panels: Buffer, rows: tuple[Index, Index], blocking: Blocking) -> Pack:
    """Return the packing of a block of A: ``rows`` are the first and their number, columns those of the K block."""
    first, count = rows
    mr = blocking.mr
    return Pack(
        source=operands.at(operands.a, first, _PC, count, _KC),
        target=a_panels.region((0, 0, 0), (ceil_div(count, mr), _KC, blocking.width(mr))),
        panel=mr,
        axis=0,
        terms=blocking.terms,
        marks=blocking.marks,
        granule=blocking.granule,
    )


def tile_loops(
    operands: BlockOperands,
    blocking: Blocking,
    *,
    panels: tuple[Buffer, Buffer],
    sums: Sequence[Buffer],
    origin: tuple[Index, Index],
    extents: tuple[Index, Index],
    b_origin: tuple[Index, Index],
    sums_origin: tuple[Index, Index],
    next_rows: Region | None = None,
    heights: Sequence[int] = (),
) -> tuple[Node, ...]:
    """Return the loops over the register tiles of the block of C that begins at ``origin`` and has these ``extents``.

    A's panels are those of the block; B's begin at panel and step ``b_origin``. Where C cannot hold the sums between K
    blocks, those of the block begin at ``sums_origin`` of the scratch ``sums``. What a tile fetches for later is its
    part of B's next panel, or ``next_rows``. ``heights`` are the row counts with code of their own, if not those of the
    blocking. Matrix tiles need no loops: their routine takes the block.
    """
    if blocking.matrix_tiles:
        c = operands.at(operands.c, *origin, *extents)
        if sums:
            c = sums[0].region(sums_origin, extents)
        return (
            matrix_tiles(operands, blocking, panels=panels, c=c, origin=origin, extents=extents, b_origin=b_origin),
        )
    mr, nr = blocking.mr, blocking.nr
    a_panels, b_panels = panels
    row, column = origin[0] + _IR, origin[1] + _JR
    c = operands.at(operands.c, row, column, _ROWS, _COLUMNS)
    if sums:
        c = sums[0].region((sums_origin[0] + _IR, sums_origin[1] + _JR), (_ROWS, _COLUMNS))
    fetched = blocking.upcoming_lines(blocking.mc, operands.accumulator.nbytes)
    if next_rows is not None:
        fetched = (next_rows.extent[-2].constant or 0) * -(-nr * operands.accumulator.nbytes // 64)
    tile = MicroKernel(
        intrinsic=gemm_tile(
            panels=(True, True),
            mr=mr,
            nv=blocking.nv,
            nr=nr,
            unroll=blocking.unroll,
            prefetch=(blocking.prefetch_a, blocking.prefetch_b),
            rows=heights or blocking.rows,
            upcoming_lines=fetched,
        ),
        ahead=next_rows,
        a=a_panels.region((_IR // mr, 0, 0), (1, _KC, mr)),
        b=b_panels.region((b_origin[0] + _JR // nr, b_origin[1], 0), (1, _KC, nr)),
        c=c,
        accumulate=_PC > 0,
        finish=_PC + _KC >= K,
        epilogue=operands.epilogue(row, column, _ROWS, _COLUMNS),
    )
    rows = For(var=_IR, extent=extents[0], step=Const(mr), length=_ROWS, body=block(tile))
    return (For(var=_JR, extent=extents[1], step=Const(nr), length=_COLUMNS, body=block(rows)),)


PACKED_ID = "gemm.packed"
PACKED = Variant(
    id=PACKED_ID,
    op_type=GemmOp,
    backend="cpu",
    requirements=GEMM_REQUIREMENTS,
    preferences=(),
    priority=50,
    build=build_packed,
    space=unpruned_space,
    default_schedule=packed_default,
)
