"""The GPU kernels whose mutants are judged: one small schedule of each variant, and the calls that they run on.

Small tiles make few steps of an interpreter; three stages, tails on every axis, and a call with fewer steps than
stages make what is left of a pipeline show.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.emitters.cuda.emitter import emit
from tracea.kernels.gemm.gpu.cp_async import MMA_CP_ASYNC
from tracea.kernels.gemm.gpu.register_stages import MMA_SYNC, SIMT
from tracea.kernels.gemm.gpu.tma_variants import MMA_TMA, WGMMA
from tracea.kernels.variant import Variant
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.gpu import load_gpu
from tracea.testing.gpu_judge import GpuJudge, gemm_arguments

__all__ = ["EQUIVALENT", "GpuCase", "gpu_cases"]

_M, _N, _K = 256, 256, 256  # of the op: the kernels take any


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCase:
    """A variant on a target, with the numbers of its default schedule that are changed, and the sizes of its calls."""

    variant: Variant
    target: str
    changes: dict[str, int]
    sizes: tuple[tuple[int, int, int], ...]
    b_along_k: bool = False

    @property
    def name(self) -> str:
        """The variant and the target."""
        return f"{self.variant.id} {self.target}"

    def kernel(self) -> TileKernel:
        """Return the kernel."""
        layout = StridedLayout((1, _K)) if self.b_along_k else None
        b = TensorType((_K, _N), DType.F16, layout) if layout else TensorType((_K, _N), DType.F16)
        op = GemmOp(m=_M, n=_N, k=_K, a=TensorType((_M, _K), DType.F16), b=b)
        target = load_gpu(self.target)
        assert self.variant.build is not None  # it is one of ours, not a library's
        assert self.variant.default_schedule is not None
        schedule = Schedule({**self.variant.default_schedule(op, target), **self.changes})
        return self.variant.build(op, schedule, target)

    def judge(self, kernel: TileKernel, limit_ways: int) -> GpuJudge:
        """Return the checkers of the kernel and of its mutants."""
        calls = [gemm_arguments(kernel, m=m, n=n, k=k, seed=i) for i, (m, n, k) in enumerate(self.sizes)]
        judge = GpuJudge(calls=calls, emit=lambda changed: emit(changed, self.target), limit_ways=limit_ways)
        return judge.counted(kernel)


def gpu_cases() -> tuple[GpuCase, ...]:
    """Return the kernels in the order of their architectures."""
    small = {"bm": 64, "bn": 64, "bk": 32, "warps_m": 2, "warps_n": 2}
    # The last row lies in the last strip of the last warp, is the only one of a middle strip; whole tiles; one row;
    # few steps; the last row is the last of a strip, and a column the only one of a warp.
    sizes = ((117, 103, 223), (81, 65, 65), (97, 128, 64), (1, 129, 20), (48, 33, 32))
    return (
        GpuCase(variant=SIMT, target="sm_75", changes={}, sizes=((67, 72, 40), (5, 130, 3), (64, 65, 8))),
        GpuCase(variant=MMA_SYNC, target="sm_75", changes=small, sizes=sizes),
        GpuCase(variant=MMA_CP_ASYNC, target="sm_80", changes={**small, "stages": 3}, sizes=sizes),
        GpuCase(
            variant=WGMMA,
            target="sm_90a",
            changes={"bm": 128, "bn": 64, "bk": 32, "stages": 3, "groups": 2},
            sizes=((201, 103, 223), (70, 65, 65), (128, 128, 64), (65, 33, 20)),
            b_along_k=True,
        ),
        GpuCase(variant=MMA_TMA, target="sm_120a", changes={**small, "stages": 3}, sizes=sizes, b_along_k=True),
    )


_BELOW_BOTH = "p counts the stages that are filled before the loop, 0 and 1: p % 2 and p % 4 are p % 3"
_STAGING = "both sides of the staging tile take the other bijection, with no more conflicts than are certified"
_FREE_AS_WELL = "rows of 64 bytes: both sides take another bijection, which is free of conflicts as well"
_LATER_COMMIT = "the products between start no copy: the group has the same copies, and is awaited at the same count"
_OWN_REGISTERS = "the next tile is asked for before the barrier, into registers of the lane's own"
_FENCE = "the fence orders registers, which the wait for a stage does not touch"
_NARROWER = "pieces are as wide as the alignment that is stated: narrower loads, the same bytes"
_STRICTER = "waits for one group more than it must: slower, not wrong; of the IR it is reported as superfluous"

_COPY_A = (
    "copy_async<ATile, 16, 32, 16>(a_tiles + p % 3 * 4096, warp * 16, a + (row + warp * 16) * a_stride0 + p * 32, "
    "a_stride0, 1, m - row - warp * 16, k - p * 32);"
)

EQUIVALENT: dict[tuple[str, str], str] = {
    ("gemm.simt sm_75", "order: Barrier at 0.0.2.0.5.0.3: after CopyTile"): _OWN_REGISTERS,
    ("gemm.simt sm_75", "guard: b: aligned to 8 bytes"): _NARROWER,
    ("gemm.mma_sync sm_75", "order: Barrier at 0.0.2.0.5.0.3: after CopyTile"): _OWN_REGISTERS,
    ("gemm.mma_sync sm_75", "swizzle: a_tiles: swizzle(3, 4, 3) for swizzle(2, 4, 3)"): _FREE_AS_WELL,
    ("gemm.mma_sync sm_75", "swizzle: staging: swizzle(2, 5, 3) for swizzle(2, 5, 2)"): _STAGING,
    ("gemm.mma_cp_async sm_80", "swizzle: a_tiles: swizzle(3, 4, 3) for swizzle(2, 4, 3)"): _FREE_AS_WELL,
    ("gemm.mma_cp_async sm_80", "order: CommitGroup at 0.0.2.0.4.0.4: after For"): _LATER_COMMIT,
    ("gemm.mma_cp_async sm_80", f"call: {_COPY_A}: argument 3 at 50 becomes 2"): _BELOW_BOTH,
    ("gemm.mma_cp_async sm_80", f"call: {_COPY_A}: argument 3 at 50 becomes 4"): _BELOW_BOTH,
    ("gemm.mma_cp_async sm_80", "sync: cp_async_wait<1>();: template argument 1 at 18 becomes 0"): _STRICTER,
    ("gemm.wgmma sm_90a", "order: MbarrierWait at 0.0.4.0.1.0.0: after WgmmaFence"): _FENCE,
}
"""Mutants that are no mistake, by kernel and by their whole description, and why: each names one mutant."""
