"""The accuracy contract next to zero: what a right kernel loses there is allowed, a flush is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tracea.core import reference
from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import Op, ReduceKind, RowKind, RowOp, Statistic, StatisticsOp
from tracea.core.tensor_type import TensorType

Array = np.ndarray[Any, Any]
SHAPE = (8, 1024)


def normed(x: Array, eps: float, *, centred: bool) -> Array:
    kind = x.dtype.type
    away = x - x.mean(axis=-1, keepdims=True, dtype=kind) if centred else x
    return away * (kind(1) / np.sqrt((away * away).mean(axis=-1, keepdims=True, dtype=kind) + kind(eps)))


def outside(op: Op, x: Array, got: Array) -> int:
    with np.errstate(all="ignore"):
        expected, bound = reference.evaluate(op, [x]), reference.error_bound(op, [x])
    return int((np.abs(got.astype(np.float64) - expected) > bound).sum())


@pytest.mark.parametrize("most", [4, 200, 2**20])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("kind", [RowKind.LAYER_NORM, RowKind.RMS_NORM])
def test_a_norm_of_subnormals_is_within_its_bound_and_zeros_are_not(
    kind: RowKind, dtype: DType, most: int, rng: np.random.Generator
) -> None:
    x = (rng.integers(1, most, SHAPE) * dtype.smallest).astype(dtype.numpy)
    for eps in (1e-5, 1e-12):
        op = RowOp(kind=kind, x=(TensorType(SHAPE, dtype),), eps=eps)
        got = normed(x, eps, centred=kind is RowKind.LAYER_NORM)
        assert outside(op, x, got) == 0
        if most > 200 or kind is RowKind.RMS_NORM:
            assert outside(op, x, np.zeros_like(got)) > got.size / 4


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_a_mean_of_subnormals_may_lose_a_step_of_each_sum(dtype: DType, rng: np.random.Generator) -> None:
    op = StatisticsOp(
        x=(TensorType(SHAPE, dtype),),
        axes=(1,),
        statistics=(Statistic(ReduceKind.MEAN, Input(0)),),
        expr=Input(1),
        reduced=True,
    )
    x = (rng.integers(1, 200, SHAPE) * dtype.smallest).astype(dtype.numpy)
    parts = x.reshape(SHAPE[0], 16, -1).mean(axis=-1, dtype=x.dtype).mean(axis=-1, dtype=x.dtype)
    assert outside(op, x, parts) == 0
    assert outside(op, x, np.zeros_like(parts)) == SHAPE[0]
