"""Pooling of signals against float64 and torch: windows, grids, layouts, element types, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.interface.accuracy import TORCH, poisoned, strided, values
from tests.interface.aten_calls import AtenCalls
from torch.nn import functional

import tracea
from tracea.core.dtype import DType
from tracea.errors import (
    InvalidDType,
    InvalidInput,
    InvalidOp,
    InvalidOption,
    InvalidShape,
    InvalidStride,
    OverlappingOutput,
)

pytestmark = pytest.mark.usefixtures("one_thread")

ops = tracea.ops
# A window of means is short: its rounding is that of the result's type, relative to the largest element.
TOLERANCE = {DType.F64: 1e-14, DType.F32: 1e-6, DType.F16: 1e-3, DType.BF16: 8e-3}
LAYOUTS = ("rows", "columns", "gaps", "broadcast")  # columns: the channels next to each other


def signal(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Any:
    kind = "torch" if dtype is DType.BF16 else ("torch", "numpy")[rng.integers(2)]
    return strided(rng, kind, dtype, shape, LAYOUTS[rng.integers(4)])


def wide(x: Any) -> torch.Tensor:
    return torch.from_numpy(values(x).astype(np.float64))


def assert_close(found: Any, expected: torch.Tensor, x: Any, dtype: DType) -> None:
    assert type(found) is type(x)
    assert tuple(found.shape) == tuple(expected.shape)
    if isinstance(found, torch.Tensor):
        assert found.dtype is TORCH[dtype]
    wrong = ~((wide(found) - expected).abs() <= TOLERANCE[dtype] * float(wide(x).abs().max()))
    assert not wrong.any(), (int(wrong.sum()), wide(found)[wrong][:3], expected[wrong][:3])


def test_random_windows(rng):
    for number in range(8):
        dtype = (DType.F32, DType.F64, DType.BF16, DType.F16)[number % 4]
        kernel, stride = int(rng.integers(1, 6)), int(rng.integers(1, 5))
        padding, ceil = int(rng.integers(0, kernel // 2 + 1)), bool(rng.integers(2))
        length = int(rng.integers(max(1, kernel - 2 * padding), 40))
        x = signal(rng, dtype, (int(rng.integers(1, 4)), int(rng.integers(1, 40)), length))
        kind = "numpy" if isinstance(x, np.ndarray) else "torch"
        given: dict[str, Any] = {"ceil_mode": ceil}
        for call, pool in ((ops.max_pool1d, functional.max_pool1d), (ops.avg_pool1d, functional.avg_pool1d)):
            if call is ops.avg_pool1d:
                given["count_include_pad"] = bool(rng.integers(2))
            expected = pool(wide(x), kernel, stride, padding, **given)
            assert_close(call(x, kernel, stride, padding, **given), expected, x, dtype)
            out = poisoned(kind, dtype, tuple(expected.shape), ("rows", "columns")[rng.integers(2)])
            assert call(x, (kernel,), [stride], (padding,), **given, out=out) is out
            assert_close(out, expected, x, dtype)


def test_without_a_stride_windows_lie_side_by_side(rng):
    x = strided(rng, "torch", DType.F32, (2, 3, 17), "rows")
    torch.testing.assert_close(ops.max_pool1d(x, 3), functional.max_pool1d(x, 3))
    torch.testing.assert_close(ops.avg_pool1d(x, 4, ceil_mode=True), functional.avg_pool1d(x, 4, ceil_mode=True))


def test_random_grids(rng):
    for number in range(8):
        dtype = (DType.F32, DType.F64, DType.BF16, DType.F16)[number % 4]
        x = signal(rng, dtype, (int(rng.integers(1, 4)), int(rng.integers(1, 40)), int(rng.integers(1, 30))))
        kind = "numpy" if isinstance(x, np.ndarray) else "torch"
        size = int(rng.integers(1, 33)) if number % 3 else 1
        for call, pool in (
            (ops.adaptive_max_pool1d, functional.adaptive_max_pool1d),
            (ops.adaptive_avg_pool1d, functional.adaptive_avg_pool1d),
        ):
            expected = pool(wide(x), size)
            assert_close(call(x, size), expected, x, dtype)
            out = poisoned(kind, dtype, tuple(expected.shape), ("rows", "columns")[rng.integers(2)])
            assert call(x, [size], out=out) is out
            assert_close(out, expected, x, dtype)


CALLS: dict[str, Any] = {
    "max_pool1d": lambda x, **given: ops.max_pool1d(x, 3, 2, 1, **given),
    "avg_pool1d": lambda x, **given: ops.avg_pool1d(x, 3, 2, 1, **given),
    "adaptive_avg_pool1d": lambda x, **given: ops.adaptive_avg_pool1d(x, 7, **given),
    "adaptive_max_pool1d": lambda x, **given: ops.adaptive_max_pool1d(x, 7, **given),
    "adaptive_avg_pool1d to one": lambda x, **given: ops.adaptive_avg_pool1d(x, 1, **given),
    "adaptive_max_pool1d to one": lambda x, **given: ops.adaptive_max_pool1d(x, 1, **given),
}
EXPECTED: dict[str, Any] = {
    "max_pool1d": lambda x: functional.max_pool1d(x, 3, 2, 1),
    "avg_pool1d": lambda x: functional.avg_pool1d(x, 3, 2, 1),
    "adaptive_avg_pool1d": lambda x: functional.adaptive_avg_pool1d(x, 7),
    "adaptive_max_pool1d": lambda x: functional.adaptive_max_pool1d(x, 7),
    "adaptive_avg_pool1d to one": lambda x: functional.adaptive_avg_pool1d(x, 1),
    "adaptive_max_pool1d to one": lambda x: functional.adaptive_max_pool1d(x, 1),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", CALLS)
def test_nan_and_infinity_reach_the_windows_that_hold_them(rng, name):
    for layout in ("rows", "columns"):
        x = strided(rng, "torch", DType.F32, (2, 20, 13), layout)
        x[0, 3, 2], x[0, 4, 12], x[1, 5, 0] = math.nan, -math.inf, math.inf
        torch.testing.assert_close(CALLS[name](x), EXPECTED[name](x), equal_nan=True)


@pytest.mark.costly
@pytest.mark.parametrize("name", CALLS)
def test_the_result_has_the_order_of_the_signal_and_no_signals_none(rng, name):
    x = strided(rng, "torch", DType.F32, (2, 20, 13), "columns")
    result = CALLS[name](x)
    assert result.stride(1) == 1
    assert result.mT.is_contiguous()
    assert CALLS[name](x.contiguous()).is_contiguous()
    assert CALLS[name](x[:0]).shape == (0, *result.shape[1:])


@pytest.mark.parametrize("name", CALLS)
def test_an_out_of_less_precision_is_written_and_f64_is_throughout(rng, name):
    x = strided(rng, "torch", DType.F32, (2, 4, 13), "rows")
    expected = EXPECTED[name](x)
    out = torch.full(expected.shape, math.nan, dtype=torch.bfloat16)
    assert CALLS[name](x, out=out) is out
    torch.testing.assert_close(out, expected.bfloat16(), rtol=8e-3, atol=1e-6)
    with pytest.raises(InvalidDType, match="Remedy: give an out of f32"):
        CALLS[name](x, out=out.double())


def test_no_call_of_aten(rng):
    x = strided(rng, "torch", DType.F32, (2, 4, 11), "rows")
    outs = {name: torch.empty_like(EXPECTED[name](x)) for name in CALLS}
    with AtenCalls():  # a process's first call under a mode: torch sets its compiler up then, and makes a tensor
        ops.sum(x)
    for _ in range(2):  # a new signature, then a known one
        with AtenCalls() as counted:
            for name, call in CALLS.items():
                call(x, out=outs[name])
        assert counted.calls == 0
    with AtenCalls() as counted:
        functional.avg_pool1d(x, 3)
    assert counted.calls > 0


def test_a_long_signal_and_its_mean(rng):
    x = strided(rng, "torch", DType.F32, (1, 2, 40_000), "rows")
    torch.testing.assert_close(ops.max_pool1d(x, 3000, 1700), functional.max_pool1d(x, 3000, 1700))
    expected = x.double().mean(2, keepdim=True).float()
    torch.testing.assert_close(ops.adaptive_avg_pool1d(x, 1), expected, rtol=1e-5, atol=1e-6)


def test_a_stride_beyond_the_signal_leaves_one_window(rng):
    x = strided(rng, "torch", DType.F32, (1, 3, 8), "rows")
    for step in (10, 2**31 - 1):
        for ceil in (False, True):
            found = ops.avg_pool1d(x, 3, step, 1, ceil_mode=ceil)
            torch.testing.assert_close(found, functional.avg_pool1d(x, 3, step, 1, ceil))


X = torch.zeros(1, 4, 8)
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "two axes": (
        InvalidShape,
        lambda: ops.max_pool1d(X[0], 2),
        "max_pool1d: got (4, 8), expected (n, c, l), at least one channel. Remedy: x[None] is a batch of one signal",
    ),
    "four axes": (
        InvalidShape,
        lambda: ops.avg_pool1d(X[None], 2),
        "avg_pool1d: got (1, 1, 4, 8), expected (n, c, l), at least one channel. "
        "Remedy: avg_pool2d takes four axes; join the first 2 axes: x.flatten(0, 1)",
    ),
    "a grid over two axes": (InvalidShape, lambda: ops.adaptive_avg_pool1d(X[0], 2), "adaptive_avg_pool1d: got (4, 8)"),
    "no channels": (
        InvalidShape,
        lambda: ops.adaptive_max_pool1d(X[:, :0], 2),
        "adaptive_max_pool1d: got (1, 0, 8), expected (n, c, l), at least one channel. "
        "Remedy: give the signals a channel",
    ),
    "a window beyond the signal": (
        InvalidShape,
        lambda: ops.max_pool1d(X, 9),
        "max_pool1d: got l 8, window 9, padding 0, result 0, expected a signal and a result of at least 1. "
        "Remedy: pad more",
    ),
    "a signal of nothing": (
        InvalidShape,
        lambda: ops.avg_pool1d(X[..., :0], 2, padding=1),
        "avg_pool1d: got l 0, window 2, padding 1, result 1, expected a signal",
    ),
    "a grid over a signal of nothing": (
        InvalidShape,
        lambda: ops.adaptive_avg_pool1d(X[..., :0], 2),
        "adaptive_avg_pool1d: got (1, 4, 0), expected (n, c, l), a signal of at least 1. Remedy: pool a signal that",
    ),
    "a padding of more than half": (
        InvalidOp,
        lambda: ops.max_pool1d(X, 3, 1, 2),
        "max_pool1d.padding: got 2, expected at most half of the window 3. Remedy: pad less",
    ),
    "two strides": (
        InvalidOp,
        lambda: ops.avg_pool1d(X, 3, (1, 1)),
        "stride: got (1, 1), expected a whole number, or a sequence of one. Remedy: stride=1",
    ),
    "no window": (InvalidOp, lambda: ops.max_pool1d(X, 0), "kernel_size: got 0, expected whole numbers from 1 on"),
    "a grid of two numbers": (
        InvalidOp,
        lambda: ops.adaptive_max_pool1d(X, (2, 3)),
        "output_size: got (2, 3), expected a whole number, or a sequence of one",
    ),
    "no grid": (InvalidOp, lambda: ops.adaptive_avg_pool1d(X, None), "output_size: got None, expected a whole number"),
    "places": (
        InvalidOp,
        lambda: ops.adaptive_max_pool1d(X, 3, return_indices=True),
        "Remedy: call torch.nn.functional.adaptive_max_pool1d for the places",
    ),
    "dilation": (
        InvalidOption,
        lambda: ops.max_pool1d(X, 3, dilation=2),
        "Remedy: leave dilation out, or call torch.nn.functional.max_pool1d where it is needed",
    ),
    "integers": (InvalidDType, lambda: ops.max_pool1d(X.int(), 2), "x: got i32"),
    "a signal that asks for a gradient": (
        InvalidInput,
        lambda: ops.avg_pool1d(X.clone().requires_grad_(), 2),
        "Remedy: ",
    ),
    "an out of another shape": (
        InvalidShape,
        lambda: ops.max_pool1d(X, 2, out=torch.zeros(1, 4, 5)),
        "out: got f32[1×4×5], expected f32[1×4×4]. Remedy: give an out of the result's shape",
    ),
    "an out of another grid": (
        InvalidShape,
        lambda: ops.adaptive_avg_pool1d(X, 1, out=torch.zeros(1, 4, 2)),
        "out: got f32[1×4×2], expected f32[1×4×1]",
    ),
    "an out over itself": (
        InvalidStride,
        lambda: ops.adaptive_avg_pool1d(X, 2, out=torch.zeros(1, 1, 2).expand(1, 4, 2)),
        "out: got (2, 0, 1), expected one address per element",
    ),
    "an out that is the signal": (OverlappingOutput, lambda: ops.max_pool1d(X, 1, out=X), "Remedy: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_in_the_words_of_signals(name: str) -> None:
    error, call, said = REFUSED[name]
    with pytest.raises(error) as caught:
        call()
    assert said in str(caught.value)
    assert "Remedy: " in str(caught.value)
    assert name == "four axes" or "2d" not in str(caught.value)


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_pooling_of_images_names_that_of_signals_for_three_axes(name: str) -> None:
    with pytest.raises(InvalidShape) as caught:
        getattr(ops, name)(X, 2)
    assert caught.value.remedy == f"x[None] is a batch of one image; {name.replace('2d', '1d')} takes three axes"
    with pytest.raises(InvalidShape, match=r"at least one channel\. Remedy: give the images a channel"):
        getattr(ops, name)(X[:, :0, None], (1, 2))
