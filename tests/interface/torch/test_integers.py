"""Arithmetic on whole numbers, as before an embedding: what torch computes, or a refusal where f64 could not count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.interface.torch.compare import check_capture
from torch import nn

import tracea
from tracea.errors import InvalidIndex, InvalidInput, UnsupportedNode
from tracea.interface.torch.capture import capture

BASE = 2**29  # where f32 no longer tells neighbours apart


class Line(nn.Module):
    def __init__(self, line: Callable[..., Any]) -> None:
        super().__init__()
        self.line = line

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.line(ids)


LINES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one more": lambda ids: ids + 1,
    "from the end": lambda ids: 9 - ids,
    "by two": lambda ids: ids * 2 - ids,
    "by places": lambda ids: ids + torch.arange(ids.shape[-1]),
    "clamped": lambda ids: ids.clamp(1, 3),
    "negative ones": lambda ids: torch.where(ids - 3 < 0, ids + 4, ids),
    "by a mask": lambda ids: (ids.ne(1).long() * 2) + ids.ne(2),
    "cancelled": lambda ids: (ids + BASE) * 3 - 3 * BASE - ids,
}


@pytest.mark.parametrize("name", LINES)
def test_sums_products_and_choices_are_those_of_torch(name: str) -> None:
    module, ids = Line(LINES[name]), torch.tensor([[1, 2, 5], [0, 4, 3]])
    check_capture(capture(module, (ids,)), module, (ids,))


@pytest.mark.slow
def test_a_program_computes_them_exactly_and_checks_what_it_is_given() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(12, 4)

        def forward(self, x: torch.Tensor, ids: torch.Tensor) -> Any:
            return self.table(ids - BASE + 1), x * (ids - BASE), ids * 3

    module, x, ids = Rows(), torch.randn(2, 4), BASE + torch.arange(8).reshape(2, 4)
    fast = tracea.optimize(module, (x, ids), budget=None)
    with torch.inference_mode():
        for found, wanted in zip(fast(x, ids), module(x, ids), strict=True):
            torch.testing.assert_close(found, wanted)
        with pytest.raises(InvalidIndex, match="12"):
            fast(x, ids + 4)
        with pytest.raises(InvalidInput, match=r"got 1073741825, expected integers within ±1073741824"):
            fast(x, torch.full_like(ids, 2**30 + 1))


@pytest.mark.parametrize(
    ("line", "dtype"),
    [
        (lambda ids: ids * ids, torch.int64),  # up to 2^60
        (lambda ids: ids * 3, torch.int32),  # which wraps around
        (lambda ids: ids + 1, torch.int8),
        (lambda ids: ids // 2, torch.int64),
        (lambda ids: ids**2, torch.int64),
        (lambda ids: (ids * 1.5).long() + 1, torch.int64),  # of floats nothing says how large they are
    ],
    ids=["product", "int32", "int8", "quotient", "power", "floats"],
)
def test_what_may_not_be_exact_is_refused_with_a_remedy(line: Callable[..., Any], dtype: torch.dtype) -> None:
    with pytest.raises(
        UnsupportedNode, match=r"arithmetic on i\d+ other than .*Remedy: compute it before the call"
    ) as e:
        capture(Line(line), torch.arange(4, dtype=dtype))
    assert "test_integers.py:" in e.value.location
