"""Tests for tracea.flow.channel_moments: norms of channels that come last, far from zero, of any order, each alone."""

from __future__ import annotations

import pytest
import torch
from tests.drawn import drawn

import tracea

LAST = torch.channels_last
ORDERS = {(x, grad): f"x {x}, grad {grad}" for x in ("rows", "last") for grad in ("rows", "last")}


def ordered(x: torch.Tensor, order: str) -> torch.Tensor:
    return x.contiguous(memory_format=LAST) if order == "last" else x.contiguous()


def far(rng, *shape: int) -> torch.Tensor:
    """Return elements whose mean is a million deviations from zero, and a channel without any spread."""
    x = torch.from_numpy(rng.standard_normal(shape)).float() * 1e-2 + 1e4
    x[:, 1] = 1000.1
    return x


@pytest.mark.parametrize("order", drawn(2, list(ORDERS), of="orders of x and its gradient"), ids=ORDERS.get)
def test_the_gradient_of_a_batch_norm_keeps_its_digits_far_from_zero(order, rng):
    x, grad = ordered(far(rng, 3, 21, 14, 13), order[0]), torch.from_numpy(rng.standard_normal((3, 21, 14, 13))).float()
    weight = torch.from_numpy(rng.standard_normal(21)).float()
    exact, factor = x.double().requires_grad_(), weight.double().requires_grad_()
    bias = torch.zeros(21, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.batch_norm(exact, None, None, factor, bias, training=True).backward(grad.double())
    found = tracea.ops.batch_norm_training_backward(ordered(grad, order[1]), x, weight)
    assert found[0].stride() == x.stride()
    others = [channel for channel in range(21) if channel != 1]  # without spread a float64 mean has its own rounding
    for ours, theirs, axis in zip(found, (exact.grad, factor.grad, bias.grad), (1, 0, 0), strict=True):
        made, wanted = (of.double().movedim(axis, 0)[others] for of in (ours, theirs))
        # Planes in rows are about means that are stored: up to 4e-4 there, 1e-7 elsewhere.
        close = 2e-3 if order == ("rows", "rows") else 2e-6
        assert float((made - wanted).abs().max()) < close * float(wanted.abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("operand", ["x", "grad"])
@pytest.mark.parametrize(
    "value", drawn(1, [float("nan"), float("inf"), -float("inf")], of="values that are not finite")
)
def test_a_channel_that_is_not_finite_changes_no_bit_of_another(operand, value, dtype, rng):
    x, grad = (ordered(far(rng, 2, 19, 9, 11).to(dtype), "last") for _ in range(2))
    odd = {"x": x.clone(), "grad": grad.clone()}
    odd[operand][1, 7, 3, 3] = value
    runs = [
        (*tracea.ops.batch_norm_training(a), *tracea.ops.batch_norm_training_backward(b, a))
        for a, b in ((x, grad), (odd["x"], odd["grad"]))
    ]
    others = [channel for channel in range(19) if channel != 7]
    for before, after in zip(*runs, strict=True):
        axis = min(1, before.dim() - 1)
        assert torch.equal(before.movedim(axis, 0)[others], after.movedim(axis, 0)[others])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_norms_of_one_pixel_have_gradients(dtype):
    x = torch.arange(140, dtype=dtype).view(2, 70)
    for found in (
        tracea.ops.group_norm_backward(x, x, 7),
        tracea.ops.batch_norm_training_backward(x[:1], x[:1]),
        tracea.ops.group_norm_backward(ordered(x[..., None, None], "last"), ordered(x[..., None, None], "last"), 7),
    ):
        assert all(bool(part.isfinite().all()) for part in found)


def test_a_variance_is_never_below_zero(rng):
    for _ in range(20):
        x = torch.from_numpy(
            rng.standard_normal((2, 24, 5, 7)) * 1e-6 + rng.standard_normal((1, 24, 1, 1)) * 10
        ).float()
        y, _, variance = tracea.ops.batch_norm_training(ordered(x, "last"), eps=1e-30)
        assert bool((variance >= 0).all())
        assert bool(y.isfinite().all())
