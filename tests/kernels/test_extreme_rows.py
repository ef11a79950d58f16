"""Rows at the ends of the range: sums and squares that leave it give what float64 gives, and NaN and infinity pass."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.cases import BF16, F32, F64
from tests.kernels.conformance import Case, build, check, run, unit_of
from tests.kernels.native import run_isas

from tracea.core.dtype import DType
from tracea.core.op import RowKind, RowOp
from tracea.core.reference import evaluate
from tracea.core.tensor_type import TensorType

COLUMNS = 100


def _case(kind: RowKind, overlap: int, dtype: DType = F32, eps: float = 0.0) -> Case:
    op = RowOp(kind=kind, x=(TensorType((12, COLUMNS), dtype),), eps=eps)
    return Case.of(f"{kind.value}_{dtype.value}_{overlap}_{eps}", "rows.normalize", op, rows=6, overlap=overlap)


LOST = (1e-50, 1e-300)  # of f32, in which they are zero

CASES = (
    *(_case(kind, overlap) for kind in RowKind for overlap in (0, 1, 2)),
    *(_case(kind, 1, eps=1e-5) for kind in (RowKind.LAYER_NORM, RowKind.RMS_NORM)),
    *(_case(kind, 1, dtype) for kind in (RowKind.LAYER_NORM, RowKind.RMS_NORM) for dtype in (F64, BF16)),
    *(_case(kind, 1, eps=eps) for kind in (RowKind.LAYER_NORM, RowKind.RMS_NORM) for eps in LOST),
)


def extreme_rows(op: RowOp, rng: np.random.Generator) -> np.ndarray:
    """Return rows whose sum, whose squares, or both leave the range; ordinary ones lie between them."""
    dtype = op.x[0].dtype
    largest, tiny = (1.7e308, 1e-310) if dtype is F64 else (3.3e38, 1e-40)
    root = largest**0.5
    x = rng.uniform(-1, 1, (12, COLUMNS))
    x[1] = np.where(np.arange(COLUMNS) % 2 == 0, largest, -largest)
    x[2] *= largest
    x[3] = largest * rng.uniform(0.5, 1, COLUMNS)
    x[4] *= root
    x[5, 17] = -largest
    x[7] *= 1 / root
    # With an epsilon the rounding of subnormal numbers shows in results that are subnormal too.
    x[8] *= tiny if op.eps == 0.0 else 1.0
    x[10] *= root / COLUMNS
    x[11] = largest * rng.uniform(0.5, 1, COLUMNS)
    return x.astype(dtype.numpy)


def check_rows(case: Case, isa: str, x: np.ndarray, threads: int) -> None:
    """Compare with float64; rows of float64 with themselves nearer to one, where without epsilon a scale is nothing."""
    unit, built = unit_of(CASES, isa), build(case, isa)
    if case.op.infer().dtype is not F64:
        return check(unit, built, case.op, [x], threads=threads)
    assert isinstance(case.op, RowOp)
    assert case.op.eps == 0.0
    peak = np.max(np.abs(np.where(np.isfinite(x), x, 0.0)), axis=1, keepdims=True)
    near = np.ldexp(x, -np.frexp(peak)[1])
    found = run(unit, built, case.op, [x], threads=threads)
    np.testing.assert_allclose(found, evaluate(case.op, [near]), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_finite_rows_give_what_float64_gives(case: Case, isa: str, rng: np.random.Generator) -> None:
    assert isinstance(case.op, RowOp)
    check_rows(case, isa, extreme_rows(case.op, rng), threads=2)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_a_row_of_plus_and_minus_the_largest_is_plus_and_minus_one(overlap: int, isa: str) -> None:
    x = np.tile(np.float32([3e38, -3e38]), (12, COLUMNS // 2))
    for kind in (RowKind.LAYER_NORM, RowKind.RMS_NORM):
        case = _case(kind, overlap)
        found = run(unit_of(CASES, isa), build(case, isa), case.op, [x])
        np.testing.assert_allclose(found, np.sign(x), rtol=1e-6)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_that_are_not_finite_pass_among_the_largest(case: Case, isa: str, rng: np.random.Generator) -> None:
    assert isinstance(case.op, RowOp)
    x = extreme_rows(case.op, rng)
    x[1, 3], x[2, 99], x[4, 0], x[4, 1] = np.nan, np.inf, -np.inf, np.nan
    x[7, 50] = -np.inf
    check_rows(case, isa, x, threads=1)


LONG = 1 << 18
FAR_CASES = tuple(
    Case.of(
        f"far_{overlap}",
        "rows.normalize",
        RowOp(kind=RowKind.LAYER_NORM, x=(TensorType((5, LONG), F32),), eps=1e-12),
        rows=3,
        overlap=overlap,
    )
    for overlap in (0, 1, 2)
)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("case", FAR_CASES, ids=lambda case: case.name)
def test_a_row_that_begins_far_from_its_mean_keeps_its_variance(case: Case, isa: str, rng: np.random.Generator) -> None:
    """The variance is summed about the mean of a row's first vectors, and again about the row's where that cancels."""
    x = rng.standard_normal((5, LONG))
    x[0, :64] += 3e4  # all vectors of the pivot
    x[1, 0] = 1e7  # one element of it
    x[2, ::2] = 0.0
    x[3] = np.linspace(-1e3, 1e3, LONG) ** 3  # in order
    x[4, :64], x[4, 64:] = 1e4, 1.0  # two values, one of them in the pivot only
    x = x.astype(np.float32)
    found = run(unit_of(FAR_CASES, isa), build(case, isa), case.op, [x], threads=2)
    expected = evaluate(case.op, [x])
    error = np.max(np.abs(found - expected), axis=1) / np.max(np.abs(expected), axis=1)
    assert np.all(error <= 4e-6), error


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("case", [case for case in CASES if case.op.eps in LOST], ids=lambda case: case.name)
def test_rows_without_spread_are_zero_however_small_the_epsilon(case: Case, isa: str, rng: np.random.Generator) -> None:
    centered = case.op.kind is RowKind.LAYER_NORM
    values = [0.0, 3.0, -1e-30, 1e38, -3e38, 1e-40] if centered else [0.0]
    constant = np.repeat(np.resize(values, 11)[:, None], COLUMNS, axis=1)
    x = np.concatenate([constant, rng.standard_normal((1, COLUMNS)) * 1e-20]).astype(np.float32)
    found = run(unit_of(CASES, isa), build(case, isa), case.op, [x])
    assert (found[:-1] == 0).all()
    # Numbers of the size of one: what lies near to zero has the error of the mean that was taken from it.
    np.testing.assert_allclose(found[-1:], evaluate(case.op, [x])[-1:], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_exponentials_next_to_the_smallest_normal_are_kept_or_zero(
    overlap: int, isa: str, rng: np.random.Generator
) -> None:
    case = _case(RowKind.SOFTMAX, overlap)
    x = rng.uniform(-88, -86, (12, COLUMNS)).astype(np.float32)
    x[:, 3], x[:, 5] = 0.0, -np.inf
    found = run(unit_of(CASES, isa), build(case, isa), case.op, [x])
    check_rows(case, isa, x, threads=2)
    tiny = np.float32(2**-126)
    assert ((found == 0.0) | (found >= tiny)).all()
    assert (found[:, 5] == 0.0).all()
    assert (found[x > -86.9] > 0.0).all()
    assert (found[x < -87.1] == 0.0).all()
