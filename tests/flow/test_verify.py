"""Verify: a kernel through every checker of this machine; what nothing looked at is never said to have passed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidOption, ToolchainMissing
from tracea.flow import verify as verifying
from tracea.flow.kernel import build, choose_for_gpu
from tracea.flow.verify import EmulatedRun, reduced, verify_op
from tracea.gates.resources import NotChecked
from tracea.kernels.registry import find
from tracea.semantic.schedule import Schedule
from tracea.targets.gpu import load_gpu

SMALL = {"bm": 32, "bn": 64, "bk": 32, "warps_m": 1, "warps_n": 2, "stages": 3}
OP = GemmOp.of(m=1000, n=1028, k=520, dtype=DType.F16)


def small_schedule() -> Schedule:
    return choose_for_gpu(OP, load_gpu("sm_80"), variant="gemm.mma_cp_async", schedule=SMALL)[1]


def test_a_gpu_kernel_passes_and_says_what_was_not_looked_at() -> None:
    found = verify_op(OP, target="sm_80", variant="gemm.mma_cp_async", schedule=dict(SMALL), seed=3)
    assert found.passed, str(found)
    names = [check.name for check in found.verdict.checks]
    assert names[:2] == ["proofs", "emulator"]
    assert "emulated: correct on wide" in names
    assert any("no GPU took part" in text for text in found.not_checked)
    assert "not checked" in str(found)
    assert found.certificate is not None
    assert found.to_dict()["facts"] == len(found.certificate.facts) > 0


def test_without_a_compiler_resources_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = ToolchainMissing(tool="nvrtc", searched=("here",), remedy="pip install 'tracea[cuda]'")
    monkeypatch.setattr(verifying, "judge_binary", lambda *_, **__: NotChecked(subject="x", reason=reason))
    found = verify_op(OP, target="sm_80", variant="gemm.mma_cp_async", schedule=dict(SMALL), seed=3)
    assert not any("registers" in check.name for check in found.verdict.checks)
    assert any(text.startswith("resources: ") and "nvrtc" in text for text in found.not_checked)


def test_a_broken_text_fails() -> None:
    target = load_gpu("sm_80")
    built = build(OP, "gemm.mma_cp_async", small_schedule(), target)
    waits = [line for line in built.source.text.splitlines() if "cp_async_wait<" in line]
    assert waits
    text = built.source.text.replace(waits[-1], "")
    assert text != built.source.text
    broken = replace(built, source=replace(built.source, text=text))
    checks = verifying._emulated(OP, broken, (0, 2), 5)
    assert not checks[0].passed
    assert checks[0].figure >= 1


def test_reduced_keeps_text_and_remainders() -> None:
    target, schedule = load_gpu("sm_80"), small_schedule()
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
    small = reduced(op, small_schedule())
    assert small.a.static_shape == (2, small.m, small.k)
    assert small.b.static_shape == (2, small.k, small.n)
    assert small.infer().static_shape == (2, small.m, small.n)


def test_reduced_keeps_gaps_and_their_remainder() -> None:
    a = TensorType((1000, 520), DType.F16, StridedLayout((523, 1)))
    wide = TensorType((520, 1028), DType.F16, StridedLayout((1028 + 64, 1)))
    op = GemmOp(m=1000, n=1028, k=520, a=a, b=wide)
    small = reduced(op, small_schedule())
    assert small.a.strides[0] % 16 == 523 % 16
    assert small.a.strides[0] > small.k
    assert small.b.strides[0] % 16 == (1028 + 64) % 16
    assert small.b.strides[0] > small.n


def test_an_emulated_run_computes() -> None:
    schedule, target = small_schedule(), load_gpu("sm_80")
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
    assert found.not_checked == ()
    assert {"proofs", "same bits every time", "right every time"} <= {check.name for check in found.verdict.checks}


def test_other_processors_and_unknown_gpus_are_refused() -> None:
    with pytest.raises(InvalidOption, match="sm_90a, the nearest"):
        verify_op(OP, target="sm_91")
    with pytest.raises(InvalidOption, match="tracea emit"):
        verify_op(OP, target="neon")


def test_a_library_is_not_chosen_for_a_text() -> None:
    op = GemmOp.of(m=64, n=64, k=64, dtype=DType.F16)
    chosen, _ = choose_for_gpu(op, load_gpu("sm_75"))
    assert not find(chosen).is_library
