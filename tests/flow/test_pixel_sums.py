"""Tests for tracea.flow.pixel_sums: gradients of depthwise filters as sums down rows of pixels, against float64."""

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
from tracea.flow.filter_gradient import FilterGradient
from tracea.flow.pixel_sums import PixelSums


@pytest.fixture(autouse=True)
def small_images(monkeypatch):
    """Take sums for images that are quick to check, too."""
    monkeypatch.setattr("tracea.flow.pixel_sums._FEWEST_COLUMNS", 8)


TOLERANCE = {DType.F64: 1e-13, DType.F32: 2e-5, DType.BF16: 1.6e-2}  # of the sum of the products' magnitudes


def _images(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType = DType.F32) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape)).to(TORCH[dtype])


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
    image, taps, given = CASES[name]
    x, grad, shape = _problem(rng, image, taps, given, dtype)
    out = torch.full(shape, float("nan"), dtype=x.dtype)
    assert PixelSums.of(_whole(x, grad, out, dtype, **given)) is not None
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


def test_each_product_is_made_once_and_each_part_written_and_read_once(rng):
    given: dict[str, Any] = {"stride": (3, 1), "padding": (3, 2), "dilation": (2, 3)}
    x, grad, shape = _problem(rng, (2, 17, 40, 37), (3, 2), given, DType.F32)
    made = PixelSums.of(_whole(x, grad, torch.empty(shape), DType.F32, **given))
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
    assert PixelSums.of(_whole(x, grad, y, DType.F32, padding=(1, 1), groups=groups, **given)) is None


def test_channels_next_to_each_other_are_left_to_sums_with_channels_as_lanes():
    x, grad = (torch.empty(1, 32, 40, 40).contiguous(memory_format=torch.channels_last) for _ in range(2))
    assert PixelSums.of(_whole(x, grad, torch.empty(32, 1, 3, 3), DType.F32, padding=(1, 1))) is None


@pytest.mark.parametrize(("columns", "taken"), [(28, False), (56, True)])
def test_sums_are_for_rows_of_several_vectors(columns, taken, monkeypatch):
    monkeypatch.undo()
    x, grad = (torch.empty(1, 32, columns, columns) for _ in range(2))
    made = PixelSums.of(_whole(x, grad, torch.empty(32, 1, 3, 3), DType.F32, padding=(1, 1)))
    assert (made is not None) == taken
