"""Tests for tracea.flow.copied_channel_sums: gradients of depthwise filters of images in rows, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.drawn import drawn
from tests.flow.depthwise_sums import check_bits, check_gradient, check_infinity, whole

from tracea.core.dtype import DType
from tracea.flow.copied_channel_sums import CopiedChannelSums

CASES: dict[str, Any] = {
    "padded": ((3, 32, 12, 14), (3, 3), {"padding": (1, 1)}),
    "a step": ((2, 24, 45, 42), (2, 3), {"stride": (2, 2)}),
    "all numbers": ((2, 17, 40, 37), (3, 2), {"stride": (2, 1), "padding": (3, 2), "dilation": (2, 3)}),
    "one row of taps": ((4, 55, 9, 29), (1, 3), {}),
}


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "dtype"),
    drawn(
        3,
        [
            *(pytest.param(name, DType.F32) for name in CASES),
            *(pytest.param("padded", dtype) for dtype in (DType.F64, DType.BF16)),
        ],
        of="copied channel sums",
    ),
    ids=str,
)
def test_gradient_is_that_of_float64(name, dtype, rng):
    check_gradient(CopiedChannelSums, rng, CASES[name], dtype, last=False)


@pytest.mark.parametrize("what", ["x", "grad"])
def test_infinity_reaches_only_taps_whose_windows_hold_it(what, rng):
    check_infinity(rng, ((2, 16, 30, 28), (3, 3), {"padding": (1, 1)}), what, last=False)


def test_same_bits_whatever_the_team(rng):
    check_bits(rng, ((2, 48, 30, 28), (3, 3), {"padding": (1, 1)}), last=False)


@pytest.mark.parametrize(
    "image", [(1, 32, 40, 40), (2, 7, 40, 40), (2, 32, 4, 4)], ids=["one image", "few channels", "small images"]
)
def test_what_gains_nothing_is_left_to_convolutions(image):
    x, y = torch.empty(image), torch.empty(image[1], 1, 3, 3)
    given = whole(x, torch.empty_like(x), y, DType.F32, padding=(1, 1))
    assert CopiedChannelSums.of(given) is None
