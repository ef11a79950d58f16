"""Verify: a kernel through every checker of this machine; what nothing looked at is never said to have passed."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from tracea.cli import main as cli
from tracea.core.dtype import DType
from tracea.core.op import GemmOp, RowKind, RowOp
from tracea.core.tensor_type import StridedLayout, TensorType, static
from tracea.doctor import host
from tracea.emulator import native
from tracea.errors import CompileError, InvalidOption, InvalidSchedule, ResourceExceeded, ToolchainMissing
from tracea.flow import evaluate as evaluating
from tracea.flow import final, library_time
from tracea.flow import verify as verifying
from tracea.flow.compile import decision_for
from tracea.flow.evaluate import Candidate, Request
from tracea.flow.kernel import build, choose_for_gpu
from tracea.flow.text import emit_text
from tracea.flow.tuning import tune
from tracea.flow.verify import EmulatedRun, Verification, reduced, verify_op
from tracea.gates import Check
from tracea.gates.resources import NotChecked
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import find
from tracea.optimizer import Budget
from tracea.semantic.schedule import Schedule
from tracea.targets.gpu import load_gpu
from tracea.targets.target import for_threads

SMALL = {"bm": 32, "bn": 64, "bk": 32, "warps_m": 1, "warps_n": 2, "stages": 3}
OP = GemmOp.of(m=1000, n=1028, k=520, dtype=DType.F16)
SCHEDULE = choose_for_gpu(OP, load_gpu("sm_80"), variant="gemm.mma_cp_async", schedule=SMALL)[1]


def test_a_gpu_kernel_passes_and_says_what_was_not_looked_at() -> None:
    found = verify_op(OP, target="sm_80", variant="gemm.mma_cp_async", schedule=dict(SMALL), seed=3)
    assert found.passed, str(found)
    names = [check.name for check in found.verdict.checks]
    assert names[:2] == ["proofs", "emulator"]
    assert "emulated: correct on wide" in names
    assert any("no GPU took part" in text for text in found.not_checked)
    assert "latency: the emulator has no time" in found.not_checked
    assert "not checked" in str(found)
    assert found.certificate is not None
    assert found.to_dict()["facts"] == len(found.certificate.facts) > 0


def test_without_a_compiler_resources_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = ToolchainMissing(tool="nvrtc", searched=("here",), remedy="pip install 'tracea[cuda]'")
    monkeypatch.setattr(verifying, "judge_binary", lambda *_, **__: NotChecked(subject="x", reason=reason))
    found = verify_op(OP, target="sm_80", variant="gemm.mma_cp_async", schedule=dict(SMALL), seed=3)
    assert not any("registers" in check.name for check in found.verdict.checks)
    assert any(text.startswith("resources: ") and "nvrtc" in text for text in found.not_checked)


def test_without_a_compiler_for_the_emulator_nothing_is_said_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ToolchainMissing(tool="C++ compiler", searched=("PATH",), remedy="pip install 'tracea[zig]'")

    monkeypatch.setattr(verifying, "emulate", refuse)
    found = verify_op(OP, target="sm_80", variant="gemm.mma_cp_async", schedule=dict(SMALL), seed=3)
    assert found.passed, str(found)
    assert not any("emulated" in check.name for check in found.verdict.checks)
    assert [text.split(":")[0] for text in found.not_checked if "C++ compiler" in text] == ["emulator", "float64"]


@pytest.mark.parametrize("what", ["emulator", "emulated"])
def test_a_compiler_that_is_ended_says_nothing_of_the_kernel(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    compile_text = native.compile_text

    def ended(text: str, *, name: str, **more: Any) -> Any:
        if name == what or name.endswith(f".{what}"):
            log = "\ng++: internal compiler error: File size limit exceeded signal terminated program cc1plus\n"
            raise CompileError(command=("g++",), log=log, exit_code=4)
        return compile_text(text, name=name, **more)

    monkeypatch.setattr(native, "compile_text", ended)
    if what == "emulator":
        monkeypatch.setattr(native, "_made", [])
    found = verify_op(OP, target="sm_80", variant="gemm.mma_cp_async", schedule=dict(SMALL), seed=3)
    assert found.passed, str(found)
    assert not any("emulated" in check.name for check in found.verdict.checks)
    told = [text for text in found.not_checked if "could not be compiled (g++: internal compiler error" in text]
    assert [text.partition(":")[0] for text in told] == ["emulator", "float64"]


def test_a_word_for_a_number_of_a_gpus_schedule_is_refused() -> None:
    for value in ("1e3", "64.0"):
        with pytest.raises(InvalidSchedule, match=rf"bm.*{value}.*a whole number.*Remedy: use bm="):
            verify_op(OP, target="sm_80", schedule={"bm": value})


def test_a_product_over_nothing_needs_no_wide_copies() -> None:
    op = GemmOp.of(m=64, n=64, k=0, dtype=DType.BF16, transpose_b=True)
    assert verify_op(op, target="sm_120a", variant="gemm.mma_cp_async", seed=3).passed


def test_a_broken_text_fails() -> None:
    target = load_gpu("sm_80")
    built = build(OP, "gemm.mma_cp_async", SCHEDULE, target)
    waits = [line for line in built.source.text.splitlines() if "cp_async_wait<" in line]
    assert waits
    text = built.source.text.replace(waits[-1], "")
    assert text != built.source.text
    broken = replace(built, source=replace(built.source, text=text))
    checks = verifying._emulated(OP, broken, (0, 2), 5).checks
    assert not checks[0].passed
    assert checks[0].figure >= 1


def test_reduced_keeps_text_and_remainders() -> None:
    target, schedule = load_gpu("sm_80"), SCHEDULE
    small = reduced(OP, schedule)
    assert (small.m % 16, small.n % 16, small.k % 16) == (1000 % 16, 1028 % 16, 520 % 16)
    assert small.m < 100
    assert small.n < 100
    large = build(OP, "gemm.mma_cp_async", schedule, target).source
    own = build(small, "gemm.mma_cp_async", schedule, target).source
    body = own.text.replace(small.key, OP.key).replace(own.name, large.name)
    assert body.partition("\n")[2] == large.text.partition("\n")[2]


@pytest.mark.parametrize("size", [1000, 64])  # two extents may be one number
def test_reduced_takes_extents_by_place(size: int) -> None:
    op = GemmOp.of(m=size, n=size, k=size, dtype=DType.F16, batch=(5,), transpose_b=True)
    small = reduced(op, SCHEDULE)
    assert small.a.static_shape == (2, small.m, small.k)
    assert small.b.static_shape == (2, small.k, small.n)
    assert small.infer().static_shape == (2, small.m, small.n)


def test_reduced_keeps_gaps_and_their_remainder() -> None:
    a = TensorType((1000, 520), DType.F16, StridedLayout((523, 1)))
    wide = TensorType((520, 1028), DType.F16, StridedLayout((1028 + 64, 1)))
    op = GemmOp(m=1000, n=1028, k=520, a=a, b=wide)
    small = reduced(op, SCHEDULE)
    assert small.a.strides[0] % 16 == 523 % 16
    assert small.a.strides[0] > small.k
    assert small.b.strides[0] % 16 == (1028 + 64) % 16
    assert small.b.strides[0] > small.n


@pytest.mark.parametrize(
    ("sizes", "batch", "sharing"),
    [
        ((64, 64, 4096), (), {"split_k": 16}),
        ((64, 64, 4100), (3,), {"split_k": 7}),
        ((512, 512, 2048), (), {"stream_k": 108}),
    ],
)
def test_reduced_keeps_what_the_schedules_workers_need(
    sizes: tuple[int, int, int], batch: tuple[int, ...], sharing: dict[str, int | str]
) -> None:
    m, n, k = sizes
    op, target = GemmOp.of(m=m, n=n, k=k, batch=batch, dtype=DType.F16), load_gpu("sm_80")
    values: dict[str, int | str] = {**SMALL, "split_k": 1, "stream_k": 0, **sharing}
    variant, schedule = choose_for_gpu(op, target, variant="gemm.mma_cp_async", schedule=values)
    small = reduced(op, schedule)
    assert static(small.k) < k
    arguments(build(op, variant, schedule, target).kernel, small)


def test_a_default_schedule_that_splits_k_is_verified() -> None:
    op = GemmOp.of(m=64, n=64, k=4096, dtype=DType.F16)
    assert choose_for_gpu(op, load_gpu("sm_80"))[1].integer("split_k") > 1
    found = verify_op(op, target="sm_80", seed=3)
    assert found.passed, str(found)
    assert "emulated: correct on wide" in [check.name for check in found.verdict.checks]


def test_what_cannot_be_cut_down_is_not_checked() -> None:
    op = GemmOp.of(m=4096, n=4096, k=64, dtype=DType.F16)  # 2 steps a tile: 108 workers need 54 tiles
    schedule: dict[str, int | str] = {**SMALL, "bm": 128, "bn": 128, "warps_m": 2, "split_k": 1, "stream_k": 108}
    found = verify_op(op, target="sm_80", variant="gemm.mma_cp_async", schedule=schedule, seed=3)
    assert found.passed, str(found)
    assert [text.partition(":")[0] for text in found.not_checked][:2] == ["emulator", "float64"]
    assert "is too small for the schedule" in found.not_checked[0]


def test_a_sum_whose_length_is_no_multiple_is_cut_once() -> None:
    op = GemmOp.of(m=1000, n=1000, k=4093, dtype=DType.F16)  # tiles of which two steps are more than a second's work
    large = {**SMALL, "bm": 256, "bn": 128, "bk": 64}
    assert static(reduced(op, Schedule(large)).k) % 16 == 4093 % 16


def test_an_op_that_its_kernel_refuses_is_neither_verified_nor_printed() -> None:
    op = GemmOp.of(m=2**31, n=16, k=16, dtype=DType.F16)
    for ask in (verify_op, emit_text):
        with pytest.raises(InvalidOption, match="m = 2147483648, expected m of 2147479552 at most"):
            ask(op, target="sm_80")
    few = GemmOp.of(m=64, n=64, k=64, dtype=DType.F16)
    schedule: dict[str, int | str] = {**SMALL, "split_k": 16, "stream_k": 0}
    with pytest.raises(InvalidSchedule, match=r"sizes of the op under this schedule.*Remedy: use split_k=2"):
        emit_text(few, target="sm_80", variant="gemm.mma_cp_async", schedule=schedule)
    assert "split_k=2" in emit_text(
        few, target="sm_80", variant="gemm.mma_cp_async", schedule={**schedule, "split_k": 2}
    )


def test_an_emulated_run_computes() -> None:
    schedule, target = SCHEDULE, load_gpu("sm_80")
    small = reduced(OP, schedule)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-3, 4, operand.static_shape).astype(np.float16) for operand in small.operands]
    out = np.full(small.infer().static_shape, np.nan, np.float16)
    run = EmulatedRun(small, build(OP, "gemm.mma_cp_async", schedule, target), (0, 2))
    run(inputs, out)
    assert np.array_equal(out, (inputs[0].astype(np.float64) @ inputs[1].astype(np.float64)).astype(np.float16))
    assert run.reports[0].seeds == (0, 2)


def test_a_kernel_of_this_machine_is_judged_by_all_gates() -> None:
    op = GemmOp.of(m=37, n=53, k=40, dtype=DType.F32)
    found = verify_op(op, variant="gemm.packed", seed=1)
    assert found.passed, str(found)
    assert found.certificate is not None
    assert [text.partition(":")[0] for text in found.not_checked] == ["latency"]
    assert "was not measured here" in found.not_checked[0]
    assert {
        "proofs",
        "certificate",
        "same bits every time",
        "right every time",
        "nothing beyond the end of an array",
        "nothing beyond the start of an array",
    } <= {check.name for check in found.verdict.checks}


@pytest.mark.parametrize(("beyond", "side"), [("end", 1), ("start", -1)])
def test_a_read_beyond_an_array_fails_though_nothing_is_wrong(
    monkeypatch: pytest.MonkeyPatch, beyond: str, side: int
) -> None:
    run = evaluating._Bench._run

    def reads_on(self: Any, compiled: Any, inputs: Any, out: np.ndarray) -> None:
        run(self, compiled, inputs, out)
        ctypes.string_at(inputs[0].ctypes.data + (inputs[0].nbytes if side > 0 else -1), 1)

    monkeypatch.setattr(evaluating._Bench, "_run", reads_on)
    found = verify_op(GemmOp.of(m=16, n=16, k=16), variant="gemm.packed", seed=1)
    assert [(check.name, check.figure) for check in found.verdict.failures] == [
        (f"nothing beyond the {beyond} of an array", "SIGSEGV")
    ]


def latency_of(found: Verification) -> Check:
    (check,) = [check for check in found.verdict.checks if check.name.startswith("latency")]
    return check


@pytest.mark.costly
def test_latency_is_judged_where_it_was_measured_and_on_demand() -> None:
    op = GemmOp.of(m=40, n=48, k=56)
    asked = verify_op(op, variant="gemm.packed", seed=1, latency=True)
    check = latency_of(asked)
    assert asked.not_checked == ()
    assert check.name == "latency: library.gemm / ours"
    assert check.limit == 1.0
    assert isinstance(check.figure, float)
    assert 0.01 < check.figure < 100
    assert "interleaved runs after 50 warm-up runs" in check.detail
    tune(op, budget=Budget(trials=1), variant="gemm.packed")
    if find(decision_for(op, for_threads(host(), 1), threads=1).variant).is_library:  # it won the final: nothing to do
        assert "the library's own call" in verify_op(op, seed=1).not_checked[0]
    else:
        assert latency_of(verify_op(op, seed=1)).limit == 1.0
    assert verify_op(op, seed=1, latency=False).not_checked == ("latency: left out by the caller",)


def test_slower_than_the_library_for_certain_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_time, "_AGAINST_LIBRARIES", "tests.flow.planted:slow_against_libraries")
    found = verify_op(GemmOp.of(m=40, n=48, k=56), variant="gemm.packed", seed=1, latency=True)
    assert [check.name for check in found.verdict.failures] == ["latency: library.gemm / ours"]
    assert latency_of(found).figure < 0.9


def test_without_a_library_latency_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(final, "LIBRARY_MODULES", ("no_such_library_of_torch",))
    found = verify_op(GemmOp.of(m=40, n=48, k=56), variant="gemm.packed", seed=1, latency=True)
    assert found.passed
    assert found.not_checked[0].startswith("latency: no library's call of gemm_40x48x56")
    rows = RowOp(kind=RowKind.SOFTMAX, x=(TensorType((6, 40), DType.F32),))
    assert "latency: no library's call" in verify_op(rows, seed=1, latency=True).not_checked[0]


def test_what_is_wrong_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluating._Bench, "_run", lambda self, compiled, inputs, out: out.fill(0))
    monkeypatch.setattr(verifying, "time_against", lambda *_, **__: pytest.fail("a wrong kernel was about to be timed"))
    found = verify_op(GemmOp.of(m=16, n=16, k=16), variant="gemm.packed", seed=1, latency=True)
    assert not found.passed
    assert found.not_checked == ("latency: what is wrong is not timed",)


def test_a_library_that_cannot_be_loaded_does_not_keep_ours_from_the_final() -> None:
    op = GemmOp.of(m=40, n=48, k=56)
    request = Request(
        op=op.to_dict(),
        constants=(),
        threads=1,
        seed=1,
        candidates=(Candidate(variant="gemm.packed"), Candidate(variant="library.gemm")),
        modules=("no_such_library_of_torch",),
    )
    ours, library = evaluating.rank(msgspec.to_builtins(request))
    assert (ours["kind"], library["kind"]) == ("ok", "crashed")
    assert "no_such_library_of_torch" in library["detail"]


def test_the_library_competes_in_a_process_that_has_not_loaded_it() -> None:
    text = (
        "import sys\nfrom tracea.core.op import GemmOp\nfrom tracea.doctor import host\n"
        "from tracea.flow.final import rivals\nfound = rivals(GemmOp.of(m=8, n=8, k=8), host())\n"
        "print(*found, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["library.gemm", "False"]


@pytest.mark.costly
def test_the_verb_has_an_exit_code_json_and_junit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["verify", "gemm", "-m", "24", "-n", "24", "-k", "24", "--variant", "gemm.packed", "--seed", "1"]
    out = tmp_path / "verdict.xml"
    assert cli.main([*words, "--json", "--junit", str(out)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["passed"], told["seed"], len(told["not_checked"])) == (True, 1, 1)
    root = ElementTree.parse(out).getroot()
    assert (root.get("failures"), root.get("tests")) == ("0", str(len(told["checks"]) + 1))
    (skipped,) = root.iter("skipped")
    assert "tracea tune, or --latency" in str(skipped.get("message"))
    monkeypatch.setattr(library_time, "_AGAINST_LIBRARIES", "tests.flow.planted:slow_against_libraries")
    assert cli.main([*words, "--latency", "--junit", str(out)]) == cli.FAILED
    assert "FAIL latency: library.gemm / ours" in capsys.readouterr().out
    assert ElementTree.parse(out).getroot().get("failures") == "1"
    assert cli.main([*words, "--no-latency"]) == 0
    assert "left out by the caller" in capsys.readouterr().out
    assert cli.main([*words[:-4], "--dtype", "f16", "--target", "sm_80", "--latency"]) == cli.BAD_USAGE


def test_other_processors_and_unknown_gpus_are_refused() -> None:
    with pytest.raises(InvalidOption, match="sm_90a, the nearest"):
        verify_op(OP, target="sm_91")
    with pytest.raises(InvalidOption, match="tracea emit"):
        verify_op(OP, target="neon")


def test_a_library_is_not_chosen_for_a_text() -> None:
    op = GemmOp.of(m=64, n=64, k=64, dtype=DType.F16)
    chosen, _ = choose_for_gpu(op, load_gpu("sm_75"))
    assert not find(chosen).is_library


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--seed", "-1", "seed: got -1, expected a whole number from 0 on"),
        ("--threads", "100000", "threads: got 100000, expected a whole number from 1 to 1024"),
        ("--threads", "0", "threads: got 0, expected a whole number from 1 to 1024"),
    ],
)
@pytest.mark.parametrize("target", ["host", "sm_80"])
def test_a_seed_or_thread_count_that_is_none_is_bad_usage_and_no_verdict(
    capsys: pytest.CaptureFixture[str], target: str, flag: str, value: str, said: str
) -> None:
    command = ["verify", "gemm", "-m", "24", "-n", "32", "-k", "40", "--target", target, flag, value]
    assert cli.main(command) == cli.BAD_USAGE
    shown = capsys.readouterr()
    assert said in shown.err
    assert not shown.out


def test_a_problem_above_the_memory_is_refused_before_anything_is_allocated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = 4 * (64 * 2 + 2 * 32 + 64 * 32) + 8 * 64 * 32
    monkeypatch.setattr("tracea.flow.room._memory_bytes", lambda: needed - 1)
    assert cli.main(["verify", "gemm", "-m", "64", "-n", "32", "-k", "2"]) == cli.BAD_USAGE
    shown = capsys.readouterr()
    assert f"got {needed:_} bytes, limit {needed - 1:_} bytes" in shown.err
    assert not shown.out
    huge = GemmOp.of(m=10**7, n=10**7, k=1, dtype=DType.F32)
    monkeypatch.undo()
    with pytest.raises(ResourceExceeded, match="verifying gemm_10000000x10000000x1"):
        verify_op(huge)
