"""Gradients of activations, cumulative sums and the k largest: gradcheck in float64, torch elsewhere, kinks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.drawn import drawn
from tests.interface.test_gradients import doubles, joined

import tracea
from tracea.core.expr import activation_names
from tracea.errors import InvalidDType, InvalidIndex, InvalidOp, InvalidShape

pytestmark = pytest.mark.usefixtures("one_thread")

functional = torch.nn.functional
KINDS: dict[str, Any] = {
    "identity": lambda x: x * 1.0,
    "relu": functional.relu,
    "relu6": functional.relu6,
    "leaky_relu": functional.leaky_relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "hardsigmoid": functional.hardsigmoid,
    "hardswish": functional.hardswish,
    "hardtanh": functional.hardtanh,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "sin": torch.sin,
    "cos": torch.cos,
    "softplus": functional.softplus,
    "softsign": functional.softsign,
    "mish": functional.mish,
    "logsigmoid": functional.logsigmoid,
    "elu": functional.elu,
    "squared_relu": lambda x: torch.relu(x) ** 2,
}


def test_every_activation_has_a_gradient_here():
    assert set(KINDS) == set(activation_names())


@pytest.mark.parametrize("name", drawn(5, KINDS, of="slopes"))
def test_slopes_of_activations_are_those_of_torch(name, rng):
    x = torch.from_numpy(np.concatenate([rng.standard_normal(40) * 3, [0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 50, -50]]))
    x.requires_grad_()
    grad = torch.from_numpy(rng.standard_normal(x.shape[0]))
    (expected,) = torch.autograd.grad(KINDS[name](x), x, grad)
    found = tracea.ops.activation_backward(grad, x.detach(), name)
    assert torch.allclose(found, expected, rtol=1e-7, atol=1e-12)  # torch's sixth, of hardsigmoid, is float32's
    single = tracea.ops.activation_backward(grad.float(), x.detach().float(), name)
    assert torch.allclose(single.double(), expected, rtol=1e-4, atol=1e-5)


def test_activations_pass_gradcheck(rng):
    fused = tracea.ops.fuse(["gelu"])
    call = joined(fused, lambda g, y, x: tracea.ops.activation_backward(g.contiguous(), x, "gelu"))
    assert torch.autograd.gradcheck(call, (doubles(rng, 3, 5),))


def test_a_slope_of_zero_gives_zero_whatever_comes_back():
    grad = torch.tensor([math.inf, math.nan, 1.0, math.nan])
    x = torch.tensor([-1.0, -2.0, math.nan, 3.0])
    found = tracea.ops.activation_backward(grad, x, "relu")
    expected = torch.ops.aten.threshold_backward(grad, x, 0)
    assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0))


@pytest.mark.costly
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cumulative_sums(rng, dim):
    call = joined(lambda x: tracea.ops.cumsum(x, dim), lambda g, y, x: tracea.ops.cumsum_backward(g, dim))
    assert torch.autograd.gradcheck(call, (doubles(rng, 3, 20, 4),))
    assert torch.autograd.gradcheck(call, (doubles(rng, 4, 20, 3).detach().transpose(0, 2).requires_grad_(),))
    grad = torch.from_numpy(rng.standard_normal((40, 130, 3))).float()
    expected = grad.double().flip(dim).cumsum(dim).flip(dim)
    found = tracea.ops.cumsum_backward(grad, dim)
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-5)
    out = torch.empty_like(grad)
    assert tracea.ops.cumsum_backward(grad, dim, out=out) is out
    assert torch.equal(out, found)
    last = [slice(None)] * 3
    last[dim] = slice(-1, None)
    assert torch.equal(found[tuple(last)], grad[tuple(last)])  # one term, and no digit less


@pytest.mark.parametrize("dim", drawn(1, [0, 1, -1], of="the largest"))
@pytest.mark.parametrize("largest", [True, False])
def test_the_largest(rng, dim, largest):
    def forward(x: torch.Tensor) -> torch.Tensor:
        return tracea.ops.topk(x, 3, dim, largest=largest)[0]

    def backward(g: torch.Tensor, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        places = tracea.ops.topk(x, 3, dim, largest=largest)[1]
        return tracea.ops.topk_backward(g, places, x.shape[dim], dim)

    assert torch.autograd.gradcheck(joined(forward, backward), (doubles(rng, 4, 7, 5),))
    x = doubles(rng, 6, 9, 8)
    values, places = torch.topk(x, 2, dim, largest=largest)
    grad = torch.from_numpy(rng.standard_normal(values.shape))
    (expected,) = torch.autograd.grad(values, x, grad)
    found = tracea.ops.topk_backward(grad.float(), places, x.shape[dim], dim)
    assert torch.equal(found, expected.float())


def test_numbers_and_nothing():
    one, place = torch.tensor(2.5), torch.tensor(0)
    assert float(tracea.ops.topk_backward(one, place, 1, 0)) == 2.5
    assert float(tracea.ops.cumsum_backward(one, 0)) == 2.5
    assert float(tracea.ops.activation_backward(one, one, "squared_relu")) == 12.5
    nothing = torch.zeros(0, 3)
    assert tracea.ops.topk_backward(nothing, nothing.long(), 5).shape == (0, 5)
    assert tracea.ops.topk_backward(torch.zeros(4, 0), torch.zeros(4, 0).long(), 5).tolist() == [[0.0] * 5] * 4
    assert tracea.ops.cumsum_backward(nothing, 1).shape == (0, 3)
    assert tracea.ops.activation_backward(nothing, nothing, "gelu").shape == (0, 3)


X, P = torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.int64)
REFUSED = {
    "an unknown activation": (InvalidOp, lambda: tracea.ops.activation_backward(X, X, "gellu")),
    "gradients that are not alike": (InvalidShape, lambda: tracea.ops.activation_backward(X, X[:1], "gelu")),
    "integers": (InvalidDType, lambda: tracea.ops.activation_backward(X.int(), X.int(), "relu")),
    "an axis that there is not": (InvalidShape, lambda: tracea.ops.cumsum_backward(X, 2)),
    "places of floats": (InvalidDType, lambda: tracea.ops.topk_backward(X, X, 3)),
    "gradients of integers": (InvalidDType, lambda: tracea.ops.topk_backward(P, P, 3)),
    "places of another shape": (InvalidShape, lambda: tracea.ops.topk_backward(X, P[:1], 3)),
    "a place that there is not": (InvalidIndex, lambda: tracea.ops.topk_backward(X, P + 3, 3)),
    "a number's gradient for several": (
        InvalidOp,
        lambda: tracea.ops.topk_backward(torch.tensor(2.5), torch.tensor(0), 5, 0),
    ),
    "no number of elements": (InvalidOp, lambda: tracea.ops.topk_backward(X, P, -1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_a_remedy(name):
    error, call = REFUSED[name]
    with pytest.raises(error, match="Remedy: "):
        call()
