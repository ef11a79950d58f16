"""Group and batch norm and log-softmax against torch in float64: orders of axes, statistics, extremes, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.drawn import drawn

import tracea
from tracea.errors import InvalidDType, InvalidOp, InvalidShape, OverlappingOutput

pytestmark = pytest.mark.usefixtures("one_thread")

functional = torch.nn.functional


def images(rng, *shape: int, last: bool, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.from_numpy(rng.standard_normal(shape)).to(dtype) + 3
    return x.to(memory_format=torch.channels_last) if last else x


def parameters(rng, channels: int, which: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    made = [torch.from_numpy(rng.standard_normal(channels)).float() for _ in range(2)]
    return made[0] if which & 1 else None, made[1] if which & 2 else None


def wide(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    return [None if tensor is None else tensor.double() for tensor in tensors]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("which", drawn(1, [0, 2, 3], of="parameters of group norms"))
def test_group_norm(rng, last, which):
    x, (w, b) = images(rng, 2, 12, 5, 7, last=last), parameters(rng, 12, which)
    for groups in (1, 3):
        expected = functional.group_norm(x.double(), groups, *wide(w, b))
        found = tracea.ops.group_norm(x, groups, w, b)
        assert found.stride() == x.stride()
        assert float((found - expected).abs().max()) < 1e-5
    out = torch.full(x.shape, math.nan)
    assert tracea.ops.group_norm(x, 3, w, b, out=out) is out
    assert float((out - functional.group_norm(x.double(), 3, *wide(w, b))).abs().max()) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_group_norm_of_other_elements(rng, dtype):
    x = images(rng, 3, 8, 6, 6, last=False, dtype=dtype)
    expected = functional.group_norm(x.double(), 4)
    close = {torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
    assert float((tracea.ops.group_norm(x, 4).double() - expected).abs().max()) < close


@pytest.mark.parametrize("last", [False, True])
def test_batch_norm_by_given_and_by_own_statistics(rng, last):
    x, (w, b) = images(rng, 4, 10, 6, 5, last=last), parameters(rng, 10, 3)
    found, mean, var = tracea.ops.batch_norm_training(x, w, b)
    expected = functional.batch_norm(x.double(), None, None, *wide(w, b), True)
    assert found.stride() == x.stride()
    assert float((found - expected).abs().max()) < 1e-5
    assert float((mean - x.double().mean((0, 2, 3))).abs().max()) < 5e-6
    assert float((var - x.double().var((0, 2, 3), correction=0)).abs().max()) < 5e-6
    for weight, bias in ((w, b), (None, b)):
        expected = functional.batch_norm(x.double(), *wide(mean, var, weight, bias))
        out = torch.full(x.shape, math.nan)
        assert tracea.ops.batch_norm(x, mean, var, weight, bias, out=out) is out
        assert float((out - expected).abs().max()) < 1e-5
        assert float((tracea.ops.batch_norm(x, mean, var, weight, bias) - expected).abs().max()) < 1e-5


def test_batch_norm_of_rows_and_of_sequences(rng):
    for shape in ((33, 7), (5, 7, 11)):
        x = torch.from_numpy(rng.standard_normal(shape)).float()
        expected = functional.batch_norm(x.double(), None, None, training=True)
        assert float((tracea.ops.batch_norm_training(x)[0] - expected).abs().max()) < 1e-5


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("scale", [3e3, 1e-4])
def test_a_batch_norm_of_half_floats_scales_by_statistics_that_half_floats_cannot_hold(rng, scale, last):
    x = (images(rng, 5, 12, 5, 7, last=last) * scale).half()
    w, b = parameters(rng, 12, 3)
    found, _, var = tracea.ops.batch_norm_training(x, w, b, 1e-12)
    expected = functional.batch_norm(*wide(x, None, None, w, b), training=True, eps=1e-12)
    assert float((found.double() - expected).abs().max()) < 1e-2
    assert bool(var.isinf().all() if scale > 1 else (var == 0).all())  # rounded to half floats only after use


@pytest.mark.whole
@pytest.mark.parametrize("last", [False, True])
def test_channels_with_little_spread_lose_no_digits(rng, last):
    x = images(rng, 4, 6, 33, 35, last=last)
    x[:, 0], x[:, 1] = 333.3, 33333.3
    x[:, 2] = 1e4 + 1e-2 * x[:, 2]
    x[0, 3, 0, 0], x[1, 4, 2, 2] = math.inf, math.inf  # sums are about the first element
    y, mean, var = tracea.ops.batch_norm_training(x)
    spread, center = torch.var_mean(x.double(), (0, 2, 3), correction=0)
    expected = (x.double() - center[:, None, None]) / torch.sqrt(spread + 1e-5)[:, None, None]
    good = [0, 1, 2, 5]
    assert torch.equal(y[:, :2], torch.zeros_like(y[:, :2]))
    assert torch.equal(var[:2], torch.zeros(2))
    torch.testing.assert_close(y[:, good].double(), expected[:, good], rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(mean[good].double(), center[good], rtol=1e-7, atol=1e-6)
    torch.testing.assert_close(var[good].double(), spread[good], rtol=1e-5, atol=0)
    assert mean[3:5].tolist() == [math.inf, math.inf]
    assert torch.isnan(var[3:5]).all()
    assert torch.isnan(y[:, 3:5]).all()


class Exported:
    """An array that is known by DLPack alone."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **how):
        return self._array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_statistics_of_an_exported_array(rng, dtype):
    x = rng.standard_normal((4, 8, 5, 5)).astype(dtype)
    for found, expected in zip(
        tracea.ops.batch_norm_training(Exported(x)), tracea.ops.batch_norm_training(x), strict=True
    ):
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("pixels", [7, 8])
def test_a_wide_parameter_widens_the_root(pixels):
    x, spread = torch.ones(1, 2, pixels), torch.zeros(2)
    found = tracea.ops.batch_norm(x, torch.zeros(2, dtype=torch.float64), spread, eps=1e-60)
    assert torch.equal(found, torch.full_like(x, 1e30))


def test_log_softmax_along_any_axis_with_extreme_scores(rng):
    x = torch.from_numpy(rng.standard_normal((4, 5, 6))).float() * 1e4
    x[0, 0], x[1, 1, 1], x[2, 2, 2] = -math.inf, math.nan, -math.inf
    for dim in (0, 1, -1):
        expected = x.double().log_softmax(dim)
        assert torch.allclose(tracea.ops.log_softmax(x, dim).double(), expected, rtol=1e-5, atol=1e-3, equal_nan=True)


def test_nan_stays_in_its_group_and_empty_batches_are_empty(rng):
    x = images(rng, 2, 8, 3, 3, last=False)
    x[0, 1, 0, 0], x[1, 7, 2, 2] = math.nan, math.inf
    found = tracea.ops.group_norm(x, 4)
    assert torch.equal(found.isnan(), functional.group_norm(x, 4).isnan())
    assert tuple(tracea.ops.group_norm(x[:0], 4).shape) == (0, 8, 3, 3)


X, C = torch.zeros(2, 6, 3, 3), torch.zeros(6)
REFUSED = {
    "groups that do not divide the channels": (InvalidShape, lambda: tracea.ops.group_norm(X, 4)),
    "no group": (InvalidOp, lambda: tracea.ops.group_norm(X, 0)),
    "a weight of another length": (InvalidShape, lambda: tracea.ops.group_norm(X, 2, torch.zeros(5))),
    "a negative eps": (InvalidOp, lambda: tracea.ops.group_norm(X, 2, eps=-1.0)),
    "one axis": (InvalidShape, lambda: tracea.ops.batch_norm(C, C, C)),
    "statistics that are missing": (InvalidDType, lambda: tracea.ops.batch_norm(X, C, None)),
    "a channel without elements": (InvalidShape, lambda: tracea.ops.batch_norm_training(X[:0])),
    "integers": (InvalidDType, lambda: tracea.ops.group_norm(X.int(), 2)),
    "an out that is the input": (OverlappingOutput, lambda: tracea.ops.group_norm(X, 2, out=X)),
    "an axis that does not exist": (InvalidShape, lambda: tracea.ops.log_softmax(X, 4)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_a_remedy(name):
    error, call = REFUSED[name]
    with pytest.raises(error, match="Remedy: "):
        call()


@pytest.mark.parametrize("dim", [-1, 0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_log_softmax_whose_differences_overflow_is_minus_infinity_not_nan(dtype: torch.dtype, dim: int) -> None:
    most = torch.finfo(dtype).max
    x = torch.tensor([[most, -most, 0.0, most], [-most, -most, -most, -most]], dtype=dtype)
    x = (x if dim == -1 else x.t()).contiguous()
    found = tracea.ops.log_softmax(x, dim=dim)
    assert not found.isnan().any()
    assert found.isneginf().sum() == 1
    torch.testing.assert_close(found, torch.log_softmax(x, dim))
