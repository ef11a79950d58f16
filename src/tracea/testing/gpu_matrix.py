"""The matrix of CUDA GEMMs: every variant on every architecture with every element type, by every checker there is.

Worked example::

    judge_cell(Cell(variant="gemm.mma_cp_async", architecture="sm_80", element="f16"))
    # proofs ok, emulator ok, float64 ok, compiled ok, budget ok - or why not, or «not checked» and what is missing
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tracea.core.accuracy import error_bound
from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp, MatrixMath
from tracea.core.reference import evaluate
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.emitters.cuda.emitter import emit
from tracea.emitters.kernel_source import KernelSource
from tracea.errors import ToolchainMissing, TraceaError
from tracea.gates.budgets import budget_of
from tracea.gates.resources import KernelResources, check_resources, measure_resources
from tracea.kernels.arguments import arguments, buffer_types, operand_buffers, result_buffer
from tracea.kernels.registry import CUDA_VARIANTS, find
from tracea.runtime.nvrtc import compile_cuda
from tracea.semantic.proofs import prove
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.gpu import GpuTarget, gpu_names, load_gpu

__all__ = ["COLUMNS", "ELEMENTS", "NOT_CHECKED", "Cell", "Problem", "Row", "cells", "judge_cell", "rejection", "sample"]

ELEMENTS: Final = ("f32", "tf32", "f16", "bf16", "s8", "e4m3", "e5m2")
COLUMNS: Final = ("proofs", "emulator", "float64", "compiled", "budget")
NOT_CHECKED: Final = "not checked"
_OK: Final = "ok"
_PITCH: Final = 64
_DTYPES: Final = {
    "f32": (DType.F32, DType.F32),
    "tf32": (DType.F32, DType.F32),
    "f16": (DType.F16, DType.F16),
    "bf16": (DType.BF16, DType.BF16),
    "s8": (DType.I8, DType.I32),
    "e4m3": (DType.E4M3, DType.F32),
    "e5m2": (DType.E5M2, DType.F32),
}
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """One entry of the matrix."""

    variant: str
    architecture: str
    element: str

    def __str__(self) -> str:
        """Render as ``gemm.simt sm_75 f16``."""
        return f"{self.variant} {self.architecture} {self.element}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The extents of one run, and how its operands are stored."""

    m: int
    n: int
    k: int
    transpose_a: bool = False
    transpose_b: bool = False
    padded: bool = False  # rows begin at multiples of 64 elements

    def op(self, element: str) -> GemmOp:
        """Return the product of this element type: sums in f32 or i32, stored as such from 8-bit elements."""
        dtype, result = _DTYPES[element]
        op = GemmOp.of(
            m=self.m,
            n=self.n,
            k=self.k,
            dtype=dtype,
            transpose_a=self.transpose_a,
            transpose_b=self.transpose_b,
            out_dtype=result,
            math=MatrixMath.TF32 if element == "tf32" else MatrixMath.IEEE,
        )
        return replace(op, a=_padded(op.a), b=_padded(op.b)) if self.padded else op


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the checkers say of one cell, by column: "ok", "not checked: …", or the first failure.

    ``resources`` are those of the schedule for large problems, None where nothing was compiled. ``runs`` counts the
    problems that were run: a variant for rows along k takes not all of them.
    """

    cell: Cell
    outcomes: dict[str, str]
    resources: KernelResources | None
    schedule: str
    runs: int
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every column is ok."""
        return all(self.outcomes[column] == _OK for column in COLUMNS)


# Wide copies with tails on every axis; odd extents and strides; odd extents in padded rows; one row;
# one column, and a k that is shorter than the stages reach; A along m.
RUN: Final = (
    Problem(m=80, n=144, k=80, transpose_b=True),
    Problem(m=67, n=45, k=83),
    Problem(m=131, n=77, k=83, transpose_b=True, padded=True),
    Problem(m=1, n=96, k=48, transpose_b=True),
    Problem(m=70, n=1, k=16, transpose_b=True),
    Problem(m=48, n=40, k=64, transpose_a=True),
)
_LARGE: Final = Problem(m=4096, n=4096, k=4096, transpose_b=True)
_ODD: Final = Problem(m=4095, n=4093, k=4099)


def cells() -> Iterator[Cell]:
    """Yield every cell: also those whose requirements do not hold."""
    for variant in CUDA_VARIANTS:
        if not variant.id.startswith("library."):
            for architecture in gpu_names():
                for element in ELEMENTS:
                    yield Cell(variant=variant.id, architecture=architecture, element=element)


def rejection(cell: Cell) -> str | None:
    """Return why a variant does not run there, or None where it does."""
    unmet = find(cell.variant).unmet(_LARGE.op(cell.element), _target(cell))
    return "; ".join(f"{req.name}: needs {why.needed}, found {why.found}" for req, why in unmet) or None


def sample(count: int, seed: int = 0) -> tuple[Cell, ...]:
    """Return ``count`` cells that run: each variant first, then each architecture and element as evenly as it goes."""
    left = [cell for cell in cells() if rejection(cell) is None]
    order: list[int] = np.random.default_rng(seed).permutation(len(left)).tolist()
    left = [left[i] for i in order]
    chosen: list[Cell] = []
    while left and len(chosen) < count:
        best: Cell = min(left, key=lambda cell: _taken(cell, chosen))
        chosen.append(best)
        left.remove(best)
    return tuple(chosen)


def judge_cell(cell: Cell, *, runs: Sequence[Problem] = RUN, schedules: Sequence[int] = (0, 2)) -> Row:
    """Ask every checker about one cell, whose requirements hold."""
    start = time.perf_counter()
    judged = _Judged(cell)
    for number, problem in enumerate(runs):
        judged.run(problem, schedules, seed=number)
    judged.compile(_LARGE, aligned=True)
    judged.compile(_ODD, aligned=False)
    return Row(
        cell=cell,
        outcomes={column: judged.outcomes.get(column, f"{NOT_CHECKED}: an earlier one failed") for column in COLUMNS},
        resources=judged.resources,
        schedule=judged.schedule,
        runs=judged.runs,
        seconds=time.perf_counter() - start,
    )


class _Judged:
    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.variant = find(cell.variant)
        self.target = _target(cell)
        self.outcomes: dict[str, str] = {}
        self.resources: KernelResources | None = None
        self.schedule = ""
        self.runs = 0

    def run(self, problem: Problem, schedules: Sequence[int], *, seed: int) -> None:
        """Prove, emit, emulate and compare one problem."""
        op = problem.op(self.cell.element)
        if self.variant.unmet(op, self.target):
            return
        built = self._built(op)
        if built is None:
            return
        kernel, source = built
        rng = np.random.default_rng(seed)
        inputs = [_values(operand.static_shape, operand.dtype, rng) for operand in op.operands]
        try:
            found, report = _emulate(kernel, source, op, inputs, schedules)
        except ToolchainMissing as error:
            self._note("emulator", f"{NOT_CHECKED}: {error.tool}")
            self._note("float64", f"{NOT_CHECKED}: {error.tool}")
            return
        except TraceaError as error:
            self._note("emulator", f"{problem}: {error}")
            return
        self.runs += 1
        self._note("emulator", _OK if report.clean else f"{problem}: {report.findings[0]}")
        self._note("float64", _difference(op, inputs, found) or _OK)

    def compile(self, problem: Problem, *, aligned: bool) -> None:
        """Compile the schedule for a large problem, and compare what it uses with the budget."""
        op = problem.op(self.cell.element)
        if self.variant.unmet(op, self.target):
            return
        built = self._built(op)
        if built is None:
            return
        kernel, source = built
        try:
            binary = compile_cuda(source)
        except ToolchainMissing as error:
            self._note("compiled", f"{NOT_CHECKED}: {error.tool}")
            self._note("budget", f"{NOT_CHECKED}: {error.tool}")
            return
        except TraceaError as error:
            self._note("compiled", str(error))
            return
        self._note("compiled", _OK)
        assert source.launch is not None
        used = measure_resources(
            binary,
            source.name,
            target=self.target,
            threads=source.launch.threads,
            shared_bytes=source.launch.shared_bytes,
        )
        budget = budget_of(self.cell.variant, op, self.cell.architecture, aligned=aligned)
        failed = [check for check in check_resources(used, budget, self.target) if not check.passed]
        self._note("budget", "; ".join(f"{check.name} {check.figure}, limit {check.limit}" for check in failed) or _OK)
        if self.resources is None:
            self.resources, self.schedule = used, kernel.schedule.key

    def _built(self, op: GemmOp) -> tuple[TileKernel, KernelSource] | None:
        assert self.variant.build is not None
        assert self.variant.default_schedule is not None
        target: Any = self.target
        try:
            kernel = self.variant.build(op, self.variant.default_schedule(op, target), target)
            prove(kernel)
            source = emit(kernel, self.cell.architecture)
        except TraceaError as error:
            self._note("proofs", f"{op.key}: {error}")
            return None
        self._note("proofs", _OK)
        return kernel, source

    def _note(self, column: str, outcome: str) -> None:
        """Keep the first outcome that is not ok."""
        if self.outcomes.get(column, _OK) == _OK:
            self.outcomes[column] = outcome


def _padded(type_: TensorType) -> TensorType:
    """Return the type with its longer steps rounded up to 64 elements."""
    strides = tuple(stride if stride == 1 else -(-stride // _PITCH) * _PITCH for stride in type_.strides)
    return TensorType(type_.shape, type_.dtype, StridedLayout(strides))


def _target(cell: Cell) -> Any:
    target: GpuTarget = load_gpu(cell.architecture)
    return target


def _taken(cell: Cell, chosen: Sequence[Cell]) -> tuple[int, int, int]:
    variant = sum(other.variant == cell.variant for other in chosen)
    architecture = sum(other.architecture == cell.architecture for other in chosen)
    element = sum(other.element == cell.element for other in chosen)
    return variant, architecture + element, architecture


def _values(shape: tuple[int, ...], dtype: DType, rng: np.random.Generator) -> Array:
    values = rng.standard_normal(shape) if dtype.is_float else rng.integers(-128, 128, shape)
    return np.asarray(values).astype(dtype.numpy)


def _emulate(
    kernel: TileKernel, source: KernelSource, op: GemmOp, inputs: Sequence[Array], schedules: Sequence[int]
) -> tuple[Array, Any]:
    from tracea.emulator import emulate

    types = buffer_types(kernel)
    result = result_buffer(kernel)
    out = np.zeros(op.infer().static_shape, op.infer().dtype.numpy)
    arrays = {
        buffer.name: _strided(_memory(values, operand), types[buffer.name])
        for buffer, values, operand in zip(operand_buffers(kernel), inputs, op.operands, strict=True)
    }
    arrays[result.name] = out.reshape(types[result.name].static_shape)
    integers = arguments(kernel)
    report = emulate(source, arrays, {name: integers[name] for name in source.integers}, schedules=schedules)
    return arrays[result.name].reshape(out.shape), report


def _memory(values: Array, type_: TensorType) -> Array:
    """Return memory that holds the values as the type lays them out."""
    low, high = type_.extent
    memory = np.zeros(high - low, values.dtype)
    _strided(memory, type_)[...] = values
    return memory


def _strided(memory: Array, type_: TensorType) -> Array:
    strides = tuple(stride * memory.itemsize for stride in type_.strides)
    # as_strided does not know 8-bit floats.
    return np.ndarray(type_.static_shape, memory.dtype, buffer=memory, strides=strides)


def _difference(op: GemmOp, inputs: Sequence[Array], found: Array) -> str | None:
    """Return where a result is beyond the accuracy contract, or None."""
    expected, got = evaluate(op, inputs), found.astype(np.float64)
    bound = error_bound(op, inputs, worst_case=True)
    with np.errstate(invalid="ignore"):
        wrong = ~((op.infer().dtype.round(expected) == got) | (np.abs(got - expected) <= bound))
    if not wrong.any():
        return None
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{op.key}: {int(wrong.sum())} of {wrong.size} wrong, first at {where}: {got[where]:g} for {expected[where]:g}"
    )
