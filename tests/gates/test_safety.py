"""Fences, certificates and the latency gate: what each refuses, and what it lets pass."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.doctor import host
from tracea.emulator.report import Finding, Place
from tracea.errors import InvalidOption, RunError
from tracea.flow.compile import compile_op
from tracea.flow.kernel import build
from tracea.gates import QUICK, Run, build_cases, judge
from tracea.gates.fence import Fence, check_fences, fenced
from tracea.gates.latency import check_latency
from tracea.gates.safety import check_certificate, check_emulation, check_safety
from tracea.kernels.registry import find

Array = np.ndarray[Any, Any]
OP = GemmOp.of(m=21, n=53, k=100)


def right(inputs: Sequence[Array], out: Array) -> None:
    np.matmul(inputs[0], inputs[1], out=out)


@pytest.mark.parametrize("fence", Fence)
def test_a_fenced_array_has_its_types_layout_and_touches_the_page(fence: Fence) -> None:
    import mmap

    for kind in (TensorType((3, 5), DType.F32, StridedLayout((8, 1))), TensorType((0, 4), DType.F64)):
        with fenced(kind, fence) as array:
            assert array.shape == kind.static_shape
            if array.size:
                end = array.ctypes.data + kind.extent[1] * kind.dtype.nbytes
                assert (end if fence is Fence.END else array.ctypes.data) % mmap.PAGESIZE == 0
                array[...] = 1.0
                assert array.sum() == 15.0


def test_a_read_of_one_element_beyond_is_the_kernels_death_and_not_ours(rng: np.random.Generator) -> None:
    case = build_cases(OP, rng, QUICK)[0]
    seen: list[float] = []

    def reads_on(inputs: Sequence[Array], out: Array) -> None:
        right(inputs, out)
        last = inputs[0]
        seen.append(ctypes.c_float.from_address(last.ctypes.data + last.nbytes).value)  # never used

    def reads_before(inputs: Sequence[Array], out: Array) -> None:
        right(inputs, out)
        seen.append(ctypes.c_float.from_address(inputs[1].ctypes.data - 4).value)

    assert [check.figure for check in check_fences(right, OP, case)] == ["clean", "clean"]
    assert [check.figure for check in check_fences(reads_on, OP, case)] == ["SIGSEGV", "clean"]
    clean, dead = check_fences(reads_before, OP, case)
    assert (clean.figure, dead.figure) == ("clean", "SIGSEGV")
    assert "died in" not in clean.detail
    assert "in reads_before" in dead.detail  # whether the kernel died, or what surrounds it


def test_a_change_of_an_input_that_is_taken_back_is_found(rng: np.random.Generator) -> None:
    case = build_cases(OP, rng, QUICK)[0]

    def changes(index: int) -> Run:
        def run(inputs: Sequence[Array], out: Array) -> None:
            np.negative(inputs[index], out=inputs[index])
            right(inputs, out)
            np.negative(out, out=out)
            np.negative(inputs[index], out=inputs[index])

        return run

    for index in range(2):
        assert judge(changes(index), OP, seed=1, concurrent=False).passed  # of one process alone
        for check in check_fences(changes(index), OP, case):
            assert check.figure == "SIGSEGV"
            assert "for reading only" in check.detail


def test_a_wrong_result_an_error_and_an_endless_loop_are_told_apart(rng: np.random.Generator) -> None:
    case = build_cases(OP, rng, QUICK)[0]

    def raises(inputs: Sequence[Array], out: Array) -> None:
        raise ValueError

    def sleeps(inputs: Sequence[Array], out: Array) -> None:
        time.sleep(60)

    assert {check.figure for check in check_fences(lambda inputs, out: out.fill(0), OP, case)} == {"a wrong result"}
    assert {check.figure for check in check_fences(sleeps, OP, case, limit_s=0.1)} == {"did not return"}
    assert {check.figure for check in check_fences(raises, OP, case)} == {"an error"}


def test_time_in_which_this_process_was_stopped_is_not_time_that_the_kernel_had(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Whoever stops a process stops its children too: both go on, and the watch must not end a child at once."""
    case = build_cases(OP, np.random.default_rng(seed), QUICK)[0]
    looks = iter(range(1_000_000))
    clock = SimpleNamespace(monotonic=lambda: 3600.0 * next(looks), sleep=time.sleep)
    monkeypatch.setattr("tracea.gates.fence.time", clock)

    def takes_a_while(inputs: Sequence[Array], out: Array) -> None:
        time.sleep(0.2)
        np.matmul(*inputs, out=out)

    assert {check.figure for check in check_fences(takes_a_while, OP, case)} == {"clean"}


def test_our_kernel_passes_the_safety_gate_and_an_edited_certificate_does_not(rng: np.random.Generator) -> None:
    variant = find("gemm.packed")
    assert variant.default_schedule is not None
    built = build(OP, variant.id, variant.default_schedule(OP, host()), host())
    program = compile_op(OP, threads=1, library=False)
    case = build_cases(OP, rng, QUICK)[0]

    def run(inputs: Sequence[Array], out: Array) -> object:
        return program.run(*inputs, out=out, threads=1)

    run(case.inputs, np.empty((21, 53), np.float32))
    checks = check_safety(run, OP, case, kernel=built.kernel, certificate=built.certificate)
    assert all(check.passed for check in checks), [str(check) for check in checks]
    assert checks[0].name == "certificate"
    edited = replace(built.certificate, facts=built.certificate.facts[1:])
    assert check_certificate(built.kernel, edited).figure == "differs"
    assert not check_certificate(built.kernel, None).passed


def test_a_finding_of_the_emulator_or_no_emulation_fails() -> None:
    class Report:
        def __init__(self, *findings: Finding) -> None:
            self.findings = findings

    finding = Finding(kind="race", place=Place(line=3, primitive="store"))
    assert check_emulation([Report()]).passed  # type: ignore[list-item]
    assert not check_emulation([]).passed
    found = check_emulation([Report(), Report(finding)])  # type: ignore[list-item]
    assert (found.passed, found.figure) == (False, 1)
    assert "race" in found.detail


def busy(us: float) -> Any:
    def run() -> None:
        until = time.perf_counter_ns() + int(us * 1e3)
        while time.perf_counter_ns() < until:
            pass

    return run


def test_slower_than_the_best_library_for_certain_fails_and_within_the_noise_passes() -> None:
    libraries = {"slow": busy(400), "best": busy(200)}
    check, measured = check_latency(busy(300), libraries, runs=40, warmup=2)
    assert not check.passed
    assert check.name == "latency: best / ours"
    assert check.figure == pytest.approx(200 / 300, rel=0.15)
    assert check.interval is not None
    assert check.interval[0] <= float(check.figure) <= check.interval[1]
    assert set(measured) == {"slow", "best", "ours"}
    assert check_latency(busy(100), libraries, runs=40, warmup=2)[0].passed
    assert check_latency(busy(300), libraries, runs=40, warmup=2, least=0.5)[0].passed
    with pytest.raises(InvalidOption, match="libraries"):
        check_latency(busy(1), {})


def test_runs_that_take_too_long_are_fewer_and_the_check_says_so() -> None:
    check, measured = check_latency(busy(2_000), {"library": busy(2_000)}, seconds=0.2, warmup=2)
    assert len(measured["ours"].samples_us) == 49 or 30 <= len(measured["ours"].samples_us) < 60
    assert "200 would take over 0.2 s" in check.detail


def test_without_news_of_its_child_a_fence_says_what_hides_them(rng: np.random.Generator) -> None:
    case = build_cases(OP, rng, QUICK)[0]
    before, opened = signal.signal(signal.SIGCHLD, signal.SIG_IGN), len(os.listdir("/proc/self/fd"))
    try:
        with pytest.raises(RunError, match="SIGCHLD is ignored"):
            check_fences(right, OP, case)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert len(os.listdir("/proc/self/fd")) == opened
    assert {check.figure for check in check_fences(right, OP, case)} == {"clean"}
