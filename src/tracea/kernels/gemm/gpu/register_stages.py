"""GEMM that brings tiles through registers: two stages in shared memory, and the next one under way in registers.

For architectures without cp.async (sm_75), and for arithmetic without tensor cores on any. Step k meets at its only
barrier - after which stage k is there, and nobody reads the stage of step k − 1 - asks for step k + 1, multiplies
meanwhile, and puts what arrived into the other stage. Beyond the last step what is asked for lies outside of the
arrays: zeros, that nobody uses.
"""

from __future__ import annotations

from typing import Final

from tracea.core.ops.gemm import GemmOp
from tracea.kernels.gemm.gpu.operands import K
from tracea.kernels.gemm.gpu.products import FmaProduct, WarpProduct
from tracea.kernels.gemm.gpu.program import GpuProgram, flag
from tracea.kernels.gemm.gpu.remedies import with_remedies
from tracea.kernels.gemm.gpu.requirements import (
    CUDA,
    GPU_GEMM_REQUIREMENTS,
    NO_FP8,
    SIMT_REQUIREMENTS,
    features,
    warp_product,
)
from tracea.kernels.gemm.gpu.spaces import (
    default_simt,
    default_tiling,
    fma_product,
    holds_lanes,
    holds_warps,
    operands_of,
    simt_space,
    tile_space,
)
from tracea.kernels.gemm.gpu.tiling import GpuTiling
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.index import Const, Var, ceil_div
from tracea.semantic.nodes import Barrier, For, Level, block
from tracea.semantic.nodes_async import Clear
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.gpu import GpuTarget

__all__ = ["MMA_SYNC", "SIMT", "build_mma_sync", "build_simt"]

_MMA_ID: Final = "gemm.mma_sync"
_SIMT_ID: Final = "gemm.simt"


def build_mma_sync(op: GemmOp, schedule: Schedule, target: GpuTarget) -> TileKernel:
    """Return the GEMM of ``op`` by tensor cores, with the instructions that the target has."""
    return _build(_MMA_ID, op, schedule, target, warp_product(op, target), swizzled=flag(schedule, "swizzle"))


def build_simt(op: GemmOp, schedule: Schedule, target: GpuTarget) -> TileKernel:
    """Return the GEMM of ``op`` by multiply-adds of the lanes."""
    return _build(_SIMT_ID, op, schedule, target, fma_product(op, schedule), swizzled=False)


def _build(
    variant: str,
    op: GemmOp,
    schedule: Schedule,
    target: GpuTarget,
    product: WarpProduct | FmaProduct,
    *,
    swizzled: bool,
) -> TileKernel:
    tiling = GpuTiling.of(schedule, product, target, held=True)
    program = GpuProgram.of(operands_of(op, product, schedule), tiling, swizzled=swizzled)
    k = Var("k_step")
    following, count = k + 1, tiling.stages
    main = For(
        var=k,
        extent=ceil_div(K, tiling.bk),
        body=block(
            Barrier(level=Level.BLOCK),
            *program.hold(following),
            *program.multiply(k % count),
            *program.land(following % count),
        ),
    )
    first = (*program.hold(Const(0)), *program.land(Const(0)))
    body = program.grid(Clear(target=program.sums.whole()), *first, main, program.store())
    return program.kernel(variant, op, schedule, target, (body,), more=program.held)


def _space(op: GemmOp, target: GpuTarget) -> ScheduleSpace:
    return tile_space(op, target, stages=(2,), held=True)


def _default(op: GemmOp, target: GpuTarget) -> Schedule:
    return default_tiling(op, target, most_stages=2, held=True)


MMA_SYNC = Variant(
    id=_MMA_ID,
    op_type=GemmOp,
    backend="cuda",
    requirements=(CUDA, *GPU_GEMM_REQUIREMENTS, features("ldmatrix"), NO_FP8),
    preferences=(),
    priority=40,
    build=with_remedies(build_mma_sync, _space, holds_warps(held=True), _default),
    space=_space,
    default_schedule=_default,
)
SIMT = Variant(
    id=_SIMT_ID,
    op_type=GemmOp,
    backend="cuda",
    requirements=(CUDA, *SIMT_REQUIREMENTS),
    preferences=(),
    priority=20,
    build=with_remedies(build_simt, simt_space, holds_lanes, default_simt),
    space=simt_space,
    default_schedule=default_simt,
)
