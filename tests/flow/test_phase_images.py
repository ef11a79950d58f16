"""Tests for tracea.flow.phase_images: phases of a stride on matrix tiles, copied to their places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tracea
from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.doctor import host
from tracea.flow.phase_images import PhaseImages
from tracea.flow.transposed import Transposed

TOLERANCE = 2e-5  # of the sum of the products' magnitudes
on_matrix_tiles = pytest.mark.skipif("amx_bf16" not in host().features, reason="matrix tiles are what phases are for")


def _last(rng: np.random.Generator, shape: tuple[int, ...]) -> torch.Tensor:
    made = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
    return made.contiguous(memory_format=torch.channels_last)


def _result(image: tuple[int, ...], filters: tuple[int, ...], given: dict[str, Any]) -> tuple[int, ...]:
    return tuple(torch.nn.functional.conv2d(torch.empty(image), torch.empty(filters), **given).shape)


def _made(grad: torch.Tensor, w: torch.Tensor, y: torch.Tensor, **given: Any) -> PhaseImages | None:
    types = [TensorType(tuple(t.shape), DType.F32, StridedLayout(t.stride())) for t in (grad, w, y)]
    numbers = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    whole = Transposed(x=types[0], w=types[1], y=types[2], **(numbers | given))
    return PhaseImages.of(whole, threads=1, library=False)


CASES = {
    "even": ((1, 64, 12, 24), (96, 64, 3, 3), {"stride": (2, 2), "padding": (1, 1)}),
    "odd, several images": ((2, 64, 13, 35), (64, 64, 3, 2), {"stride": (2, 3), "padding": (0, 1)}),
    "what no tap reaches": ((1, 64, 24, 20), (64, 64, 1, 1), {"stride": (2, 2)}),
}


@on_matrix_tiles
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "even" else pytest.mark.slow) for name in CASES]
)
def test_gradient_is_that_of_float64(name, rng):
    image, filters, given = CASES[name]
    w, grad = _last(rng, filters), _last(rng, _result(image, filters, given))
    out = _last(rng, image).fill_(float("nan"))
    assert _made(grad, w, out, **given) is not None
    with tracea.ops.library(False):
        tracea.ops.conv2d_grad_input(grad, w, image, **given, out=out)
    expected, magnitude = (
        torch.nn.grad.conv2d_input(image, of(w.double()), of(grad.double()), **given) for of in (torch.clone, torch.abs)
    )
    assert bool(((out.double() - expected).abs() <= TOLERANCE * magnitude).all())


@on_matrix_tiles
@pytest.mark.parametrize("name", CASES)
def test_each_element_of_the_result_is_written_once(name, rng):
    image, filters, given = CASES[name]
    y = _last(rng, image)
    made = _made(_last(rng, _result(image, filters, given)), _last(rng, filters), y, **given)
    assert made is not None
    room, written = made.temporaries[0].elements, np.zeros(y.numel(), np.int64)
    own = np.zeros(room, np.int64)
    for section in made.sections():
        result = section.op.infer()
        places = np.full(result.static_shape, section.offset)
        for axis, stride in enumerate(result.strides):
            steps = np.arange(result.static_shape[axis]) * stride
            places = places + steps.reshape([-1 if each == axis else 1 for each in range(4)])
        np.add.at(written if section.temporary is None else own, places, 1)
        assert section.temporary is None or isinstance(section.op, Conv2dOp)
    assert set(written.tolist()) == set(own.tolist()) == {1}


@pytest.mark.parametrize(
    ("last", "channels", "given"),
    [(False, 64, {"stride": (2, 2)}), (True, 64, {}), (True, 24, {"stride": (2, 2)})],
    ids=["rows", "no stride", "few filters"],
)
def test_what_gains_nothing_is_written_in_its_place(last, channels, given, rng):
    image, filters = (1, channels, 12, 24), (64, channels, 3, 3)
    given = {"padding": (1, 1), **given}
    grad, w, y = (_last(rng, shape) for shape in (_result(image, filters, given), filters, image))
    if not last:
        grad, w, y = (each.contiguous() for each in (grad, w, y))
    assert _made(grad, w, y, **given) is None
