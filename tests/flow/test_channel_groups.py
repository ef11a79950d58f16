"""Tests for tracea.flow.channel_groups: norms of groups of few channels that lie side by side, against float64."""

from __future__ import annotations

import math

import pytest
import torch
from tests.drawn import drawn
from torch.nn import functional

import tracea
from tracea.core.dtype import DType
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow.channel_groups import has_narrow_groups

CLOSE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 4e-2, torch.float16: 4e-3}
# Shape and groups: groups within a vector, across two, wider than one; volumes and sequences, one image and several.
CASES = {
    "of four": ((2, 32, 9, 13), 8),
    "of ten": ((1, 40, 11, 7), 4),
    "of three, odd": ((3, 15, 8, 9), 5),
    "one group": ((2, 24, 10, 6), 1),
    "wider than a vector": ((2, 96, 5, 7), 2),
    "wide": ((2, 300, 5, 3), 2),
    "sequences": ((3, 16, 61), 4),
    "volumes": ((1, 12, 4, 7, 9), 3),
}


def last(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor with channels next to each other."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def typed(x: torch.Tensor) -> TensorType:
    return TensorType(tuple(x.shape), DType.F32, StridedLayout(x.stride()))


def made(rng, shape, dtype=torch.float32):
    return last(torch.from_numpy(rng.standard_normal(shape)).to(dtype) * 2 + 3)


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("name", drawn(2, CASES, of="groups of channels"))
def test_norm_is_that_of_float64(name, dtype, rng):
    (shape, groups), channels = CASES[name], CASES[name][0][1]
    x = made(rng, shape, dtype)
    assert has_narrow_groups(typed(x), groups)
    w, b = (torch.from_numpy(rng.standard_normal(channels)).to(dtype) for _ in range(2))
    for weight, bias in ((w, b), [(None, b), (w, None), (None, None)][rng.integers(3)]):
        wide = [None if each is None else each.double() for each in (weight, bias)]
        expected = functional.group_norm(x.double(), groups, *wide)
        found = tracea.ops.group_norm(x, groups, weight, bias)
        assert found.stride() == x.stride()
        assert float((found.double() - expected).abs().max()) < CLOSE[dtype] * (1 + float(expected.abs().max()))


@pytest.mark.parametrize("strides", ["rows", "gaps"])
def test_a_result_has_the_strides_that_were_given(strides, rng):
    x = made(rng, (2, 32, 9, 13))
    wide = torch.full((2, 32, 9, 20), math.nan)
    out = torch.full(x.shape, math.nan) if strides == "rows" else wide[..., :13]
    assert tracea.ops.group_norm(x, 8, out=out) is out
    assert float((out - functional.group_norm(x.double(), 8)).abs().max()) < 1e-5
    assert wide[..., 13:].isnan().all()


def test_an_offset_costs_no_more_than_its_rounding(rng):
    x = last(torch.from_numpy(rng.standard_normal((1, 16, 24, 20))).float() + 4096.0)
    expected = functional.group_norm(x.double(), 4)
    assert float((tracea.ops.group_norm(x, 4) - expected).abs().max()) < 2e-3  # 4096 is 2^12: its last bit is 2^-11


def test_channels_of_one_group_that_lie_far_apart_share_their_mean(rng):
    x = made(rng, (1, 8, 16, 20))
    x[:, ::2] += 100.0
    expected = functional.group_norm(x.double(), 2)
    assert float((tracea.ops.group_norm(x, 2) - expected).abs().max()) < 1e-4
    assert not torch.allclose(tracea.ops.group_norm(x, 2), tracea.ops.group_norm(x, 8), atol=0.1)


def test_nan_stays_in_its_group(rng):
    x = made(rng, (2, 32, 9, 13))
    x[1, 5, 2, 2] = math.nan
    assert torch.equal(tracea.ops.group_norm(x, 8).isnan(), functional.group_norm(x, 8).isnan())


def test_the_same_bits_each_time_and_by_any_number_of_calls(rng):
    x = made(rng, (2, 32, 19, 23))
    first = tracea.ops.group_norm(x, 8)
    assert all(torch.equal(first, tracea.ops.group_norm(x, 8)) for _ in range(3))


@pytest.mark.parametrize(
    ("x", "groups"),
    [
        (torch.empty(2, 32, 9, 13), 8),  # rows of pixels
        (last(torch.empty(2, 32, 9, 13)), 32),  # a channel a group: columns as they are
        (last(torch.empty(2, 1024, 9, 13)), 2),  # rows of many vectors
        (last(torch.empty(1, 8, 3, 3)), 2),  # one kernel is less
        (torch.empty(64, 32), 8),  # no pixels
    ],
)
def test_other_groups_are_slabs(x, groups):
    assert not has_narrow_groups(typed(x), groups)


class Block(torch.nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = torch.nn.GroupNorm(4, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + functional.silu(self.norm(self.conv(x)))


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_module_normalises_what_a_convolution_wrote_in_one_kernel_with_what_follows(channels_last, rng):
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = Block(24).eval().to(memory_format=layout)
    x = torch.from_numpy(rng.standard_normal((2, 24, 14, 11))).float().contiguous(memory_format=layout)
    fast = tracea.optimize(model, (x,), budget=None, threads=1)
    with torch.inference_mode():
        expected = model.double()(x.double())
        assert float((fast(x) - expected).abs().max()) < 1e-4
    assert "group_norm.pixels + silu.pixels" in str(fast.explain())
