"""The MLP block of the example gives the same bits in every run on a number of threads, however tasks were dealt."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tracea
from tracea.bench.models import load_builder

RUNS = 20
EXAMPLE = Path(__file__).parents[3] / "examples" / "mlp.py"


@pytest.mark.costly
@pytest.mark.parametrize("threads", [1, 2])
def test_optimized_block_has_the_same_bits_in_every_run(threads: int) -> None:
    module, (x,) = load_builder(f"{EXAMPLE}:build")()
    fast = tracea.optimize(module, (x,), budget=None, threads=threads, library=False)
    with torch.inference_mode():
        first = fast(x).clone()
        torch.testing.assert_close(first, module(x), rtol=1e-4, atol=1e-4)
        for run in range(RUNS):
            # Another address and, by work in between, another order in which threads ask for tasks.
            torch.randn(64, 64 + run).sum()
            again = fast(x.clone())
            assert torch.equal(again.view(torch.int32), first.view(torch.int32)), f"run {run}"
        anew = tracea.optimize(module, (x,), budget=None, threads=threads, library=False)
        assert torch.equal(anew(x).view(torch.int32), first.view(torch.int32))


def test_rows_of_nan_leave_the_others_right() -> None:
    # Not bit for bit: rows that share a block of steps with a NaN are multiplied without splitting (ADR 0004).
    module, (x,) = load_builder(f"{EXAMPLE}:build")()
    fast = tracea.optimize(module, (x,), budget=None, threads=2, library=False)
    with torch.inference_mode():
        first = fast(x).clone()
        other = x.clone()
        other[1::2] = float("nan")
        again = fast(other)
        assert torch.isnan(again[1::2]).all()
        torch.testing.assert_close(again[::2], first[::2], rtol=1e-5, atol=1e-5)
