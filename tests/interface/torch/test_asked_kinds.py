"""What a module is told of a value's kind, of numbers beside narrower integers, and what a result may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tracea
from tracea.errors import UnsupportedNode
from tracea.interface.torch.capture import capture


class Line(nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.call(self.weight, *inputs)


def check(call: Callable[..., Any], *inputs: torch.Tensor) -> None:
    module = Line(call).eval()
    fast = tracea.optimize(module, inputs, budget=None, threads=1, listener=lambda *_: None)
    with torch.no_grad():
        for got, wanted in zip(fast(*inputs), module(*inputs), strict=True):
            torch.testing.assert_close(got, wanted)


def test_the_name_of_a_type_is_the_one_of_a_call() -> None:
    factors = {"Tensor": 2.0, "Parameter": 3.0}
    check(lambda w, x: (x * factors[type(x).__name__], w * factors[type(w).__name__] + x), torch.randn(3, 4))


@pytest.mark.parametrize("call", [lambda _, x: (x * 2, x.sum().item()), lambda _, x: (x * 2, x.argmax().item())])
def test_a_number_that_a_call_computes_is_no_result(call: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedNode, match=r"a number among the results .*call \.item\(\) on the result"):
        capture(Line(call).eval(), (torch.randn(3, 4),))


def test_connectives_of_numbers_ask_where_they_are_not_0() -> None:
    x, y = torch.tensor([[0.0, 1.0, -2.0, float("nan")]] * 2), torch.tensor([0.0, 0.0, 3.0, 0.0])
    check(lambda _, x, y: (torch.logical_and(x, y), torch.logical_or(x, y), torch.logical_and(x > 0, y)), x, y)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
@pytest.mark.parametrize("number", [-1, 300, 2**40 + 5])
def test_a_tensor_without_axes_wraps_around_beside_narrower_integers(dtype: torch.dtype, number: int) -> None:
    x = torch.tensor([[1, 5, 3], [100, 44, 0]]).to(dtype)
    check(lambda _, x, y: (x > y, x == y, torch.where(x > 2, x, y)), x, torch.tensor(number))


def test_a_negative_number_wraps_around_in_bytes() -> None:
    x = torch.tensor([1, 5, 200], dtype=torch.uint8)
    check(lambda _, x: (x.masked_fill(x > 2, -1), torch.where(x > 2, x, -1)), x)
