"""The matrix of CUDA GEMMs: every variant on every architecture with every element type, by every checker there is.

Worked example::

    judge_cell(Cell(variant="gemm.mma_cp_async", architecture="sm_80", element="f16"))
    # proofs ok, emulator ok, float64 ok, compiled ok, budget ok - or why not, or «not checked» and what is missing
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tracea.core.accuracy import error_bound
from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.core.reference import evaluate
from tracea.core.tensor_type import TensorType
from tracea.emitters.cuda.emitter import emit
from tracea.emitters.kernel_source import KernelSource
from tracea.emulator import emulate
from tracea.emulator.report import Report
from tracea.errors import ToolchainMissing, TraceaError
from tracea.gates.budgets import budget_of
from tracea.gates.resources import KernelResources, check_resources, measure_resources
from tracea.kernels.arguments import arguments, buffer_types, operand_buffers, result_buffer, tables
from tracea.kernels.registry import CUDA_VARIANTS, find
from tracea.runtime.nvrtc import compile_cuda
from tracea.semantic.proofs import prove
from tracea.semantic.proofs.certificate import Certificate
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.gpu import GpuTarget, gpu_names, load_gpu
from tracea.testing.gpu_problems import ELEMENTS, FEATURES, LARGE, ODD, RUN, Cell, Feature, Problem

__all__ = [
    "COLUMNS",
    "ELEMENTS",
    "FEATURES",
    "NOT_CHECKED",
    "RUN",
    "Cell",
    "Feature",
    "Problem",
    "Row",
    "build",
    "cells",
    "judge_cell",
    "judge_feature",
    "random_values",
    "rejection",
    "run_in_emulator",
    "sample",
]

COLUMNS: Final = ("proofs", "emulator", "float64", "banks", "compiled", "budget")
NOT_CHECKED: Final = "not checked"
_OK: Final = "ok"
# Shared memory in the main loop: the buffers of the stages, and the calls that fill and read them.
_STAGES: Final = ("a_tiles", "b_tiles")
_MAIN_LOOP: Final = ("load_a", "load_b", "wgmma_m64", "copy_async", "place_tile")
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the checkers say of one cell, by column: "ok", "not checked: …", or the first failure.

    ``resources`` are those of the schedule for large problems, None where nothing was compiled. ``runs`` counts the
    problems that were run: a variant for rows along k takes not all of them. ``ways`` are the most in the main loop:
    as proved, and as the emulator counts them.
    """

    cell: Cell
    outcomes: dict[str, str]
    resources: KernelResources | None
    schedule: str
    runs: int
    ways: tuple[int, int]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every column is ok."""
        return all(self.outcomes[column] == _OK for column in COLUMNS)


def cells() -> Iterator[Cell]:
    """Yield every cell: also those whose requirements do not hold."""
    for variant in CUDA_VARIANTS:
        if not variant.id.startswith("library."):
            for architecture in gpu_names():
                for element in ELEMENTS:
                    yield Cell(variant=variant.id, architecture=architecture, element=element)


def rejection(cell: Cell) -> str | None:
    """Return why a variant does not run there, or None where it does."""
    unmet = find(cell.variant).unmet(LARGE.op(cell.element), _target(cell))
    return "; ".join(f"{req.name}: needs {why.needed}, found {why.found}" for req, why in unmet) or None


def sample(count: int, seed: int = 0) -> tuple[Cell, ...]:
    """Return ``count`` cells that run: first those with the most variants, architectures and elements not yet there."""
    left = [cell for cell in cells() if rejection(cell) is None]
    order: list[int] = np.random.default_rng(seed).permutation(len(left)).tolist()
    left = [left[i] for i in order]
    chosen: list[Cell] = []
    while left and len(chosen) < count:
        best: Cell = min(left, key=lambda cell: _taken(cell, chosen))
        chosen.append(best)
        left.remove(best)
    return tuple(chosen)


def judge_cell(
    cell: Cell,
    *,
    runs: Sequence[Problem] = RUN,
    schedules: Sequence[int] = (0, 2),
    changes: Mapping[str, int | str] = MappingProxyType({}),
    compiled: Sequence[tuple[Problem, bool]] = ((LARGE, True), (ODD, False)),
) -> Row:
    """Ask every checker about one cell, whose requirements hold.

    ``changes`` are values that replace those of the default schedules; ``compiled`` are the problems whose kernels are
    compiled for the architecture, and whether their rows are aligned.
    """
    start = time.perf_counter()
    judged = _Judged(cell, changes)
    for number, problem in enumerate(runs):
        judged.run(problem, schedules, seed=number)
    for problem, aligned in compiled:
        judged.compile(problem, aligned=aligned)
    return Row(
        cell=cell,
        outcomes={column: judged.outcomes.get(column, f"{NOT_CHECKED}: an earlier one failed") for column in COLUMNS},
        resources=judged.resources,
        schedule=judged.schedule,
        runs=judged.runs,
        ways=(judged.proved, judged.observed),
        seconds=time.perf_counter() - start,
    )


def judge_feature(feature: Feature, *, schedules: Sequence[int] = (0, 2)) -> Row:
    """Ask every checker about one feature of a variant, compiled for a large problem of the same kind."""
    large = replace(feature.runs[0], m=LARGE.m, n=LARGE.n, k=LARGE.k)
    return judge_cell(
        feature.cell, runs=feature.runs, schedules=schedules, changes=dict(feature.changes), compiled=((large, True),)
    )


def build(
    cell: Cell, op: GemmOp, changes: Mapping[str, int | str] = MappingProxyType({})
) -> tuple[TileKernel, Certificate, KernelSource]:
    """Return a cell's kernel for an op, with its proofs and its text.

    Raises:
        TraceaError: there is no such kernel, or it was not proved.
    """
    variant, target = find(cell.variant), _target(cell)
    assert variant.build is not None
    assert variant.default_schedule is not None
    kernel = variant.build(op, variant.default_schedule(op, target).with_values(**changes), target)
    certificate = prove(kernel)
    return kernel, certificate, emit(kernel, cell.architecture)


class _Judged:
    def __init__(self, cell: Cell, changes: Mapping[str, int | str]) -> None:
        self.cell = cell
        self.changes = changes
        self.variant = find(cell.variant)
        self.target = _target(cell)
        self.outcomes: dict[str, str] = {}
        self.resources: KernelResources | None = None
        self.schedule = ""
        self.runs = 0
        self.proved = 0
        self.observed = 0

    def run(self, problem: Problem, schedules: Sequence[int], *, seed: int) -> None:
        """Prove, emit, emulate and compare one problem."""
        op = problem.op(self.cell.element)
        if self.variant.unmet(op, self.target):
            return
        built = self._built(op)
        if built is None:
            return
        kernel, certificate, source = built
        rng = np.random.default_rng(seed)
        inputs = [random_values(operand.static_shape, operand.dtype, rng) for operand in op.operands]
        try:
            found, report = run_in_emulator(kernel, source, op, inputs, schedules)
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
        self._banks(kernel, certificate, report)

    def compile(self, problem: Problem, *, aligned: bool) -> None:
        """Compile the schedule for a large problem, and compare what it uses with the budget."""
        op = problem.op(self.cell.element)
        if self.variant.unmet(op, self.target):
            return
        built = self._built(op)
        if built is None:
            return
        kernel, _, source = built
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

    def _banks(self, kernel: TileKernel, certificate: Certificate, report: Report) -> None:
        """Compare the ways of the main loop's accesses: as proved, as the emulator counts them, as the variant says."""
        facts = [fact for fact in certificate.about("banks") if fact.value("buffer") in _STAGES]
        proved = max(int(fact.value("ways") or 0) for fact in facts)
        costs = [cost for cost in report.accesses if cost.space == "shared" and cost.place.text.startswith(_MAIN_LOOP)]
        observed = max((cost.worst for cost in costs), default=0)
        self.proved, self.observed = max(self.proved, proved), max(self.observed, observed)
        found = f"{proved} ways proved, {observed} observed"
        match kernel.schedule.get("swizzle"):
            case 1:
                self._note("banks", _OK if proved == observed == 1 else f"{found}, must be 1")
            case 0:
                self._note("banks", _OK if proved == observed > 1 else f"{found}, must be as many, and more than 1")
            case _:
                self._note("banks", _OK if observed <= proved else f"{found}: more than proved")

    def _built(self, op: GemmOp) -> tuple[TileKernel, Certificate, KernelSource] | None:
        try:
            built = build(self.cell, op, self.changes)
        except TraceaError as error:
            self._note("proofs", f"{op.key}: {error}")
            return None
        self._note("proofs", _OK)
        return built

    def _note(self, column: str, outcome: str) -> None:
        """Keep the first outcome that is not ok."""
        if self.outcomes.get(column, _OK) == _OK:
            self.outcomes[column] = outcome


def _target(cell: Cell) -> Any:
    target: GpuTarget = load_gpu(cell.architecture)
    return target


def _taken(cell: Cell, chosen: Sequence[Cell]) -> tuple[int, int]:
    shared = [
        sum(getattr(other, name) == getattr(cell, name) for other in chosen)
        for name in ("variant", "architecture", "element")
    ]
    return sum(count > 0 for count in shared), sum(shared)


def random_values(shape: tuple[int, ...], dtype: DType, rng: np.random.Generator) -> Array:
    """Return normally distributed floats, or integers of 8 bits."""
    values = rng.standard_normal(shape) if dtype.is_float else rng.integers(-128, 128, shape)
    return np.asarray(values).astype(dtype.numpy)


def run_in_emulator(
    kernel: TileKernel, source: KernelSource, op: GemmOp, inputs: Sequence[Array], schedules: Sequence[int]
) -> tuple[Array, Report]:
    """Return the result of an emitted kernel, and what the emulator found."""
    types = buffer_types(kernel)
    result = result_buffer(kernel)
    out = np.zeros(op.infer().static_shape, op.infer().dtype.numpy)
    arrays = {
        buffer.name: _strided(_memory(values, operand), types[buffer.name])
        for buffer, values, operand in zip(operand_buffers(kernel), inputs, op.operands, strict=True)
    }
    arrays[result.name] = out.reshape(types[result.name].static_shape)
    integers = arguments(kernel)
    arrays |= tables(kernel)
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
