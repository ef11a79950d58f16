"""The GPU kernels whose mutants are judged: one small schedule of each variant, and of each way to share tiles.

Small tiles make few steps of an interpreter. A schedule has several of everything (warps along both axes, fragments,
stages), since what there is one of hides the mistakes made with its number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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

__all__ = ["GpuCase", "edge_sizes", "gpu_cases"]

_M, _N, _K = 256, 256, 256  # of the op: the kernels take any
_FRAGMENT = 16  # rows that a warp stores at once


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCase:
    """A variant on a target, the numbers of its default schedule that are changed, and the sizes of its calls.

    ``way`` is what the schedule is about, where a variant has several; ``params`` are arguments beside the sizes.
    """

    variant: Variant
    target: str
    changes: Mapping[str, int]
    sizes: tuple[tuple[int, int, int], ...]
    way: str = ""
    params: Mapping[str, int] = field(default_factory=dict[str, int])
    b_along_k: bool = False

    @property
    def name(self) -> str:
        """The variant and the target, and the way."""
        return f"{self.variant.id} {self.target}" + (f" {self.way}" if self.way else "")

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
        """Return the checkers of the kernel and of its mutants, on the sizes that the kernel's guards take."""
        calls = [
            gemm_arguments(kernel, m=m, n=n, k=k, seed=i, params=self.params) for i, (m, n, k) in enumerate(self.sizes)
        ]
        calls = [call for call in calls if kernel.assumptions.evaluate(call.params)]
        judge = GpuJudge(calls=calls, emit=lambda changed: emit(changed, self.target), limit_ways=limit_ways)
        return judge.counted(kernel)


def edge_sizes(changes: Mapping[str, int], *, warp: tuple[int, int]) -> tuple[tuple[int, int, int], ...]:
    """Return m, n and k at which a comparison or a quotient that is one off shows.

    Worked example: tiles of 64×64, warps of 32×32. ``row + 32 < m`` and ``row + 32 <= m`` differ where m is 32 or 96;
    ``(n + 63) / 64`` and ``(n + 63) / 63`` where n is 63, and only if there are two rows of tiles. ``warp`` has the
    rows and columns that a warp is guarded by. The last few are steps: fewer than stages, as many, one more.
    """
    bm, bn, bk, stages = (changes[name] for name in ("bm", "bn", "bk", "stages"))
    wm, wn = warp
    return (
        (bm + wm + _FRAGMENT + 5, bn + wn + 7, 7 * bk - 1),  # tails on every axis
        (bm + _FRAGMENT + 1, bn + 1, 2 * bk + 1),  # one row of a second strip, one column of a second tile
        (bm + wm + 1, 2 * bn, 2 * bk),
        (1, 2 * bn + 1, bk - bk // 3),
        (wm + _FRAGMENT, wn + 1, bk),
        (wm, wn, bk + 1),
        (bm + wm, bn + wn, 1),
        (bm + 1, bn - 1, bk - 1),
        (_FRAGMENT, bn, stages * bk),
        (_FRAGMENT + 1, 1, stages * bk + 1),
        (2 * bm, bn, (stages - 1) * bk),
    )


def gpu_cases() -> tuple[GpuCase, ...]:
    """Return the kernels in the order of their architectures."""
    warps = {"warps_m": 2, "warps_n": 2}
    lanes = {"bm": 64, "bn": 128, "bk": 16, "stages": 2, "lane_rows": 4, "lane_columns": 4, **warps}
    small = {"bm": 64, "bn": 64, "bk": 32, "stages": 2, **warps}
    deep = {"bm": 64, "bn": 64, "bk": 32, "stages": 3, **warps}
    groups = {"bm": 256, "bn": 64, "bk": 32, "stages": 3, "groups": 2}
    turns = {"bm": 128, "bn": 64, "bk": 32, "stages": 3, "groups": 2, "persistent": 1, "pingpong": 1}
    strips = ((192, 33, 32), (193, 1, 33))
    shares = {**deep, "split_k": 1, "stream_k": 3}
    return (
        GpuCase(
            variant=SIMT,
            target="sm_75",
            changes=lanes,
            # Its strips have 32 columns beside 16 rows: the edges of those.
            sizes=(*edge_sizes(lanes, warp=(32, 64)), (32, 96, 16), (17, 32, 17), (1, 33, 1)),
        ),
        GpuCase(variant=MMA_SYNC, target="sm_75", changes=small, sizes=edge_sizes(small, warp=(32, 32))),
        GpuCase(variant=MMA_CP_ASYNC, target="sm_80", changes=deep, sizes=edge_sizes(deep, warp=(32, 32))),
        GpuCase(
            variant=MMA_CP_ASYNC,
            target="sm_80",
            way="stream-K",
            changes=shares,
            # Of these edges some have fewer steps than workers, which its guards refuse: the same with more steps.
            sizes=(*edge_sizes(shares, warp=(32, 32)), (48, 33, 161), (32, 32, 128), (65, 63, 95)),
        ),
        GpuCase(
            variant=WGMMA,
            target="sm_90a",
            changes=groups,
            # Its groups have 128 rows, in strips of 64: the edges of those.
            sizes=(*edge_sizes(groups, warp=(64, 32)), (144, 33, 32), (128, 32, 33), (129, 64, 1), *strips),
            b_along_k=True,
        ),
        GpuCase(
            variant=WGMMA,
            target="sm_90a",
            way="in turns",
            changes=turns,
            # And more tiles than two for each of two groups of two blocks.
            sizes=(*edge_sizes(turns, warp=(64, 32)), *strips, (257, 129, 64), (257, 129, 40)),
            params={"multiprocessors": 2},
            b_along_k=True,
        ),
        GpuCase(
            variant=MMA_TMA,
            target="sm_120a",
            changes=deep,
            sizes=edge_sizes(deep, warp=(32, 32)),
            b_along_k=True,
        ),
    )
