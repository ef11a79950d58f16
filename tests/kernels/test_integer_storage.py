"""Whole numbers of 64 bits that kernels read and write as doubles: NumPy's conversions, at every size and place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import PointwiseOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow.compile import compile_op

NUMPY = {DType.I64: np.int64, DType.F64: np.float64, DType.F32: np.float32}
EDGES = [0, 1, 2**31, 2**32 - 1, 2**32, 2**51 - 1, 2**51, 2**51 + 1, 2**52, 2**53, 2**53 + 1, 2**62 + 1, 2**63 - 1]


def numbers(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return whole numbers of every magnitude, with those beside powers of two."""
    found = rng.integers(-(2**63), 2**63 - 1, count) >> rng.integers(0, 64, count)
    some = rng.random(count) < 0.3
    found[some] = rng.choice([*EDGES, *(-edge for edge in EDGES), -(2**63)], int(some.sum()))
    return found


def converted(x: np.ndarray, source: DType, result: DType) -> np.ndarray:
    """Return what a kernel makes of elements that lie ``x.strides`` apart."""
    layout = StridedLayout(tuple(stride // x.itemsize for stride in x.strides))
    op = PointwiseOp(expr=Input(0), inputs=(TensorType(x.shape, source, layout),), out_dtype=result)
    return compile_op(op, threads=1).run(torch.from_numpy(x)).numpy()


@pytest.mark.parametrize("step", [1, 3])
def test_integers_become_doubles_by_one_rounding(rng, step: int) -> None:
    for rows, columns in ((1, 1), (3, 5), (2, 67), (1, 1024)):
        x = numbers(rng, rows * columns * step).reshape(rows, -1)[:, ::step]
        assert np.array_equal(converted(x, DType.I64, DType.F64), x.astype(np.float64))


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("source", [DType.F64, DType.F32])
def test_doubles_become_integers_toward_zero_and_keep_to_the_ends(rng, step: int, source: DType) -> None:
    for rows, columns in ((1, 1), (3, 5), (2, 67), (1, 1024)):
        count = rows * columns * step
        x = numbers(rng, count).astype(NUMPY[source])
        x += rng.choice([0.0, 0.25, 0.75, -0.5], count).astype(x.dtype)
        special = rng.random(count) < 0.1
        x[special] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 1e300 if source is DType.F64 else 1e30], special.sum())
        x = x.reshape(rows, -1)[:, ::step]
        wanted = [0 if np.isnan(each) else max(-(2**63), min(2**63 - 1, _whole(each))) for each in x.ravel().tolist()]
        found = converted(x, source, DType.I64)
        beyond = np.abs(x.astype(np.float64)) >= 2.0**63  # of the largest there is the last number that a double holds
        assert np.array_equal(found[~beyond], np.array(wanted).reshape(x.shape)[~beyond])
        assert (np.abs(found[beyond].astype(np.float64)) >= 2.0**63 - 1024.0).all()
        assert (np.sign(found[beyond]) == np.sign(x[beyond])).all()


def _whole(x: float) -> int:
    return int(x) if np.isfinite(x) else int(np.sign(x)) * 2**64
