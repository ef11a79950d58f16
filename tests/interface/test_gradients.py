"""Gradients of softmax, norms and losses: gradcheck in float64, torch in float32, extreme and ignored rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.drawn import drawn

import tracea
from tracea.errors import InvalidDType, InvalidIndex, InvalidOp, InvalidShape

pytestmark = pytest.mark.usefixtures("one_thread")

functional = torch.nn.functional


def joined(forward: Any, backward: Any) -> Any:
    """Return a function of torch tensors with the gradient that we compute."""

    class Joined(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: torch.Tensor) -> torch.Tensor:
            given = [tensor.detach() for tensor in tensors]
            result = forward(*given)
            ctx.save_for_backward(result, *given)
            return result

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            result, *given = ctx.saved_tensors
            return backward(grad, result, *given)

    return Joined.apply


def doubles(rng, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape)).requires_grad_()


@pytest.mark.parametrize("dim", drawn(1, [0, 1, -1], of="gradients of softmax"))
def test_softmax_and_log_softmax(rng, dim):
    for forward, backward in (
        (tracea.ops.softmax, tracea.ops.softmax_backward),
        (tracea.ops.log_softmax, tracea.ops.log_softmax_backward),
    ):
        call = joined(lambda x, f=forward: f(x, dim), lambda g, y, x, b=backward: b(g.contiguous(), y, dim))
        assert torch.autograd.gradcheck(call, (doubles(rng, 3, 4, 5),))


@pytest.mark.costly
def test_layer_norm_and_rms_norm(rng):
    layer = joined(tracea.ops.layer_norm, lambda g, y, x, w, b: tracea.ops.layer_norm_backward(g, x, w))
    assert torch.autograd.gradcheck(layer, (doubles(rng, 4, 6), doubles(rng, 6), doubles(rng, 6)))
    rms = joined(tracea.ops.rms_norm, lambda g, y, x, w: tracea.ops.rms_norm_backward(g, x, w))
    assert torch.autograd.gradcheck(rms, (doubles(rng, 2, 3, 6), doubles(rng, 6)))


@pytest.mark.costly
@pytest.mark.parametrize("order", drawn(1, [(0, 1, 2, 3), (3, 1, 2, 0)], of="orders of images"), ids=str)
def test_group_norm_and_batch_norm(rng, order):
    def turned(x: torch.Tensor) -> torch.Tensor:
        return x.permute(*order)

    group = joined(
        lambda x, w, b: tracea.ops.group_norm(turned(x), 2, w, b),
        lambda g, y, x, w, b: (
            (found := tracea.ops.group_norm_backward(g, turned(x), 2, w))[0].permute(*order),
            *found[1:],
        ),
    )
    batch = joined(
        lambda x, w, b: tracea.ops.batch_norm_training(turned(x), w, b)[0],
        lambda g, y, x, w, b: (
            (found := tracea.ops.batch_norm_training_backward(g, turned(x), w))[0].permute(*order),
            *found[1:],
        ),
    )
    for call in (group, batch):
        assert torch.autograd.gradcheck(call, (doubles(rng, 3, 4, 3, 2), doubles(rng, 4), doubles(rng, 4)))
    nothing = torch.zeros(0, 4, 3)
    for dx, dw, db in (
        tracea.ops.group_norm_backward(nothing, nothing, 2),
        tracea.ops.batch_norm_training_backward(nothing, nothing),
    ):
        assert dx.shape == (0, 4, 3)
        assert dw.tolist() == db.tolist() == [0.0] * 4


NORMED = {
    "of four": ((2, 24, 9, 11), 6),
    "of ten": ((3, 40, 5, 4), 4),
    "volumes": ((1, 12, 3, 5, 7), 3),
    "rows": ((4, 60), 5),
}
LAST = {3: None, 4: torch.channels_last, 5: torch.channels_last_3d}


@pytest.mark.costly
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", drawn(2, NORMED, of="gradients of norms of channels"))
@pytest.mark.parametrize("is_weighted", [False, True])
def test_gradients_of_group_and_batch_norms_are_those_of_float64(rng, name, last, is_weighted):
    shape, groups = NORMED[name]
    order = LAST.get(len(shape)) if last else None
    x, g = (torch.from_numpy(rng.standard_normal(shape)).float() * 2 + 1 for _ in range(2))
    if order is not None:
        x, g = (each.contiguous(memory_format=order) for each in (x, g))
    w = torch.from_numpy(rng.standard_normal(shape[1])).float() if is_weighted else None
    _, mean, var = tracea.ops.batch_norm_training(x)
    for found, norm in (
        (tracea.ops.group_norm_backward(g, x, groups, w), lambda x, w, b: functional.group_norm(x, groups, w, b)),
        (
            tracea.ops.batch_norm_training_backward(g, x, w),
            lambda x, w, b: functional.batch_norm(x, None, None, w, b, True),
        ),
        (
            tracea.ops.batch_norm_training_backward(g, x, w, mean=mean, var=var),
            lambda x, w, b: functional.batch_norm(x, None, None, w, b, True),
        ),
    ):
        wide = [x, torch.ones(shape[1]) if w is None else w, torch.zeros(shape[1])]
        wide = [each.double().requires_grad_() for each in wide]
        norm(*wide).backward(g.double())
        assert found[0].stride() == x.stride()
        for made, source in zip(found, wide, strict=True):
            assert source.grad is not None
            assert float((made - source.grad).abs().max()) < 2e-5 * (1 + float(source.grad.abs().max()))


@pytest.mark.parametrize("last", [False, True])
def test_statistics_of_16_bits_are_not_taken_for_those_of_the_input(rng, last):
    """A variance beyond f16 is infinite: gradients that read it would be zeros."""
    x, g = (torch.from_numpy(rng.standard_normal((4, 6, 5, 5))).half() * 300 for _ in range(2))
    if last:
        x, g = (each.contiguous(memory_format=torch.channels_last) for each in (x, g))
    _, mean, var = tracea.ops.batch_norm_training(x)
    assert var.isinf().any()
    found = tracea.ops.batch_norm_training_backward(g, x, mean=mean, var=var)
    for made, alone in zip(found, tracea.ops.batch_norm_training_backward(g, x), strict=True):
        assert torch.equal(made, alone)
    assert float(found[0].abs().max()) > 0


def test_rows_and_groups_without_spread_have_the_gradient_of_their_mean(rng):
    """Their mean is rounded, and what is left of their elements would be scaled by the inverse root of eps."""
    for value, columns, eps in ((100.3, 24, 1e-12), (1e6 + 0.3, 3, 1e-5), (10000.7, 40, 1e-8)):
        x = torch.full((17, columns), value)
        g = torch.from_numpy(rng.standard_normal(x.shape)).float()
        dx, dw, _ = tracea.ops.layer_norm_backward(g, x, eps=eps)
        wanted = (g.double() - g.double().mean(1, keepdim=True)) / eps**0.5
        assert float((dx - wanted).abs().max()) < 1e-5 * float(wanted.abs().max())
        assert float(dw.abs().max()) == 0
    x = torch.from_numpy(rng.standard_normal((1, 1, 100003))).float() + 2
    x[..., :32] = 1e4  # what is taken for about the mean of the others
    g = torch.from_numpy(rng.standard_normal(x.shape)).float() + 1
    found = tracea.ops.group_norm_backward(g, x, 1)
    wide = x.double().requires_grad_()
    functional.group_norm(wide, 1).backward(g.double())
    assert wide.grad is not None
    assert float((found[0] - wide.grad).abs().max()) < 1e-5 * float(wide.grad.abs().max())


def test_nearly_equal_elements_leave_a_gradient_finite():
    x = torch.zeros(1, 4, 8, 8)
    x[..., 0] = 1e-20
    dx, dw, db = tracea.ops.group_norm_backward(torch.ones_like(x), x, 2, eps=1e-38)
    assert all(each.isfinite().all() for each in (dx, dw, db))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_gradient_of_a_batch_norm_is_made_from_sums_that_are_not_rounded(rng, dtype, is_weighted):
    """In f16 those of weight and bias are infinite here, and that of x is not."""
    x = torch.from_numpy(rng.standard_normal((6, 3, 40, 40))).to(dtype)
    g = (x * 30 + 40).to(dtype)
    w = torch.tensor([0.5, 2.0, -1.0], dtype=dtype) if is_weighted else None
    dx, dw, db = tracea.ops.batch_norm_training_backward(g, x, w)
    wide = x.double().requires_grad_()
    weight = (torch.ones(3) if w is None else w).double().requires_grad_()
    bias = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.batch_norm(wide, None, None, weight, bias, training=True).backward(g.double())
    assert wide.grad is not None
    close = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 5e-2)
    assert (dx.double() - wide.grad).abs().max() <= close * g.abs().max().double()
    for found, parameter in ((dw, weight), (db, bias)):
        assert found.dtype is dtype
        assert parameter.grad is not None
        assert torch.allclose(found, parameter.grad.to(dtype), rtol=close)
    assert (dtype is torch.float16) == bool(torch.isinf(db).any())


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope(rng, interleaved):
    cos, sin = doubles(rng, 3, 4).detach(), doubles(rng, 3, 4).detach()
    call = joined(
        lambda x: tracea.ops.rope(x, cos, sin, interleaved=interleaved),
        lambda g, y, x: tracea.ops.rope_backward(g, cos, sin, interleaved=interleaved),
    )
    assert torch.autograd.gradcheck(call, (doubles(rng, 2, 3, 8),))
    with pytest.raises(InvalidShape, match="grad: got"):
        tracea.ops.rope_backward(torch.zeros(3, 7), cos.float(), sin.float())


def test_the_gradients_of_a_norm_of_more_columns_than_its_kernel_takes(rng):
    x, grad = (torch.from_numpy(rng.standard_normal((1, 2**24 + 1), np.float32)) for _ in range(2))
    normal, about = torch.nn.functional.layer_norm(x.double(), x.shape[1:]), grad.double() - grad.double().mean()
    expected = (about - normal * (about * normal).mean()) / (x.double().var(1, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(tracea.ops.layer_norm_backward(grad, x)[0].double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("reduction", drawn(1, ["mean", "sum", "none"], of="cross-entropy"))
@pytest.mark.parametrize("smoothing", [pytest.param(0.0, marks=pytest.mark.slow), 0.2])
def test_cross_entropy(rng, reduction, smoothing):
    options = {"reduction": reduction, "label_smoothing": smoothing, "ignore_index": 2}
    for shape in ((5, 7), (2, 6, 3), (7,)):
        target = torch.from_numpy(rng.integers(0, min(shape[-2:]), (*shape[:1], *shape[2:]) if len(shape) > 1 else ()))
        if target.ndim:
            target.view(-1)[1] = 2
        elif int(target) == 2:
            target = target + 1
        call = joined(
            lambda x, t=target: tracea.ops.cross_entropy(x, t, **options),
            lambda g, y, x, t=target: tracea.ops.cross_entropy_backward(g.contiguous(), x, t, **options),
        )
        logits = doubles(rng, *shape)
        assert torch.autograd.gradcheck(call, (logits,))
        expected = functional.cross_entropy(logits.detach(), target, **options)
        assert torch.allclose(tracea.ops.cross_entropy(logits.detach(), target, **options), expected)


@pytest.mark.costly
def test_in_float32_and_bfloat16_beside_torch(rng):
    for dtype, close in ((torch.float32, 1e-4), (torch.bfloat16, 5e-2)):
        x, g = (torch.from_numpy(rng.standard_normal((37, 130))).to(dtype) for _ in range(2))
        w = torch.from_numpy(rng.standard_normal(130)).to(dtype)
        wide = [tensor.double().requires_grad_() for tensor in (x, w, w)]
        expected = torch.autograd.grad(functional.layer_norm(wide[0], (130,), wide[1], wide[2]), wide, g.double())
        for found, meant in zip(tracea.ops.layer_norm_backward(g, x, w), expected, strict=True):
            assert float(((found - meant).abs() / (1 + meant.abs())).max()) < close
        y = x.double().softmax(-1)
        meant = y * (g.double() - (g.double() * y).sum(-1, keepdim=True))
        assert float((tracea.ops.softmax_backward(g, y.to(dtype)) - meant).abs().max()) < close


@pytest.mark.costly
@pytest.mark.parametrize(
    "dtype",
    drawn(2, [torch.float64, torch.float32, torch.float16, torch.bfloat16], of="types of norms of one row"),
    ids=str,
)
@pytest.mark.parametrize("shape", drawn(1, [(1, 64), (64,), (1, 1, 9)], of="norms of one row"))
def test_the_gradients_of_a_norm_of_one_row(shape, dtype, rng):
    x, g = (torch.from_numpy(rng.standard_normal(shape)).to(dtype) for _ in range(2))
    w = torch.from_numpy(rng.standard_normal(shape[-1])).to(dtype)
    wide = [tensor.double().clone().requires_grad_() for tensor in (x, w, w)]
    close = 1e-10 if dtype is torch.float64 else 16 * torch.finfo(dtype).eps
    size = (shape[-1],)
    expected = torch.autograd.grad(functional.layer_norm(wide[0], size, wide[1], wide[2]), wide, g.double())
    of_rms = torch.autograd.grad(functional.rms_norm(wide[0], size, wide[1], 1e-6), wide[:2], g.double())
    made = tracea.ops.layer_norm_backward(g, x, w), tracea.ops.rms_norm_backward(g, x, w)
    for found, meant in ((made[0], expected), (made[1], of_rms)):
        for got, wanted in zip(found, meant, strict=True):
            assert got.shape == wanted.shape
            torch.testing.assert_close(got.double(), wanted, rtol=close, atol=close)


@pytest.mark.costly
@pytest.mark.parametrize("reduction", drawn(1, ["mean", "sum", "none"], of="losses of one class"))
@pytest.mark.parametrize("shape", drawn(3, [(64, 1), (2, 1), (2, 1, 4), (1, 1), (1,)], of="one class"), ids=str)
def test_the_loss_of_one_class_is_nothing(shape, reduction, rng):
    logits = torch.from_numpy(rng.standard_normal(shape)).requires_grad_()
    of_all = torch.zeros(shape[:1] * (len(shape) > 1) + shape[2:], dtype=torch.int64)
    some = of_all.clone()
    some.reshape(-1)[:1] = -100
    for target in (of_all, some, torch.full_like(of_all, -100)):
        expected = functional.cross_entropy(logits, target, reduction=reduction)
        g = torch.ones_like(expected)
        (wanted,) = torch.autograd.grad(expected, logits, g)
        found = tracea.ops.cross_entropy(logits.detach(), target, reduction=reduction)
        torch.testing.assert_close(found, expected.detach(), equal_nan=True)
        got = tracea.ops.cross_entropy_backward(g, logits.detach(), target, reduction=reduction)
        torch.testing.assert_close(got, wanted, equal_nan=True)


@pytest.mark.costly
@pytest.mark.parametrize("threads", [1, 2])
def test_sums_over_many_long_rows(rng, threads):
    torch.set_num_threads(threads)
    x, g, w = (torch.from_numpy(rng.standard_normal(shape)) for shape in ((1536, 520), (1536, 520), (520,)))
    wide = [x.clone().requires_grad_(), w.clone().requires_grad_(), w.clone().requires_grad_()]
    expected = torch.autograd.grad(functional.layer_norm(wide[0], (520,), wide[1], wide[2]), wide, g)
    for found, meant in zip(tracea.ops.layer_norm_backward(g, x, w), expected, strict=True):
        assert torch.allclose(found, meant, rtol=1e-9, atol=1e-9)
    assert torch.allclose(tracea.ops.sum(x, 0), x.sum(0), rtol=1e-11, atol=1e-11)
    assert torch.allclose(tracea.ops.var(x, 0), x.var(0), rtol=1e-11, atol=1e-11)


def test_extreme_scores_and_ignored_rows(rng):
    logits = torch.from_numpy(rng.standard_normal((6, 9))).float() * 1e4
    logits[1, 3], logits[2, 4] = -math.inf, math.nan
    target = torch.tensor([1, 3, 4, -100, 8, 0])
    for reduction in ("none", "sum"):
        expected = functional.cross_entropy(logits, target, reduction=reduction)
        found = tracea.ops.cross_entropy(logits, target, reduction=reduction)
        assert torch.allclose(found, expected, equal_nan=True)
    everything = torch.full((6,), -100)
    assert math.isnan(tracea.ops.cross_entropy(logits[3:4], everything[:1]))
    grad = tracea.ops.cross_entropy_backward(torch.ones(6), logits, target, reduction="none")
    assert float(grad[3].abs().max()) == 0.0
    assert torch.isnan(grad[2]).all()
    assert torch.isfinite(grad[[0, 3, 4, 5]]).all()


def test_a_target_that_is_no_class_is_said_with_the_number_of_classes(rng):
    logits = torch.zeros(3, 5)
    for wrong in (5, -1, 2**40):
        with pytest.raises(InvalidIndex, match=rf"got {wrong}, expected 0 to 4, of 5 classes"):
            tracea.ops.cross_entropy(logits, torch.tensor([0, wrong, 1]))
    with pytest.raises(IndexError):
        tracea.ops.cross_entropy_backward(torch.ones(()), logits, torch.tensor([0, 9, 1]))


X, T = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)
REFUSED = {
    "targets of floats": (InvalidDType, lambda: tracea.ops.cross_entropy(X, X[:, 0])),
    "logits of integers": (InvalidDType, lambda: tracea.ops.cross_entropy(X.int(), T)),
    "targets of another shape": (InvalidShape, lambda: tracea.ops.cross_entropy(X, T[:1])),
    "an unknown reduction": (InvalidOp, lambda: tracea.ops.cross_entropy(X, T, reduction="median")),
    "a smoothing above 1": (InvalidOp, lambda: tracea.ops.cross_entropy(X, T, label_smoothing=1.5)),
    "a gradient of another shape": (InvalidShape, lambda: tracea.ops.cross_entropy_backward(X, X, T)),
    "gradients that are not alike": (InvalidShape, lambda: tracea.ops.softmax_backward(X, X[:1])),
    "groups that do not divide the channels": (
        InvalidShape,
        lambda: tracea.ops.group_norm_backward(X[..., None], X[..., None], 2),
    ),
    "a mean without a variance": (
        InvalidOp,
        lambda: tracea.ops.batch_norm_training_backward(X, X, mean=T.float()),
    ),
    "no number of groups": (InvalidOp, lambda: tracea.ops.group_norm_backward(X, X, 0)),
    "a weight of other channels": (InvalidShape, lambda: tracea.ops.batch_norm_training_backward(X, X, T.float())),
    "a weight of another length": (InvalidShape, lambda: tracea.ops.layer_norm_backward(X, X, torch.zeros(2))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_a_remedy(name):
    error, call = REFUSED[name]
    with pytest.raises(error, match="Remedy: "):
        call()
