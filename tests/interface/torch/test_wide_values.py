"""Modules that go through float64 and back have the results of torch: what lies between is computed in float64."""

from __future__ import annotations

import torch

import tracea


class Wide(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((x.double() + 1e8) - 1e8).float()


def test_float64_between_narrower_ends_is_what_eager_has() -> None:
    x, module = torch.tensor([0.1, 0.3, 1.0, 0.7]), Wide().eval()
    fast = tracea.optimize(module, (x,), budget=None, threads=1, listener=lambda *_: None)
    assert torch.equal(fast(x), module(x))
