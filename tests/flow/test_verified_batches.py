"""Batches of several axes in the small problem that stands for a large one: walked like one where those are."""

from __future__ import annotations

from math import prod

import pytest

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow.kernel import build, choose_for_gpu
from tracea.flow.verify import reduced, verify_op
from tracea.kernels.arguments import arguments
from tracea.targets import load_gpu


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("batch", [(2, 3), (4, 12), (3, 1, 5)])
@pytest.mark.parametrize(("transpose_a", "transpose_b"), [(False, False), (True, False), (False, True)])
def test_reduced_batches_are_walked_like_one_where_those_of_the_problem_are(
    transpose_a: bool, transpose_b: bool, batch: tuple[int, ...], target: str
) -> None:
    gpu = load_gpu(target)
    op = GemmOp.of(
        m=65, n=33, k=31, batch=batch, dtype=DType.F16, transpose_a=transpose_a, transpose_b=transpose_b, bias=True
    )
    variant, schedule = choose_for_gpu(op, gpu)
    small = reduced(op, schedule)
    values = arguments(build(op, variant, schedule, gpu).kernel, small)
    assert values["batch0"] == prod(small.batch) < prod(batch)
    assert all(each.strides[-3] % 16 == full.strides[-3] % 16 for each, full in ((small.a, op.a), (small.b, op.b)))


def test_a_gap_between_batches_stays_one() -> None:
    a = TensorType((2, 3, 65, 31), DType.F16, StridedLayout((7000, 2100, 31, 1)))
    op = GemmOp(m=65, n=33, k=31, batch=(2, 3), a=a, b=TensorType((2, 3, 31, 33), DType.F16))
    gpu = load_gpu("sm_80")
    variant, schedule = choose_for_gpu(op, gpu)
    small = reduced(op, schedule)
    assert small.a.strides[0] > 2 * small.a.strides[1]
    assert [each % 16 for each in small.a.strides] == [each % 16 for each in a.strides]
    arguments(build(op, variant, schedule, gpu).kernel, small)


def test_odd_batches_of_two_axes_are_verified() -> None:
    op = GemmOp.of(m=65, n=33, k=31, batch=(2, 3), dtype=DType.F16, transpose_b=True)
    assert verify_op(op, target="sm_80", seed=3).passed
