"""Kernels of any and all that leave elements out are refused: one element decides, wherever it is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.gates.planted_ops import as_run

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Constant, Input, select
from tracea.core.op import ReduceKind, ReduceOp
from tracea.core.tensor_type import TensorType
from tracea.gates import judge

IS_TRUE = select(Binary(BinaryFunction.NE, Input(0), Constant(0.0)), 1.0, 0.0)
SEEN = {"the first half": np.arange(150), "all but the last": np.arange(299), "all": np.arange(300)}


def asks(dtype: DType, kind: ReduceKind) -> ReduceOp:
    """Whether any (maximum) or all (minimum) of a row is true."""
    x = TensorType((9, 300), dtype)
    return ReduceOp(kind=kind, x=(x,), axes=(1,), prologue=IS_TRUE, out=TensorType((9,), DType.BOOL))


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("kind", [ReduceKind.MAX, ReduceKind.MIN], ids=["any", "all"])
@pytest.mark.parametrize("dtype", [DType.BOOL, DType.F32, DType.U8, DType.I32], ids=lambda dtype: dtype.value)
def test_a_kernel_that_sees_a_part_of_a_row_is_refused(
    dtype: DType, kind: ReduceKind, seen: str, rng: np.random.Generator
) -> None:
    told: Callable[..., np.ndarray] = np.any if kind is ReduceKind.MAX else np.all
    places = SEEN[seen]
    run = as_run(lambda inputs: told(inputs[0][:, places] != 0, axis=1))
    for _ in range(3):
        verdict = judge(run, asks(dtype, kind), subject=seen, seed=int(rng.integers(2**32)))
        assert verdict.passed == (seen == "all"), str(verdict)
