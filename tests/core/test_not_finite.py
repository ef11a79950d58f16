"""What the contract claims of rows that mix numbers with infinities, and of sums beyond a narrow result's largest."""

from __future__ import annotations

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import GemmOp, PointwiseOp, ReduceKind, ReduceOp, RowKind, RowOp
from tracea.core.reference import claim, error_bound, evaluate
from tracea.core.tensor_type import TensorType

F32 = TensorType((4, 6), DType.F32)
ROWS = np.float32([[1, -np.inf, 2, 3, -np.inf, 0], [-np.inf] * 6, [1, np.inf, 2, 3, 4, 5], [1, np.nan, 2, 3, 4, 5]])


@pytest.mark.parametrize("kind", [RowKind.SOFTMAX, RowKind.LOG_SOFTMAX])
def test_every_element_of_a_softmax_row_with_hidden_ones_is_claimed(kind: RowKind) -> None:
    op = RowOp(kind=kind, x=(F32,), prologue=Input(0) * 0.125)
    with np.errstate(all="ignore"):
        expected, bound = evaluate(op, [ROWS]), error_bound(op, [ROWS])
    assert np.isnan(expected[1:]).all()
    assert (bound[1:] == 0).all()
    hidden = np.isneginf(ROWS[0])
    assert (expected[0, hidden] == (0.0 if kind is RowKind.SOFTMAX else -np.inf)).all()
    assert (bound[0] < 1e-5).all()
    assert (bound[0, hidden] < 1e-37).all()


@pytest.mark.parametrize("kind", [ReduceKind.MAX, ReduceKind.MIN])
def test_the_end_of_a_row_with_infinities_is_claimed(kind: ReduceKind) -> None:
    op = ReduceOp(kind=kind, x=(F32,), axes=(1,))
    expected, bound = claim(op, [ROWS])
    assert expected.tolist()[:3] == ([3.0, -np.inf, np.inf] if kind is ReduceKind.MAX else [-np.inf, -np.inf, 1.0])
    assert np.isnan(expected[3])
    assert (bound <= 1e-6).all()


def test_a_sum_that_is_beyond_f16_for_certain_is_infinite() -> None:
    op = GemmOp.of(m=1, n=4, k=2, dtype=DType.F16)
    # 65504 is the largest, 65520 is the middle between it and what would come next: from there on it rounds to inf.
    a, b = np.float16([[1, 1]]), np.float16([[40000, 32752, -60000, 32752], [40000, 32752, -60000, 32768]])
    expected, bound = claim(op, [a, b])
    assert expected.tolist() == [[np.inf, 65504.0, -np.inf, 65520.0]]
    assert bound[0, [0, 2]].tolist() == [0.0, 0.0]
    assert bound[0, 1] == 0.0 or np.isfinite(bound[0, 1])
    assert np.isinf(bound[0, 3]), "a rounding on either side: nothing is claimed"
    assert evaluate(op, [a, b])[0, 0] == 80000.0
    assert np.isinf(error_bound(op, [a, b])[0, 0]), "of the unrounded number it is any error"


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.F64])
def test_what_may_pass_through_an_infinity_on_its_way_claims_nothing(dtype: DType) -> None:
    op = GemmOp.of(m=1, n=1, k=2, dtype=dtype)
    large = dtype.largest / 2
    a, b = (np.asarray(values).astype(dtype.numpy) for values in ([[large, large]], [[4.0], [4.0]]))
    with np.errstate(all="ignore"):
        expected, bound = claim(op, [a, b])
    assert np.isinf(bound).all() or np.isinf(expected).all()  # float64 itself is beyond its largest
    if dtype is not DType.F64:
        assert np.isfinite(expected).all()


def test_floats_of_8_bits_saturate_and_are_never_infinite() -> None:
    op = PointwiseOp(expr=Input(0), inputs=(TensorType((2,), DType.F32),), out_dtype=DType.E4M3)
    expected, bound = claim(op, [np.float32([1e4, -1e4])])
    assert np.isfinite(expected).all()
    assert np.isfinite(bound).all()
