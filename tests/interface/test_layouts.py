"""Elementwise results lie in memory as torch's and NumPy's do, and a kernel walks them as they lie."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import torch

import tracea
from tracea.core.dtype import DType
from tracea.core.expr import activation
from tracea.core.op import PointwiseOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.kernels.pointwise.chain import chain_plan

F = torch.nn.functional
STEPS = {
    ("relu",): (torch.relu, lambda a: np.maximum(a, 0)),
    ("add",): (torch.add, np.add),
    ("tanh", "mul", "add"): (lambda a, b, c: torch.tanh(a) * b + c, lambda a, b, c: np.tanh(a) * b + c),
}


def walked(array):
    """The strides along axes that take a step."""
    strides = array.stride() if isinstance(array, torch.Tensor) else np.array(array.strides) // array.itemsize
    return [stride for stride, extent in zip(strides, array.shape, strict=True) if extent > 1]


def operand(rng, shape):
    """A tensor that broadcasts to a shape, its axes in any order, with gaps or without."""
    order = rng.permutation(len(shape)) if rng.random() < 0.7 else np.arange(len(shape))
    own = [1 if rng.random() < 0.2 else extent for extent in shape]
    gaps = 2 if rng.random() < 0.2 else 1
    made = torch.from_numpy(rng.standard_normal([own[axis] * gaps for axis in order], np.float32))
    return made.permute(*np.argsort(order).tolist())[tuple(slice(None, None, gaps) for _ in shape)]


def takes_every_axis(operands):
    """Whether the first step's result, and so each, has several elements along every axis.

    Where one has not, torch asks the operands for their strides along that axis, which address nothing.
    """
    return 1 not in np.broadcast_shapes(*(operand.shape for operand in operands[:2]))


@pytest.mark.parametrize("steps", STEPS, ids="-".join)
def test_results_lie_as_those_of_torch_and_numpy(rng, steps):
    fused, (by_torch, by_numpy) = tracea.ops.fuse(steps), STEPS[steps]
    for _ in range(12):
        shape = rng.integers(2, 6, rng.integers(1, 5)).tolist()
        operands = [operand(rng, shape) for _ in range(fused.operands)]
        for given, reference in ((operands, by_torch), ([x.numpy() for x in operands], by_numpy)):
            y, wanted = fused(*given), reference(*given)
            if reference is by_numpy or takes_every_axis(given):
                assert walked(y) == walked(wanted), [(x.shape, walked(x)) for x in given]
            np.testing.assert_allclose(np.asarray(y), np.asarray(wanted), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_dense_permutation_is_one_run(dtype):
    x = torch.randn(9, 5, 13, 7).to(dtype).permute(2, 1, 0, 3)
    y = tracea.ops.fuse(["relu"])(x)
    assert y.stride() == x.stride()
    assert torch.equal(y, torch.relu(x))
    type_ = TensorType(tuple(x.shape), DType.F32, StridedLayout(x.stride()))
    op = PointwiseOp(expr=activation("relu"), inputs=(type_,), out_dtype=DType.F32, out=type_)
    assert chain_plan(op).dims(op.shape) == (prod(x.shape),)


def test_images_keep_channels_last():
    x = torch.randn(1, 6, 5, 3).contiguous(memory_format=torch.channels_last)
    y = tracea.ops.fuse(["silu", "add"])(x, torch.randn(6, 1, 1))
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert y.stride() == F.silu(x).stride()


def test_a_gradient_lies_as_what_comes_first(rng):
    x = operand(rng, (4, 5)).expand(4, 5)
    for grad in (torch.randn(4, 5), torch.randn(5, 4).T):
        y = tracea.ops.activation_backward(grad, x, "silu")
        assert y.stride() == torch.ops.aten.silu_backward(grad, x).stride()
        torch.testing.assert_close(y, torch.ops.aten.silu_backward(grad, x))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_an_out_keeps_its_own_layout(order):
    x = torch.randn(7, 4, 9).permute(2, 0, 1)
    out = torch.empty([x.shape[axis] for axis in order]).permute(*np.argsort(order).tolist())
    before = out.stride()
    assert tracea.ops.fuse(["tanh"])(x, out=out) is out
    assert out.stride() == before
    torch.testing.assert_close(out, torch.tanh(x))


def test_gaps_and_broadcasts_are_not_kept():
    add = tracea.ops.fuse(["add"])
    wide = torch.randn(6, 8)[:, ::2]
    row = torch.randn(1, 5).expand(6, 5)
    for x, y in ((wide, wide), (row, row), (torch.randn(5, 0).T, torch.randn(0, 5))):
        assert add(x, y).is_contiguous()
        torch.testing.assert_close(add(x, y), x + y)
