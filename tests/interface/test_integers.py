"""Reductions of integers and booleans: what torch gives, exactly, or a refusal where float64 could not count."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.drawn import drawn

import tracea
from tracea.errors import InvalidDType, InvalidInput, InvalidShape

pytestmark = pytest.mark.usefixtures("one_thread")

ops = tracea.ops

NARROWER = (torch.int32, torch.int8, torch.uint8)


def numbers(rng, dtype: torch.dtype) -> torch.Tensor:
    low, high = {torch.bool: (0, 2), torch.uint8: (0, 256), torch.int8: (-128, 128)}.get(dtype, (-(2**31), 2**31))
    return torch.from_numpy(rng.integers(low, high, (5, 7, 6))).to(dtype).permute(2, 0, 1)[:, ::2]


@pytest.mark.costly
@pytest.mark.parametrize("dtype", drawn(1, [torch.int64, torch.bool, *NARROWER], of="integers"))
def test_sums_extremes_places_and_truth_are_those_of_torch(dtype, rng) -> None:
    x = numbers(rng, dtype)
    found = ops.sum(x, (0, 2))
    assert found.dtype is torch.int64
    assert torch.equal(found, x.sum((0, 2)))
    for name in ("amax", "amin"):
        found = getattr(ops, name)(x, 1, keepdim=True)
        assert found.dtype is dtype
        assert torch.equal(found, getattr(x, name)(1, True))
    for name in ("argmax", "argmin"):
        for dim in (None, 1):
            assert np.array_equal(getattr(ops, name)(x, dim), getattr(np, name)(x.numpy(), axis=dim))
    x[1] = 0
    x[2] = 1
    for name in ("any", "all"):
        found = getattr(ops, name)(x, (1, 2))
        assert found.dtype is torch.bool
        assert torch.equal(found, getattr(x.bool().flatten(1), name)(1))


def test_truth_of_floats_of_nothing_and_into_out() -> None:
    x = torch.tensor([[0.0, float("nan")], [0.0, -0.0], [1e-45, float("inf")]])
    out = torch.zeros(3, dtype=torch.bool)
    assert ops.any(x, 1, out=out) is out
    assert out.tolist() == [True, False, True]
    assert ops.all(x.half()[:2], 1).tolist() == [False, False]
    assert ops.any(torch.zeros(2, 0), 1).tolist() == [False, False]
    assert ops.all(torch.zeros(2, 0, dtype=torch.int32), 1).tolist() == [True, True]
    assert bool(ops.any(torch.tensor(3)))


def test_integers_are_exact_or_refused() -> None:
    most = torch.tensor([2**52, 2**52 - 1, 2**52 - 1])
    assert int(ops.sum(most[1:], 0)) == 2**53 - 2
    assert int(ops.amax(most)) == 2**52
    assert int(ops.argmin(most)) == 1
    with pytest.raises(InvalidInput, match=r"numbers up to 4503599627370496, 3 of them, expected sums below 2\^53"):
        ops.sum(most)
    for numbers_ in ([2**53, 2**53 + 1], [-(2**63), 0]):
        for call in (ops.amax, ops.amin, ops.argmax, ops.argmin):
            with pytest.raises(InvalidInput, match=r"expected integers below 2\^53"):
                call(torch.tensor(numbers_))
    assert int(ops.sum(torch.tensor([[2**53 - 1, 1, -5]]), 1)) == 2**53 - 5  # in whatever order
    with pytest.raises(InvalidInput, match="3 of them"):
        ops.sum(torch.tensor([[2**53 - 1, 2, -5]]), 1)
    many = torch.full((1,), 2**31 - 1, dtype=torch.int32).expand(2**23)
    with pytest.raises(InvalidInput, match="numbers up to 2147483647, 8388608 of them"):
        ops.sum(many)
    assert int(ops.sum(torch.ones(1, dtype=torch.int32).expand(2**23))) == 2**23


@pytest.mark.parametrize("name", ["mean", "prod", "var", "std"])
def test_what_has_no_integers_as_a_result_is_refused(name) -> None:
    with pytest.raises(InvalidDType, match="convert it to floats first"):
        getattr(ops, name)(torch.ones(3, dtype=torch.int32))


def test_the_largest_of_no_integers_has_no_value() -> None:
    with pytest.raises(InvalidShape, match="the empty maximum has no value"):
        ops.amax(torch.zeros(3, 0, dtype=torch.int64), 1)
