"""Precision fallback: bf16, f16, f32 by what the target multiplies, guarded by the values' magnitudes."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tracea import targets
from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.core.reference import error_bound, evaluate
from tracea.doctor import decide, host, plan_ops
from tracea.doctor.precision import Magnitudes, choose_precision, with_factors
from tracea.errors import InvalidOption, InvalidShape, VerdictFailed
from tracea.flow.compile import compile_graph, graph_of
from tracea.kernels.registry import CUDA_VARIANTS, VARIANTS, find
from tracea.targets.target import for_threads

TURING, AMPERE, CPU = targets.load_gpu("sm_75"), targets.load_gpu("sm_80"), targets.load("avx512")
BF16 = GemmOp.of(m=256, n=256, k=256, dtype=DType.BF16)
NEAR = Magnitudes(least=2.0**-10, most=100.0)
BFLOAT16 = DType.BF16.numpy


def test_hardware_that_multiplies_the_type_uses_it() -> None:
    decision = decide(BF16, AMPERE, fallback=True)
    assert decision.precision is not None
    assert (decision.precision.used, decision.precision.casts, decision.op) == (DType.BF16, (), BF16.key)
    assert not decision.precision.is_fallback
    assert "precision" not in decision.explain()


def test_without_bounds_f16_is_passed_over_for_its_range_and_f32_is_used() -> None:
    decision = decide(BF16, TURING, fallback=True)
    assert decision.precision is not None
    assert [(step.dtype, step.taken) for step in decision.precision.steps] == [
        (DType.BF16, False),
        (DType.F16, False),
        (DType.F32, True),
    ]
    native, narrow, _ = (step.because for step in decision.precision.steps)
    assert "sm_75 does not multiply bf16" in native
    assert narrow == "overflow: |a| reaches 3.39e+38, as any bf16 may, and nothing bounds it; f16 ends at 65504"
    assert (decision.variant, decision.precision.casts, decision.op) == ("gemm.simt", (), BF16.key)
    text = decision.explain()
    assert all(f"precision: {dtype} is" in text for dtype in ("bf16", "f16", "f32"))
    assert json.loads(json.dumps(decision.to_dict()))["precision"]["used"] == "f32"


def test_magnitudes_that_fit_prove_f16_exact_and_it_is_used_on_tensor_cores() -> None:
    decision = decide(BF16, TURING, fallback=True, magnitudes=[NEAR, NEAR])
    assert decision.precision is not None
    assert (decision.precision.used, decision.precision.casts) == (DType.F16, (0, 1))
    assert decision.variant == "gemm.mma_sync"
    assert decision.op == with_factors(BF16, DType.F16).key
    assert with_factors(BF16, DType.F16).infer() == BF16.infer()
    assert "0.0009766 <= |a| <= 100" in decision.precision.steps[-1].because
    assert "results stay within 2.56e+06" in decision.precision.steps[-1].because


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (NEAR, None, "overflow: |b| reaches 3.39e+38"),
        (Magnitudes(least=1.0, most=65_536.0), NEAR, "overflow: |a| reaches 6.554e+04; f16 ends at 65504"),
        (NEAR, Magnitudes(least=2.0**-18, most=1.0), "underflow: |b| goes down to 3.815e-06; f16 is exact from 7.629"),
    ],
)
def test_a_bound_that_does_not_fit_goes_on_to_f32_with_its_numbers(
    a: Magnitudes, b: Magnitudes | None, reason: str
) -> None:
    precision, op = choose_precision(BF16, TURING, variants=CUDA_VARIANTS, magnitudes=[a, b])
    assert precision is not None
    assert (precision.used, op) == (DType.F32, BF16)
    assert precision.steps[1].because.startswith(reason)


def test_the_limits_are_the_exact_ones() -> None:
    every = np.arange(1, 0x7F80, dtype=np.uint16).view(BFLOAT16)  # each positive finite bf16
    with np.errstate(over="ignore"):
        exact = every.astype(np.float16).astype(np.float64) == every.astype(np.float64)
    precision, _ = choose_precision(BF16, TURING, variants=CUDA_VARIANTS, magnitudes=[NEAR, NEAR])
    assert precision is not None
    inside = (every.astype(np.float64) >= precision.least) & (every.astype(np.float64) <= precision.most)
    assert exact[inside].all()
    # And no wider ones: the next bf16 above is infinite in f16, and below the least one some lose bits.
    assert not exact[every.astype(np.float64) > precision.most].any()
    below = every[every.astype(np.float64) < precision.least][-128:]
    assert not (below.astype(np.float16).astype(np.float64) == below.astype(np.float64)).all()


def test_values_are_checked_before_they_are_converted() -> None:
    precision, _ = choose_precision(BF16, TURING, variants=CUDA_VARIANTS, magnitudes=[NEAR, NEAR])
    assert precision is not None
    good = np.array([[0.0, -65_280.0], [2.0**-17, 1.0]]).astype(BFLOAT16)
    precision.check(good, good)
    for planted, limit in ((65_536.0, 65_504.0), (2.0**-18, 2.0**-17), (math.inf, 65_504.0), (math.nan, 65_504.0)):
        bad = good.copy()
        bad[1, 1] = planted
        with pytest.raises(VerdictFailed, match="range of f16 in place of bf16") as caught:
            precision.check(good, bad)
        assert caught.value.limit == limit
        assert "operand b" in str(caught.value)
    widened, _ = choose_precision(BF16, TURING, variants=CUDA_VARIANTS)
    assert widened is not None
    widened.check(np.array([3e38]).astype(BFLOAT16))  # f32 holds it


def test_magnitudes_of_arrays() -> None:
    assert Magnitudes.of(np.array([0.0, -3.0, 0.5])) == Magnitudes(least=0.5, most=3.0)
    assert Magnitudes.of(np.zeros(3)).most == 1.0
    assert Magnitudes.of(np.array([1.0, np.nan])).most == math.inf
    with pytest.raises(InvalidOption, match="0 < least <= most"):
        Magnitudes(least=2.0, most=1.0)
    with pytest.raises(InvalidShape, match="one for each operand"):
        choose_precision(BF16, TURING, variants=CUDA_VARIANTS, magnitudes=[NEAR] * 3)


def test_ops_without_narrow_factors_have_no_ladder() -> None:
    for dtype in (DType.F32, DType.F64):
        assert decide(GemmOp.of(m=8, n=8, k=8, dtype=dtype), CPU, fallback=True).precision is None


def test_a_processor_whose_kernels_widen_says_so() -> None:
    """Of one row the kernel on vectors comes first, which widens; of more that on matrix tiles, which multiply bf16."""
    own = [each for each in VARIANTS if not each.is_library]
    one_row = GemmOp.of(m=1, n=256, k=256, dtype=DType.BF16)
    decisions = plan_ops({"y": BF16, "row": one_row}, targets.load("amx"), variants=own)
    widened, stored = decisions["row"].precision, decisions["y"].precision
    assert widened is not None
    assert widened.used is DType.F32
    assert "amx multiplies bf16 (amx_bf16, avx512_bf16), but no kernel here" in widened.steps[0].because
    assert "kernels widen each element as they read it" in widened.steps[-1].because
    assert stored is not None
    assert stored.used is DType.BF16


@pytest.mark.parametrize("used", [DType.F16, DType.F32])
def test_the_fallback_runs_and_computes_the_same_products(used: DType, rng: np.random.Generator) -> None:
    """On the processor, whose registry is cut to variants that need the factors converted."""
    op = GemmOp.of(m=24, n=32, k=40, dtype=DType.BF16, bias=True, activation="relu")
    target = for_threads(host(), 1)
    narrow = decide(with_factors(op, used), target, variants=[find("gemm.packed")])
    if used is DType.F32:
        decision = decide(op, target, variants=[find("gemm.direct")], fallback=True)
    else:
        precision, _ = choose_precision(op, TURING, variants=CUDA_VARIANTS, magnitudes=[NEAR, NEAR])
        decision = type(narrow)(
            op=narrow.op,
            variant=narrow.variant,
            schedule=narrow.schedule,
            reason="a fallback",
            candidates=narrow.candidates,
            rejections=(),
            precision=precision,
        )
    assert decision.precision is not None
    assert (decision.precision.used, decision.precision.casts) == (used, (0, 1))
    program = compile_graph(graph_of(op), threads=1, decisions={"y": decision}).program
    assert len(program.calls) == 3  # two conversions, the product with its epilogue
    magnitude = 2.0 ** rng.uniform(-10, 6, (24, 40)) if used is DType.F16 else 2.0 ** rng.uniform(-60, 60, (24, 40))
    a = (magnitude * rng.choice([-1.0, 1.0], magnitude.shape)).astype(BFLOAT16)
    b, bias = (rng.standard_normal(shape).astype(BFLOAT16) for shape in ((40, 32), (32,)))
    b = np.where(np.abs(b.astype(np.float64)) < 2.0**-10, np.ones_like(b), b)
    decision.precision.check(a, b)
    out = np.empty((24, 32), BFLOAT16)
    program.run(a, b, bias, out=out, threads=1)
    error = np.abs(out.astype(np.float64) - evaluate(op, [a, b, bias]))
    assert (error <= error_bound(op, [a, b, bias])).all()


def test_what_the_guard_refuses_would_have_been_wrong() -> None:
    """Without the guard, f16 turns one bf16 of 1e5 into infinity; the ladder's f32 keeps it."""
    op = GemmOp.of(m=8, n=8, k=8, dtype=DType.BF16)
    a, b = np.full((8, 8), 1e5).astype(BFLOAT16), np.full((8, 8), 0.5).astype(BFLOAT16)
    narrow = with_factors(op, DType.F16)
    with np.errstate(over="ignore"):
        overflowed = evaluate(narrow, [a.astype(np.float16), b.astype(np.float16)])
    assert np.isinf(overflowed).all()
    bounds = [Magnitudes.of(a), Magnitudes.of(b)]
    precision, computed = choose_precision(op, TURING, variants=CUDA_VARIANTS, magnitudes=bounds)
    assert precision is not None
    assert (precision.used, computed) == (DType.F32, op)
    assert "overflow: |a| reaches 9.984e+04" in precision.steps[1].because
    assert np.isfinite(evaluate(computed, [a, b])).all()
