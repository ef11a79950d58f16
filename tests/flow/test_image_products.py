"""Tests for tracea.flow.image_products: gradients of images of 1x1 convolutions as one product, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.drawn import drawn

import tracea
from tracea.core.dtype import DType
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow.image_products import ImageProduct
from tracea.flow.transposed import Transposed

TOLERANCE = 2e-5  # of the sum of the products' magnitudes


def _images(rng: np.random.Generator, shape: tuple[int, ...], *, last: bool) -> torch.Tensor:
    made = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
    return made.contiguous(memory_format=torch.channels_last) if last else made


def _whole(grad: torch.Tensor, w: torch.Tensor, y: torch.Tensor, **given: Any) -> Transposed:
    types = [TensorType(tuple(t.shape), DType.F32, StridedLayout(t.stride())) for t in (grad, w, y)]
    numbers = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    return Transposed(x=types[0], w=types[1], y=types[2], **(numbers | given))


@pytest.mark.costly
@pytest.mark.parametrize(
    "sizes",
    [(1, 20, 9), (3, 20, 9), (1, 9, 20), (1, 20, 1), (1, 1, 1), (1, 160, 140)],
    ids=["long sums", "several images", "short sums", "one channel", "one of each", "large filters"],
)
@pytest.mark.parametrize(
    "order", drawn(2, [(False, False), (True, True), (True, False), (False, True)], of="image products")
)
def test_gradient_is_that_of_float64_by_either_way(order, sizes, rng):
    images, filters, channels = sizes
    grad, out = (
        _images(rng, (images, maps, 5, 7), last=last) for maps, last in zip((filters, channels), order, strict=True)
    )
    w = _images(rng, (filters, channels, 1, 1), last=False)
    out.fill_(float("nan"))
    found = ImageProduct.of(_whole(grad, w, out), threads=2, library=False)
    one_axis = images == 1 or (all(order) and channels > 1)
    assert (found is not None) == (filters > channels and one_axis)
    tracea.ops.conv2d_grad_input(grad, w, out.shape, out=out)
    expected, magnitude = (
        torch.nn.grad.conv2d_input(out.shape, of(w.double()), of(grad.double())) for of in (torch.clone, torch.abs)
    )
    assert bool(((out.double() - expected).abs() <= TOLERANCE * magnitude).all())


def test_infinity_reaches_its_own_pixel_only(rng):
    for last in (False, True):
        grad, w = _images(rng, (1, 20, 5, 7), last=last), _images(rng, (20, 9, 1, 1), last=False)
        grad[0, 3, 2, 4] = float("inf")
        found = tracea.ops.conv2d_grad_input(grad, w, (1, 9, 5, 7))
        wrong = ~found.isfinite()
        assert wrong[0, :, 2, 4].all()
        assert wrong.sum() == 9


@pytest.mark.parametrize(
    "given",
    [{"stride": (2, 2)}, {"padding": (1, 0)}, {"groups": 2}, {"activation": "relu"}],
    ids=["stride", "padding", "groups", "activation"],
)
def test_what_is_no_plain_product_is_left_to_convolutions(given):
    grad, w = torch.empty(1, 20, 5, 7), torch.empty(20, 9, 1, 1)
    assert ImageProduct.of(_whole(grad, w, torch.empty(1, 9, 5, 7)), threads=2, library=False) is not None
    assert ImageProduct.of(_whole(grad, w, torch.empty(1, 9, 5, 7), **given), threads=2, library=False) is None


def test_no_image_is_an_empty_result():
    grad, w = torch.empty(0, 20, 5, 7), torch.ones(20, 9, 1, 1)
    assert ImageProduct.of(_whole(grad, w, torch.empty(0, 9, 5, 7)), threads=2, library=False) is None
    assert tracea.ops.conv2d_grad_input(grad, w, (0, 9, 5, 7)).shape == (0, 9, 5, 7)
