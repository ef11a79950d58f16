"""What the GPU suite runs: products to time and to tune, and shapes on which every variant must be right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tracea.core.dtype import DType
from tracea.core.expr import Input, activation
from tracea.core.op import Epilogue, GemmOp
from tracea.core.tensor_type import TensorType
from tracea.kernels.registry import find
from tracea.targets.gpu import GpuTarget
from tracea.testing.gpu_matrix import RUN, Cell, Problem, cells, rejection

__all__ = ["GpuProblem", "contest_problems", "correctness_cells", "correctness_problems", "hero_problems"]

_LINEAR: Final = ((4096, 4096, 11008), (4096, 11008, 4096), (2048, 1024, 4096), (2048, 4096, 1024))
_SKINNY: Final = ((1, 4096, 4096), (16, 4096, 4096), (16, 11008, 4096))
# More tiles than one wave of a large device has, with tails; the reduction ends within a stage, rows of bytes at 16.
_MANY_TILES: Final = Problem(m=1544, n=1832, k=336, transpose_b=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProblem:
    """A product to be timed; ``group`` is the line of a summary that it belongs to."""

    name: str
    group: str
    op: GemmOp

    @property
    def flops(self) -> int:
        """Operations of the product, two for each multiply-add."""
        return int(self.op.flops)


def contest_problems() -> tuple[GpuProblem, ...]:
    """Return the problems of the contest, the most telling first: a run that is cut short has those."""
    halves = (DType.BF16, DType.F16)
    squares = [_plain(dtype, n, n, n, "squares") for n in (8192, 4096, 2048, 1024) for dtype in halves]
    return (
        *squares,
        *(_plain(DType.BF16, *shape, "transformer") for shape in _LINEAR),
        _fused(DType.BF16, 4096, 4096, 4096),
        _fused(DType.F16, 2048, 3072, 768),
        *(_plain(DType.BF16, *shape, "skinny") for shape in _SKINNY),
        _plain(DType.BF16, 4096, 4096, 4096, "row-major b", transpose_b=False),
    )


def hero_problems() -> tuple[GpuProblem, ...]:
    """Return the problems that are tuned: those on which the project's goals stand, then one of each other group."""
    wanted = {
        "bf16 8192x8192x8192",
        "f16 4096x4096x4096",
        "bf16 4096x4096x4096",
        "bf16 2048x2048x2048",
        "bf16 4096x4096x4096 bias+gelu+residual",
        "bf16 4096x4096x11008",
        "bf16 16x4096x4096",
    }
    return tuple(problem for problem in contest_problems() if problem.name in wanted)


def correctness_cells(architecture: str) -> tuple[Cell, ...]:
    """Return every variant and element type that runs on an architecture."""
    return tuple(cell for cell in cells() if cell.architecture == architecture and rejection(cell) is None)


def correctness_problems(target: GpuTarget, *, every: int, is_dry: bool) -> Iterator[tuple[Cell, Problem]]:
    """Yield each n-th cell of a target with the shapes that its variant takes: a dry run takes one of the small ones.

    Shapes have tails, odd extents, one row, one column, few steps; the last has many tiles.
    """
    for number, cell in enumerate(correctness_cells(target.name)[::every]):
        variant = find(cell.variant)
        small = [problem for problem in RUN if not variant.unmet(problem.op(cell.element), target)]
        for problem in (small[number % len(small)],) if is_dry else (*small, _MANY_TILES):
            yield cell, problem


def _plain(dtype: DType, m: int, n: int, k: int, group: str, *, transpose_b: bool = True) -> GpuProblem:
    # b as a linear layer stores its weight, (n, k), unless the group says otherwise.
    stored = "" if transpose_b else " nn"
    return GpuProblem(
        name=f"{dtype.value} {m}x{n}x{k}{stored}",
        group=group,
        op=GemmOp.of(m=m, n=n, k=k, dtype=dtype, transpose_b=transpose_b),
    )


def _fused(dtype: DType, m: int, n: int, k: int) -> GpuProblem:
    plain = GemmOp.of(m=m, n=n, k=k, dtype=dtype, transpose_b=True)
    row, result = TensorType((n,), dtype), TensorType((m, n), dtype)
    epilogue = Epilogue.identity().then(Input(0) + Input(1), (row,)).then(activation("gelu"))
    op = GemmOp(m=m, n=n, k=k, a=plain.a, b=plain.b, epilogue=epilogue.then(Input(0) + Input(1), (result,)))
    return GpuProblem(name=f"{dtype.value} {m}x{n}x{k} bias+gelu+residual", group="fused", op=op)
