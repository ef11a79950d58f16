"""Stage ``compile``: the machine code that later stages load, and the emulator, made on all cores into the cache."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from functools import partial

from tracea.bench.gpu.candidates import first_schedules, fitting, tried_schedules
from tracea.bench.gpu.correctness import default_schedule
from tracea.bench.gpu.one_kernel import OneKernel
from tracea.bench.gpu.problems import GpuProblem, contest_problems, correctness_problems, hero_problems
from tracea.bench.gpu.session import Item, Session
from tracea.bench.gpu.settings import ItemOutcome, Settings, Status
from tracea.bench.gpu.vendor_tools import bank_requests, sanitizer_requests
from tracea.emulator.native import core
from tracea.errors import ToolchainMissing, TraceaError
from tracea.flow.gpu import compile_for_gpu
from tracea.runtime.nvrtc import compile_cuda
from tracea.semantic.schedule import Schedule
from tracea.targets.gpu import load_gpu
from tracea.testing.conformance import conformance_cases
from tracea.testing.gpu_matrix import Cell, Problem

__all__ = ["dry_problems", "items"]

Job = Callable[[], str]
_MARGIN = 2.0  # seconds in which the stage tells what it has
_DRY_FLOPS = 2**35


def items(session: Session) -> Iterator[Item]:
    """Yield an item for the kernels of each later stage."""
    jobs: dict[str, Callable[[Session], list[Job]]] = {
        # The emulator takes one core longer than anything else does: first, and with what keeps the others busy.
        "sanitizer, banks, conformance": lambda session: [*_vendor_tools(session), *_conformance(session)],
        "correctness": _correctness,
        "contest": _contest,
        "tuning": _tuning,
    }
    for name, make in jobs.items():
        refusals = name == "tuning"  # of a space, not all schedules have to fit
        yield Item(name=name, run=lambda make=make, may=refusals: _compiled(session, make(session), may_refuse=may))


def dry_problems(session: Session, problems: tuple[GpuProblem, ...]) -> tuple[GpuProblem, ...]:
    """Return the problems of this run: without a device the smaller ones, whose operands the host holds easily."""
    if session.is_dry:
        problems = tuple(problem for problem in problems if problem.flops <= _DRY_FLOPS)
    return problems[:: session.settings.every]


def _compiled(session: Session, jobs: list[Job], *, may_refuse: bool) -> ItemOutcome:
    failures: list[str] = []
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(max(1, min(session.settings.workers, len(jobs))), mp_context=context)
    try:
        waiting: set[Future[str]] = {pool.submit(job) for job in jobs}
        while waiting and session.seconds_left > _MARGIN:
            done, waiting = wait(waiting, timeout=min(5.0, session.seconds_left))
            failures += [found for future in done if (found := future.result())]
            session.note("")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if waiting and (may_refuse or not failures):
        detail = f"{len(waiting)} of {len(jobs)} texts are left to be compiled when they are needed"
        return ItemOutcome(status=Status.SKIPPED, detail=detail, data={"texts": len(jobs), "left": len(waiting)})
    figures = {"texts": len(jobs), "left": len(waiting), "refused": len(failures)}
    return session.outcome([] if may_refuse else failures, **figures)


def _conformance(session: Session) -> list[Job]:
    cases = conformance_cases(session.target.name)
    numbers = range(0, len(cases), session.settings.every)
    return [partial(_compile_case, session.target.name, number) for number in numbers]


def _correctness(session: Session) -> list[Job]:
    found = correctness_problems(session.target, every=session.settings.every, is_dry=session.is_dry)
    return [partial(_compile_cell, cell, problem) for cell, problem in found]


def _vendor_tools(session: Session) -> list[Job]:
    requests = bank_requests(session)
    requests += [request for request in sanitizer_requests(session) if request not in requests]
    return [_compile_emulator, *(partial(_compile_request, request) for request in requests)]


def _contest(session: Session) -> list[Job]:
    return [
        partial(_compile_problem, session.settings, problem, variant, schedule.key)
        for problem in dry_problems(session, contest_problems())
        for variant, schedule in first_schedules(problem.op, session.target, ())
    ]


def _tuning(session: Session) -> list[Job]:
    settings = session.settings
    return [
        partial(_compile_problem, settings, problem, variant.id, schedule.key)
        for problem in dry_problems(session, hero_problems())
        for variant in fitting(problem.op, session.target)
        for schedule in tried_schedules(problem.op, variant, session.target, trials=settings.trials, seed=settings.seed)
    ]


def _compile_case(architecture: str, number: int) -> str:
    case = conformance_cases(architecture)[number]
    try:
        compile_cuda(case.source)
    except TraceaError as error:
        return f"{case.name}: {error}"
    return ""


def _compile_cell(cell: Cell, problem: Problem) -> str:
    op, target = problem.op(cell.element), load_gpu(cell.architecture)
    try:
        compile_for_gpu(op, cell.variant, default_schedule(cell.variant, op, target), target)
    except TraceaError as error:
        return f"{cell} {problem}: {error}"
    return ""


def _compile_emulator() -> str:
    try:
        core()
    except ToolchainMissing:  # what needs it says so itself: on a device that is the prediction of bank conflicts alone
        return ""
    except TraceaError as error:
        return f"emulator: {error}"
    return ""


def _compile_request(request: OneKernel) -> str:
    try:
        compile_for_gpu(request.op(), request.variant, request.schedule(), load_gpu(request.target))
    except TraceaError as error:
        return f"{request}: {error}"
    return ""


def _compile_problem(settings: Settings, problem: GpuProblem, variant: str, schedule: str) -> str:
    try:
        compile_for_gpu(problem.op, variant, Schedule.parse(schedule), load_gpu(settings.target))
    except TraceaError as error:
        return f"{problem.name} {variant} {schedule}: {error}"
    return ""
