"""Verify: one kernel through every checker that this machine has - proofs, emulator, float64, compiler, gates.

A CPU kernel runs here and is judged by all gates; it is timed against the libraries' calls of its op where a search
measured it here, or on demand: what was never measured is promised to be right, not to be fast. A GPU kernel's text
runs in the emulator, on a problem cut down to a few tiles (sizes are arguments of the text: it is the very text of the
large problem), and its machine code is judged against its resource budget where NVRTC is installed. What cannot be
looked at here is said to be not checked.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea import targets
from tracea.core.op import GemmOp, Op
from tracea.core.tensor_type import StridedLayout, TensorType, static
from tracea.emulator import emulate
from tracea.emulator.report import Report
from tracea.errors import InvalidOp, InvalidOption, InvalidShape, ResourceExceeded, RunError, ToolchainMissing
from tracea.flow.kernel import Built, build, choose_for_gpu
from tracea.flow.library_time import time_against
from tracea.gates.budgets import budget_of
from tracea.gates.case import QUICK
from tracea.gates.gate import judge
from tracea.gates.junit import to_junit
from tracea.gates.resources import NotChecked, judge_binary
from tracea.gates.safety import check_certificate
from tracea.gates.verdict import Check, Verdict
from tracea.kernels.arguments import arguments, operand_buffers, result_buffer, tables
from tracea.runtime.native import check_threads

if TYPE_CHECKING:
    from tracea.flow.library_time import RivalCall
    from tracea.semantic.proofs import Certificate
    from tracea.semantic.schedule import Schedule
    from tracea.targets.gpu import GpuTarget

__all__ = ["SCHEDULES", "EmulatedRun", "Verification", "laid_out", "reduced", "verify_for_gpu", "verify_op"]

SCHEDULES: Final = (0, 1, 2, 3)  # seeds: in order, in reverse, two at random
_RESIDUE: Final = 16  # extents keep their remainder, and with it what their strides are multiples of
_EMULATED: Final = 2**21  # multiply-adds of an emulated problem: about a second with all detectors
_LARGEST: Final = 2**25  # of one that cannot be smaller: above it nothing is emulated
_LONGEST_STEP: Final = 64  # an innermost stride up to this is kept as it is

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
    """

    op: GemmOp
    built: Built
    schedules: Sequence[int] = SCHEDULES
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
        InvalidOption: the target is neither, no variant fits, a GPU's kernel is to be timed, or the seed or the number
            of threads is none. InvalidSchedule, ProofFailed, CompileError: it is refused before it runs.
        ResourceExceeded: the arrays of a problem that runs here are larger than this machine's memory.
    """
    if seed is not None and seed < 0:
        raise InvalidOption(field="seed", got=seed, expected="a whole number from 0 on", remedy="seed=0")
    check_threads(threads)
    if target == "host":
        known = tuple(constants)
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
    if not isinstance(op, GemmOp):
        raise InvalidOption(field="op", got=op.key, expected="a gemm", remedy="GPU kernels are built for gemm so far")
    chosen, values = choose_for_gpu(op, gpu, variant=variant, schedule=schedule)
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
    from tracea.flow.compile import decision_for, for_threads
    from tracea.flow.evaluate import Candidate, judge_candidate
    from tracea.flow.text import completed_schedule
    from tracea.kernels.registry import find
    from tracea.semantic.schedule import Schedule

    _require_memory(op)
    number = secrets.randbits(32) if seed is None else seed
    here = for_threads(host(), threads)
    stated = None if schedule is None else completed_schedule(op, variant, schedule, here, constants)
    made = decision_for(op, here, threads=threads, constants=constants, variant=variant, schedule=stated)
    is_ours = not find(made.variant).is_library
    built = build(op, made.variant, made.schedule or Schedule(), here) if is_ours else None
    candidate = Candidate(variant=made.variant, schedule=made.schedule.key if made.schedule is not None else "")
    verdict = judge_candidate(op, candidate, constants=constants, threads=threads, seed=number)
    checks = list(verdict.checks)
    if built is not None:
        checks = [_proofs(built.certificate), check_certificate(built.kernel, built.certificate), *checks]
    missing: list[str] = []
    if latency is False:
        missing.append("latency: left out by the caller")
    elif not verdict.passed:
        missing.append("latency: what is wrong is not timed")
    elif not is_ours:
        missing.append(f"latency: {made.variant} is the library's own call")
    elif latency is None and made.measurement is None:
        missing.append(f"latency: {made.variant} was not measured here. Remedy: tracea tune, or --latency")
    else:
        timed = time_against(op, candidate, here, constants=constants, threads=threads, seed=number, rival=rival)
        (missing if isinstance(timed, str) else checks).append(timed)  # type: ignore[arg-type]
    return Verification(
        verdict=Verdict(subject=f"{op.key} | {verdict.subject}", checks=tuple(checks), seed=number),
        certificate=None if built is None else built.certificate,
        not_checked=tuple(missing),
    )


def _require_memory(op: Op) -> None:
    """Refuse what cannot be held: the least is each operand and the result once, and the float64 reference."""
    result = op.infer()
    needed = sum(kind.nbytes for kind in (*op.operands, result)) + 8 * result.elements
    there = _memory_bytes()
    if needed > there:
        remedy = "verify a smaller problem, with the schedule of the large one"
        raise ResourceExceeded(what=f"verifying {op.key}", needed_bytes=needed, limit_bytes=there, remedy=remedy)


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


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
    built = build(op, variant, schedule, target)
    arguments(built.kernel, op)
    checks = [_proofs(built.certificate)]
    missing: list[str] = []
    try:
        if (refused := _cut_too_far(op, built)) is not None:
            missing += [f"emulator: {refused}", f"float64: {refused}"]
        else:
            checks += _emulated(op, built, schedules, number)
    except ToolchainMissing as error:
        missing += [f"emulator: {error}", f"float64: {error}"]
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


def _cut_too_far(op: GemmOp, built: Built) -> str | None:
    """Return why the kernel refuses the problem that the emulator has time for; None where it takes it."""
    small = reduced(op, built.kernel.schedule)
    work = prod(static(extent) for extent in small.batch) * static(small.m) * static(small.n) * static(small.k)
    if work > _LARGEST:
        return f"{small.key}, the least that the schedule allows, has {work} multiply-adds, above {_LARGEST}"
    try:
        arguments(built.kernel, small)
    except InvalidShape as error:
        return f"{small.key} is too small for the schedule: {error}"
    return None


def _emulated(op: GemmOp, built: Built, schedules: Sequence[int], seed: int) -> list[Check]:
    small = reduced(op, built.kernel.schedule)
    run = EmulatedRun(small, built, schedules)
    judged = judge(run, small, subject=built.source.name, seed=seed, distributions=QUICK, hashes=2, runs=2)
    findings = [finding for report in run.reports for finding in report.findings]
    ways = max((report.bank_ways() for report in run.reports), default=0)
    emulated = Check(
        name="emulator",
        passed=bool(run.reports) and not findings,
        figure=len(findings),
        limit=0,
        detail=str(findings[0])
        if findings
        else f"findings in {len(run.reports)} runs of {small.key}, schedules {tuple(schedules)}; "
        f"{ways} ways at most in shared memory",
    )
    return [emulated, *(replace(check, name=f"emulated: {check.name}") for check in judged.checks)]


def _unseen(check: Check) -> bool:
    return check.figure == "not checked"


def _copies_wide(schedule: Schedule) -> bool:
    """Tell whether A and B are copied 16 bytes at a time, as rows that begin at multiples of them allow."""
    return all(schedule[chunk] == _RESIDUE for chunk in ("chunk_a", "chunk_b") if chunk in schedule)


def reduced(op: GemmOp, schedule: Schedule) -> GemmOp:
    """Return the op with extents of a few tiles at most, each with its remainder modulo 16: less work, the same text.

    It keeps as many steps of k as the schedule's workers need, where the op has them: else its kernel refuses it.

    Raises:
        InvalidOp: an operand's layout is not strided.
    """
    tile = {name: value for name, value in schedule.values_.items() if isinstance(value, int)}
    bm, bn, bk = (tile.get(name, 64) for name in ("bm", "bn", "bk"))
    batch = tuple(min(static(extent), 2) for extent in op.batch)
    m, n = _cut(static(op.m), bm + _RESIDUE), _cut(static(op.n), bn + _RESIDUE)
    # Workers that share steps of k need one each: so many for every tile, or so many for all tiles together.
    tiles = prod(batch) * -(-m // bm) * -(-n // bn)
    shares = max(tile.get("split_k", 1), -(-tile.get("stream_k", 0) // max(1, tiles)))
    least = -(-bk * max(2, shares) // _RESIDUE) * _RESIDUE
    k = _cut(static(op.k), max(bk * (tile.get("stages", 2) + 1), least))
    while m * n * k > _EMULATED and k - k % _RESIDUE > least:
        k = _cut(k, max(least, k // 2))
    result = (*batch, m, n)
    epilogue = replace(op.epilogue, operands=tuple(_resized(each, result) for each in op.epilogue.operands))
    a, b = _resized(op.a, (*batch, m, k)), _resized(op.b, (*batch, k, n))
    out = None if op.out is None else _resized(op.out, result)
    return replace(op, m=m, n=n, k=k, batch=batch, a=a, b=b, epilogue=epilogue, out=out)


def _cut(extent: int, limit: int) -> int:
    return extent if extent <= limit else limit - limit % _RESIDUE + extent % _RESIDUE


def _resized(kind: TensorType, full: tuple[int, ...]) -> TensorType:
    """Return a type with the extents of ``full``, its axes in memory in the order that they had; 1 stays 1.

    Strides keep their remainder modulo 16, and rows that had a gap behind them keep one. An axis that went on where
    another one ended still does: kernels walk such batch axes like one.
    """
    wanted = full[len(full) - kind.rank :]
    shape = tuple(1 if old == 1 else new for old, new in zip(kind.static_shape, wanted, strict=True))
    if kind.layout is None:
        return TensorType(shape, kind.dtype)
    if not isinstance(kind.layout, StridedLayout):
        raise InvalidOp(
            field="layout", got=str(kind), expected="a strided layout", remedy="verify the op before packing"
        )
    strides = [0] * kind.rank
    step, old_step = 1, 1
    for axis in sorted(range(kind.rank), key=lambda axis: (abs(kind.strides[axis]), -axis)):
        old = abs(kind.strides[axis])
        if old == 0:
            continue
        stride = step + (old - step) % _RESIDUE
        if old == old_step:
            stride = step
        elif step == 1 and old <= _LONGEST_STEP:
            stride = old
        elif old > old_step and stride == step:
            stride += _RESIDUE
        strides[axis] = stride if kind.strides[axis] > 0 else -stride
        if kind.static_shape[axis] != 1:  # one element ends where nothing begins
            step, old_step = stride * shape[axis], old * kind.static_shape[axis]
    return TensorType(shape, kind.dtype, StridedLayout(tuple(strides)))


def laid_out(kind: TensorType, values: Array) -> Array:
    """Return a copy of an array in memory of its own, laid out as the type says."""
    low, high = kind.extent
    memory = np.zeros(max(1, high - low), dtype=kind.dtype.numpy)
    strides = tuple(stride * kind.dtype.nbytes for stride in kind.strides)
    array = np.ndarray(kind.static_shape, memory.dtype, memory.view(np.uint8).data, -low * kind.dtype.nbytes, strides)
    array[...] = values
    return array
