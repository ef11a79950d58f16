"""Eight kernels that are wrong in ways seen in practice, and right ones: the gates tell them apart, then time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.core.op import Epilogue, GemmOp, RowKind, RowOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.gates import QUICK, Run, build_cases, judge, time_verified

M, N, K = 21, 53, 100
OP = GemmOp.of(m=M, n=N, k=K)

Array = np.ndarray[Any, Any]


def right(inputs: Sequence[Array], out: Array) -> None:
    np.matmul(inputs[0], inputs[1], out=out)


def zero_output() -> Run:
    def run(inputs: Sequence[Array], out: Array) -> None:
        out[...] = 0

    return run


def stale_buffer() -> Run:
    """Computes into a buffer of its own and hands out what the call before left there."""
    buffer = np.zeros((M, N), np.float32)

    def run(inputs: Sequence[Array], out: Array) -> None:
        out[...] = buffer
        np.matmul(inputs[0], inputs[1], out=buffer)

    return run


def wrong_tail() -> Run:
    """Handles whole vectors of 16 columns only."""

    def run(inputs: Sequence[Array], out: Array) -> None:
        whole = N // 16 * 16
        out[:, :whole] = inputs[0] @ inputs[1][:, :whole]

    return run


def off_by_one_in_k() -> Run:
    def run(inputs: Sequence[Array], out: Array) -> None:
        np.matmul(inputs[0][:, :-1], inputs[1][:-1], out=out)

    return run


def missing_mask() -> Run:
    """Stores whole vectors, so the last row's tail lands behind the output. Every element of the output is right."""

    def run(inputs: Sequence[Array], out: Array) -> None:
        np.matmul(inputs[0], inputs[1], out=out)
        _array_at(out.ctypes.data + out.nbytes, 64 - N)[...] = 0

    return run


def _array_at(address: int, elements: int) -> Array:
    return np.ctypeslib.as_array((ctypes.c_float * elements).from_address(address))


def f16_overflow() -> Run:
    def run(inputs: Sequence[Array], out: Array) -> None:
        with np.errstate(all="ignore"):
            a, b = (x.astype(np.float16) for x in inputs)
            total = np.zeros((M, N), np.float16)
            for k in range(K):
                total += np.outer(a[:, k], b[k])
            out[...] = total

    return run


def nondeterministic_sum() -> Run:
    """Sums in another order each time: within the bound, and never twice the same bits."""
    rng = np.random.default_rng()

    def run(inputs: Sequence[Array], out: Array) -> None:
        order = rng.permutation(K)
        with np.errstate(invalid="ignore"):
            total = np.zeros((M, N), np.float32)
            for k in order:
                total += np.outer(inputs[0][:, k], inputs[1][k])
        out[...] = total

    return run


def cached_by_shape() -> Run:
    results: dict[tuple[tuple[int, ...], ...], Array] = {}

    def run(inputs: Sequence[Array], out: Array) -> None:
        key = tuple(x.shape for x in inputs)
        if key not in results:
            results[key] = inputs[0] @ inputs[1]
        out[...] = results[key]

    return run


PLANTED: dict[str, tuple[Callable[[], Run], str]] = {
    "zero output": (zero_output, "correct on normal"),
    "stale buffer": (stale_buffer, "correct on normal"),
    "wrong tail": (wrong_tail, "every output written"),
    "off by one in K": (off_by_one_in_k, "correct on edges"),
    "missing mask": (missing_mask, "nothing written beside the output"),
    "f16 overflow": (f16_overflow, "correct on large"),
    "nondeterministic sum": (nondeterministic_sum, "same bits every time"),
    "cached by shape": (cached_by_shape, "correct on integer"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_kernel_is_rejected_by_the_check_that_is_meant_for_it(name: str, seed: int) -> None:
    make, check = PLANTED[name]
    verdict = judge(make(), OP, subject=name, seed=seed)
    assert not verdict.passed
    assert check in [failure.name for failure in verdict.failures], str(verdict)


@pytest.mark.parametrize("name", PLANTED)
def test_a_searchs_quick_judgement_rejects_every_planted_kernel_too(name: str, seed: int) -> None:
    make, _ = PLANTED[name]
    assert not judge(make(), OP, seed=seed, distributions=QUICK, hashes=2, runs=2).passed


def test_no_planted_kernel_is_timed_and_the_right_one_is(seed: int) -> None:
    calls = dict.fromkeys(PLANTED, 0)

    def counted(name: str, run: Run) -> Run:
        def counting(inputs: Sequence[Array], out: Array) -> object:
            calls[name] += 1
            return run(inputs, out)

        return counting

    candidates: dict[str, Run] = {name: counted(name, make()) for name, (make, _) in PLANTED.items()}
    result = time_verified({**candidates, "right": right}, OP, seed=seed, pairs=3, batch_us=50.0, warmup_us=50.0)
    rejected = {name for name, verdict in result.verdicts.items() if not verdict.passed}
    assert rejected == set(PLANTED)
    assert set(result.measurements) == {"right"}
    # Two runs a case for correctness; only the nondeterministic one, correct each time, is run for the other gates.
    twice = 2 * len(build_cases(OP, np.random.default_rng(seed)))
    assert {name for name, count in calls.items() if count > twice} == {"nondeterministic sum"}


def test_nothing_is_timed_when_nothing_is_right(seed: int) -> None:
    result = time_verified({"zeros": zero_output()}, OP, seed=seed)
    assert not result.measurements


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.F16, DType.BF16])
def test_right_products_of_random_shapes_in_other_orders_of_summation_pass(
    dtype: DType, rng: np.random.Generator
) -> None:
    compute = np.float64 if dtype is DType.F64 else np.float32
    activations = [None, "relu", "gelu", "silu", "gelu_tanh"]
    for index in range(13):  # 52 over the four types
        m, n, k = (int(x) for x in rng.integers(1, 180, 3))
        op = GemmOp.of(
            m=m,
            n=n,
            k=k,
            dtype=dtype,
            transpose_b=bool(index & 1),
            bias=bool(index & 2),
            residual=bool(index & 4),
            activation=activations[index % 5],
        )

        def run(inputs: Sequence[Array], out: Array, op: GemmOp = op, cut: int = int(rng.integers(0, k + 1))) -> None:
            a, b, *extras = (x.astype(compute) for x in inputs)
            with np.errstate(all="ignore"):
                total = a[:, cut:] @ b[cut:] + a[:, :cut] @ b[:cut]
                out[...] = op.epilogue.expr.evaluate([total, *extras]).astype(out.dtype)

        verdict = judge(run, op, seed=int(rng.integers(2**32)), runs=2)
        assert verdict.passed, str(verdict)


def test_a_right_softmax_and_layer_norm_pass_and_a_naive_softmax_does_not(rng: np.random.Generator) -> None:
    x = TensorType((13, 100), DType.F32)
    softmax = RowOp(kind=RowKind.SOFTMAX, x=(x,))

    def stable(inputs: Sequence[Array], out: Array) -> None:
        with np.errstate(all="ignore"):
            e = np.exp(inputs[0] - inputs[0].max(axis=-1, keepdims=True))
            out[...] = e / e.sum(axis=-1, keepdims=True)

    def naive(inputs: Sequence[Array], out: Array) -> None:
        with np.errstate(all="ignore"):
            e = np.exp(inputs[0] * np.float32(2)) ** np.float32(0.5)  # overflows where |x| > 44
            out[...] = e / e.sum(axis=-1, keepdims=True)

    assert judge(stable, softmax, seed=int(rng.integers(2**32))).passed
    verdict = judge(naive, softmax, seed=int(rng.integers(2**32)))
    assert "correct on large" in [failure.name for failure in verdict.failures]

    norm = RowOp(kind=RowKind.LAYER_NORM, x=(x,), eps=1e-5, epilogue=Epilogue.identity())

    def layer_norm(inputs: Sequence[Array], out: Array) -> None:
        with np.errstate(all="ignore"):
            centred = inputs[0] - inputs[0].mean(axis=-1, keepdims=True)
            out[...] = centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(1e-5))

    verdict = judge(layer_norm, norm, seed=int(rng.integers(2**32)))
    assert verdict.passed, str(verdict)


def test_strided_and_transposed_operands_are_laid_out_as_the_op_says(seed: int) -> None:
    op = GemmOp(
        m=5,
        n=7,
        k=9,
        a=TensorType((5, 9), DType.F32, StridedLayout((1, 6))),
        b=TensorType((9, 7), DType.F32, StridedLayout((-8, 1))),
        out=TensorType((5, 7), DType.F32, StridedLayout((11, 1))),
    )
    seen: set[tuple[tuple[int, ...], ...]] = set()

    def run(inputs: Sequence[Array], out: Array) -> None:
        seen.add((inputs[0].strides, inputs[1].strides, out.strides))
        out[...] = inputs[0] @ inputs[1]

    verdict = judge(run, op, seed=seed)
    assert verdict.passed, str(verdict)
    assert seen == {((4, 24), (-32, 4), (44, 4))}


def test_a_write_between_the_rows_of_a_strided_output_is_noticed(seed: int) -> None:
    op = GemmOp(
        m=5,
        n=7,
        k=9,
        a=TensorType((5, 9), DType.F32),
        b=TensorType((9, 7), DType.F32),
        out=TensorType((5, 7), DType.F32, StridedLayout((8, 1))),
    )

    def run(inputs: Sequence[Array], out: Array) -> None:
        out[...] = inputs[0] @ inputs[1]
        np.lib.stride_tricks.as_strided(out, (4, 8), out.strides)[:, 7] = 0

    assert [c.name for c in judge(run, op, seed=seed).failures] == ["nothing written beside the output"]


def test_a_kernel_that_changes_its_input_is_rejected(seed: int) -> None:
    def run(inputs: Sequence[Array], out: Array) -> None:
        right(inputs, out)
        inputs[1][0, 0] += 1

    assert "inputs untouched" in [c.name for c in judge(run, OP, seed=seed).failures]


def test_a_kernel_that_remembers_results_by_address_is_rejected(seed: int) -> None:
    results: dict[int, Array] = {}

    def run(inputs: Sequence[Array], out: Array) -> None:
        out[...] = results.setdefault(inputs[0].ctypes.data, inputs[0] @ inputs[1])

    assert not judge(run, OP, seed=seed).passed


def test_a_kernel_that_swallows_nan_is_rejected(seed: int) -> None:
    def run(inputs: Sequence[Array], out: Array) -> None:
        out[...] = np.nan_to_num(inputs[0] @ inputs[1])

    names = [check.name for check in judge(run, OP, seed=seed).failures]
    assert names == ["correct on nonfinite", "correct on everywhere", "correct on special"]


def test_a_kernel_that_flushes_subnormals_is_rejected(seed: int) -> None:
    def run(inputs: Sequence[Array], out: Array) -> None:
        with np.errstate(all="ignore"):
            a, b = (np.where(np.abs(x) < np.finfo(np.float32).tiny, 0, x).astype(np.float32) for x in inputs)
            out[...] = a @ b

    assert [c.name for c in judge(run, OP, seed=seed).failures] == ["correct on denormal"]


def test_a_kernel_that_raises_is_rejected_with_its_error(seed: int) -> None:
    def run(inputs: Sequence[Array], out: Array) -> None:
        raise ZeroDivisionError("stage 3")

    (failure,) = judge(run, OP, seed=seed).failures
    assert failure.figure == "ZeroDivisionError: stage 3"


def test_a_kernel_that_is_wrong_only_now_and_then_is_rejected(seed: int) -> None:
    count = 0

    def run(inputs: Sequence[Array], out: Array) -> None:
        nonlocal count
        right(inputs, out)
        count += 1
        if count == 44:  # past the correctness and the determinism gates
            out[-1, -1] = 1.25e7  # beyond every bound; one more would be within that of the wide inputs

    assert [c.name for c in judge(run, OP, seed=seed).failures] == ["right every time"]


def test_an_empty_result_and_a_sum_of_nothing_are_judged(seed: int) -> None:
    for m, n, k in [(0, 5, 3), (3, 5, 0), (1, 1, 1)]:
        verdict = judge(right, GemmOp.of(m=m, n=n, k=k), seed=seed)
        assert verdict.passed, str(verdict)
    assert not judge(lambda inputs, out: None, GemmOp.of(m=3, n=5, k=0), seed=seed).passed
