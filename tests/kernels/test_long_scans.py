"""Cumulative sums of long rows: what additions round does not add up, and lanes that leave the range are no sums."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.conformance import Case, build, run, unit_of
from tests.kernels.native import run_isas
from tests.kernels.slab_cases import F32, F64, tensor

from tracea.core.dtype import DType
from tracea.core.op import CumulativeSumOp
from tracea.core.reference import evaluate

RUN = 4096  # elements, scan_run of scan.h
LONG = 1 << 18


def _case(name: str, axis: int, dtype: DType = F32, *, backward: bool = False) -> Case:
    shape = (1, LONG + 5) if axis == 1 else (1 << 14, 3)
    return Case.of(name, "rows.scan", CumulativeSumOp(x=tensor(*shape, dtype=dtype), axis=axis, backward=backward))


CASES = (
    _case("long_sums", 1),
    _case("long_sums_backward", 1, backward=True),
    _case("long_sums_f64", 1, F64),
    _case("long_sums_down_columns", 0),
)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_large_elements_hide_is_not_lost_however_long_the_row(case: Case, isa: str) -> None:
    """Of small elements between large ones that cancel, trees of vectors lose a part, which is the same each time."""
    op = case.op
    assert isinstance(op, CumulativeSumOp)
    small = op.x.dtype.eps / 8
    group = [1.0, *[small] * 62, -1.0]
    length = op.x.static_shape[op.axis]
    line = np.resize(np.asarray(group), length)
    x = np.broadcast_to(line if op.axis == 1 else line[:, None], op.x.static_shape).astype(op.x.dtype.numpy)
    found = np.moveaxis(run(unit_of(CASES, isa), build(case, isa), op, [x]).astype(np.float64), op.axis, 0)
    if op.backward:
        found, line = found[::-1], line[::-1]
    # Large and small elements apart, so that the reference is exact.
    large = np.where(np.abs(line) == 1.0, line, 0.0)
    expected = np.cumsum(large)[:, None] + small * np.cumsum(large == 0.0)[:, None]
    slack = small * RUN + op.x.dtype.eps * np.abs(expected)
    assert np.all(np.abs(found - expected) <= slack)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("case", [case for case in CASES if case.op.x.dtype is F32], ids=lambda case: case.name)
def test_neighbours_that_cancel_near_the_largest_number_stay_in_range(case: Case, isa: str) -> None:
    """The lanes of a vector do not: each is of elements of one sign."""
    op = case.op
    assert isinstance(op, CumulativeSumOp)
    line = np.resize(np.float32([1e37, -1e37]), op.x.static_shape[op.axis])
    x = np.broadcast_to(line if op.axis == 1 else line[:, None], op.x.static_shape).astype(np.float32)
    np.testing.assert_array_equal(run(unit_of(CASES, isa), build(case, isa), op, [x]), evaluate(op, [x]))
