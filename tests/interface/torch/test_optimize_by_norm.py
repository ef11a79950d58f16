"""tracea.optimize with accuracy by norm: 3×3 convolutions take fewer products, and pass the gates that then hold."""

from __future__ import annotations

import pytest
import torch
from examples.cnn import Bottleneck
from torch import nn

import tracea
from tracea.errors import InvalidOption
from tracea.optimizer.budget import Budget


def block() -> nn.Module:
    return nn.Sequential(Bottleneck(64, 32, 1), nn.Conv2d(128, 32, 3, 2, 1), nn.ReLU()).eval()


@pytest.mark.costly
@torch.inference_mode()
def test_module_takes_fewer_products_and_errs_by_rounding() -> None:
    module, x = block(), torch.randn(2, 64, 20, 17)
    by_element, by_norm = (
        tracea.optimize(module, (x,), budget=None, accuracy=name) for name in ("elementwise", "normwise")
    )
    variants = [[decision.variant for decision in made.plan.decisions.values()] for made in (by_element, by_norm)]
    assert "conv.winograd_prepacked" not in variants[0]
    assert "conv.winograd_prepacked" in variants[1]
    exact = block_in_double(module, x)
    for made in (by_element, by_norm):
        assert float((made(x) - exact).abs().max() / exact.abs().max()) < 1e-5
    larger = torch.randn(1, 64, 33, 9)  # another program, of the same contract
    again = by_norm(larger)
    exact = block_in_double(module, larger)
    assert float((again - exact).abs().max() / exact.abs().max()) < 1e-5


def block_in_double(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    wide = block().double()
    wide.load_state_dict(module.state_dict())
    return wide(x.double())


@pytest.mark.costly
@torch.inference_mode()
def test_search_verifies_its_candidates_by_the_contract() -> None:
    module, x = nn.Conv2d(64, 32, 3, padding=1).eval(), torch.randn(1, 64, 14, 14)
    made = tracea.optimize(module, (x,), budget=Budget(trials=3), accuracy="normwise")
    (verdict,) = [verdict for verdict in made.optimized.verdicts.values()]
    assert verdict.passed


def test_unknown_contract_is_refused_before_anything_is_captured() -> None:
    with pytest.raises(InvalidOption, match="normwise"):
        tracea.optimize(block(), (torch.randn(2, 64, 20, 17),), accuracy="exact")
