"""Integers through narrower ones, wrong signs, saturated sums: refused, whatever is drawn; the right kernels pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.gates.planted_ops import as_run, largest

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import (
    CumulativeSumOp,
    GatherRowsOp,
    GemmOp,
    LargestOp,
    Op,
    PointwiseOp,
    ReduceKind,
    ReduceOp,
)
from tracea.core.tensor_type import TensorType
from tracea.gates import Distribution, generate, judge

Array = np.ndarray[Any, Any]
Kernel = Callable[[Sequence[Array]], Any]


def of(dtype: DType, *shape: int) -> TensorType:
    return TensorType(shape, dtype)


def pointwise(expr: Any, dtype: DType, out: DType, count: int = 1) -> PointwiseOp:
    return PointwiseOp(expr=expr, inputs=(of(dtype, 32, 100),) * count, out_dtype=out)


COPY = pointwise(Input(0), DType.I64, DType.I64)
FROM_BYTES = pointwise(Input(0), DType.U8, DType.I32)
ADD = pointwise(Input(0) + Input(1), DType.I32, DType.I32, 2)
MULTIPLY = pointwise(Input(0) * Input(1), DType.I32, DType.I32, 2)
MAXIMUM = ReduceOp(kind=ReduceKind.MAX, x=(of(DType.I64, 32, 100),), axes=(1,))
SUM = ReduceOp(kind=ReduceKind.SUM, x=(of(DType.I64, 32, 100),), axes=(1,))
RUNNING = CumulativeSumOp(x=of(DType.I64, 32, 100), axis=1)
GATHER = GatherRowsOp(table=of(DType.I64, 1000, 16), indices=of(DType.I64, 200))
LARGEST = LargestOp(x=of(DType.I64, 32, 60), k=5)
BYTES = GemmOp.of(m=21, n=53, k=100, dtype=DType.I8, out_dtype=DType.I32)


def gathered(i: Sequence[Array], table: Array) -> Array:
    missing = (i[1] < 0) | (i[1] >= 1000)
    found = table[np.where(missing, 0, i[1])].astype(np.int64)
    found[missing] = -1
    return found


def product(a: Array, b: Array) -> Array:
    return a.astype(np.int32) @ b.astype(np.int32)


def saturated_pairs(a: Array, b: Array) -> Array:
    a, b = a.astype(np.int32), b.astype(np.int32)
    pairs = a[:, 0::2, None] * b[None, 0::2] + a[:, 1::2, None] * b[None, 1::2]
    return np.clip(pairs, -(2**15), 2**15 - 1).sum(1)


RIGHT: dict[str, tuple[Op, Kernel]] = {
    "copy": (COPY, lambda i: i[0]),
    "bytes": (FROM_BYTES, lambda i: i[0]),
    "add": (ADD, lambda i: i[0] + i[1]),
    "multiply": (MULTIPLY, lambda i: i[0] * i[1]),
    "maximum": (MAXIMUM, lambda i: i[0].max(1)),
    "sum": (SUM, lambda i: i[0].sum(1)),
    "running sum": (RUNNING, lambda i: np.cumsum(i[0], 1)),
    "rows of a table": (GATHER, lambda i: gathered(i, i[0])),
    "largest": (LARGEST, lambda i: largest(i[0])),
    "product of bytes": (BYTES, lambda i: product(*i)),
}
PLANTED: dict[str, tuple[Op, Kernel]] = {
    "copy through 8 bits": (COPY, lambda i: i[0].astype(np.int8)),
    "copy through 32 bits": (COPY, lambda i: i[0].astype(np.int32)),
    "copy through f32": (COPY, lambda i: i[0].astype(np.float32).astype(np.float64).clip(-(2.0**62), 2.0**62)),
    "bytes with a sign": (FROM_BYTES, lambda i: i[0].view(np.int8)),
    "add in 16 bits": (ADD, lambda i: i[0].astype(np.int16) + i[1].astype(np.int16)),
    "add in f32": (ADD, lambda i: (i[0].astype(np.float32) + i[1].astype(np.float32)).astype(np.int64)),
    "multiply in f32": (MULTIPLY, lambda i: (i[0].astype(np.float32) * i[1].astype(np.float32)).astype(np.int64)),
    "maximum through 8 bits": (MAXIMUM, lambda i: i[0].astype(np.int8).max(1)),
    "sum in 16 bits": (SUM, lambda i: i[0].sum(1, dtype=np.int16)),
    "sum in 32 bits": (SUM, lambda i: i[0].sum(1, dtype=np.int32)),
    "running sum in 32 bits": (RUNNING, lambda i: np.cumsum(i[0], 1, dtype=np.int32)),
    "rows of a table through 8 bits": (GATHER, lambda i: gathered(i, i[0].astype(np.int8))),
    "largest through 8 bits": (LARGEST, lambda i: largest(i[0].astype(np.int8))),
    "sums of pairs saturate": (BYTES, lambda i: saturated_pairs(*i)),
    "-128 is -127": (BYTES, lambda i: product(np.where(i[0] == -128, -127, i[0]), i[1])),
}


@pytest.mark.parametrize("name", PLANTED)
def test_an_integer_through_fewer_bits_is_refused(name: str, rng: np.random.Generator) -> None:
    op, kernel = PLANTED[name]
    for _ in range(3):
        seed = int(rng.integers(2**32))
        verdict = judge(as_run(kernel), op, subject=name, seed=seed, distributions=[Distribution.EXTREME])
        assert "correct on extreme" in [failure.name for failure in verdict.failures], str(verdict)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_of_integers_passes(name: str, rng: np.random.Generator) -> None:
    op, kernel = RIGHT[name]
    verdict = judge(as_run(kernel), op, subject=name, seed=int(rng.integers(2**32)))
    assert verdict.passed, str(verdict)


def test_extreme_integers_reach_both_ends_and_leave_room_for_the_result(rng: np.random.Generator) -> None:
    (x,) = generate(COPY, Distribution.EXTREME, rng)
    assert (x.min(), x.max()) == (-(2**63), 2**63 - 2**10)
    assert (np.abs(x.astype(np.float64)) < 100).mean() > 0.03
    for op, limit in ((ADD, 2**31), (SUM, 2**53)):
        total = sum(operand.astype(np.float64) for operand in generate(op, Distribution.EXTREME, rng))
        total = total.sum(1) if op is SUM else total
        assert limit / 16 < np.abs(total).max() < limit
    narrow = pointwise(Input(0), DType.I64, DType.I32)
    (x,) = generate(narrow, Distribution.EXTREME, rng)
    assert 2**29 < np.abs(x).max() < 2**31
