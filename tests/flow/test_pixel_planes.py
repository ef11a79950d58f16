"""Tests for tracea.flow.pixel_planes: gradients for small images of many channels by one product, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tracea
from tracea.core.dtype import DType
from tracea.core.op import GemmOp, PointwiseOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow.pixel_planes import PixelPlanes
from tracea.flow.transposed import Transposed

TOLERANCE = 2e-5  # of the sum of the products' magnitudes


def _images(rng: np.random.Generator, shape: tuple[int, ...], *, last: bool) -> torch.Tensor:
    made = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
    return made.contiguous(memory_format=torch.channels_last) if last else made


def _result(image: tuple[int, ...], filters: tuple[int, ...], given: dict[str, Any]) -> tuple[int, ...]:
    return tuple(torch.nn.functional.conv2d(torch.empty(image), torch.empty(filters), **given).shape)


def _made(
    grad: torch.Tensor, w: torch.Tensor, y: torch.Tensor, dtype: DType = DType.F32, **given: Any
) -> PixelPlanes | None:
    types = [TensorType(tuple(t.shape), dtype, StridedLayout(t.stride())) for t in (grad, w, y)]
    numbers = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    return PixelPlanes.of(Transposed(x=types[0], w=types[1], y=types[2], **(numbers | given)))


CASES = {
    "padded": ((1, 52, 4, 3), (48, 52, 3, 3), {"padding": (1, 1)}),
    "steps and gaps": ((1, 33, 5, 7), (36, 33, 2, 3), {"stride": (3, 2), "padding": (1, 2), "dilation": (1, 2)}),
    "windows that reach nothing": ((1, 96, 3, 3), (99, 96, 2, 2), {"padding": (1, 1), "stride": (3, 3)}),
}


@pytest.mark.parametrize(
    ("name", "last"),
    [
        pytest.param(name, last, marks=() if last == (name == "steps and gaps") else pytest.mark.slow)
        for name in CASES
        for last in (False, True)
    ],
)
def test_gradient_is_that_of_float64(name, last, rng):
    image, filters, given = CASES[name]
    w, grad = _images(rng, filters, last=last), _images(rng, _result(image, filters, given), last=last)
    out = _images(rng, image, last=last).fill_(float("nan"))
    assert _made(grad, w, out, **given) is not None
    tracea.ops.conv2d_grad_input(grad, w, image, **given, out=out)
    expected, magnitude = (
        torch.nn.grad.conv2d_input(image, of(w.double()), of(grad.double()), **given) for of in (torch.clone, torch.abs)
    )
    assert bool(((out.double() - expected).abs() <= TOLERANCE * magnitude).all())


def test_infinity_reaches_what_its_window_reads_and_nothing_else(rng):
    image, filters, given = CASES["padded"]
    w, grad = _images(rng, filters, last=False), _images(rng, _result(image, filters, given), last=False)
    grad[0, 5, 0, 2] = float("inf")
    found = tracea.ops.conv2d_grad_input(grad, w, image, **given)
    reached = torch.zeros(image, dtype=torch.bool)
    reached[:, :, :2, 1:] = True
    assert torch.equal(~found.isfinite(), reached)


def test_one_product_makes_all_parts_within_a_quarter_of_the_filters_memory():
    made = _made(torch.empty(1, 512, 7, 7), torch.empty(512, 512, 3, 3), torch.empty(1, 512, 7, 7), padding=(1, 1))
    assert made is not None
    (temporary,) = made.temporaries
    assert temporary.elements == 49 * 512 * 9 <= 512 * 512 * 9 // 4
    ops = [section.op for section in made.sections()]
    (product,) = (op for op in ops if isinstance(op, GemmOp))
    assert (product.m, product.n, product.k) == (49, 4608, 512)
    sums = [op for op in ops if isinstance(op, PointwiseOp)]
    assert sorted(len(op.inputs) for op in sums) == [4, 4, 4, 4, 6, 6, 6, 6, 9]


@pytest.mark.parametrize(
    ("image", "filters", "given"),
    [
        ((1, 52, 6, 6), (48, 52, 3, 3), {"padding": (1, 1)}),
        ((1, 52, 3, 3), (48, 52, 1, 1), {}),
        ((1, 52, 2, 2), (48, 26, 3, 3), {"padding": (1, 1), "groups": 2}),
        ((1, 52, 2, 2), (48, 52, 5, 5), {"padding": (2, 2)}),
        ((1, 52, 3, 3), (48, 52, 3, 3), {"padding": (1, 1), "dtype": DType.F16}),
        ((1, 52, 3, 3), (48, 52, 3, 3), {"padding": (1, 1), "activation": "relu"}),
    ],
    ids=["many pixels", "one tap", "groups", "long sums", "narrow", "activation"],
)
def test_what_gains_nothing_is_left_to_convolutions(image, filters, given):
    numbers = {key: value for key, value in given.items() if key not in ("dtype", "activation")}
    grad = torch.empty(_result(image, filters, numbers))
    assert _made(grad, torch.empty(filters), torch.empty(image), **given) is None
