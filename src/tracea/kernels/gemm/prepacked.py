"""GEMM with weights in panels: B is packed once, ahead of time, and its kernels read panels only.

``split=rows``: row blocks are tasks, each walks all panels. ``split=columns``: column blocks are tasks, each packs all
rows of A.
A panel is as deep as K, so one packing serves every block size with the same width of panels.
"""

from __future__ import annotations

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import TensorType, static
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.blocking import PANELS_PER_SWEEP, Blocking, prepacked_default, prepacked_space
from tracea.kernels.gemm.operands import GemmOperands, K, M, N, gemm_types, kernel_name
from tracea.kernels.gemm.packed import pack_a, panel_buffer, tile_loops
from tracea.kernels.gemm.requirements import GEMM_REQUIREMENTS
from tracea.kernels.operands import params_of, scratch, tensor_buffer, vector_lanes
from tracea.kernels.requirements import condition
from tracea.kernels.variant import Variant
from tracea.semantic.index import Const, Var, ceil_div
from tracea.semantic.nodes import For, Level, Pack, Parallel, block
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = [
    "PREPACKED",
    "build_on_panels",
    "build_pack",
    "build_panels",
    "build_prepacked",
    "panel_type",
    "panels_of",
]

_JC, _NC = Var("jc"), Var("nc")
_PC, _KC = Var("pc"), Var("kc")
_IC, _MC = Var("ic"), Var("mc")
_JP, _PW = Var("jp"), Var("pw")


def build_prepacked(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the GEMM of ``op`` whose B is the result of :func:`build_pack` for the same schedule."""
    return build_on_panels(PREPACKED_ID, op, Blocking.of(schedule, op, target), schedule, target)


def build_on_panels(variant: str, op: GemmOp, blocking: Blocking, schedule: Schedule, target: Target) -> TileKernel:
    """Return the GEMM of ``op`` on a B that is packed into the panels of ``blocking``, whatever its tiles are."""
    operands = GemmOperands.of(op, b=panels_of(op, blocking, BufferRole.CONSTANT))
    dtype, kc, mr = operands.accumulator, blocking.kc, blocking.mr
    rows = blocking.split == "rows"
    count = blocking.mc // mr if rows else ceil_div(M, mr)
    a_panels = panel_buffer("a_panels", dtype, MemorySpace.THREAD, blocking, (count, kc, mr))
    sums: tuple[Buffer, ...] = ()
    if not operands.sums_in_place:
        shape = (blocking.mc, N) if rows else (M, blocking.nc)
        sums = (scratch("sums", dtype, MemorySpace.THREAD, *shape),)
    if rows:
        block_loops = tile_loops(
            operands,
            blocking,
            panels=(a_panels, operands.b),
            sums=sums,
            origin=(_IC, Const(0)),
            extents=(_MC, N),
            b_origin=(Const(0), _PC),
            sums_origin=(Const(0), Const(0)),
        )
        k_loop = For(
            var=_PC,
            extent=K,
            step=Const(kc),
            length=_KC,
            body=block(pack_a(operands, a_panels, (_IC, _MC), blocking), *block_loops),
        )
        body = operands.tasks(var=_IC, extent=M, step=blocking.mc, length=_MC, body=(k_loop,))
    else:
        block_loops = tile_loops(
            operands,
            blocking,
            panels=(a_panels, operands.b),
            sums=sums,
            origin=(Const(0), _JC),
            extents=(M, _NC),
            b_origin=(_JC // blocking.nr, _PC),
            sums_origin=(Const(0), Const(0)),
        )
        k_loop = For(
            var=_PC,
            extent=K,
            step=Const(kc),
            length=_KC,
            body=block(pack_a(operands, a_panels, (Const(0), M), blocking), *block_loops),
        )
        body = operands.tasks(var=_JC, extent=N, step=blocking.nc, length=_NC, body=(k_loop,))
    return operands.kernel(variant, schedule, target, (a_panels, *sums), body)


def build_pack(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel that packs ``op``'s B into the panels that ``schedule`` reads: buffers ``b`` and ``panels``."""
    return build_panels(PACK_ID, op, Blocking.of(schedule, op, target), schedule, target)


def build_panels(variant: str, op: GemmOp, blocking: Blocking, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel that packs ``op``'s B into the panels of ``blocking``: buffers ``b`` and ``panels``."""
    nr = blocking.nr
    source = tensor_buffer("b", gemm_types(op)["b"], (K, N), (op.k, op.n), BufferRole.INPUT)
    panels = panels_of(op, blocking, BufferRole.OUTPUT, name="panels")
    pack = Pack(
        source=source.region((0, _JP), (K, _PW)),
        target=panels.region((_JP // nr, 0, 0), (ceil_div(_PW, nr), K, blocking.width(nr))),
        panel=nr,
        axis=1,
        terms=blocking.terms,
        marks=blocking.marks,
        granule=blocking.granule,
    )
    return TileKernel(
        name=kernel_name(op.key, variant, schedule, target),
        op=op,
        variant=variant,
        schedule=schedule,
        target=target.name,
        params=params_of((source, panels)),
        buffers=(source, panels),
        body=block(
            Parallel(
                level=Level.TASK, var=_JP, extent=N, step=Const(PANELS_PER_SWEEP * nr), length=_PW, body=block(pack)
            )
        ),
    )


def panel_type(op: GemmOp, schedule: Schedule, target: Target) -> TensorType:
    """Return the type of B in panels: ``(ceil(n / nr), k, nr)``, row-major, in the accumulator's element type."""
    nr = schedule.integer("nv") * vector_lanes(target, op.accumulator)
    return TensorType((-(-static(op.n) // nr), op.k, nr), op.accumulator)


def panels_of(op: GemmOp, blocking: Blocking, role: BufferRole, *, name: str = "b") -> Buffer:
    """Return the buffer of B in panels of ``blocking``: (panels, steps, columns of a panel)."""
    if op.b.rank != 2:
        raise InvalidSchedule(field="b", got=str(op.b), expected="a matrix", remedy="weights have no batch axes")
    depth = ceil_div(K, blocking.granule) * blocking.granule
    return Buffer(
        name=name,
        dtype=DType.BF16 if blocking.matrix_tiles else op.accumulator,
        space=MemorySpace.GLOBAL,
        shape=(ceil_div(N, blocking.nr), depth, Const(blocking.width(blocking.nr))),
        role=role,
    )


_MATRIX_B = condition(
    "b is a matrix",
    lambda op, _: op.b.rank == 2,
    needed="a second operand of rank 2",
    found=lambda op: str(op.b),
    remedy="use gemm.packed: batches of weights are not packed ahead",
)

PREPACKED_ID = "gemm.prepacked"
PACK_ID = "gemm.pack_b"
PREPACKED = Variant(
    id=PREPACKED_ID,
    op_type=GemmOp,
    backend="cpu",
    requirements=(*GEMM_REQUIREMENTS, _MATRIX_B),
    preferences=(),
    priority=67,  # above gemm.direct for few rows, below it for small operands and below gemm.stream
    build=build_prepacked,
    space=prepacked_space,
    default_schedule=prepacked_default,
    constant_operand=1,
    build_pack=build_pack,
    pack_type=panel_type,
)
