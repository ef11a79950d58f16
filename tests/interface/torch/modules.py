"""Inputs of the modules under test."""

from __future__ import annotations

import torch


def inputs_of(*shapes: tuple[int, ...], seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Return one float64 tensor a shape."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
