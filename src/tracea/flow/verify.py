"""Verify: one kernel through every checker that this machine has - proofs, emulator, float64, compiler, gates.

A CPU kernel runs here and is judged by all gates; it is timed against the libraries' calls of its op where a search
measured it here, or on demand: what was never measured is promised to be right, not to be fast. A GPU kernel's text
runs in the emulator, on problems cut down to a few tiles or many steps (sizes are arguments of the text: it is the very
text of the large problem), and its machine code is judged against its resource budget where NVRTC is installed. What
cannot be looked at here is said to be not checked.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea import targets
from tracea.core.op import GemmOp, Op
from tracea.core.tensor_type import TensorType
from tracea.emulator import emulate
from tracea.emulator.report import Report
from tracea.errors import InvalidOption, InvalidShape, RunError, ToolchainMissing
from tracea.flow.asked import check_constants, check_op
from tracea.flow.bank_ways import check_banks
from tracea.flow.kernel import Built, build, choose_for_gpu
from tracea.flow.library_time import time_against
from tracea.flow.phases import phase
from tracea.flow.reduced import LARGEST, ReducedProblem, reduced, reduction
from tracea.flow.room import require_room
from tracea.flow.tuning import check_timed_threads
from tracea.gates.budgets import budget_of
from tracea.gates.case import QUICK, build_cases
from tracea.gates.correctness import Bench, check_correctness
from tracea.gates.distribution import Distribution
from tracea.gates.gate import judge
from tracea.gates.junit import to_junit
from tracea.gates.resources import NotChecked, judge_binary
from tracea.gates.safety import check_certificate
from tracea.gates.verdict import Check, Verdict
from tracea.kernels.arguments import arguments, operand_buffers, result_buffer, tables
from tracea.kernels.gemm.gpu.operands import MULTIPROCESSORS
from tracea.profiler.machine import cores_allowed
from tracea.runtime.native import check_threads
from tracea.targets.target import for_threads

if TYPE_CHECKING:
    from tracea.flow.library_time import RivalCall
    from tracea.semantic.proofs import Certificate
    from tracea.semantic.schedule import Schedule
    from tracea.targets.gpu import GpuTarget

__all__ = ["SCHEDULES", "EmulatedRun", "Verification", "laid_out", "reduced", "verify_for_gpu", "verify_op"]

SCHEDULES: Final = (0, 1, 2, 3)  # seeds: in order, in reverse, two at random
_WIDEST_COPY: Final = 16  # bytes

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """A verdict, the proofs' certificate, and what nothing here could look at: never counted as passed."""

    verdict: Verdict
    certificate: Certificate | None
    not_checked: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every check that was made passed."""
        return self.verdict.passed

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            **self.verdict.to_dict(),
            "not_checked": list(self.not_checked),
            "facts": len(self.certificate.facts) if self.certificate is not None else 0,
        }

    def to_junit(self) -> str:
        """Return a JUnit document; what was not checked is a skipped test case."""
        return to_junit([self.verdict], not_checked={self.verdict.subject: self.not_checked})

    def __str__(self) -> str:
        return "\n".join([str(self.verdict), *(f"  ??   not checked: {text}" for text in self.not_checked)])


@dataclass(slots=True)
class EmulatedRun:
    """A GPU kernel as the gates run one: ``run(inputs, out)`` by the emulator; ``reports`` are what it found.

    The first run takes all ``schedules``, each later one the next of them: one text, many inputs, every schedule.
    ``multiprocessors`` are those that a persistent grid has blocks for, None the target's.
    """

    op: GemmOp
    built: Built
    schedules: Sequence[int] = SCHEDULES
    multiprocessors: int | None = None
    reports: list[Report] = field(default_factory=list[Report])

    def __call__(self, inputs: Sequence[Array], out: Array) -> None:
        """Run the emitted text.

        Raises:
            RunError: the emulator found a race, a lax wait, an access out of bounds or the like.
        """
        kernel, source = self.built.kernel, self.built.source
        names = [buffer.name for buffer in operand_buffers(kernel)]
        given = [laid_out(kind, values) for kind, values in zip(self.op.operands, inputs, strict=True)]
        result = laid_out(self.op.infer(), out)
        operands = dict(zip(names, given, strict=True))
        arrays = {**operands, result_buffer(kernel).name: result, **tables(kernel, self.op)}
        values = arguments(kernel, self.op)
        if self.multiprocessors is not None and MULTIPROCESSORS.name in values:
            values[MULTIPROCESSORS.name] = self.multiprocessors
        number = len(self.reports)
        seeds = self.schedules if number == 0 else (self.schedules[number % len(self.schedules)],)
        report = emulate(source, arrays, {name: values[name] for name in source.integers}, schedules=seeds)
        self.reports.append(report)
        if not report.clean:
            raise RunError(kernel=source.name, detail=str(report.findings[0]), remedy="mend the kernel")
        out[...] = result


def verify_op(
    op: Op,
    *,
    target: str = "host",
    variant: str | None = None,
    schedule: dict[str, int | str] | None = None,
    threads: int = 1,
    constants: Sequence[int] = (),
    seed: int | None = None,
    latency: bool | None = None,
    rival: RivalCall | None = None,
) -> Verification:
    """Verify the kernel that would run ``op``, or the stated one, on this machine or for a GPU target.

    ``latency`` times it against the best library: always, never, or, by default, where its speed was measured here.
    ``rival`` times an op that no library variant runs against another implementation of it.

    Raises:
        InvalidOption: the target is neither, no variant fits, a GPU's kernel is to be timed, or the constants, the seed
            or the number of threads are none. InvalidSchedule, ProofFailed, CompileError: it is refused before it runs.
        ResourceExceeded: the arrays of a problem that runs here are larger than this machine's memory.
    """
    check_op(op, "verify")
    known = check_constants(op, constants)
    if seed is not None and seed < 0:
        raise InvalidOption(field="seed", got=seed, expected="a whole number from 0 on", remedy="seed=0")
    check_threads(threads)
    if target == "host":
        return _verify_here(
            op, variant, schedule, threads=threads, constants=known, seed=seed, latency=latency, rival=rival
        )
    if latency:
        raise InvalidOption(
            field="latency",
            got=f"a kernel for {target}",
            expected="a kernel of this machine",
            remedy="the emulator has no time; on a machine with the GPU: make gpu",
        )
    if not targets.names_gpu(target):
        if target not in targets.target_names():
            raise targets.unknown_target(target)
        raise InvalidOption(
            field="target",
            got=target,
            expected=("host", *targets.gpu_names()),
            remedy="a kernel of another processor can be printed, not run: tracea emit",
        )
    gpu = targets.load_gpu(target)
    chosen, values = choose_for_gpu(op, gpu, variant=variant, schedule=schedule)
    assert isinstance(op, GemmOp)  # the kind that GPU variants are for
    return verify_for_gpu(op, chosen, values, gpu, seed=seed)


def _verify_here(
    op: Op,
    variant: str | None,
    schedule: dict[str, int | str] | None,
    *,
    threads: int,
    constants: tuple[int, ...],
    seed: int | None,
    latency: bool | None,
    rival: RivalCall | None,
) -> Verification:
    from tracea.doctor import host
    from tracea.flow.compile import decision_for
    from tracea.flow.evaluate import Candidate, judge_candidate
    from tracea.kernels.registry import find
    from tracea.semantic.schedule import Schedule

    require_room(op, "verifying", remedy="verify a smaller problem, with the schedule of the large one")
    number = secrets.randbits(32) if seed is None else seed
    if latency:
        check_timed_threads(threads)
    here = for_threads(host(), threads)
    made = decision_for(op, here, threads=threads, constants=constants, variant=variant, schedule=schedule)
    is_ours = not find(made.variant).is_library
    phase(f"prove and print {made.variant}")
    built = build(op, made.variant, made.schedule or Schedule(), here) if is_ours else None
    candidate = Candidate(variant=made.variant, schedule=made.schedule.key if made.schedule is not None else "")
    phase(f"compile {made.variant} and compare it with float64")
    verdict = judge_candidate(op, candidate, constants=constants, threads=threads, seed=number)
    checks = list(verdict.checks)
    if built is not None:
        checks = [_proofs(built.certificate), check_certificate(built.kernel, built.certificate), *checks]
    missing: list[str] = []
    if latency is False:
        missing.append("latency: left out by the caller")
    elif not verdict.passed:
        missing.append("latency: what is wrong is not timed")
    elif latency is None and threads > len(cores_allowed()):
        cores = len(cores_allowed())
        missing.append(f"latency: threads that wait for each other's core have none: {threads} on {cores} cores")
    elif not is_ours:
        missing.append(f"latency: {made.variant} is the library's own call")
    elif latency is None and made.measurement is None:
        missing.append(f"latency: {made.variant} was not measured here. Remedy: tracea tune, or --latency")
    else:
        phase(f"time {made.variant} beside the libraries")
        timed = time_against(op, candidate, here, constants=constants, threads=threads, seed=number, rival=rival)
        (missing if isinstance(timed, str) else checks).append(timed)  # type: ignore[arg-type]
    return Verification(
        verdict=Verdict(subject=f"{op.key} | {verdict.subject}", checks=tuple(checks), seed=number),
        certificate=None if built is None else built.certificate,
        not_checked=tuple(missing),
    )


def verify_for_gpu(
    op: GemmOp,
    variant: str,
    schedule: Schedule,
    target: GpuTarget,
    *,
    seed: int | None = None,
    schedules: Sequence[int] = SCHEDULES,
) -> Verification:
    """Return what proofs, emulator, float64 and compiler say of a GPU kernel.

    Raises:
        ProofFailed, InvalidSchedule: the kernel is refused before it is printed.
        InvalidShape: a launch for the op would be refused: it breaks what the kernel was proved under.
        CompileError: its text does not compile.
    """
    number = secrets.randbits(32) if seed is None else seed
    phase(f"prove and print {variant} for {target.name}")
    built = build(op, variant, schedule, target)
    arguments(built.kernel, op)
    checks = [_proofs(built.certificate)]
    missing: list[str] = []
    try:
        emulated = _emulated(op, built, schedules, number)
        checks += emulated.checks
        missing += emulated.not_checked
    except ToolchainMissing as error:
        missing += [f"emulator: {error}", f"float64: {error}"]
    phase(f"compile {variant} for {target.name}")
    budget = budget_of(variant, op, target.name, aligned=_copies_wide(schedule))
    compiled = judge_binary(built.source, target=target, budget=budget)
    if isinstance(compiled, NotChecked):
        missing.append(f"resources: {compiled.reason}")
    else:
        missing += [f"resources: {check.name}: {check.detail}" for check in compiled.checks if _unseen(check)]
        checks += [check for check in compiled.checks if not _unseen(check)]
    missing.append("latency: the emulator has no time")
    missing.append("a device: no GPU took part. Remedy: make gpu, on a machine with one")
    subject = f"{op.key} | {variant} | {target.name} | {schedule.key}"
    verdict = Verdict(subject=subject, checks=tuple(checks), seed=number)
    return Verification(verdict=verdict, certificate=built.certificate, not_checked=tuple(missing))


def _proofs(certificate: Certificate) -> Check:
    facts = len(certificate.facts)
    return Check(name="proofs", passed=facts > 0, figure=facts, limit=1, detail="facts in the certificate, at least")


def _refusal(problem: ReducedProblem, built: Built) -> str | None:
    """Return why a problem is not emulated: the kernel refuses it, or it is too much work; None where it is."""
    if problem.work > LARGEST:
        return (
            f"{problem.op.key}, the least that the schedule allows, has {problem.work} multiply-adds, above {LARGEST}"
        )
    try:
        arguments(built.kernel, problem.op)
    except InvalidShape as error:
        return f"{problem.op.key} is too small for the schedule: {error}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Emulated:
    """What the emulator and float64 said of a text, and what of it they were not shown."""

    checks: Sequence[Check] = ()
    not_checked: Sequence[str] = ()


def _emulated(op: GemmOp, built: Built, schedules: Sequence[int], seed: int) -> _Emulated:
    """Run a text on the problems that stand for ``op``: the first through all gates, others for a ring's phases."""
    small = reduction(op, built.kernel.schedule)
    runs: list[EmulatedRun] = []
    checks: list[Check] = []
    missing = list(small.unseen)
    for number, problem in enumerate(small.problems):
        refused = _refusal(problem, built)
        if refused is not None and number == 0:
            return _Emulated(not_checked=(f"emulator: {refused}", f"float64: {refused}"))
        if refused is not None:
            missing.append(f"ring reuse: {refused}")
            continue
        phase(f"emulate {problem.op.key}")
        run = EmulatedRun(problem.op, built, schedules, problem.multiprocessors)
        if number == 0:
            said = "emulated"
            found = judge(run, problem.op, subject=built.source.name, seed=seed, distributions=QUICK, hashes=2, runs=2)
            judged = found.checks
        else:  # sums that are exact show what depends on time and on a ring's phases
            said = f"emulated over {problem.steps} steps"
            cases = build_cases(problem.op, np.random.default_rng(seed), (Distribution.INTEGER,))
            judged = check_correctness(run, Bench(problem.op), cases)
        runs.append(run)
        checks += [replace(check, name=f"{said}: {check.name}") for check in judged]
    reports = [report for run in runs for report in run.reports]
    checks = [_clean(runs, schedules), check_banks(built.certificate, reports), *checks]
    return _Emulated(checks=checks, not_checked=missing)


def _clean(runs: Sequence[EmulatedRun], schedules: Sequence[int]) -> Check:
    reports = [report for run in runs for report in run.reports]
    findings = [finding for report in reports for finding in report.findings]
    ways = max((report.bank_ways() for report in reports), default=0)
    took = ", ".join(f"{len(run.reports)} runs of {run.op.key}" for run in runs)
    return Check(
        name="emulator",
        passed=all(run.reports for run in runs) and not findings,
        figure=len(findings),
        limit=0,
        detail=str(findings[0])
        if findings
        else f"findings in {took}, schedules {tuple(schedules)}; {ways} ways at most in shared memory",
    )


def _unseen(check: Check) -> bool:
    return check.figure == "not checked"


def _copies_wide(schedule: Schedule) -> bool:
    """Tell whether A and B are copied 16 bytes at a time, as rows that begin at multiples of them allow."""
    return all(schedule[chunk] == _WIDEST_COPY for chunk in ("chunk_a", "chunk_b") if chunk in schedule)


def laid_out(kind: TensorType, values: Array) -> Array:
    """Return a copy of an array in memory of its own, laid out as the type says."""
    low, high = kind.extent
    memory = np.zeros(max(1, high - low), dtype=kind.dtype.numpy)
    strides = tuple(stride * kind.dtype.nbytes for stride in kind.strides)
    array = np.ndarray(kind.static_shape, memory.dtype, memory.view(np.uint8).data, -low * kind.dtype.nbytes, strides)
    array[...] = values
    return array
