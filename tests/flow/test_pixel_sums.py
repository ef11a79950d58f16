"""Tests for tracea.flow.pixel_sums: gradients of depthwise filters as sums down rows of pixels, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.drawn import drawn
from tests.flow.depthwise_sums import check_bits, check_gradient, check_infinity, problem, whole

from tracea.core.dtype import DType
from tracea.core.op import ReduceOp
from tracea.core.tensor_type import TensorType
from tracea.flow.pixel_sums import PixelSums


@pytest.fixture(autouse=True)
def small_images(monkeypatch):
    """Take sums for images that are quick to check, too."""
    monkeypatch.setattr("tracea.flow.pixel_sums._FEWEST_COLUMNS", 8)


CASES = {
    "padded": ((1, 32, 30, 28), (3, 3), {"padding": (1, 1)}),
    "no padding": ((1, 9, 13, 14), (3, 2), {}),
    "several images": ((3, 48, 12, 14), (3, 3), {"padding": (1, 1)}),
    "a step of rows": ((2, 24, 45, 42), (3, 3), {"stride": (2, 1), "padding": (1, 1)}),
    "all numbers": ((2, 17, 40, 37), (3, 2), {"stride": (3, 1), "padding": (3, 2), "dilation": (2, 3)}),
    "rows that reach nothing": ((1, 16, 6, 19), (1, 2), {"padding": (7, 5)}),
    "one tap": ((1, 16, 9, 9), (1, 1), {}),
    "channels in several parts": ((1, 48, 60, 250), (3, 1), {"padding": (1, 0)}),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    drawn(
        4,
        [
            *(pytest.param(name, DType.F32) for name in CASES),
            *(pytest.param("several images", dtype) for dtype in (DType.F64, DType.BF16)),
        ],
        of="pixel sums",
    ),
    ids=str,
)
def test_gradient_is_that_of_float64(name, dtype, rng):
    check_gradient(PixelSums, rng, CASES[name], dtype, last=False)


@pytest.mark.parametrize("what", ["x", "grad"])
def test_infinity_reaches_only_taps_whose_windows_hold_it(what, rng):
    check_infinity(rng, ((1, 16, 30, 28), (3, 3), {"padding": (1, 1)}), what, last=False)


def test_same_bits_whatever_the_team(rng):
    check_bits(rng, ((1, 48, 30, 28), (3, 3), {"padding": (1, 1)}), last=False)


def test_each_product_is_made_once_and_each_part_written_and_read_once(rng):
    given: dict[str, Any] = {"stride": (3, 1), "padding": (3, 2), "dilation": (2, 3)}
    x, grad, shape = problem(rng, ((2, 17, 40, 37), (3, 2), given), DType.F32, last=False)
    made = PixelSums.of(whole(x, grad, torch.empty(shape), DType.F32, **given))
    assert made is not None
    written, read = (np.zeros(made.temporaries[0].elements, np.int64) for _ in range(2))
    products = 0

    def count(places: np.ndarray[Any, Any], type_: TensorType, first: int) -> None:
        strided = np.full(type_.static_shape, first)
        for axis, stride in enumerate(type_.strides):
            steps = np.arange(type_.static_shape[axis]) * stride
            strided = strided + steps.reshape([-1 if each == axis else 1 for each in range(type_.rank)])
        np.add.at(places, strided, 1)

    for section in made.sections():
        assert isinstance(section.op, ReduceOp)
        if section.temporary is None:
            (part,) = section.operands
            count(read, section.op.x[0], part.offset)
        else:
            count(written, section.op.infer(), section.offset)
            products += int(np.prod(section.op.source_shape))
    taps = torch.nn.grad.conv2d_weight(torch.ones_like(x), shape, torch.ones_like(grad), **given, groups=17)
    assert products == int(taps.double().sum())
    # Of rows of taps that a run lacks there is room, which is neither written nor read.
    assert np.array_equal(written, read)
    assert set(written.tolist()) <= {0, 1}


@pytest.mark.parametrize(
    ("image", "filters", "groups", "given"),
    [
        ((1, 7, 40, 40), 7, 7, {}),
        ((1, 16, 40, 40), 32, 16, {}),
        ((1, 16, 40, 40), 16, 8, {}),
        ((1, 32, 40, 7), 32, 32, {}),
        ((1, 32, 40, 40), 32, 32, {"stride": (1, 2)}),
        ((0, 32, 40, 40), 32, 32, {}),
    ],
    ids=["few channels", "more filters", "wide groups", "few columns", "columns apart", "no images"],
)
def test_what_gains_nothing_is_left_to_convolutions(image, filters, groups, given):
    x, y = torch.empty(image), torch.empty(filters, image[1] // groups, 3, 3)
    wide = -(-image[3] // given.get("stride", (1, 1))[1])
    grad = torch.empty(image[0], filters, image[2], wide)
    assert PixelSums.of(whole(x, grad, y, DType.F32, padding=(1, 1), groups=groups, **given)) is None


def test_channels_next_to_each_other_are_left_to_sums_with_channels_as_lanes():
    x, grad = (torch.empty(1, 32, 40, 40).contiguous(memory_format=torch.channels_last) for _ in range(2))
    assert PixelSums.of(whole(x, grad, torch.empty(32, 1, 3, 3), DType.F32, padding=(1, 1))) is None


@pytest.mark.parametrize(("columns", "taken"), [(28, False), (56, True)])
def test_sums_are_for_rows_of_several_vectors(columns, taken, monkeypatch):
    monkeypatch.undo()
    x, grad = (torch.empty(1, 32, columns, columns) for _ in range(2))
    made = PixelSums.of(whole(x, grad, torch.empty(32, 1, 3, 3), DType.F32, padding=(1, 1)))
    assert (made is not None) == taken
