"""Pooling against float64 and torch: windows, paddings, layouts, element types, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.interface.accuracy import assert_meaning, type_of, values
from tests.interface.test_images import image

import tracea
from tracea.core.dtype import DType
from tracea.core.op import AdaptivePool2dOp, Pool2dOp, PoolKind
from tracea.errors import InvalidDType, InvalidOp, InvalidOption, InvalidShape, OverlappingOutput

pytestmark = pytest.mark.usefixtures("one_thread")

POOLS = {"max": torch.nn.functional.max_pool2d, "average": torch.nn.functional.avg_pool2d}


def test_random_windows(rng):
    for _ in range(6):
        kind = ("max", "average")[rng.integers(2)]
        dtype = (DType.F32, DType.F64, DType.BF16)[rng.integers(3)]
        kernel = tuple(int(value) for value in rng.integers(1, 5, 2))
        stride = tuple(int(value) for value in rng.integers(1, 4, 2))
        padding = tuple(int(rng.integers(0, size // 2 + 1)) for size in kernel)
        ceil = bool(rng.integers(2))
        size = tuple(int(rng.integers(max(1, k - 2 * p), 12)) for k, p in zip(kernel, padding, strict=True))
        x = image(rng, ("torch", "numpy")[rng.integers(2)], dtype, (2, int(rng.integers(1, 40)), *size), "last")
        counted = bool(rng.integers(2)) or kind == "max"
        given = {"ceil_mode": ceil} | ({} if kind == "max" else {"count_include_pad": counted})
        call = tracea.ops.max_pool2d if kind == "max" else tracea.ops.avg_pool2d
        result = call(x, kernel, stride, padding, **given)
        assert type(result) is type(x)
        op = Pool2dOp(
            kind=PoolKind(kind),
            x=type_of(x),
            kernel=kernel,
            stride=stride,
            padding=padding,
            ceil=ceil,
            count_padding=counted,
            out=type_of(result),
        )
        assert_meaning(result, op, x)
        wide = torch.from_numpy(values(x).astype(np.float64))
        expected = POOLS[kind](wide, kernel, stride, padding, **given)
        assert tuple(result.shape) == tuple(expected.shape)
        assert np.allclose(values(result).astype(np.float64), expected.numpy(), atol=0.05)


@pytest.mark.parametrize("layout", ["rows", "last"])
def test_an_out_of_one_pixel_may_be_of_other_floats(rng, layout):
    x = image(rng, "torch", DType.F32, (2, 6, 8, 12), layout)
    for name, expected in (("avg", x.mean((2, 3), keepdim=True)), ("max", x.amax((2, 3), keepdim=True))):
        out = torch.full((2, 6, 1, 1), math.nan, dtype=torch.bfloat16)
        assert getattr(tracea.ops, f"adaptive_{name}_pool2d")(x, 1, out=out) is out
        torch.testing.assert_close(out, expected.bfloat16())


@pytest.mark.parametrize("layout", ["rows", "last"])
def test_the_result_has_the_order_of_the_image_and_out_its_own(rng, layout):
    x = image(rng, "torch", DType.F32, (2, 6, 8, 12), layout)
    expected = torch.nn.functional.adaptive_avg_pool2d(x.double(), (2, 3))
    for result in (tracea.ops.adaptive_avg_pool2d(x, (2, 3)), tracea.ops.adaptive_avg_pool2d(x, (2, 3))):
        assert result.is_contiguous(memory_format=torch.channels_last) == (layout == "last")
        assert float((result - expected).abs().max()) < 1e-6
    out = torch.full((2, 6, 2, 3), math.nan)
    assert tracea.ops.adaptive_avg_pool2d(x, (2, 3), out=out) is out
    assert float((out - expected).abs().max()) < 1e-6


GRIDS = {"max": torch.nn.functional.adaptive_max_pool2d, "average": torch.nn.functional.adaptive_avg_pool2d}


@pytest.mark.parametrize("kind", GRIDS)
def test_random_grids(rng, kind):
    call = tracea.ops.adaptive_max_pool2d if kind == "max" else tracea.ops.adaptive_avg_pool2d
    for number in range(8):
        dtype = (DType.F32, DType.F64, DType.BF16, DType.F16)[number % 4]
        source = "torch" if dtype is DType.BF16 else ("torch", "numpy")[rng.integers(2)]
        shape = (2, int(rng.integers(1, 40)), int(rng.integers(1, 15)), int(rng.integers(1, 15)))
        x = image(rng, source, dtype, shape, ("rows", "last")[rng.integers(2)])
        size = [int(value) for value in rng.integers(1, 18, 2)] if number else [1, 1]
        given = [size, [None, size[1]], [size[0], None]][number % 3]
        result = call(x, given)
        assert type(result) is type(x)
        kept = tuple(extent if part is None else part for part, extent in zip(given, shape[2:], strict=True))
        op = AdaptivePool2dOp(kind=PoolKind(kind), x=type_of(x), size=kept, out=type_of(result))
        assert_meaning(result, op, x)
        expected = GRIDS[kind](torch.from_numpy(values(x).astype(np.float64)), given)
        assert tuple(result.shape) == tuple(expected.shape)
        assert np.allclose(values(result).astype(np.float64), expected.numpy(), atol=0.02)


@pytest.mark.parametrize("layout", ["rows", "last"])
@pytest.mark.parametrize("size", [1, (3, 5), (4, 6)])
def test_nan_and_infinity_reach_the_windows_of_a_grid_that_hold_them(rng, layout, size):
    x = image(rng, "torch", DType.F32, (1, 20, 8, 12), layout)
    x[0, 3, 2, 2], x[0, 4, 7, 11], x[0, 5, 0, 0] = math.nan, -math.inf, math.inf
    for call, pool in (
        (tracea.ops.adaptive_max_pool2d, torch.nn.functional.adaptive_max_pool2d),
        (tracea.ops.adaptive_avg_pool2d, torch.nn.functional.adaptive_avg_pool2d),
    ):
        torch.testing.assert_close(call(x, size), pool(x, size), equal_nan=True)


@pytest.mark.parametrize("size", [1, (3, 5)])
def test_an_out_of_a_grid_keeps_its_strides(rng, size):
    x = image(rng, "torch", DType.F32, (2, 6, 8, 12), "rows")
    expected = torch.nn.functional.adaptive_avg_pool2d(x.double(), size).float()
    out = torch.full((*expected.shape[2:], 2, 6), math.nan).permute(2, 3, 0, 1)
    assert tracea.ops.adaptive_avg_pool2d(x, size, out=out) is out
    torch.testing.assert_close(out, expected)


def test_a_batch_of_no_images_makes_no_grid():
    assert tracea.ops.adaptive_avg_pool2d(torch.zeros(0, 3, 8, 8), 1).shape == (0, 3, 1, 1)
    assert tracea.ops.adaptive_max_pool2d(torch.zeros(0, 3, 8, 8), (3, None)).shape == (0, 3, 3, 8)


def test_nan_is_the_largest(rng):
    x = image(rng, "torch", DType.F32, (1, 20, 6, 6), "last")
    x[0, 3, 2, 2], x[0, 4, 5, 5] = math.nan, -math.inf
    result = tracea.ops.max_pool2d(x, 3, 2, 1)
    assert torch.equal(result.isnan(), torch.nn.functional.max_pool2d(x, 3, 2, 1).isnan())


def test_a_window_beyond_the_image_leaves_one_place(rng):
    for size, kernel in (((1, 2), (3, 3)), ((3, 1), (5, 2)), ((1, 1), (6, 4))):
        x = torch.from_numpy(rng.normal(0, 1, (1, 17, *size)).astype(np.float32))
        for kind, pool in POOLS.items():
            call = tracea.ops.max_pool2d if kind == "max" else tracea.ops.avg_pool2d
            given = {"stride": int(rng.integers(max(kernel), 9)), "ceil_mode": True}
            expected = pool(x, kernel, **given)
            assert expected.shape[2:] == call(x, kernel, **given).shape[2:], (size, kernel, given)
            torch.testing.assert_close(call(x, kernel, **given), expected)


@pytest.mark.parametrize("step", [10, 11, 2**31 - 1])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_a_stride_beyond_the_image_leaves_one_window(step, ceil_mode):
    x = torch.randn(1, 2, 8, 8)
    for kind, pool in POOLS.items():
        call = tracea.ops.max_pool2d if kind == "max" else tracea.ops.avg_pool2d
        given = {"stride": (step, 2), "padding": 1, "ceil_mode": ceil_mode}
        torch.testing.assert_close(call(x, 3, **given), pool(x, 3, **given))


X = torch.zeros(1, 4, 8, 8)
REFUSED = {
    "three axes": (InvalidShape, lambda: tracea.ops.max_pool2d(X[0], 2)),
    "a window beyond the image": (InvalidShape, lambda: tracea.ops.max_pool2d(X, 9)),
    "no window": (InvalidOp, lambda: tracea.ops.max_pool2d(X, 0)),
    "a padding of more than half": (InvalidOp, lambda: tracea.ops.avg_pool2d(X, 3, 1, 2)),
    "a stride of 0": (InvalidOp, lambda: tracea.ops.avg_pool2d(X, 3, 0)),
    "a grid of no windows": (InvalidOp, lambda: tracea.ops.adaptive_avg_pool2d(X, (0, 3))),
    "a grid of half a window": (InvalidOp, lambda: tracea.ops.adaptive_max_pool2d(X, (None, 1.5))),
    "a grid of three numbers": (InvalidOp, lambda: tracea.ops.adaptive_avg_pool2d(X, (None, 2, 3))),
    "no grid": (InvalidOp, lambda: tracea.ops.adaptive_avg_pool2d(X, None)),
    "None for both axes": (InvalidOp, lambda: tracea.ops.adaptive_avg_pool2d(X, (None,))),
    "places": (InvalidOp, lambda: tracea.ops.adaptive_max_pool2d(X, 3, return_indices=True)),
    "a grid over three axes": (InvalidShape, lambda: tracea.ops.adaptive_max_pool2d(X[0], 3)),
    "a grid over one axis": (InvalidShape, lambda: tracea.ops.adaptive_avg_pool2d(X[0, 0, 0], (None, 3))),
    "a grid over an image of nothing": (InvalidShape, lambda: tracea.ops.adaptive_avg_pool2d(X[:, :, :0], 3)),
    "a grid of integers": (InvalidDType, lambda: tracea.ops.adaptive_max_pool2d(X.int(), 3)),
    "an out of another grid": (
        InvalidShape,
        lambda: tracea.ops.adaptive_avg_pool2d(X, 1, out=torch.zeros(1, 4, 1, 2)),
    ),
    "integers": (InvalidDType, lambda: tracea.ops.max_pool2d(X.int(), 2)),
    "an out of another shape": (InvalidShape, lambda: tracea.ops.max_pool2d(X, 2, out=torch.zeros(1, 4, 4, 5))),
    "an out that is the image": (OverlappingOutput, lambda: tracea.ops.max_pool2d(X, 1, out=X)),
}


@pytest.mark.parametrize(
    ("call", "field", "remedy"),
    [
        (
            lambda: tracea.ops.max_pool2d(X, 2, dilation=2),
            "dilation=",
            "torch.nn.functional.max_pool2d where it is need",
        ),
        (
            lambda: tracea.ops.max_pool2d(X, 2, return_indices=True),
            "return_indices=",
            "leave return_indices out, or call",
        ),
        (lambda: tracea.ops.avg_pool2d(X, 2, divisor_override=3), "divisor_override=", "functional.avg_pool2d where"),
        (lambda: tracea.ops.adaptive_avg_pool2d(X, 2, dilation=2), "dilation=", "leave dilation out$"),
        (lambda: tracea.ops.adaptive_max_pool2d(input=X, output_size=2), "input=", "use x="),
        (lambda: tracea.ops.max_pool2d(X, 2, ceil=True), "ceil=", "use ceil_mode=True, if that was meant"),
        (
            lambda: tracea.ops.avg_pool2d(X, 3, 2, 1, True),
            "5 arguments",
            "by their names: ceil_mode=, count_include_pad=",
        ),
        (lambda: tracea.ops.conv2d(X, X, None, 2, 1), "5 arguments", "by their names: stride=, padding="),
    ],
)
def test_what_only_torch_takes_is_told_with_what_there_is(call: Any, field: str, remedy: str) -> None:
    with pytest.raises(InvalidOption, match=rf"got {field}.*expected .*Remedy: .*{remedy}") as caught:
        call()
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_a_remedy(name):
    error, call = REFUSED[name]
    with pytest.raises(error, match="Remedy: "):
        call()
