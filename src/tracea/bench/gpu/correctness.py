"""Stage ``correctness``: every variant with every element type, by the gates, on the device.

The gates ask for right results from poisoned outputs, for the same bits every time, and for both again and again while
inputs alternate.
"""

from __future__ import annotations

from collections.abc import Iterator

from tracea.bench.gpu.problems import correctness_problems
from tracea.bench.gpu.session import Item, Session, closing
from tracea.bench.gpu.settings import ItemOutcome
from tracea.core.op import GemmOp
from tracea.flow.gpu import DeviceRun, GpuCompiled, compile_for_gpu
from tracea.gates.case import QUICK
from tracea.gates.gate import judge
from tracea.kernels.registry import find
from tracea.semantic.schedule import Schedule
from tracea.targets.gpu import GpuTarget
from tracea.testing.gpu_matrix import Cell, Problem

__all__ = ["default_schedule", "items", "judge_on_device"]

_RUNS = 24
_DRY_RUNS = 2


def items(session: Session) -> Iterator[Item]:
    """Yield an item for each variant and element type on each shape; the dry run takes one shape of a cell."""
    every, is_dry = session.settings.every, session.is_dry
    for cell, problem in correctness_problems(session.target, every=every, is_dry=is_dry):
        run = lambda cell=cell, problem=problem: _outcome(session, cell, problem)  # noqa: E731
        yield Item(name=f"{cell.variant} {cell.element} {_name(problem)}", run=run)


def default_schedule(variant: str, op: GemmOp, target: GpuTarget) -> Schedule:
    """Return the schedule that a variant begins with."""
    chosen = find(variant).default_schedule
    assert chosen is not None  # the cells are those of variants with kernels
    return chosen(op, target)


def judge_on_device(
    session: Session, compiled: GpuCompiled, op: GemmOp, *, runs: int = _RUNS, hashes: int = 3
) -> list[str]:
    """Run a kernel on an op of its structure by the gates, on the session's device; return what failed."""
    run = DeviceRun(session.driver, compiled, op=op, stream=session.stream)
    with closing(run.close) as refused:
        if session.is_dry:
            runs, hashes = _DRY_RUNS, 2
        verdict = judge(
            run, op, seed=session.settings.seed, distributions=QUICK, runs=runs, hashes=hashes, concurrent=False
        )
    failed = [f"{check.name}: {check.figure} (limit {check.limit}) {check.detail}" for check in verdict.failures]
    return [*failed, *refused]


def _outcome(session: Session, cell: Cell, problem: Problem) -> ItemOutcome:
    op = problem.op(cell.element)
    schedule = default_schedule(cell.variant, op, session.target)
    compiled = session.know_compiled(compile_for_gpu(op, cell.variant, schedule, session.target))
    return session.outcome(judge_on_device(session, compiled, op), schedule=schedule.key)


def _name(problem: Problem) -> str:
    stored = ("t" if problem.transpose_a else "n") + ("t" if problem.transpose_b else "n")
    return f"{problem.m}x{problem.n}x{problem.k} {stored}"
