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
