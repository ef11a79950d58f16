"""Pooling of images in rows by pixels: against torch, and when windows are left to a kernel for channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.kernels.slab_cases import F32, tensor
from torch.nn import functional

import tracea
from tracea.core.ops.pool2d import Pool2dOp, PoolKind
from tracea.core.tensor_type import TensorType
from tracea.flow.pool_sections import pooled_by_pixels

DTYPES = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def pool(x: TensorType, kernel: tuple[int, int] = (3, 3), **more: Any) -> Pool2dOp:
    return Pool2dOp(kind=PoolKind.MAX, x=x, kernel=kernel, **{"stride": (1, 1), **more})


def test_a_window_is_as_many_views_as_it_has_places() -> None:
    op = pool(tensor(40, 8, 1, 64), kernel=(1, 3), stride=(1, 2), padding=(0, 1))
    sections = pooled_by_pixels(op)
    assert sections is not None
    edge, whole = sections
    assert [part.offset for part in edge.operands] == [0, 1]  # type: ignore[union-attr]
    assert [part.offset for part in whole.operands] == [1, 2, 3]  # type: ignore[union-attr]
    assert (edge.offset, whole.offset) == (0, 1)
    assert (edge.op.infer().static_shape, whole.op.infer().static_shape) == ((40, 8, 1, 1), (40, 8, 1, 31))
    assert whole.op.operands[0].strides == (512, 64, 0, 2)


def test_what_vectors_of_pixels_do_not_fill_is_left_to_channels() -> None:
    assert pooled_by_pixels(pool(tensor(8, 32, 14, 14), padding=(1, 1))) is not None
    for op in (
        pool(tensor(8, 32, 14, 14, strides=(6272, 1, 448, 32))),
        pool(tensor(8, 32, 14, 14), out=tensor(8, 32, 12, 12, strides=(4608, 1, 384, 32))),
        pool(tensor(64, 64, 9, 9)),  # 7 results side by side
        pool(tensor(64, 64, 40, 40), stride=(2, 2)),  # 19, apart
        pool(tensor(8, 32, 60, 60), kernel=(5, 4)),  # 20 places
        pool(tensor(8, 32, 60, 60), kernel=(4, 4), padding=(2, 2)),  # borders of two rows and two columns
        pool(tensor(1, 2, 14, 14)),  # few results
    ):
        assert pooled_by_pixels(op) is None


def random_image(rng: np.random.Generator, axes: int, dtype: torch.dtype) -> torch.Tensor:
    """Return an image or a signal in rows, which may be a part of a larger one, with a few extreme elements."""
    sizes = [int(size) for size in (rng.integers(1, 4), rng.integers(24, 40), *rng.integers(60, 130, axes))]
    x = torch.from_numpy(rng.standard_normal([sizes[0], sizes[1] + 2, *(size + 3 for size in sizes[2:])])).to(dtype)
    for value in (np.inf, -np.inf, np.nan, 0.0, -0.0):
        x.view(-1)[int(rng.integers(0, x.numel()))] = value
    if rng.integers(2):
        return x[:, 1:-1, *(slice(1, 1 + size) for size in sizes[2:])]
    return x[:, : sizes[1], *(slice(size) for size in sizes[2:])].contiguous()


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_windows_are_torchs(axes: int, dtype: torch.dtype, rng: np.random.Generator) -> None:
    seen = 0
    for _ in range(3):
        x = random_image(rng, axes, dtype)
        kernel = [int(size) for size in rng.integers(1, 5, axes)]
        stride = [int(step) for step in rng.integers(1, 4, axes)]
        padding = [int(rng.integers(0, min(1, size // 2) + 1)) for size in kernel]
        ceil, counted = bool(rng.integers(2)), bool(rng.integers(2))
        whole = [[1, *sizes] if axes == 1 else sizes for sizes in (kernel, stride)]
        shape, steps, edges = x.shape, x.stride(), padding
        if axes == 1:
            shape, steps, edges = (*shape[:2], 1, shape[2]), (*steps[:2], 0, 1), [0, *padding]
        op = pool(
            tensor(*shape, strides=steps), tuple(whole[0]), stride=tuple(whole[1]), padding=tuple(edges), ceil=ceil
        )
        seen += pooled_by_pixels(op) is not None
        name = ("max_pool", "avg_pool")[rng.integers(2)] + f"{axes}d"
        more = {"count_include_pad": counted} if name.startswith("avg") else {}
        found = getattr(tracea.ops, name)(x, kernel, stride, padding, ceil_mode=ceil, **more)
        wanted = getattr(functional, name)(x.double(), kernel, stride, padding, ceil_mode=ceil, **more)
        assert found.dtype is dtype
        assert found.stride() == getattr(functional, name)(x, kernel, stride, padding, ceil_mode=ceil, **more).stride()
        torch.testing.assert_close(found.double(), wanted, rtol=DTYPES[dtype], atol=DTYPES[dtype], equal_nan=True)
    assert seen


def test_results_go_where_they_are_asked_for(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 24, 30, 62)).astype(F32.numpy)
    room = np.full((2, 24, 30, 64), np.nan, F32.numpy)
    found = tracea.ops.max_pool2d(x, 3, 1, 1, out=room[..., 1:63])
    assert np.shares_memory(found, room)
    assert np.array_equal(found, tracea.ops.max_pool2d(x, 3, 1, 1))
    assert np.isnan(room[..., 0]).all()
    assert np.isnan(room[..., 63]).all()
