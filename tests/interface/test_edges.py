"""The edges of shapes: axes that do not merge, results in the caller's strides, extents of 0, numbers for vectors."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.drawn import drawn

import tracea
from tracea.errors import InvalidIndex, InvalidOp, InvalidShape

pytestmark = pytest.mark.usefixtures("one_thread")

F = torch.nn.functional
ops = tracea.ops


def doubles(rng, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape))


def assert_same(found: Any, meant: Any) -> None:
    for got, wanted in zip(*((each,) if torch.is_tensor(each) else each for each in (found, meant)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10, equal_nan=True)


@pytest.mark.costly
@pytest.mark.parametrize("dim", drawn(1, [(0, 2, 4, 6), (1, 3, 5)], of="axes that never meet"))
def test_axes_that_never_meet_are_reduced_one_after_another(dim, rng) -> None:
    x = doubles(rng, 2, 3, 2, 3, 2, 3, 2)
    for name, meant in (("sum", x.sum(dim)), ("amin", x.amin(dim)), ("mean", x.mean(dim)), ("std", x.std(dim))):
        assert_same(getattr(ops, name)(x, dim), meant)
    assert_same(ops.var(x, dim, keepdim=True), x.var(dim, keepdim=True))


def scattered(*shape: int) -> torch.Tensor:
    """Memory in the reversed order of axes, with gaps, full of 9."""
    whole = torch.full([2 * size for size in shape[::-1]], 9.0, dtype=torch.float64)
    return whole.permute(*range(len(shape))[::-1])[tuple(slice(None, None, 2) for _ in shape)]


@pytest.mark.parametrize(
    "view",
    drawn(
        1,
        [
            lambda x: x.permute(3, 1, 2, 0),
            lambda x: x[:, :, :1].expand(7, 12, 5, 3),
            lambda x: x[:, :, ::2, 1:],
        ],
        of="channels that do not merge",
    ),
    ids=["permuted", "expanded", "gaps"],
)
def test_group_and_batch_norm_of_channels_that_do_not_merge_with_their_pixels(view, rng) -> None:
    x, weight, bias = view(doubles(rng, 7, 12, 5, 3)), doubles(rng, 12), doubles(rng, 12)
    assert_same(ops.group_norm(x, 4, weight, bias), F.group_norm(x, 4, weight, bias))
    out = scattered(*x.shape)
    assert ops.group_norm(x, 4, weight, out=out) is out
    assert_same(out.clone(), F.group_norm(x, 4, weight))
    assert float(out._base.sum()) == pytest.approx(float(out.sum()) + 9.0 * (out._base.numel() - out.numel()))
    assert_same(ops.batch_norm_training(x, weight, bias)[0], F.batch_norm(x, None, None, weight, bias, True))


@pytest.mark.costly
def test_results_are_written_in_the_strides_of_out(rng) -> None:
    logits, target = doubles(rng, 2, 11, 5, 3), torch.from_numpy(rng.integers(0, 11, (2, 5, 3)))
    indices, table = target[0], doubles(rng, 11, 6)
    wanted = logits.clone().requires_grad_()
    F.cross_entropy(wanted, target).backward()
    one, row = torch.ones((), dtype=torch.float64), logits[0, :, 0, 0].clone().requires_grad_()
    F.cross_entropy(row, target[0, 0, 0]).backward()
    y = logits.softmax(1)
    calls = {
        "embedding": (lambda out: ops.embedding(indices, table, out=out), table[indices]),
        "cross_entropy": (
            lambda out: ops.cross_entropy(logits, target, reduction="none", out=out),
            F.cross_entropy(logits, target, reduction="none"),
        ),
        "its gradient": (lambda out: ops.cross_entropy_backward(one, logits, target, out=out), wanted.grad),
        "its gradient of one row": (
            lambda out: ops.cross_entropy_backward(one, row.detach(), target[0, 0, 0], out=out),
            row.grad,
        ),
        "softmax": (lambda out: ops.softmax(logits, 1, out=out), y),
        "log_softmax": (lambda out: ops.log_softmax(logits, 2, out=out), logits.log_softmax(2)),
        "softmax_backward": (
            lambda out: ops.softmax_backward(logits, y, 1, out=out),
            y * (logits - (logits * y).sum(1, True)),
        ),
        "cumsum": (lambda out: ops.cumsum(logits, 1, out=out), logits.cumsum(1)),
    }
    for name, (call, meant) in calls.items():
        out = scattered(*meant.shape)
        assert call(out) is out, name
        assert_same(out.clone(), meant)
        assert int((out._base == 9.0).sum()) >= out._base.numel() - out.numel(), name


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmax_backward", "log_softmax_backward"])
def test_an_out_of_another_rank_is_refused(name) -> None:
    x = torch.zeros(4, 5, 6)
    given = (x, x) if name.endswith("backward") else (x,)
    for out in (torch.zeros(3), torch.zeros(4, 6, 5)):
        with pytest.raises(InvalidShape, match=r"out: got f32.*expected f32\[4×5×6\]"):
            getattr(ops, name)(*given, 1, out=out)


def test_a_number_has_one_axis_as_in_torch() -> None:
    x = torch.tensor(3.0, dtype=torch.float64)
    for dim in (0, -1):
        for name in ("softmax", "log_softmax", "cumsum", "argmax"):
            assert_same(getattr(ops, name)(x, dim), getattr(torch, name)(x, dim))
        assert_same(ops.topk(x, 1, dim), tuple(torch.topk(x, 1, dim)))
        assert_same(ops.softmax_backward(x, torch.ones_like(x), dim), torch.zeros_like(x))
        assert_same(ops.log_softmax_backward(x, torch.zeros_like(x), dim), torch.zeros_like(x))
    for call in (ops.softmax, ops.cumsum, ops.argmax, lambda x, dim: ops.topk(x, 1, dim)):
        with pytest.raises(InvalidShape, match="dim: got 1, expected an axis of rank 0"):
            call(x, 1)


@pytest.mark.parametrize("shape", [(4, 0, 6), (0, 5), (5, 0)])
def test_rows_of_nothing_and_no_rows(shape) -> None:
    x = torch.zeros(shape, dtype=torch.float64)
    for dim in range(len(shape)):
        assert_same(ops.softmax(x, dim), x)
        assert_same(ops.log_softmax(x, dim), x)
        assert_same(ops.softmax_backward(x, x, dim, out=torch.zeros_like(x)), x)
        assert_same(ops.cumsum(x, dim), x)
    weight = torch.ones(shape[-1], dtype=torch.float64)
    assert_same(ops.layer_norm_backward(x, x, weight), (x, weight * 0, weight * 0))
    assert_same(ops.rms_norm_backward(x, x, weight), (x, weight * 0))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", [(0, 11), (2, 11, 0), (3, 0)])
def test_cross_entropy_of_no_rows_and_of_no_classes_that_are_ignored(shape, reduction) -> None:
    logits = torch.zeros(shape, dtype=torch.float64)
    target = torch.full((shape[0], *shape[2:]), -100)
    meant = F.cross_entropy(logits, target, reduction=reduction)
    assert_same(ops.cross_entropy(logits, target, reduction=reduction), meant)
    assert_same(ops.cross_entropy_backward(torch.ones_like(meant), logits, target, reduction=reduction), logits)


def test_targets_and_ignored_ones_beyond_what_f64_tells_apart() -> None:
    logits = torch.zeros(3, 5)
    for wrong in (2**53 + 1, 2**62 + 1, -(2**62) - 1):
        with pytest.raises(InvalidIndex, match=f"got {wrong}, expected 0 to 4, of 5"):
            ops.cross_entropy(logits, torch.tensor([0, wrong, 1]), ignore_index=2**53 - 1)
    with pytest.raises(InvalidOp, match=f"ignore_index: got {2**62}, expected a whole number within 2"):
        ops.cross_entropy(logits, torch.tensor([0, 2**62 + 1, 1]), ignore_index=2**62)
    assert math.isclose(ops.cross_entropy(logits, torch.tensor([0, -7, 1]), ignore_index=-7), math.log(5), rel_tol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 5), (3, 0), (5,), (0, 4)])
def test_the_zero_largest_are_none(shape, dtype) -> None:
    x = torch.ones(shape, dtype=dtype)
    for dim in range(len(shape)):
        for largest in (True, False):
            found, wanted = ops.topk(x, 0, dim, largest=largest), torch.topk(x, 0, dim, largest)
            assert [(each.shape, each.dtype) for each in found] == [(each.shape, each.dtype) for each in wanted]
        back = ops.topk_backward(*found, shape[dim], dim)
        assert torch.equal(back, torch.zeros(shape, dtype=dtype))
    with pytest.raises(InvalidShape):
        ops.topk(x, 0, len(shape))
    array = ops.topk(x.float().numpy(), 0)
    assert [each.shape for each in array] == [(*shape[:-1], 0)] * 2
