"""tracea.ops.low_rank_mlp on torch tensors and NumPy arrays: values, layouts, out=, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

import tracea
from tracea.errors import InvalidDType, InvalidOp, InvalidShape


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_two_thin_factors_give_what_three_products_give(dtype: torch.dtype, rng: np.random.Generator) -> None:
    m, n, k, r = (int(value) for value in rng.integers(2, (70, 90, 60, 40)))
    x, a, b, bias = (torch.from_numpy(rng.standard_normal(s)).to(dtype) for s in ((m, k), (k, r), (r, n), (n,)))
    got = tracea.ops.low_rank_mlp(x, a, b, bias=bias, activation="gelu")
    wanted = functional.gelu(x.double() @ a.double() @ b.double() + bias.double())
    assert got.dtype is dtype
    scale = float((x.double().abs() @ a.double().abs() @ b.double().abs()).max())
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-14, torch.bfloat16: 1e-2}[dtype]
    assert float((got.double() - wanted).abs().max()) <= tolerance * (scale + 1)


def test_any_layout_and_a_result_of_the_callers(rng: np.random.Generator) -> None:
    x, a, b = (rng.standard_normal(s).astype(np.float32) for s in ((40, 33), (7, 40), (18, 7)))
    out = np.empty((18, 33), np.float32).T
    assert tracea.ops.low_rank_mlp(x.T, a.T, b.T, out=out) is out
    np.testing.assert_allclose(out, x.T.astype(np.float64) @ a.T @ b.T, rtol=1e-4, atol=1e-3)


def test_nothing_in_nothing_out() -> None:
    x, a, b = np.ones((0, 4), np.float32), np.ones((4, 2), np.float32), np.ones((2, 3), np.float32)
    assert tracea.ops.low_rank_mlp(x, a, b).shape == (0, 3)


def test_what_does_not_fit_is_refused() -> None:
    x, a, b = np.ones((5, 4), np.float32), np.ones((4, 2), np.float32), np.ones((2, 3), np.float32)
    for bad in ((x, b, a), (x[None], a, b), (x, a[:, :0], b), (x[:, :0], a, b)):
        with pytest.raises(InvalidShape):
            tracea.ops.low_rank_mlp(*bad)
    with pytest.raises(InvalidShape):
        tracea.ops.low_rank_mlp(x, a, b, bias=np.ones(4, np.float32))
    with pytest.raises(InvalidDType):
        tracea.ops.low_rank_mlp(x, a.astype(np.float64), b)
    with pytest.raises(InvalidOp):
        tracea.ops.low_rank_mlp(x, a, b, activation="none such")


def test_a_product_over_nothing_is_the_epilogue_of_zero() -> None:
    x, a, b = np.ones((5, 4), np.float32), np.ones((4, 2), np.float32), np.ones((2, 3), np.float32)
    bias = np.array([1.0, -2.0, 0.5], np.float32)
    for empty in ((x, a[:, :0], b[:0]), (x[:, :0], a[:0], b), (x[:, :0], a[:0, :0], b[:0])):
        found = tracea.ops.low_rank_mlp(*empty, bias=bias, activation="relu")
        assert np.array_equal(found, np.broadcast_to(np.maximum(bias, 0), (5, 3)))
    out = np.full((3, 5), 9, np.float32).T
    assert tracea.ops.low_rank_mlp(x, a[:, :0], b[:0], out=out) is out
    assert not out.any()
