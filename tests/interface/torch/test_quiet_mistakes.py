"""What was captured and gave other numbers than eager without a word: computed as torch does now, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tracea
from tracea.errors import UnsupportedNode

F = nn.functional


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.linear = nn.Linear(8, 8)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def check(function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    module = Calls(function).eval()
    with torch.inference_mode():
        fast = tracea.optimize(module, inputs, budget=None, threads=1)
        for found, wanted in zip(fast(*inputs), module(*inputs), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


def refused(function: Callable[..., Any], *inputs: torch.Tensor, match: str) -> None:
    with torch.inference_mode(), pytest.raises(UnsupportedNode, match=match):
        tracea.optimize(Calls(function).eval(), inputs, budget=None, threads=1)


def through_type_as(_: Any, s: torch.Tensor, cache: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    same = cache.type_as(k)
    same[:, 2] = k
    return same.sum(1) + s


def through_sum_to_size(_: Any, x: torch.Tensor) -> torch.Tensor:
    same = x.sum_to_size(3, 4)
    same[0] = 1.0
    return same * 2.0


def test_a_write_through_an_operator_that_returns_its_input_is_refused() -> None:
    refused(through_type_as, torch.ones(2), torch.zeros(2, 5), torch.ones(2), match="returns its own input")
    refused(through_sum_to_size, torch.zeros(3, 4), match="writes to inputs")


@pytest.mark.whole
def test_a_write_by_uint8_is_refused_with_what_to_say() -> None:
    def write(_: Any, x: torch.Tensor, mask: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[mask] = v
        return x

    given = (torch.zeros(3, 2), torch.tensor([1, 0, 1], dtype=torch.uint8), torch.ones(2))
    refused(write, *given, match=r"bool\(\)")


@pytest.mark.parametrize("factor", [2.0, 2.2, 3.3])
def test_an_enlargement_takes_its_factor(factor: float) -> None:
    x, square = torch.arange(4.0).view(1, 1, 4), torch.arange(9.0).view(1, 1, 3, 3)
    check(lambda _, x, y: tuple(F.interpolate(each, scale_factor=factor) for each in (x, y)), x, square)


@pytest.mark.parametrize("size", [3, 5, 8, 11])
def test_a_pooling_to_a_larger_grid_repeats_windows(size: int) -> None:
    x, image = torch.randn(2, 3, 4), torch.randn(1, 2, 3, 4)
    check(
        lambda _, x, image: (
            F.adaptive_avg_pool1d(x, size),
            F.adaptive_max_pool1d(x, size),
            F.adaptive_avg_pool2d(image, size),
        ),
        x,
        image,
    )


def test_a_part_of_a_join_is_read_by_ops_that_know_one_layout() -> None:
    def join(module: Any, x: torch.Tensor) -> Any:
        y = module.linear(x)
        return torch.cat([y, x], -1), y.cumsum(-1), y.var(-1)

    check(join, torch.randn(3, 8))


def test_a_query_whose_keys_a_constant_hides_is_nan_beside_an_added_input() -> None:
    kept = torch.ones(4, 4, dtype=torch.bool).tril(-1)  # nothing is left for the first

    def attend(_: Any, q: torch.Tensor, bias: torch.Tensor) -> Any:
        weights = (q @ q.mT + bias).masked_fill(~kept, float("-inf"))
        return (torch.softmax(weights, -1) @ q,)

    check(attend, torch.randn(1, 2, 4, 8), torch.randn(4, 4))
