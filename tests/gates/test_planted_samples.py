"""Tails that a maximum leaves out, operands known again by a sample, lines of zeros, signs of zeros that are moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.gates.planted_ops import (
    ATTENTION,
    COPY,
    GATHER,
    GEMM,
    LOG_SOFTMAX,
    RIGHT,
    SOFTMAX,
    SQUARE,
    F,
    Kernel,
    Planted,
    as_run,
    f32,
    gathered,
    peak_of,
    plant,
    rows,
    softmax,
)

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import GemmOp, LargestOp, Op, PointwiseOp, ReduceKind, ReduceOp, RowKind, RowOp
from tracea.core.tensor_type import TensorType
from tracea.gates import Distribution, generate, judge

Array = np.ndarray[Any, Any]

SEEDS = 8
LONG, SHORT, SINGLE = (RowOp(kind=RowKind.SOFTMAX, x=(f32(*shape),)) for shape in ((32, 1003), (32, 17), (1, 1003)))
SCALED = RowOp(kind=RowKind.SOFTMAX, x=(f32(32, 100),), prologue=Input(0) * 0.125)
HALF = RowOp(kind=RowKind.SOFTMAX, x=(TensorType((32, 100), DType.BF16),))
TRANSPOSED = GemmOp.of(m=21, n=53, k=100, transpose_b=True)
TURNED = PointwiseOp(expr=Input(0), inputs=(f32(100, 32).permuted((1, 0)),), out_dtype=DType.F32)


def softmax_of(kept: Callable[[int], slice], *, scale: float = 1.0, log: bool = False) -> Kernel:
    """A softmax whose maximum is that of a part of each row; right while the others are near it."""

    def run(inputs: Sequence[Array]) -> Array:
        x = inputs[0].astype(F) * F(scale)
        return softmax(x, peak_of(x[:, kept(x.shape[1])]), log=log)

    return run


def without_last(length: int) -> slice:
    return slice(0, length - 1)


def without_tail(length: int) -> slice:
    return slice(0, length // 16 * 16)


def without_first(length: int) -> slice:
    return slice(1, length)


def without_last_whole(length: int) -> slice:
    return slice(0, length - 16)


def attended_without_last_key(inputs: Sequence[Array]) -> Array:
    q, k, v = inputs
    scores = q @ k.swapaxes(-1, -2) / F(4)
    e = np.exp(scores - rows(scores[..., :-1], np.max))
    return (e @ v) / rows(e, np.sum)


def keyed_by(sample: Callable[[Array], object], index: int) -> Callable[[], Kernel]:
    """A product that keeps a copy of one factor, and takes a new one where a sample of it differs."""

    def make() -> Kernel:
        kept: dict[str, Any] = {}

        def run(inputs: Sequence[Array]) -> Array:
            key = sample(inputs[index])
            if kept.get("key") != key:
                kept.update(key=key, factor=inputs[index].copy())
            factors = list(inputs[:2])
            factors[index] = kept["factor"]
            return factors[0] @ factors[1]

        return run

    return make


def softmax_keyed_by(sample: Callable[[Array], object]) -> Callable[[], Kernel]:
    def make() -> Kernel:
        kept: dict[str, Any] = {}

        def run(inputs: Sequence[Array]) -> Array:
            key = sample(inputs[0])
            if kept.get("key") != key:
                kept.update(key=key, result=softmax(inputs[0], peak_of(inputs[0])))
            return kept["result"]

        return run

    return make


def every(step: int) -> Callable[[Array], object]:
    return lambda x: x.reshape(-1)[::step].tobytes()


def summed(x: Array) -> object:
    """Return the sum of the numbers, and where there is none: a sum of NaN is no sample."""
    return np.where(np.isfinite(x), x, 0).sum().tobytes() + np.where(np.isfinite(x), 0, x).tobytes()


def zero_rows_are_skipped(inputs: Sequence[Array]) -> Array:
    zero = (inputs[0] == 0).all(axis=1)
    return np.where(zero[:, None], F(0), inputs[0] @ inputs[1])


def zero_columns_are_skipped(inputs: Sequence[Array]) -> Array:
    zero = (inputs[1] == 0).all(axis=0)
    return np.where(zero[None, :], F(0), inputs[0] @ inputs[1])


PLANTED: dict[str, Planted] = {
    "softmax_maximum_without_last_column": plant(SOFTMAX, "correct on offset", softmax_of(without_last)),
    "softmax_maximum_without_tail": plant(SOFTMAX, "correct on offset", softmax_of(without_tail)),
    "softmax_maximum_without_first_column": plant(SOFTMAX, "correct on offset", softmax_of(without_first)),
    "softmax_maximum_without_last_16": plant(LONG, "correct on offset", softmax_of(without_last_whole)),
    "softmax_maximum_without_last_of_1003": plant(LONG, "correct on offset", softmax_of(without_last)),
    "softmax_maximum_without_last_of_17": plant(SHORT, "correct on offset", softmax_of(without_last)),
    "softmax_maximum_without_last_of_one_row": plant(SINGLE, "correct on offset", softmax_of(without_last)),
    "scaled_softmax_maximum_without_tail": plant(SCALED, "correct on offset", softmax_of(without_tail, scale=0.125)),
    "bf16_softmax_maximum_without_tail": plant(HALF, "correct on offset", softmax_of(without_tail)),
    "log_softmax_maximum_without_last": plant(LOG_SOFTMAX, "correct on offset", softmax_of(without_last, log=True)),
    "attention_maximum_without_last_key": plant(ATTENTION, "correct on offset", attended_without_last_key),
    "second_known_by_every_16th": Planted(op=SQUARE, check="follows each operand", make=keyed_by(every(16), 1)),
    "first_known_by_every_97th": Planted(op=SQUARE, check="follows each operand", make=keyed_by(every(97), 0)),
    "second_known_by_its_sum": Planted(op=SQUARE, check="follows each operand", make=keyed_by(summed, 1)),
    "transposed_known_by_every_97th": Planted(
        op=TRANSPOSED, check="follows each operand", make=keyed_by(lambda b: b.T.reshape(-1)[::97].tobytes(), 1)
    ),
    "rows_known_by_every_16th": Planted(op=SOFTMAX, check="follows each operand", make=softmax_keyed_by(every(16))),
    "rows_known_by_their_sum": Planted(op=SOFTMAX, check="follows each operand", make=softmax_keyed_by(summed)),
    "rows_of_zeros_skipped": plant(GEMM, "correct on special", zero_rows_are_skipped),
    "columns_of_zeros_skipped": plant(GEMM, "correct on special", zero_columns_are_skipped),
    "copy_adds_zero": plant(COPY, "correct on special", lambda i: i[0] + F(0)),
    "turned_copy_adds_zero": plant(TURNED, "correct on special", lambda i: i[0] + F(0)),
    "rows_of_a_table_add_zero": plant(GATHER, "correct on special", lambda i: gathered(i[0], i[1], 1000) + F(0)),
}
RIGHT_TOO: dict[str, tuple[Op, Kernel]] = {
    "long softmax": (LONG, softmax_of(slice)),
    "short softmax": (SHORT, softmax_of(slice)),
    "softmax of one row": (SINGLE, softmax_of(slice)),
    "scaled softmax": (SCALED, softmax_of(slice, scale=0.125)),
    "softmax of bf16": (HALF, softmax_of(slice)),
    "transposed product": (TRANSPOSED, lambda i: i[0] @ i[1]),
    "turned copy": (TURNED, lambda i: i[0]),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_kernel_is_refused_by_the_check_meant_for_it_with_every_seed(
    name: str, rng: np.random.Generator
) -> None:
    planted = PLANTED[name]
    for seed in rng.integers(2**32, size=SEEDS):
        verdict = judge(as_run(planted.make()), planted.op, subject=name, seed=int(seed))
        assert planted.check in [failure.name for failure in verdict.failures], str(verdict)


@pytest.mark.parametrize("name", RIGHT_TOO)
def test_a_right_kernel_of_the_same_op_passes(name: str, rng: np.random.Generator) -> None:
    op, kernel = RIGHT_TOO[name]
    for seed in rng.integers(2**32, size=3):
        verdict = judge(as_run(kernel), op, subject=name, seed=int(seed))
        assert verdict.passed, str(verdict)


def test_every_planted_kernel_has_its_right_one() -> None:
    assert {planted.op for planted in PLANTED.values()} <= {op for op, _ in (*RIGHT.values(), *RIGHT_TOO.values())}


@pytest.mark.parametrize("kind", ["softmax", "maximum", "minimum", "largest"])
def test_the_only_large_value_of_a_row_lies_in_each_lane_of_the_tail(kind: str, rng: np.random.Generator) -> None:
    x = f32(128, 100)
    op: Op = {
        "softmax": RowOp(kind=RowKind.SOFTMAX, x=(x,)),
        "maximum": ReduceOp(kind=ReduceKind.MAX, x=(x,), axes=(1,)),
        "minimum": ReduceOp(kind=ReduceKind.MIN, x=(x,), axes=(1,)),
        "largest": LargestOp(x=x, k=5),
    }[kind]
    (drawn,) = generate(op, Distribution.OFFSET, rng)
    drawn = -drawn if kind == "minimum" else drawn
    ordered = np.sort(drawn, axis=1)
    lone = ordered[:, -1] - ordered[:, -2] > 90.0
    assert lone.sum() == 64
    assert set(np.argmax(drawn[lone], axis=1).tolist()) == {0, *range(80, 100)}
    assert {True, False} == set((ordered[lone, 0] > 0).tolist())  # on either side of zero
