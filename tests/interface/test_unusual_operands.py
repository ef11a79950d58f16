"""Arrays that say little of themselves: known by DLPack alone, booleans of other bytes than 0 and 1, no channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tracea
from tracea.errors import InvalidOp, InvalidShape

pytestmark = pytest.mark.usefixtures("one_thread")

ops = tracea.ops
BYTES = np.array([255, 0, 255, 2, 0, 255] * 11, np.uint8)


class Exported:
    """An array that is known by DLPack alone."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __dlpack__(self, **how: Any) -> Any:
        return self._array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape).astype(np.float32)


def test_arrays_known_by_dlpack_alone_are_taken_where_shapes_are_read_first(rng) -> None:
    x, weights = floats(rng, 5, 8), floats(rng, 2, 8, 4)
    a, b, mask = floats(rng, 64, 64), floats(rng, 64, 64), np.array([[True, False], [True, True]])
    q, filters, image = floats(rng, 1, 2, 8, 16), floats(rng, 4, 2, 3, 3), floats(rng, 1, 2, 6, 6)
    volume, cube = floats(rng, 1, 2, 4, 4, 4), floats(rng, 3, 2, 3, 3, 3)
    calls = {
        "grouped_gemm": lambda of: ops.grouped_gemm(of(x), of(weights), [2, 5]),
        "grouped_gemm of no depth": lambda of: ops.grouped_gemm(of(x[:, :0]), of(weights[:, :0]), [2, 5]),
        "block_sparse_matmul": lambda of: ops.block_sparse_matmul(of(a), of(b), mask, block_size=32),
        "of the first factor": lambda of: ops.block_sparse_matmul(of(a), of(b), mask, block_size=32, factor="a"),
        "attention": lambda of: ops.attention(of(q), of(q), of(q), lengths=[3, 5]),
        "conv2d": lambda of: ops.conv2d(of(image), of(filters), padding="same"),
        "conv3d": lambda of: ops.conv3d(of(volume), of(cube), padding="same"),
    }
    for name, call in calls.items():
        np.testing.assert_array_equal(np.asarray(call(Exported)), call(np.asarray), err_msg=name)


def test_booleans_of_other_bytes_count_as_true() -> None:
    seen = BYTES.view(bool)
    for mask in (seen, torch.from_numpy(seen), seen[::2], np.asfortranarray(seen.reshape(6, 11))):
        assert int(ops.sum(mask)) == int(np.asarray(mask).sum())
    chosen = ops.fuse(["mul"])(np.ones(66, np.float32), seen)
    np.testing.assert_array_equal(chosen, seen.astype(np.float32))

    class Masked(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return mask.float() * x, mask.sum(), mask & ~mask[:1]

    x, mask = torch.randn(66), torch.from_numpy(seen)
    found = tracea.optimize(Masked().eval(), (x, mask), budget=None)(x, mask)
    for got, meant in zip(found, Masked()(x, mask), strict=True):
        assert torch.equal(got, meant)


@pytest.mark.parametrize("shape", [(3, 0), (2, 0, 4), (2, 0, 4, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_no_channels_have_empty_statistics(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    found = ops.batch_norm_training(torch.empty(shape, dtype=dtype))
    assert [(tuple(each.shape), each.dtype) for each in found] == [(shape, dtype), ((0,), dtype), ((0,), dtype)]


def test_gradients_of_no_filters_are_zero() -> None:
    for axes, gradient in ((1, ops.conv1d_grad_input), (2, ops.conv2d_grad_input), (3, ops.conv3d_grad_input)):
        grad, weight = torch.randn(1, 0, *(3,) * axes), torch.randn(0, 2, *(3,) * axes)
        found = gradient(grad, weight, (1, 2, *(5,) * axes))
        assert torch.equal(found, torch.zeros(1, 2, *(5,) * axes)), axes


@pytest.mark.parametrize("correction", [2, 3, 4.5])
def test_more_correction_than_elements_has_the_gradient_of_torch(correction: float, rng) -> None:
    x = torch.from_numpy(rng.standard_normal((3, 2))).requires_grad_()
    grad = torch.from_numpy(rng.standard_normal(3))
    for forward, backward in ((torch.var, ops.var_backward), (torch.std, ops.std_backward)):
        with pytest.warns(UserWarning, match="degrees of freedom"):
            (meant,) = torch.autograd.grad(forward(x, dim=1, correction=correction), x, grad)
        found = backward(grad, x.detach(), 1, correction=correction)
        torch.testing.assert_close(found, meant, equal_nan=True, msg=f"{forward.__name__}: {found} {meant}")


class Broken:
    def __iter__(self) -> Any:
        raise ValueError("boom")


def test_what_is_wrong_is_said_of_the_argument() -> None:
    with pytest.raises(InvalidOp, match="output_size"):
        ops.adaptive_avg_pool2d(torch.ones(1, 1, 4, 4), [np.array([1, 2]), None])
    with pytest.raises(InvalidShape, match="shape: "):
        ops.sum_backward(torch.ones(2), torch.ones(2, 3), Broken())
    with pytest.raises(InvalidShape, match=r"^operand 0: got \(\)"):
        ops.fuse(["softmax"])(torch.tensor(1.0))
    with pytest.raises(InvalidShape, match=r"^x: got \(0, 3\)"):
        ops.amax(torch.empty(0, 3), 0)
