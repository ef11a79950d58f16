"""What forward changes beside its results is refused, not frozen as it happened to be."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from tests.interface.torch.compare import check_capture
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


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shapes = deque([(1, 1)], maxlen=2)
        self.calls: dict[str, list[int]] = {"calls": []}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shapes.append(tuple(x.shape))
        self.calls["calls"].append(len(self.shapes))
        return x * 2


def test_what_a_module_remembers_is_as_before_its_capture() -> None:
    module = Remembers()
    captured = capture(module, (torch.ones(3, 4),))
    assert (list(module.shapes), module.calls, module.shapes.maxlen) == ([(1, 1)], {"calls": []}, 2)
    check_capture(captured, module, (torch.ones(3, 4),))
