"""Tests for tracea.flow.channel_sums: gradients of depthwise filters as sums over pixels, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.drawn import drawn
from tests.interface.accuracy import TORCH

import tracea
from tracea.core.dtype import DType
from tracea.core.op import ReduceOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow.channel_sums import ChannelSums
from tracea.flow.filter_gradient import FilterGradient

TOLERANCE = {DType.F64: 1e-13, DType.F32: 2e-5, DType.BF16: 1.6e-2}  # of the sum of the products' magnitudes


def _images(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType = DType.F32) -> torch.Tensor:
    made = torch.from_numpy(rng.standard_normal(shape)).to(TORCH[dtype])
    return made.contiguous(memory_format=torch.channels_last)


def _whole(x: torch.Tensor, grad: torch.Tensor, y: torch.Tensor, dtype: DType, **given: Any) -> FilterGradient:
    types = [TensorType(tuple(t.shape), dtype, StridedLayout(t.stride())) for t in (x, grad, y)]
    numbers = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": x.shape[1]}
    return FilterGradient(x=types[0], grad=types[1], y=types[2], **(numbers | given))


def _problem(
    rng: np.random.Generator, image: tuple[int, ...], taps: tuple[int, int], given: dict[str, Any], dtype: DType
) -> tuple[torch.Tensor, torch.Tensor, tuple[int, ...]]:
    x, shape = _images(rng, image, dtype), (image[1], 1, *taps)
    result = torch.nn.functional.conv2d(x.double(), torch.zeros(shape).double(), groups=image[1], **given).shape
    return x, _images(rng, tuple(result), dtype), shape


CASES = {
    "padded": ((1, 32, 30, 28), (3, 3), {"padding": (1, 1)}),
    "no padding": ((1, 9, 13, 14), (3, 2), {}),
    "several images": ((3, 48, 12, 14), (3, 3), {"padding": (1, 1)}),
    "a step": ((1, 24, 45, 42), (3, 3), {"stride": (2, 2), "padding": (1, 1)}),
    "all numbers": ((2, 17, 40, 37), (3, 2), {"stride": (2, 1), "padding": (3, 2), "dilation": (2, 3)}),
    "rows and columns that reach nothing": ((1, 16, 6, 9), (1, 2), {"padding": (7, 5)}),
    "more rows than columns": ((1, 16, 50, 4), (3, 1), {"padding": (1, 0)}),
    "one tap": ((1, 16, 9, 9), (1, 1), {}),
    "channels in several parts": ((1, 96, 12, 250), (1, 3), {"padding": (0, 1)}),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    drawn(
        5,
        [
            *(pytest.param(name, DType.F32) for name in CASES),
            *(pytest.param("several images", dtype) for dtype in (DType.F64, DType.BF16)),
        ],
        of="channel sums",
    ),
    ids=str,
)
def test_gradient_is_that_of_float64(name, dtype, rng):
    image, taps, given = CASES[name]
    x, grad, shape = _problem(rng, image, taps, given, dtype)
    out = torch.full(shape, float("nan"), dtype=x.dtype)
    assert ChannelSums.of(_whole(x, grad, out, dtype, **given)) is not None
    tracea.ops.conv2d_grad_weight(x, grad, shape, **given, groups=image[1], out=out)
    expected, magnitude = (
        torch.nn.grad.conv2d_weight(of(x.double()), shape, of(grad.double()), **given, groups=image[1])
        for of in (torch.clone, torch.abs)
    )
    assert bool(((out.double() - expected).abs() <= TOLERANCE[dtype] * magnitude + 1e-30).all())


@pytest.mark.parametrize("what", ["x", "grad"])
def test_infinity_reaches_only_taps_whose_windows_hold_it(what, rng):
    given: dict[str, Any] = {"padding": (1, 1)}
    x, grad, shape = _problem(rng, (1, 16, 30, 28), (3, 3), given, DType.F32)
    (x if what == "x" else grad)[0, 3, 0, 0] = float("inf")
    found = tracea.ops.conv2d_grad_weight(x, grad, shape, **given, groups=16)
    reached = torch.zeros(shape, dtype=torch.bool)
    # The image's first pixel meets no tap of the last row and column, the result's none of the first ones.
    reached[(3, 0, slice(0, 2), slice(0, 2)) if what == "x" else (3, 0, slice(1, 3), slice(1, 3))] = True
    assert not found[reached].isfinite().any()
    assert found[~reached].isfinite().all()


def test_same_bits_whatever_the_team(rng):
    x, grad, shape = _problem(rng, (1, 48, 30, 28), (3, 3), {"padding": (1, 1)}, DType.F32)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(tracea.ops.conv2d_grad_weight(x, grad, shape, padding=1, groups=48))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_each_product_is_made_once_and_each_part_written(rng):
    given: dict[str, Any] = {"stride": (2, 1), "padding": (3, 2), "dilation": (2, 3)}
    x, grad, shape = _problem(rng, (2, 17, 40, 37), (3, 2), given, DType.F32)
    made = ChannelSums.of(_whole(x, grad, torch.empty(shape), DType.F32, **given))
    assert made is not None
    *parts, total = made.sections()
    written = np.zeros(made.temporaries[0].elements, np.int64)
    products = 0
    for section in parts:
        result = section.op.infer()
        places = np.zeros(result.static_shape, np.int64) + section.offset
        for axis, stride in enumerate(result.strides):
            steps = np.arange(result.static_shape[axis]) * stride
            places += steps.reshape([-1 if each == axis else 1 for each in range(result.rank)])
        written[places] += 1
        products += int(np.prod(section.op.source_shape)) if isinstance(section.op, ReduceOp) else 0
    assert written.min() >= 1
    taps = torch.nn.grad.conv2d_weight(torch.ones_like(x), shape, torch.ones_like(grad), **given, groups=17)
    assert products == int(taps.double().sum())
    assert total.temporary is None


@pytest.mark.parametrize(
    ("image", "filters", "groups", "is_last"),
    [
        ((1, 32, 40, 40), 32, 32, False),
        ((1, 7, 40, 40), 7, 7, True),
        ((1, 16, 40, 40), 32, 16, True),
        ((1, 16, 40, 40), 16, 8, True),
        ((1, 32, 7, 7), 32, 32, True),
        ((0, 32, 40, 40), 32, 32, True),
    ],
    ids=["rows", "few channels", "more filters", "wide groups", "small images", "no images"],
)
def test_what_gains_nothing_is_left_to_convolutions(image, filters, groups, is_last):
    x = torch.empty(image).contiguous(memory_format=torch.channels_last if is_last else torch.contiguous_format)
    grad = torch.empty(image[0], filters, image[2], image[3]).contiguous(
        memory_format=torch.channels_last if is_last else torch.contiguous_format
    )
    y = torch.empty(filters, image[1] // groups, 3, 3)
    assert ChannelSums.of(_whole(x, grad, y, DType.F32, padding=(1, 1), groups=groups)) is None
