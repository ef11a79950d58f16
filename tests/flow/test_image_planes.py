"""Tests for tracea.flow.image_planes: gradients for images of few channels as sums of planes, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.drawn import drawn

import tracea
from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp, PointwiseOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow.image_planes import ImagePlanes
from tracea.flow.transposed import Transposed

TOLERANCE = 2e-5  # of the sum of the products' magnitudes


def _images(rng: np.random.Generator, shape: tuple[int, ...], *, last: bool) -> torch.Tensor:
    made = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
    return made.contiguous(memory_format=torch.channels_last) if last else made


def _result(image: tuple[int, ...], filters: tuple[int, ...], given: dict[str, Any]) -> tuple[int, ...]:
    return tuple(torch.nn.functional.conv2d(torch.empty(image), torch.empty(filters), **given).shape)


def _whole(grad: torch.Tensor, w: torch.Tensor, y: torch.Tensor, dtype: DType = DType.F32, **given: Any) -> Transposed:
    types = [TensorType(tuple(t.shape), dtype, StridedLayout(t.stride())) for t in (grad, w, y)]
    numbers = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    return Transposed(x=types[0], w=types[1], y=types[2], **(numbers | given))


CASES = {
    "stem": ((1, 3, 20, 18), (40, 3, 7, 7), {"stride": (2, 2), "padding": (3, 3)}),
    "several images": ((2, 3, 9, 11), (16, 3, 3, 3), {"padding": (1, 1)}),
    "unequal axes": ((2, 5, 12, 7), (24, 5, 5, 2), {"stride": (2, 1), "padding": (2, 0), "dilation": (1, 2)}),
    "steps beyond the windows": ((1, 6, 7, 9), (16, 6, 2, 3), {"stride": (4, 5)}),
    "windows that reach nothing": ((1, 3, 5, 6), (16, 3, 3, 3), {"padding": (4, 4)}),
    "one channel": ((1, 1, 8, 9), (16, 1, 4, 4), {"padding": (1, 2)}),
}


@pytest.mark.costly
@pytest.mark.parametrize("last", drawn(1, [False, True], of="planes"), ids=["rows", "last"])
@pytest.mark.parametrize("name", CASES)
def test_gradient_is_that_of_float64(name, last, rng):
    image, filters, given = CASES[name]
    w, grad = _images(rng, filters, last=last), _images(rng, _result(image, filters, given), last=last)
    out = _images(rng, image, last=last).fill_(float("nan"))
    assert ImagePlanes.of(_whole(grad, w, out, **given)) is not None
    tracea.ops.conv2d_grad_input(grad, w, image, **given, out=out)
    expected, magnitude = (
        torch.nn.grad.conv2d_input(image, of(w.double()), of(grad.double()), **given) for of in (torch.clone, torch.abs)
    )
    assert bool(((out.double() - expected).abs() <= TOLERANCE * magnitude).all())


@pytest.mark.parametrize("last", [False, True], ids=["rows", "last"])
def test_infinity_reaches_what_its_window_reads_and_nothing_else(last, rng):
    image, filters, given = CASES["stem"]
    w, grad = _images(rng, filters, last=last), _images(rng, _result(image, filters, given), last=last)
    grad[0, 5, 0, 4] = float("inf")
    found = tracea.ops.conv2d_grad_input(grad, w, image, **given)
    reached = torch.zeros(image, dtype=torch.bool)
    reached[:, :, :4, 5:12] = True  # rows -3 to 3, columns 2·4 - 3 to 2·4 + 3
    assert torch.equal(~found.isfinite(), reached)
    w[0, 0, 6, 6] = float("inf")  # a tap that meets the first rows and columns with no window
    grad = torch.ones_like(grad)
    found = tracea.ops.conv2d_grad_input(grad, w, image, **given)
    assert found[:, 1:].isfinite().all()
    assert found[:, :, :3].isfinite().all()
    assert found[:, :, :, :3].isfinite().all()
    assert not found.isfinite().all()


@pytest.mark.parametrize("name", CASES)
def test_every_element_of_the_planes_is_written_once(name, rng):
    image, filters, given = CASES[name]
    made = ImagePlanes.of(
        _whole(torch.empty(_result(image, filters, given)), torch.empty(filters), torch.empty(image), **given)
    )
    assert made is not None
    (temporary,) = made.temporaries
    written = np.zeros(temporary.elements, np.int64)
    for section in made.sections():
        if section.temporary == 0:
            result = section.op.infer()
            places = np.zeros(result.static_shape, np.int64) + section.offset
            for axis, stride in enumerate(result.strides):
                steps = np.arange(result.static_shape[axis]) * stride
                places += steps.reshape([-1 if each == axis else 1 for each in range(result.rank)])
            np.add.at(written, places, 1)
    assert (written == 1).all()


def test_a_convolution_of_one_tap_makes_all_planes_and_each_phase_is_one_sum():
    image, filters, given = CASES["stem"]
    made = ImagePlanes.of(
        _whole(torch.empty(_result(image, filters, given)), torch.empty(filters), torch.empty(image), **given)
    )
    assert made is not None
    ops = [section.op for section in made.sections()]
    (convolution,) = (op for op in ops if isinstance(op, Conv2dOp))
    assert convolution.w.shape == (3 * 49, 40, 1, 1)
    sums = [op for op in ops if isinstance(op, PointwiseOp) and len(op.inputs) > 1]
    assert sorted(len(op.inputs) for op in sums) == [9, 12, 12, 16]


@pytest.mark.parametrize(
    ("filters", "given"),
    [
        ((40, 8, 3, 3), {}),
        ((40, 3, 1, 1), {}),
        ((6, 3, 3, 3), {}),
        ((8, 3, 4, 4), {}),
        ((40, 2, 7, 7), {}),
        ((40, 3, 3, 3), {"groups": 2}),
        ((40, 3, 3, 3), {"activation": "relu"}),
        ((40, 3, 3, 3), {"dtype": DType.BF16}),
    ],
    ids=["many channels", "one tap", "few filters", "many planes", "long sums", "groups", "activation", "narrow"],
)
def test_what_gains_nothing_or_takes_much_memory_is_left_to_convolutions(filters, given):
    image = (1, filters[1], 9, 9)
    grad = torch.empty(_result(image, filters, {}))
    assert ImagePlanes.of(_whole(grad, torch.empty(filters), torch.empty(image), **given)) is None


def test_taps_that_are_no_axis_are_left_to_convolutions():
    w = torch.empty(40, 3, 3, 6)[..., ::2]
    assert ImagePlanes.of(_whole(torch.empty(1, 40, 7, 7), w, torch.empty(1, 3, 9, 9))) is None
