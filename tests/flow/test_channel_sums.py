"""Tests for tracea.flow.channel_sums: gradients of depthwise filters as sums over pixels, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.drawn import drawn
from tests.flow.depthwise_sums import check_bits, check_gradient, check_infinity, problem, whole

from tracea.core.dtype import DType
from tracea.core.op import ReduceOp
from tracea.flow.channel_sums import ChannelSums

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


@pytest.mark.costly
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
    check_gradient(ChannelSums, rng, CASES[name], dtype, last=True)


@pytest.mark.parametrize("what", ["x", "grad"])
def test_infinity_reaches_only_taps_whose_windows_hold_it(what, rng):
    check_infinity(rng, ((1, 16, 30, 28), (3, 3), {"padding": (1, 1)}), what, last=True)


def test_same_bits_whatever_the_team(rng):
    check_bits(rng, ((1, 48, 30, 28), (3, 3), {"padding": (1, 1)}), last=True)


def test_each_product_is_made_once_and_each_part_written(rng):
    given: dict[str, Any] = {"stride": (2, 1), "padding": (3, 2), "dilation": (2, 3)}
    x, grad, shape = problem(rng, ((2, 17, 40, 37), (3, 2), given), DType.F32, last=True)
    made = ChannelSums.of(whole(x, grad, torch.empty(shape), DType.F32, **given))
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
    assert ChannelSums.of(whole(x, grad, y, DType.F32, padding=(1, 1), groups=groups)) is None
