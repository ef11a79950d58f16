"""Tests for tracea.flow.filter_windows: gradients of filters by windows whose channels are columns, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tracea
from tracea import targets
from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow import filter_products, filter_windows
from tracea.flow.filter_gradient import FilterGradient
from tracea.flow.filter_windows import FilterWindows
from tracea.flow.sections import Part

TOLERANCE = 2e-5  # of the sum of the products' magnitudes


def _images(rng: np.random.Generator, shape: tuple[int, ...], *, last: bool) -> torch.Tensor:
    made = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
    return made.contiguous(memory_format=torch.channels_last) if last else made


def _made(
    x: torch.Tensor, grad: torch.Tensor, y: torch.Tensor, threads: int = 2, dtype: DType = DType.F32, **given: Any
) -> FilterWindows | None:
    types = [TensorType(tuple(t.shape), dtype, StridedLayout(t.stride())) for t in (x, grad, y)]
    numbers = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    whole = FilterGradient(x=types[0], grad=types[1], y=types[2], **(numbers | given))
    return FilterWindows.of(whole, threads=threads, library=False)


def _grad(rng: np.random.Generator, x: torch.Tensor, shape: tuple[int, ...], given: dict[str, Any]) -> torch.Tensor:
    result = torch.nn.functional.conv2d(x, torch.zeros(shape), **given).shape
    return _images(rng, tuple(result), last=x.stride(1) == 1)


CASES = {
    "stem": ((1, 3, 37, 127), (32, 3, 7, 7), {"stride": (2, 2), "padding": (3, 3)}),
    "bands of two lengths": ((1, 9, 45, 56), (33, 9, 3, 3), {"padding": (1, 1)}),
    "several images": ((2, 8, 7, 56), (32, 8, 3, 3), {"padding": (1, 1)}),
    "an odd number of columns": ((1, 8, 6, 31), (40, 8, 3, 5), {"padding": (1, 2)}),
    "steps and gaps of rows": (
        (2, 10, 21, 63),
        (32, 10, 3, 2),
        {"stride": (3, 1), "padding": (2, 1), "dilation": (2, 1)},
    ),
    "without padding": ((1, 12, 9, 34), (32, 12, 3, 3), {}),
    "more padding than taps": ((1, 8, 5, 26), (32, 8, 3, 3), {"padding": (4, 3)}),
    "columns that no window reads": ((1, 9, 9, 58), (32, 9, 2, 2), {"stride": (4, 2)}),
}


QUICK = (("stem", True), ("several images", False))  # each compiles a program for each number of threads


@pytest.mark.parametrize(
    ("name", "last"),
    [
        pytest.param(name, last, marks=() if (name, last) in QUICK else pytest.mark.slow)
        for name in CASES
        for last in (False, True)
    ],
)
def test_gradient_is_that_of_float64_whatever_the_threads(name, last, rng):
    image, shape, given = CASES[name]
    x = _images(rng, image, last=last)
    grad = _grad(rng, x, shape, given)
    before, found = torch.get_num_threads(), list[torch.Tensor]()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            out = torch.full(shape, float("nan"))
            assert _made(x, grad, out, threads, **given) is not None
            tracea.ops.conv2d_grad_weight(x, grad, shape, **given, out=out)
            found.append(out)
    finally:
        torch.set_num_threads(before)
    expected, magnitude = (
        torch.nn.grad.conv2d_weight(of(x.double()), shape, of(grad.double()), **given)
        for of in (torch.clone, torch.abs)
    )
    assert bool(((found[0].double() - expected).abs() <= TOLERANCE * magnitude + 1e-30).all())
    assert torch.equal(*found)


def test_operands_and_result_may_be_slices(rng):
    x = _images(rng, (1, 20, 14, 66), last=True)[:, 4:16, 1:11, 2:58]
    shape = (32, 12, 3, 3)
    grad = _images(rng, (1, 40, 10, 60), last=False)[:, 3:35, :, 2:58]
    out = torch.full((64, 12, 3, 4), float("nan"))[::2, :, :, :3]
    assert _made(x, grad, out, padding=(1, 1)) is not None
    tracea.ops.conv2d_grad_weight(x, grad, shape, padding=1, out=out)
    expected = torch.nn.grad.conv2d_weight(x.double(), shape, grad.double(), padding=1)
    torch.testing.assert_close(out.double(), expected, rtol=2e-5, atol=2e-4)


def test_what_a_window_leaves_out_is_not_read(rng):
    x, shape = _images(rng, (1, 8, 9, 56), last=True), (32, 8, 3, 3)
    grad = _grad(rng, x, shape, {"padding": (1, 1)})
    x[0, 2, 0, 55] = float("nan")  # the last column: no window reads it with its first tap, nor row 0 with the last
    found = tracea.ops.conv2d_grad_weight(x, grad, shape, padding=1)
    reached = torch.zeros(shape, dtype=torch.bool)
    reached[:, 2, :2, 1:] = True
    assert torch.equal(found.isnan(), reached)


def test_an_image_without_padding_is_read_where_it_lies_and_memory_is_bounded():
    x = torch.empty(1, 56, 58, 8).permute(0, 3, 1, 2)
    grad, y = torch.empty(1, 54, 56, 32).permute(0, 3, 1, 2), torch.empty(32, 8, 3, 3)
    made = _made(x, grad, y, threads=1)
    assert made is not None
    images = [section.operands[0] for section in made.sections() if isinstance(section.op, Conv2dOp)]
    assert len(images) == 4  # two bands of two halves
    assert all(isinstance(image, Part) and image.index == 0 for image in images)
    padded = _made(torch.empty(1, 24, 56, 56), torch.empty(1, 24, 56, 56), torch.empty(32, 24, 3, 3), padding=(1, 1))
    assert padded is not None
    sums, total, image, copied = (temporary.elements for temporary in padded.temporaries)
    assert (sums, total, image, copied) == (2 * 2 * 32 * 24 * 9, 32 * 24 * 9, 58 * 58 * 24, 24 * 56 * 56)


@pytest.mark.parametrize(
    ("image", "shape", "given"),
    [
        ((1, 8, 9, 56), (16, 8, 3, 3), {"padding": (1, 1)}),
        ((1, 8, 9, 56), (32, 8, 1, 1), {}),
        ((1, 8, 9, 56), (32, 8, 3, 3), {"padding": (1, 2), "dilation": (1, 2)}),
        ((1, 8, 9, 40), (32, 8, 3, 3), {"padding": (1, 1)}),
        ((1, 128, 9, 56), (32, 128, 3, 3), {"padding": (1, 1)}),
        ((1, 64, 9, 56), (32, 32, 3, 3), {"padding": (1, 1), "groups": 2}),
        ((1, 8, 9, 56), (32, 8, 3, 3), {"padding": (1, 1), "dtype": DType.BF16}),
    ],
    ids=[
        "few filters",
        "one tap",
        "columns with gaps",
        "columns that fill no tiles",
        "many channels",
        "groups",
        "bf16",
    ],
)
def test_what_fills_no_tiles_is_left_to_other_forms(image, shape, given):
    numbers = {key: value for key, value in given.items() if key != "dtype"}
    x = torch.empty(image)
    grad = torch.nn.functional.conv2d(x, torch.empty(shape), **numbers)
    assert _made(x, grad, torch.empty(shape), **given) is None


def test_products_in_place_are_left_to_teams_by_a_core_that_waits_long(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    x, shape, given = _images(rng, (1, 64, 56, 56), last=True), (64, 64, 3, 3), {"padding": (1, 1)}
    grad, y = _grad(rng, x, shape, given), torch.empty(shape)
    monkeypatch.setattr(filter_products, "is_read_in_place", lambda *_, **__: True)
    chosen = []
    for waits, threads in ((True, 1), (True, 2), (False, 1)):
        monkeypatch.setattr(filter_windows, "waits_long", lambda _, waits=waits: waits)
        monkeypatch.setattr(filter_windows, "host", lambda: targets.load("avx512"))
        chosen.append(_made(x, grad, y, threads, **given) is not None)
    assert chosen == [True, False, False]
