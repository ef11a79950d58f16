"""What depends on constants alone: torch computes it, and only what a run reads becomes a value of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.interface.torch.compare import check_capture
from tests.interface.torch.test_trace import by_export
from torch import nn

from tracea.errors import UnsupportedNode
from tracea.interface.torch.capture import capture


class Line(nn.Module):
    """One line that reads a table of the module."""

    def __init__(self, line: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.line = line
        self.table = nn.Embedding(32, 4, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.line(self, x)


def buckets(count: int) -> torch.Tensor:
    """Return T5's buckets of relative places: the logarithm of 0 as an integer is repaired by what follows."""
    places = torch.arange(count)[None] - torch.arange(count)[:, None]
    away = places.abs()
    far = 8 + (torch.log(away.float() / 8) / 2.772588722239781 * 8).long()
    return (places > 0).long() * 16 + torch.where(away < 8, away, torch.min(far, torch.full_like(far, 15)))


def repaired(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x + module.table(buckets(x.shape[0])).permute(2, 0, 1)


def of_complex_numbers(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    angles = torch.arange(12.0, dtype=torch.float64)
    turns = torch.view_as_real(torch.polar(torch.ones_like(angles), angles))
    return x * turns.T[:1] + turns[3:4, 1]


def through_views(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    large = torch.tensor([2**60, 5, -(2**60)]).repeat(4)[None].expand(12, 12)
    return x + large.clamp(-3, 3) + torch.where(x > 0, large[:, 2:3], 1)


@pytest.mark.parametrize("captured_by", [capture, by_export])
@pytest.mark.parametrize("line", [repaired, of_complex_numbers], ids=["buckets", "complex numbers"])
def test_what_no_run_reads_may_have_any_type_and_value(line: Callable[..., Any], captured_by: Any) -> None:
    module, inputs = Line(line).eval(), (torch.randn(12, 12, dtype=torch.float64),)
    captured = captured_by(module, inputs)
    check_capture(captured, module, inputs)
    assert not set(captured.constants) - {name for node in captured.graph for name in node.inputs}
    assert "table.weight" not in captured.constants  # read by constants alone


def test_a_large_integer_that_a_run_reads_is_refused_where_it_is_read() -> None:
    with pytest.raises(UnsupportedNode, match=r"got -?1152921504606846976, expected i64 values within") as caught:
        capture(Line(through_views).eval(), (torch.randn(12, 12, dtype=torch.float64),))
    assert "test_constants.py:" in caught.value.location


def test_a_constant_that_is_returned_is_read() -> None:
    class Returned(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x + 1.0, torch.arange(3) * 2**60

    with pytest.raises(UnsupportedNode, match="got 2305843009213693952, expected i64 values within"):
        capture(Returned(), (torch.ones(3),))


def test_parts_of_a_constant_are_constants_of_their_own_where_they_are_computed() -> None:
    class Parts(nn.Module):
        """The first half is read as it is, the second by what is computed from it."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("both", torch.randn(2, 6, dtype=torch.float64))
            self.register_buffer("other", torch.randn(2, 6, dtype=torch.float64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, _ = self.both.chunk(2)
            _, second = self.other.chunk(2)
            return x * first + second.exp()

    module, inputs = Parts(), (torch.randn(3, 6, dtype=torch.float64),)
    captured = capture(module, inputs)
    check_capture(captured, module, inputs)
    assert sorted(captured.constants) == ["both", "exp"]
