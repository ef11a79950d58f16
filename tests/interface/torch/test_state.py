"""What forward changes beside its results is refused, not frozen as it happened to be."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tracea.errors import UnsupportedNode
from tracea.interface.torch.capture import capture


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.p.mul_(2)
        return x * self.p


def test_a_write_to_a_parameter_is_refused() -> None:
    module = Writes()
    with pytest.raises(UnsupportedNode, match="a write to a parameter, p"):
        capture(module, torch.ones(3, 4))
    assert module.p.eq(1).all()


class Transforms(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.func.vjp(lambda row: row.sin(), x)[1](x)[0]


def test_a_transform_that_export_cannot_follow_is_refused_with_its_line() -> None:
    with pytest.raises(UnsupportedNode, match=r"test_state\.py:\d+ in .*torch\.func"):
        capture(Transforms(), torch.ones(3, 4))
