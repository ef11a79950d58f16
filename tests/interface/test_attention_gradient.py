"""Gradients of attention as users call them: gradcheck in f64, torch's gradients, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.drawn import drawn

import tracea
from tracea.core.expr import Binary, BinaryFunction, Constant, Input, tanh
from tracea.errors import InvalidDType, InvalidInput, InvalidOp, InvalidShape

pytestmark = pytest.mark.usefixtures("one_thread")

SDPA = torch.nn.functional.scaled_dot_product_attention


def normal(rng: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype)


class Attention(torch.autograd.Function):
    """Both directions of ours, as a user joins them."""

    @staticmethod
    def forward(ctx, q, k, v, given):
        y = tracea.ops.attention(q, k, v, **given)
        ctx.save_for_backward(q, k, v, y)
        ctx.given = given
        return y

    @staticmethod
    def backward(ctx, grad):
        q, k, v, y = ctx.saved_tensors
        return (*tracea.ops.attention_backward(grad, q, k, v, y, **ctx.given), None)


@pytest.mark.costly
@pytest.mark.parametrize(
    "kind", drawn(1, ["dense", "causal", "window", "masked", "added", "capped"], of="gradcheck of attention")
)
def test_gradcheck_in_f64(kind, rng):
    q, k, v = (
        normal(rng, 1, heads, n, 3, dtype=torch.float64).requires_grad_() for heads, n in ((4, 5), (2, 6), (2, 6))
    )
    mask = torch.from_numpy(rng.random((5, 6)) < 0.6)
    mask[2] = False
    given = {
        "dense": {},
        "causal": {"causal": True, "scale": -0.7},
        "window": {"window": 2},
        "masked": {"mask": mask},
        "added": {"mask": normal(rng, 4, 1, 6, dtype=torch.float64), "causal": True},
        "capped": {
            "score": tanh(Input(0) / 2.0) * 2.0 + Input(1) * (Input(3) - Input(2)),
            "operands": (
                normal(rng, 4, 1, 1, dtype=torch.float64),
                torch.arange(5.0, dtype=torch.float64)[:, None],
                torch.arange(6.0, dtype=torch.float64),
            ),
        },
    }[kind]
    assert torch.autograd.gradcheck(lambda q, k, v: Attention.apply(q, k, v, given), (q, k, v))


@pytest.mark.costly
@pytest.mark.parametrize("scale", [1e-30, 2e-37, 1e-42, 0.0, -1e-40, 1e38])
def test_scales_at_the_ends_of_float32_hide_what_is_hidden(scale, rng):
    q, k, v, grad = (normal(rng, 1, 2, 70, 64) for _ in range(4))
    y = tracea.ops.attention(q, k, v, causal=True, scale=scale)
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    scores = torch.where(torch.ones(70, 70).tril() > 0, wide[0] @ wide[1].mT * scale, -torch.inf)
    expected = scores.softmax(-1) @ wide[2]
    torch.testing.assert_close(y.double(), expected.detach(), rtol=1e-5, atol=1e-5)
    if abs(scale) < 1.0:
        (of_values,) = torch.autograd.grad(expected, wide[2:], grad.double())
        got = tracea.ops.attention_backward(grad, q, k, v, y, causal=True, scale=scale)
        assert all(each.isfinite().all() for each in got)
        torch.testing.assert_close(got[2].double(), of_values, rtol=1e-4, atol=1e-4)


@pytest.mark.costly
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_torchs(causal, rng):
    shapes = ((2, 4, 150, 32), (2, 2, 150, 32), (2, 2, 150, 32))
    q, k, v = (normal(rng, *shape).transpose(1, 2).contiguous().transpose(1, 2) for shape in shapes)
    grad = normal(rng, 2, 4, 150, 32)
    y = tracea.ops.attention(q, k, v, causal=causal)
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    expected = torch.autograd.grad(SDPA(*wide, is_causal=causal, enable_gqa=True), wide, grad.double())
    for got, wanted in zip(tracea.ops.attention_backward(grad, q, k, v, y, causal=causal), expected, strict=True):
        assert got.is_contiguous()
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.costly
def test_half_floats_and_numpy(rng):
    q, k, v, grad = (normal(rng, 1, 2, 40, 16, dtype=torch.bfloat16) for _ in range(4))
    y = tracea.ops.attention(q, k, v)
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    expected = torch.autograd.grad(SDPA(*wide), wide, grad.double())
    for got, wanted in zip(tracea.ops.attention_backward(grad, q, k, v, y), expected, strict=True):
        assert got.dtype is torch.bfloat16
        torch.testing.assert_close(got.double(), wanted, rtol=2e-2, atol=3e-2)
    arrays = [x.double().numpy() for x in (grad, q, k, v)]
    y = tracea.ops.attention(*arrays[1:])
    for got, wanted in zip(tracea.ops.attention_backward(*arrays, y), expected, strict=True):
        assert isinstance(got, np.ndarray)
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-9, atol=1e-12)


EMPTY = (
    ((2, 4, 0, 16), (2, 2, 7, 16)),
    ((2, 0, 5, 16), (2, 2, 7, 16)),
    ((2, 0, 5, 16), (2, 0, 7, 16)),
    ((2, 4, 5, 16), (2, 2, 0, 16)),
    ((0, 4, 5, 16), (0, 2, 3, 16)),
    ((2, 4, 5, 0), (2, 2, 3, 0)),
)


@pytest.mark.costly
@pytest.mark.parametrize("shapes", drawn(2, EMPTY, of="gradients of nothing"), ids=str)
def test_what_has_no_element_has_gradients_of_zeros(shapes):
    q, k = (torch.ones(shape) for shape in shapes)
    y = tracea.ops.attention(q, k, k)
    gradients = tracea.ops.attention_backward(y, q, k, k, y)
    for got, like in zip(gradients, (q, k, k), strict=True):
        assert got.shape == like.shape
        assert (got == 0).all()


def test_what_is_refused(rng):
    q, k, v, y = (normal(rng, 1, 4, 5, 8) for _ in range(4))
    back = tracea.ops.attention_backward
    power = Binary(BinaryFunction.POW, Input(0), Constant(3.0))
    for error, call in (
        (InvalidShape, lambda: back(y[:, :, :4], q, k, v, y)),
        (InvalidShape, lambda: back(y, q, k, v, y[0])),
        (InvalidShape, lambda: back(y, q, k[:, :3], v[:, :3], y)),
        (InvalidShape, lambda: back(y, q, k, v, y, mask=torch.zeros(5, 6))),
        (InvalidDType, lambda: back(y.double(), q, k, v, y)),
        (InvalidDType, lambda: back(y, q, k, v, y.int())),
        (InvalidDType, lambda: back(y, q, k, v, None)),
        (InvalidDType, lambda: back(y, q, k, v, y, mask=torch.ones(5, 5, dtype=torch.int64))),
        (InvalidOp, lambda: back(y, q, k, v, y, window=0)),
        (InvalidOp, lambda: back(y, q, k, v, y, score=power)),
        (InvalidOp, lambda: back(y, q, k, v, y, score=Input(0) + Input(1))),
        (InvalidOp, lambda: back(y, q, k, v, y, operands=(q,) * 5)),
        (InvalidInput, lambda: back(y, q.clone().requires_grad_(), k, v, y)),
    ):
        with pytest.raises(error, match="Remedy: "):
            call()
