"""Gradients of reductions: gradcheck in float64, torch elsewhere; ties, zeros, NaN, nothing and strides."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from tests.interface.test_gradients import doubles, joined

import tracea
from tracea.errors import InvalidDType, InvalidOp, InvalidShape

pytestmark = pytest.mark.usefixtures("one_thread")

ops = tracea.ops
# The forward op, ours and torch's, and the gradient for x.
KINDS: dict[str, tuple[Any, Any, Any]] = {
    "sum": (ops.sum, torch.sum, lambda g, x, dim, keep: ops.sum_backward(g, x.shape, dim, keep)),
    "mean": (ops.mean, torch.mean, lambda g, x, dim, keep: ops.mean_backward(g, x.shape, dim, keep)),
    "amax": (ops.amax, torch.amax, ops.amax_backward),
    "amin": (ops.amin, torch.amin, ops.amin_backward),
    "var": (
        lambda x, dim, keepdim: ops.var(x, dim, keepdim=keepdim),
        torch.var,
        lambda g, x, dim, keep: ops.var_backward(g, x, dim, keepdim=keep),
    ),
    "std": (
        lambda x, dim, keepdim: ops.std(x, dim, keepdim=keepdim),
        torch.std,
        lambda g, x, dim, keep: ops.std_backward(g, x, dim, keepdim=keep),
    ),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("dim", "keep"),
    [
        ((0, 2), True),
        pytest.param(1, False, marks=pytest.mark.slow),
        pytest.param((0, 1, 2), False, marks=pytest.mark.slow),
    ],
)
def test_gradcheck(name, dim, keep, rng):
    forward, theirs, backward = KINDS[name]
    call = joined(lambda x: forward(x, dim, keepdim=keep), lambda g, y, x: backward(g, x, dim, keep))
    assert torch.autograd.gradcheck(call, (doubles(rng, 3, 4, 5),))
    x = doubles(rng, 5, 4, 3).detach().permute(2, 0, 1).requires_grad_()
    result = theirs(x, dim=dim, keepdim=keep)
    grad = torch.from_numpy(rng.standard_normal((*result.shape, 2)))[..., 0]  # strided
    (expected,) = torch.autograd.grad(result, x, grad)
    assert torch.allclose(backward(grad, x.detach(), dim, keep), expected)


@pytest.mark.costly
@pytest.mark.parametrize(("dim", "keep"), [(1, False), (-1, True), (0, False)])
def test_products_with_and_without_zeros(dim, keep, rng):
    x = doubles(rng, 4, 5, 6).detach()
    x[0, 1, 2] = x[1, :, 3] = x[2, 2, :] = x[3, 3, 3] = 0.0
    x[1, 4, 3] = 2.0
    x.requires_grad_()
    result = torch.prod(x, dim, keep)
    grad = torch.from_numpy(rng.standard_normal(result.shape))
    (expected,) = torch.autograd.grad(result, x, grad)
    assert torch.allclose(ops.prod_backward(grad, x.detach(), dim, keep), expected)
    call = joined(lambda x: ops.prod(x, dim, keep), lambda g, y, x: ops.prod_backward(g, x, dim, keep))
    assert torch.autograd.gradcheck(call, (doubles(rng, 2, 3, 4),))


def test_a_zero_times_what_is_infinite_or_nan():
    inf, nan = math.inf, math.nan
    x = torch.tensor(
        [[0, 0, nan, 2], [0, inf, 2, 3], [0, nan, inf, 3], [0, nan, 2, 3], [0, 0, inf, 1.0], [nan, 2, 3, 4]]
    )
    expected = [[torch.cat((row[:i], row[i + 1 :])).prod() for i in range(4)] for row in x]  # of the others
    grad = torch.full((6,), 2.0)
    torch.testing.assert_close(ops.prod_backward(grad, x, 1)[:5], 2 * torch.tensor(expected)[:5], equal_nan=True)
    assert ops.prod_backward(grad, x, 1)[5].isnan().all()  # without a zero the product over each, as torch's


def test_equals_share_and_nan_is_everywhere():
    x = torch.tensor([[1.0, 3.0, 3.0], [2.0, math.nan, 1.0], [-math.inf, -math.inf, -math.inf]], requires_grad=True)
    grad = torch.tensor([6.0, 1.0, 3.0])
    for forward, backward in ((torch.amax, ops.amax_backward), (torch.amin, ops.amin_backward)):
        (expected,) = torch.autograd.grad(forward(x, 1), x, grad)
        assert torch.allclose(backward(grad, x.detach(), 1), expected, equal_nan=True)


@pytest.mark.parametrize("correction", [0.0, 1.0, 3.0])
def test_corrections_and_rows_without_spread(correction, rng):
    x = torch.from_numpy(rng.standard_normal((4, 3)))
    x[1] = 2.0
    x.requires_grad_()
    grad = torch.from_numpy(rng.standard_normal(4))
    for forward, backward in ((torch.var, ops.var_backward), (torch.std, ops.std_backward)):
        with pytest.warns(UserWarning, match="degrees of freedom") if correction == 3.0 else nullcontext():
            result = forward(x, dim=1, correction=correction)
        (expected,) = torch.autograd.grad(result, x, grad)
        found = backward(grad, x.detach(), 1, correction=correction)
        finite = torch.isfinite(expected)
        assert torch.allclose(found[finite], expected[finite])
        assert not torch.isfinite(found[~finite]).any()


@pytest.mark.costly
def test_element_types_and_out(rng):
    for dtype, close in ((torch.float32, 1e-5), (torch.bfloat16, 4e-2), (torch.float16, 4e-3)):
        x = torch.from_numpy(rng.standard_normal((9, 130))).to(dtype)
        wide = x.double().requires_grad_()
        for _, theirs, backward in KINDS.values():
            result = theirs(wide, dim=1)
            grad = torch.from_numpy(rng.standard_normal(9)).to(dtype)
            (expected,) = torch.autograd.grad(result, wide, grad.double())
            found = backward(grad, x, 1, False)
            assert found.dtype is dtype
            assert float(((found - expected).abs() / (1 + expected.abs())).max()) < close
    out = torch.empty(9, 130, dtype=torch.float16).t()
    assert ops.mean_backward(grad[:1].expand(9), (130, 9), 0, out=out) is out
    assert torch.allclose(out, (grad[:1] / 130).expand(130, 9))


def test_numbers_and_nothing():
    one = torch.tensor(3.0)
    for name, (_, _, backward) in KINDS.items():
        if name not in ("var", "std"):
            assert float(backward(one, one, None, False)) == 3.0
    assert float(ops.prod_backward(one, one, None)) == 3.0
    assert ops.sum_backward(one, (0, 4)).shape == (0, 4)
    assert ops.prod_backward(torch.ones(4), torch.zeros(0, 4), 0).shape == (0, 4)
    assert ops.sum_backward(torch.zeros(3), (3, 2), 1).tolist() == [[0.0, 0.0]] * 3


X = torch.zeros(2, 3)
REFUSED = {
    "a gradient of another shape": (InvalidShape, lambda: ops.sum_backward(X, (2, 3), 1)),
    "no shape": (InvalidShape, lambda: ops.sum_backward(X[0], (-2, 3), 0)),
    "an axis that there is not": (InvalidShape, lambda: ops.mean_backward(X, (2, 3), 2)),
    "a gradient without keepdim": (InvalidShape, lambda: ops.amax_backward(X[:, 0], X, 1, True)),
    "integers": (InvalidDType, lambda: ops.amax_backward(X[:, 0].int(), X.int(), 1)),
    "no correction": (InvalidOp, lambda: ops.var_backward(X[:, 0], X, 1, correction=math.inf)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_a_remedy(name):
    error, call = REFUSED[name]
    with pytest.raises(error, match="Remedy: "):
        call()
