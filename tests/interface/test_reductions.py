"""Reductions and places of extremes against float64 and torch: axes, layouts, element types, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.drawn import drawn
from tests.interface.accuracy import assert_meaning, poisoned, strided, type_of, values

import tracea
from tracea.core.dtype import DType
from tracea.core.op import ReduceKind, ReduceOp
from tracea.errors import InvalidDType, InvalidOp, InvalidShape, OverlappingOutput

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = {
    "sum": ReduceKind.SUM,
    "mean": ReduceKind.MEAN,
    "prod": ReduceKind.PRODUCT,
    "amax": ReduceKind.MAX,
    "amin": ReduceKind.MIN,
}


def random_case(rng):
    rank = int(rng.integers(1, 5))
    shape = tuple(int(size) for size in rng.integers(1, 8, rank))
    axes = tuple(int(axis) for axis in rng.permutation(rank)[: rng.integers(1, rank + 1)])
    kind, dtype = ("torch", "numpy")[rng.integers(2)], (DType.F32, DType.F64, DType.F16, DType.BF16)[rng.integers(4)]
    x = strided(rng, kind, dtype, shape, ("rows", "columns", "gaps", "broadcast")[rng.integers(4)])
    order = [int(axis) for axis in rng.permutation(rank)]
    return (x.permute(*order) if kind == "torch" else x.transpose(*order)), axes, kind, dtype


@pytest.mark.costly
@pytest.mark.parametrize("name", KINDS)
def test_random_axes_of_random_layouts(name, rng):
    for _ in range(3):
        x, axes, kind, dtype = random_case(rng)
        keepdim = bool(rng.integers(2))
        op = ReduceOp(kind=KINDS[name], x=(type_of(x),), axes=axes, keepdims=keepdim)
        out = poisoned(kind, dtype, op.infer().static_shape, "columns") if rng.integers(2) else None
        result = getattr(tracea.ops, name)(x, axes, keepdim, out=out)
        assert out is None or result is out
        assert type(result) is type(x)
        assert_meaning(result, op, x)


@pytest.mark.costly
@pytest.mark.parametrize("threads", [1, 2])
def test_one_number_of_a_large_tensor_whatever_the_threads(rng, threads):
    torch.set_num_threads(threads)
    for shape in ((300, 500), (131072,), (7, 30000), (100003,)):
        x = torch.from_numpy(rng.standard_normal(shape)).float()
        wide = x.double()
        assert abs(float(tracea.ops.sum(x)) - float(wide.sum())) < 1e-3
        assert abs(float(tracea.ops.var(x)) - float(wide.var())) < 1e-5
        assert float(tracea.ops.amax(x)) == float(x.max())


@pytest.mark.costly
def test_variance_does_not_cancel_far_from_zero(rng):
    x = torch.from_numpy(rng.standard_normal((6, 4000))).float() + 1e4
    for dim in (0, 1, (0, 1), None):
        for correction in (0, 1, 2.5):
            expected = x.double().var(dim, correction=correction)
            found = tracea.ops.var(x, dim, correction=correction)
            assert torch.allclose(found.double(), expected, rtol=2e-6), (dim, correction)
            assert torch.allclose(tracea.ops.std(x, dim, correction=correction), expected.sqrt().float(), rtol=2e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_equal_numbers_vary_by_nothing(threads, rng):
    value = float(rng.uniform(0.01, 1000))
    torch.set_num_threads(threads)
    for shape, dim in (((4, 7), 1), ((7, 400), 0), ((300, 700), None), ((3, 5, 11), (0, 2))):
        for dtype in (torch.float32, torch.float64):
            same = torch.full(shape, value, dtype=dtype)
            assert (tracea.ops.std(same, dim) < 1e-3 * torch.finfo(dtype).eps * value).all(), (shape, dtype)
    far = (np.float32(1e22) + np.spacing(np.float32(1e22)) * rng.integers(-8, 9, (2, 100_000))).astype(np.float32)
    np.testing.assert_allclose(tracea.ops.var(far, 1), far.astype(np.float64).var(1, ddof=1), rtol=1e-5)
    huge = torch.tensor([[1e170, -1e170], [math.inf, 0.0], [math.nan, 1.0]], dtype=torch.float64)
    assert tracea.ops.var(huge, 1).tolist()[0] == math.inf
    assert tracea.ops.var(huge, 1)[1:].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_variance_of_finite_elements_whose_squares_leave_float32(dtype):
    x = torch.tensor([[3e38, -3e38, 2e38], [3e25, 1e25, 2e25], [1e17, 2e17, -3e17], [3e38, 3e38, 3e38]], dtype=dtype)
    for dim in (1, None):
        for name in ("std", "var"):
            expected = getattr(torch, name)(x.double(), dim).to(dtype)
            found = getattr(tracea.ops, name)(x, dim)
            assert torch.allclose(found, expected, rtol=1e-5 if dtype is torch.float32 else 1e-2), (name, dim)
    out = torch.full((4, 2), 7.0, dtype=dtype)
    assert tracea.ops.std(x, 1, out=out[:, 0]).data_ptr() == out.data_ptr()
    assert torch.equal(out[:, 0], tracea.ops.std(x, 1))
    assert (out[:, 1] == 7.0).all()
    if dtype is torch.float32:
        assert np.allclose(tracea.ops.std(x.numpy(), 1), tracea.ops.std(x, 1).numpy())


@pytest.mark.costly
def test_nan_and_infinity_stay_in_their_slabs(rng):
    x = torch.from_numpy(rng.standard_normal((4, 5, 6))).float()
    x[0, 1, 2], x[1, 2, 3], x[2, 3, 4] = math.nan, math.inf, -math.inf
    for name in ("sum", "mean", "prod", "amax", "amin", "var"):
        for dim in (1, (0, 2)):
            call = getattr(torch, name) if name != "prod" else values_of_product
            expected = call(x, dim)
            found = getattr(tracea.ops, name)(x, dim)
            assert torch.allclose(found, expected, equal_nan=True, rtol=1e-4, atol=1e-6), (name, dim)


def values_of_product(x, dim):
    for axis in sorted((dim,) if isinstance(dim, int) else dim, reverse=True):
        x = x.prod(axis)
    return x


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_of_nothing_and_of_numbers(kind, rng):
    empty = strided(rng, kind, DType.F32, (3, 0), "rows")
    for name, value in (("sum", 0.0), ("prod", 1.0), ("mean", math.nan), ("var", math.nan)):
        assert np.array_equal(values(getattr(tracea.ops, name)(empty, 1)), [value] * 3, equal_nan=True)
        assert tuple(getattr(tracea.ops, name)(empty, 0).shape) == (0,)
        out = poisoned(kind, DType.F32, (3, 1))
        assert getattr(tracea.ops, name)(empty, 1, keepdim=True, out=out) is out
        assert np.array_equal(values(out), [[value]] * 3, equal_nan=True)
    number = strided(rng, kind, DType.F64, (), "rows")
    for name in ("sum", "mean", "prod", "amax", "amin"):
        assert float(getattr(tracea.ops, name)(number)) == float(number)


@pytest.mark.costly
@pytest.mark.parametrize("largest", drawn(1, [True, False], of="places of extremes"))
def test_places_of_extremes_are_the_first_ones_and_nan_wins(largest, rng):
    name = "argmax" if largest else "argmin"
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.from_numpy(rng.integers(0, 4, (5, 7, 9))).to(dtype)
        x[1, 2, 3], x[1, 4, 5], x[2, 0, 0], x[3] = math.nan, math.nan, math.inf, -math.inf
        for dim, view in ((None, x), (0, x), (-1, x.permute(2, 0, 1)), (1, x[:, ::2])):
            found = getattr(tracea.ops, name)(view, dim, keepdim=dim == 0)
            expected = getattr(view, name)(dim, dim == 0)
            assert found.dtype is torch.int64
            assert torch.equal(found, expected), (dtype, dim)
    out = torch.full((5, 9), -1)
    assert getattr(tracea.ops, name)(x, 1, out=out) is out
    assert torch.equal(out, getattr(x, name)(1))


X = torch.zeros(3, 4)
REFUSED = {
    "an axis that does not exist": (InvalidShape, lambda: tracea.ops.sum(X, 2)),
    "an axis twice": (InvalidShape, lambda: tracea.ops.sum(X, (0, -2))),
    "no axis": (InvalidShape, lambda: tracea.ops.mean(X, ())),
    "an axis that is no number": (InvalidShape, lambda: tracea.ops.mean(X, "rows")),
    "the largest of nothing": (InvalidShape, lambda: tracea.ops.amax(X[:0], 0)),
    "the place in nothing": (InvalidShape, lambda: tracea.ops.argmax(X[:, :0], 1)),
    "integers": (InvalidDType, lambda: tracea.ops.prod(X.int())),
    "a correction that is no number": (InvalidOp, lambda: tracea.ops.var(X, correction="1")),
    "an out of another shape": (InvalidShape, lambda: tracea.ops.sum(X, 0, out=torch.zeros(3))),
    "places in an out of floats": (InvalidDType, lambda: tracea.ops.argmin(X, 0, out=torch.zeros(4))),
    "an out that is an input": (OverlappingOutput, lambda: tracea.ops.sum(X, 0, out=X[0])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_a_remedy(name):
    error, call = REFUSED[name]
    with pytest.raises(error, match="Remedy: "):
        call()


def test_a_long_sum_keeps_its_digits():
    x = torch.full((1 << 23,), 0.1)
    wanted = x.double().sum()
    assert abs(float(tracea.ops.sum(x, 0)) / float(wanted) - 1.0) < 8e-6  # 3e-5 in two levels
