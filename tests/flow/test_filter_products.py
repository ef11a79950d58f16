"""Tests for tracea.flow.filter_products: gradients of filters as matrix products, against float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.drawn import drawn

import tracea
from tracea.core.dtype import DType
from tracea.core.op import GemmOp, PointwiseOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow import filter_products
from tracea.flow.filter_gradient import FilterGradient
from tracea.flow.filter_products import FilterProducts
from tracea.flow.sections import Temporary

TOLERANCE = 2e-5  # of the sum of the products' magnitudes


def _images(rng: np.random.Generator, shape: tuple[int, ...], *, last: bool) -> torch.Tensor:
    made = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
    return made.contiguous(memory_format=torch.channels_last) if last else made


def _expected(x: torch.Tensor, grad: torch.Tensor, shape: tuple[int, ...], given: dict[str, Any]) -> list[torch.Tensor]:
    return [
        torch.nn.grad.conv2d_weight(of(x.double()), shape, of(grad.double()), **given)
        for of in (torch.clone, torch.abs)
    ]


def _whole(x: torch.Tensor, grad: torch.Tensor, y: torch.Tensor, **given: Any) -> FilterGradient:
    types = [TensorType(tuple(t.shape), DType.F32, StridedLayout(t.stride())) for t in (x, grad, y)]
    numbers = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    return FilterGradient(x=types[0], grad=types[1], y=types[2], **(numbers | given))


def _described(x: torch.Tensor, grad: torch.Tensor, y: torch.Tensor, **given: Any) -> FilterProducts:
    made = FilterProducts.of(_whole(x, grad, y, **given), threads=2, library=False)
    assert made is not None
    return made


def _grad(x: torch.Tensor, shape: tuple[int, ...], rng: np.random.Generator, given: dict[str, Any]) -> torch.Tensor:
    result = torch.nn.functional.conv2d(x, torch.zeros(shape), **given).shape
    return _images(rng, tuple(result), last=x.stride(1) == 1 and x.shape[1] > 1)


CASES = {
    "plain": ((1, 12, 9, 7), (10, 12, 1, 1), {}),
    "plain, several images": ((3, 12, 5, 7), (10, 12, 1, 1), {}),
    "padded": ((1, 9, 8, 11), (17, 9, 3, 3), {"padding": (1, 1)}),
    "several images": ((3, 9, 6, 5), (11, 9, 3, 2), {"padding": (1, 0)}),
    "parts of rows": ((2, 8, 13, 12), (8, 8, 5, 3), {"stride": (3, 2), "padding": (2, 1), "dilation": (2, 1)}),
    "windows that reach nothing": ((1, 8, 2, 3), (9, 8, 3, 3), {"padding": (4, 5)}),
    "a step of 1x1": ((1, 16, 9, 9), (8, 16, 1, 1), {"stride": (2, 2)}),
    "sums in two parts": ((1, 12, 24, 22), (10, 12, 1, 1), {}),
    "parts of several images": ((2, 9, 16, 17), (33, 9, 3, 2), {"padding": (1, 1), "stride": (1, 1)}),
}


@pytest.mark.costly
@pytest.mark.parametrize("last", drawn(1, [False, True], of="filter products"), ids=["rows", "last"])
@pytest.mark.parametrize("name", CASES)
def test_gradient_is_that_of_float64(name, last, rng):
    image, shape, given = CASES[name]
    x = _images(rng, image, last=last)
    grad = _grad(x, shape, rng, given)
    out = torch.full(shape, float("nan"))
    assert FilterProducts.of(_whole(x, grad, out, **given), threads=2, library=False) is not None
    tracea.ops.conv2d_grad_weight(x, grad, shape, **given, out=out)
    expected, magnitude = _expected(x, grad, shape, given)
    assert bool(((out.double() - expected).abs() <= TOLERANCE * magnitude + 1e-30).all())


def test_gradient_without_strides_of_its_own_is_copied(rng):
    x, shape = _images(rng, (2, 8, 6, 5), last=False), (8, 8, 3, 3)
    grad = torch.full((1, 1, 1, 1), 0.5).expand(2, 8, 4, 3)
    expected, magnitude = _expected(x, grad, shape, {})
    found = tracea.ops.conv2d_grad_weight(x, grad, shape)
    assert bool(((found.double() - expected).abs() <= TOLERANCE * magnitude).all())


@pytest.mark.parametrize("last", [False, True], ids=["rows", "last"])
def test_infinity_reaches_no_tap_whose_windows_leave_it_out(last, rng):
    x, shape, given = _images(rng, (1, 8, 5, 6), last=last), (8, 8, 3, 3), {"padding": (1, 1)}
    grad = _grad(x, shape, rng, given)
    x[0, 3, 0, 0] = float("inf")
    found = tracea.ops.conv2d_grad_weight(x, grad, shape, **given)
    reached = torch.zeros(8, 3, 3, dtype=torch.bool)
    reached[3, :2, :2] = True  # the last row and column of taps never meet the image's first
    assert not found[:, reached].isfinite().any()
    assert found[:, ~reached].isfinite().all()


def test_rows_share_one_kernel_and_one_copy_of_the_image(rng):
    x, shape = _images(rng, (1, 16, 8, 8), last=True), (16, 16, 3, 3)
    made = _described(x, _grad(x, shape, rng, {"padding": 1}), torch.empty(shape), padding=(1, 1))
    sections = list(made.sections())
    products = [section.op for section in sections if isinstance(section.op, GemmOp)]
    assert len(products) == 3
    assert len(set(products)) == 1
    copied = sum(
        section.op.infer().elements for section in sections if section.temporary == 0 and _is_copy_or_zero(section.op)
    )
    assert copied == made.temporaries[0].elements == 3 * 16 * 8 * (8 + 2)


def _is_copy_or_zero(op: object) -> bool:
    return isinstance(op, PointwiseOp)


def test_pixels_that_are_one_axis_are_not_copied(rng):
    for images, last in ((1, False), (1, True), (2, True)):
        x = _images(rng, (images, 16, 8, 8), last=last)
        made = _described(x, _grad(x, (16, 16, 1, 1), rng, {}), torch.empty(16, 16, 1, 1))
        assert made.temporaries == ()
        assert len(list(made.sections())) == 1


@pytest.mark.parametrize(
    ("image", "shape"),
    [
        ((1, 8, 9, 9), (7, 8, 3, 3)),
        ((1, 7, 9, 9), (8, 7, 3, 3)),
        ((1, 8, 3, 40), (8, 8, 1, 9)),
        ((0, 8, 9, 9), (8, 8, 3, 3)),
    ],
    ids=["few filters", "few channels", "long rows of taps", "no images"],
)
def test_what_fills_no_tile_or_much_memory_is_left_to_convolutions(image, shape):
    x = torch.empty(image)
    grad = torch.empty(image[0], shape[0], image[2] - shape[2] + 1, image[3] - shape[3] + 1)
    assert FilterProducts.of(_whole(x, grad, torch.empty(shape)), threads=2, library=False) is None


def test_groups_are_left_to_convolutions(rng):
    x, shape = _images(rng, (1, 32, 9, 9), last=True), (16, 16, 3, 3)
    whole = _whole(x, _images(rng, (1, 16, 7, 7), last=True), torch.empty(shape), groups=2)
    assert FilterProducts.of(whole, threads=2, library=False) is None


@pytest.mark.parametrize(
    ("rows", "filters", "parts"),
    [(24, 12, 2), (23, 12, 1), (16, 12, 1), (24, 140, 1)],
    ids=["long", "odd", "short", "wide"],
)
def test_long_sums_of_few_results_are_two_that_cores_share(rows, filters, parts, rng):
    x, shape = _images(rng, (1, 10, rows, 23 if rows == 23 else 22), last=True), (filters, 10, 1, 1)
    made = _described(x, _grad(x, shape, rng, {}), torch.empty(shape))
    (product,) = (section.op for section in made.sections() if isinstance(section.op, GemmOp))
    assert product.batch == ((2,) if parts == 2 else ())
    assert [each.elements for each in made.temporaries] == ([2 * filters * 10] if parts == 2 else [])


def test_filters_are_columns_of_a_product_where_channels_are_few(rng):
    x = _images(rng, (1, 10, 9, 8), last=True)
    for filters, rows in ((9, 9), (12, 10)):
        (product,) = (
            section.op
            for section in _described(
                x, _grad(x, (filters, 10, 1, 1), rng, {}), torch.empty(filters, 10, 1, 1)
            ).sections()
        )
        assert isinstance(product, GemmOp)
        assert product.m == rows


def test_every_element_of_the_copy_is_written_once(rng):
    x, shape = _images(rng, (2, 8, 13, 12), last=False), (8, 8, 5, 3)
    given = {"stride": (3, 2), "padding": (2, 1), "dilation": (2, 1)}
    made = _described(x, _grad(x, shape, rng, given), torch.empty(shape), **given)
    for index, temporary in enumerate(made.temporaries):
        written = np.zeros(temporary.elements, np.int64)
        for section in made.sections():
            if section.temporary == index:
                result = section.op.infer()
                places = np.zeros(result.static_shape, np.int64) + section.offset
                for axis, stride in enumerate(result.strides):
                    steps = np.arange(result.static_shape[axis]) * stride
                    places += steps.reshape([-1 if each == axis else 1 for each in range(result.rank)])
                np.add.at(written, places, 1)
        assert (written == 1).all(), index


def test_parts_are_described_by_their_own_strides(rng):
    x, shape = _images(rng, (1, 8, 6, 6), last=False), (8, 8, 3, 3)
    made = _described(x, _grad(x, shape, rng, {}), torch.empty(shape))
    wide = replace(made, x=replace(made.x, layout=StridedLayout((999, 72, 12, 2))))
    (turned, *copies) = (section for section in wide.sections() if isinstance(section.op, PointwiseOp))
    assert turned.op.operands[0].strides == (999, 72, 12, 2)
    assert turned.op.infer().strides == (0, 1, 48, 8)
    assert all(isinstance(part, Temporary) or part.index == 1 for section in copies for part in section.operands)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_image_in_rows_is_copied_where_products_then_read_in_place(
    threads: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    in_place = lambda product, **_: product.a.strides[-1] == 1 == product.b.strides[-1]  # noqa: E731
    monkeypatch.setattr(filter_products, "is_read_in_place", in_place)
    x, shape = _images(rng, (1, 12, 9, 7), last=False), (20, 12, 1, 1)
    grad = _grad(x, shape, rng, {})
    whole = _whole(x, grad, torch.empty(shape))
    made = FilterProducts.of(whole, threads=threads, library=False)
    assert made is not None
    assert made.copies_image == (threads == 1)
    if threads == 1:
        copy, product, *_ = made.sections()
        assert isinstance(copy.op, PointwiseOp)
        assert isinstance(product.op, GemmOp)
        assert (product.op.m, product.op.n, product.op.k) == (20, 12, 63)
        assert made.temporaries[0].elements == x.numel()
    small = FilterProducts.of(_whole(grad, x, torch.empty(12, 20, 1, 1)), threads=threads, library=False)
    assert small is not None
    assert not small.copies_image  # the image is the larger one


def test_a_copied_image_gives_the_same_gradient(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setattr(filter_products, "is_read_in_place", lambda *_, **__: True)
    x, shape = _images(rng, (1, 13, 11, 7), last=False), (29, 13, 1, 1)
    grad = _grad(x, shape, rng, {})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tracea.ops.library(False):
            found = tracea.ops.conv2d_grad_weight(x, grad, shape)
    finally:
        torch.set_num_threads(threads)
    wanted, size = _expected(x, grad, shape, {})
    assert ((found.double() - wanted).abs() / size).max() <= TOLERANCE
