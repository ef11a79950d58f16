"""Convolutions of signals against float64: layouts, numbers, element types, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.interface.accuracy import TORCH, strided
from torch.nn import functional

import tracea
from tracea.core.dtype import DType
from tracea.errors import InvalidDType, InvalidOp, InvalidShape, OverlappingOutput

pytestmark = pytest.mark.usefixtures("one_thread")

TOLERANCE = {DType.F64: 1e-13, DType.F32: 2e-5, DType.F16: 2e-3, DType.BF16: 1.6e-2}


@pytest.mark.costly
def test_random_signals(rng):
    for _ in range(4):
        dtype = (DType.F32, DType.F32, DType.F64, DType.BF16, DType.F16)[rng.integers(5)]
        groups, taps = int(rng.choice([1, 1, 2, 5])), int(rng.integers(1, 6))
        given = {
            "stride": int(rng.integers(1, 4)),
            "padding": int(rng.integers(0, 3)),
            "dilation": int(rng.integers(1, 4)),
            "groups": groups,
        }
        length = given["dilation"] * (taps - 1) + int(rng.integers(1, 40))
        x_layout = ("rows", "columns", "gaps")[rng.integers(3)]  # columns: the channels next to each other
        x = strided(rng, "torch", dtype, (int(rng.integers(1, 4)), groups * int(rng.integers(1, 9)), length), x_layout)
        shape = (groups * int(rng.integers(1, 20)), x.shape[1] // groups, taps)
        weight = strided(rng, "torch", dtype, shape, ("rows", "columns")[rng.integers(2)])
        bias = strided(rng, "torch", dtype, shape[:1], "gaps") if rng.integers(2) else None
        operands = [None if each is None else each.double() for each in (x, weight, bias)]
        expected = functional.conv1d(*operands, **given)
        magnitude = functional.conv1d(*(None if each is None else each.abs() for each in operands), **given)
        residual = torch.ones(expected.shape[2], dtype=x.dtype) if rng.integers(2) else None
        result = tracea.ops.conv1d(x, weight, bias, activation="relu", residual=residual, **given)
        wanted = expected.relu() + (0 if residual is None else 1)
        assert result.dtype is TORCH[dtype]
        assert result.shape == wanted.shape
        assert ((result.double() - wanted).abs() <= TOLERANCE[dtype] * (magnitude + 1)).all()


@pytest.mark.costly
def test_numbers_are_taken_as_torch_takes_them(rng):
    x, weight = (strided(rng, "torch", DType.F32, shape, "rows") for shape in ((2, 4, 19), (3, 4, 4)))
    for given in (
        {"stride": [2]},
        {"padding": "valid"},
        {"padding": "same"},
        {"padding": "same", "dilation": 3},
        {"padding": (2,), "stride": (3,)},
    ):
        after = given.get("dilation", 1) * 3
        padded = functional.pad(x, (after // 2, after - after // 2)) if given.get("padding") == "same" else x
        numbers = {**given, "padding": 0} if given.get("padding") == "same" else given
        expected = functional.conv1d(padded.double(), weight.double(), **numbers)
        result = tracea.ops.conv1d(x, weight, **given)
        assert result.shape == expected.shape
        assert float((result - expected).abs().max()) < 1e-4


def test_the_result_has_the_order_of_the_signal_and_out_its_own(rng):
    x, weight = (
        strided(rng, "numpy", DType.F32, (2, 5, 9), "columns"),
        strided(rng, "numpy", DType.F32, (4, 5, 3), "rows"),
    )
    result = tracea.ops.conv1d(x, weight)
    assert result.strides[1] < result.strides[2]
    out = np.full((2, 4, 14), np.nan, np.float32)[:, :, ::2]
    assert tracea.ops.conv1d(x, weight, out=out) is out
    assert np.abs(out - result).max() < 1e-5


def test_no_signals_are_an_empty_result():
    assert tracea.ops.conv1d(torch.empty(0, 3, 8), torch.empty(4, 3, 3)).shape == (0, 4, 6)


X, W = torch.zeros(1, 4, 8), torch.zeros(6, 4, 3)
REFUSED = {
    "two axes": (InvalidShape, lambda: tracea.ops.conv1d(X[0], W)),
    "channels that differ": (InvalidShape, lambda: tracea.ops.conv1d(X[:, :3], W)),
    "a filter beyond the signal": (InvalidShape, lambda: tracea.ops.conv1d(X[..., :2], W)),
    "a bias of another length": (InvalidShape, lambda: tracea.ops.conv1d(X, W, torch.zeros(5))),
    "a residual that is larger": (InvalidShape, lambda: tracea.ops.conv1d(X, W, residual=torch.zeros(2, 6, 6))),
    "an out of another shape": (InvalidShape, lambda: tracea.ops.conv1d(X, W, out=torch.zeros(1, 6, 5))),
    "two element types": (InvalidDType, lambda: tracea.ops.conv1d(X, W.half())),
    "a stride of two": (InvalidOp, lambda: tracea.ops.conv1d(X, W, stride=(1, 1))),
    "a padding below 0": (InvalidOp, lambda: tracea.ops.conv1d(X, W, padding=-1)),
    "the same size at stride 2": (InvalidOp, lambda: tracea.ops.conv1d(X, W, padding="same", stride=2)),
    "an unknown padding": (InvalidOp, lambda: tracea.ops.conv1d(X, W, padding="full")),
    "an unknown activation": (InvalidOp, lambda: tracea.ops.conv1d(X, W, activation="swisch")),
    "an out that is the signal": (OverlappingOutput, lambda: tracea.ops.conv1d(X, torch.zeros(4, 4, 1), out=X)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_a_remedy(name):
    error, call = REFUSED[name]
    with pytest.raises(error, match="Remedy: "):
        call()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: tracea.ops.conv1d(torch.zeros(2, 4, 20), torch.zeros(6, 3, 3)),
            "conv1d: got x (2, 4, 20), weight (6, 3, 3), groups 1, expected x (n, c, l), weight (k, c/groups, s), "
            "k a multiple of groups, only n and k may be 0. Remedy: groups=1 needs weight of 4 channels",
        ),
        (
            lambda: tracea.ops.conv1d(torch.zeros(2, 4, 20), torch.zeros(6, 4, 33)),
            "conv1d: got x (2, 4, 20), weight (6, 4, 33), result (-12,), expected a result of at least 1. Remedy: pad",
        ),
        (
            lambda: tracea.ops.conv1d(torch.zeros(2, 4, 0), torch.zeros(6, 4, 3), padding="same"),
            "got x (2, 4, 0), weight",
        ),
        (lambda: tracea.ops.conv1d(torch.zeros(2, 0, 9), torch.zeros(6, 0, 3)), "got x (2, 0, 9), weight (6, 0, 3)"),
        (
            lambda: tracea.ops.conv1d(torch.zeros(2, 4, 20), torch.zeros(6, 2, 3)),
            "Remedy: groups=2 fits this x and weight",
        ),
        (
            lambda: tracea.ops.conv1d(torch.zeros(2, 20, 4), torch.zeros(6, 4, 3)),
            "Remedy: the last axis of x has the 4 channels that weight takes: x.permute(0, 2, 1)",
        ),
        (
            lambda: tracea.ops.conv3d(torch.zeros(2, 5, 6, 7, 4), torch.zeros(6, 4, 3, 3, 3)),
            "Remedy: the last axis of x has the 4 channels that weight takes: x.permute(0, 4, 1, 2, 3)",
        ),
        (
            lambda: tracea.ops.conv1d(torch.zeros(1, 4, 400), torch.zeros(6, 4, 300)),
            "at most 256 taps along the signal",
        ),
    ],
)
def test_shapes_are_told_with_the_axes_that_were_given(call: Any, said: str) -> None:
    with pytest.raises(InvalidShape) as caught:
        call()
    assert said in str(caught.value)
    assert "conv2d" not in str(caught.value)
