"""Gradients of depthwise filters that are written as sums: problems, and what every such form has to hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tests.interface.accuracy import TORCH

import tracea
from tracea.core.dtype import DType
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow.filter_gradient import FilterGradient

__all__ = ["check_bits", "check_gradient", "check_infinity", "problem", "whole"]

TOLERANCE = {DType.F64: 1e-13, DType.F32: 2e-5, DType.BF16: 1.6e-2}  # of the sum of the products' magnitudes
Case = tuple[tuple[int, ...], tuple[int, int], dict[str, Any]]  # an image, taps, the convolution's numbers


def _images(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, last: bool) -> torch.Tensor:
    made = torch.from_numpy(rng.standard_normal(shape)).to(TORCH[dtype])
    return made.contiguous(memory_format=torch.channels_last) if last else made


def whole(x: torch.Tensor, grad: torch.Tensor, y: torch.Tensor, dtype: DType, **given: Any) -> FilterGradient:
    """Return the gradient that tensors say."""
    types = [TensorType(tuple(t.shape), dtype, StridedLayout(t.stride())) for t in (x, grad, y)]
    numbers = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": x.shape[1]}
    return FilterGradient(x=types[0], grad=types[1], y=types[2], **(numbers | given))


def problem(
    rng: np.random.Generator, case: Case, dtype: DType, *, last: bool
) -> tuple[torch.Tensor, torch.Tensor, tuple[int, ...]]:
    """Return an image, a gradient of the result and the filter's shape."""
    image, taps, given = case
    x, shape = _images(rng, image, dtype, last), (image[1], 1, *taps)
    result = torch.nn.functional.conv2d(x.double(), torch.zeros(shape).double(), groups=image[1], **given).shape
    return x, _images(rng, tuple(result), dtype, last), shape


def check_gradient(form: Any, rng: np.random.Generator, case: Case, dtype: DType, *, last: bool) -> None:
    """Check that ``form`` takes the problem, and the gradient beside float64's, into a poisoned result."""
    image, _, given = case
    x, grad, shape = problem(rng, case, dtype, last=last)
    out = torch.full(shape, float("nan"), dtype=x.dtype)
    assert form.of(whole(x, grad, out, dtype, **given)) is not None
    tracea.ops.conv2d_grad_weight(x, grad, shape, **given, groups=image[1], out=out)
    expected, magnitude = (
        torch.nn.grad.conv2d_weight(of(x.double()), shape, of(grad.double()), **given, groups=image[1])
        for of in (torch.clone, torch.abs)
    )
    assert bool(((out.double() - expected).abs() <= TOLERANCE[dtype] * magnitude + 1e-30).all())


def check_infinity(rng: np.random.Generator, case: Case, what: str, *, last: bool) -> None:
    """Check that an infinity in the first pixel of a padded 3x3 problem reaches the taps that meet it, and no other."""
    image, _, given = case
    x, grad, shape = problem(rng, case, DType.F32, last=last)
    (x if what == "x" else grad)[0, 3, 0, 0] = float("inf")
    found = tracea.ops.conv2d_grad_weight(x, grad, shape, **given, groups=image[1])
    reached = torch.zeros(shape, dtype=torch.bool)
    # The image's first pixel meets no tap of the last row and column, the result's none of the first ones.
    reached[(3, 0, slice(0, 2), slice(0, 2)) if what == "x" else (3, 0, slice(1, 3), slice(1, 3))] = True
    assert not found[reached].isfinite().any()
    assert found[~reached].isfinite().all()


def check_bits(rng: np.random.Generator, case: Case, *, last: bool) -> None:
    """Check that one thread and two give the same bits."""
    image, _, given = case
    x, grad, shape = problem(rng, case, DType.F32, last=last)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(tracea.ops.conv2d_grad_weight(x, grad, shape, **given, groups=image[1]))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)
