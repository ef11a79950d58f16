"""Powers by exponents that f32 takes for 0, which are not 0, and by those that torch computes as roots."""

from __future__ import annotations

import pytest
import torch

import tracea


class Powers(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x**1e-320, x**-1e-46, x**1e-40, x**0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_power_by_next_to_nothing_is_that_of_real_numbers(dtype: torch.dtype) -> None:
    x = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 4.0, 1e-30, -1.0] * 5, dtype=dtype)
    fast = tracea.optimize(Powers().eval(), (x,), budget=None, threads=1)
    with torch.inference_mode():
        found, wanted = (
            fast(x),
            Powers()(x.double()),
        )  # torch's own f32 takes 1e-320 for 0 in vectors, not in their rest
    for got, value in zip(found, wanted, strict=True):
        torch.testing.assert_close(got.double(), value, rtol=0.0, atol=0.0, equal_nan=True)


class Roots(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x**-0.5, x ** torch.tensor(-0.5), x**0.5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_power_of_minus_a_half_is_rsqrt_and_by_a_tensor_a_power(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), -1.0, 4.0, float("nan"), 3e38] * 5, dtype=dtype)
    fast = tracea.optimize(Roots().eval(), (x,), budget=None, threads=1)
    with torch.inference_mode():
        found, wanted = fast(x), Roots()(x)
    for got, value in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, value, equal_nan=True)
        number = ~value.isnan()
        assert torch.equal(got.signbit()[number], value.signbit()[number])
    assert found[0][1] == float("-inf")
    assert found[0][3].isnan()
    assert found[1][3] == 0.0
