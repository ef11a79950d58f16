"""Functions that an expression of others is are as exact as torch's, for small operands, large ones and none."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import tracea

NAMES = ("log1p", "expm1", "log2", "log10", "ceil", "trunc")
ULPS = 4


class Every(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(getattr(torch, name)(x) for name in NAMES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_functions_are_those_of_float64(dtype: torch.dtype, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    drawn = torch.randn(4000, generator=rng) * 10.0 ** torch.randint(-12, 3, (4000,), generator=rng)
    ends = (0.0, -0.0, math.inf, -math.inf, math.nan, -1.0, -1.5, 1e-40, 88.5, 89.5, 100.0, -100.0, 3e38, -3e38)
    x = torch.cat([drawn, torch.tensor(ends)]).to(dtype)
    digits = torch.finfo(dtype)
    for name, found, right in zip(
        NAMES,
        tracea.optimize(Every(), (x,), budget=None, threads=1)(x),
        Every()(x.double()),
        strict=True,
    ):
        wanted = right.to(dtype)
        is_close = (found.double() - right).abs() <= ULPS * (
            digits.eps * right.abs() + digits.smallest_normal * digits.eps
        )
        is_same = (found == wanted) | (found.isnan() & wanted.isnan()) | (wanted.isfinite() & is_close)
        assert is_same.all(), f"{name} of {x[~is_same][:5]}: {found[~is_same][:5]}, not {right[~is_same][:5]}"
        zeros = (found == 0) & (wanted == 0)
        assert torch.equal(found.signbit()[zeros], wanted.signbit()[zeros]), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_logarithms_of_powers_of_their_base_are_whole(dtype: torch.dtype) -> None:
    twos = torch.tensor([2.0**power for power in range(-126, 128)], dtype=dtype)
    tens = torch.tensor([float(f"1e{power}") for power in range(11)], dtype=dtype)

    class Powers(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.log2(x).floor(), torch.log10(y).floor()

    of_two, of_ten = tracea.optimize(Powers(), (twos, tens), budget=None, threads=1)(twos, tens)
    assert of_two.tolist() == list(range(-126, 128))
    assert of_ten.tolist() == list(range(11))
