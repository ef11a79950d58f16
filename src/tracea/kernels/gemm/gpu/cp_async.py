"""GEMM by mma.sync behind a ring of stages that cp.async fills, one barrier a step (sm_80 and later).

Step k waits until its stage has landed, meets the other warps - after which nobody reads the stage of step k − 1 - and
asks for step k + stages − 1 into that stage. With one stage nothing can be ahead: each step copies, waits and
multiplies between two barriers.
"""

from __future__ import annotations

from typing import Final

from tracea.core.ops.gemm import GemmOp
from tracea.kernels.gemm.gpu.operands import K
from tracea.kernels.gemm.gpu.program import GpuProgram, flag
from tracea.kernels.gemm.gpu.remedies import with_remedies
from tracea.kernels.gemm.gpu.requirements import CUDA, GPU_GEMM_REQUIREMENTS, features, warp_product
from tracea.kernels.gemm.gpu.segments import build_segments, workers_of
from tracea.kernels.gemm.gpu.spaces import default_shared, holds_warps, operands_of, shared_space
from tracea.kernels.gemm.gpu.tiling import GpuTiling
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.index import Const, Index, Var, ceil_div
from tracea.semantic.nodes import Barrier, For, If, Let, Level, Node, block
from tracea.semantic.nodes_async import Clear, CommitGroup, WaitGroup
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.gpu import GpuTarget

__all__ = ["MMA_CP_ASYNC", "build_cp_async"]

_ID: Final = "gemm.mma_cp_async"


def build_cp_async(op: GemmOp, schedule: Schedule, target: GpuTarget) -> TileKernel:
    """Return the GEMM of ``op`` with ``stages`` tiles under way."""
    product = warp_product(op, target)
    tiling = GpuTiling.of(schedule, product, target)
    operands = operands_of(op, product, schedule)
    program = GpuProgram.of(operands, tiling, swizzled=flag(schedule, "swizzle"))
    workers = workers_of(schedule, operands.blocks(tiling.bm, tiling.bn))
    if workers is not None:
        return build_segments(_ID, op, schedule, target, program, workers, _pipeline)
    steps = ceil_div(K, tiling.bk)
    pipeline = _pipeline(program, tiling.stages, steps, Const(0))
    body = program.grid(Clear(target=program.sums.whole()), *pipeline, program.store())
    return program.kernel(_ID, op, schedule, target, (body,))


def _pipeline(program: GpuProgram, stages: int, steps: Index, first: Index) -> tuple[Node, ...]:
    """Return the sum over ``steps`` steps of k from step ``first`` on."""
    count = Const(stages)
    p, k, following = Var("p"), Var("k_step"), Var("following")

    def fetch(use: Index) -> Node:
        return If(predicate=use < steps, then=block(*program.copies(first + use, use % count)))

    if stages == 1:
        step: tuple[Node, ...] = (
            Barrier(level=Level.BLOCK),
            fetch(k),
            CommitGroup(),
            WaitGroup(pending=Const(0)),
            Barrier(level=Level.BLOCK),
        )
    else:
        step = (
            WaitGroup(pending=Const(stages - 2)),
            Barrier(level=Level.BLOCK),
            Let(var=following, value=k + (stages - 1), bits=32),
            fetch(following),
            CommitGroup(),
        )
    prologue = For(var=p, extent=Const(stages - 1), body=block(fetch(p), CommitGroup()))
    main = For(var=k, extent=steps, body=block(*step, *program.multiply(k % count)))
    return (*((prologue,) if stages > 1 else ()), main)


def _space(op: GemmOp, target: GpuTarget) -> ScheduleSpace:
    return shared_space(op, target, stages=(2, 3, 4, 5))


def _default(op: GemmOp, target: GpuTarget) -> Schedule:
    return default_shared(op, target, most_stages=4)


MMA_CP_ASYNC = Variant(
    id=_ID,
    op_type=GemmOp,
    backend="cuda",
    requirements=(CUDA, *GPU_GEMM_REQUIREMENTS, features("cp_async")),
    preferences=(),
    priority=60,
    build=with_remedies(build_cp_async, _space, holds_warps(), _default),
    space=_space,
    default_schedule=_default,
)
