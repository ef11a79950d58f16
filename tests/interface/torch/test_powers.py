"""Powers by exponents that f32 takes for 0: the exponent is not 0, and a power of NaN is NaN."""

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
