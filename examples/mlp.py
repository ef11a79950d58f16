"""A transformer MLP block: LayerNorm → Linear 768→3072 → GELU → Linear 3072→768 → residual, 128 rows, f32.

Run it with ``tracea optimize examples/mlp.py:build``. A builder returns ``(module, example_inputs)``.
"""

import torch
from torch import nn


class MlpBlock(nn.Module):
    """The feed-forward half of a transformer layer, with its residual connection."""

    def __init__(self, width: int = 768, hidden: int = 3072) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, hidden)
        self.activation = nn.GELU()
        self.contract = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: x and the result are (rows, width)."""
        return x + self.contract(self.activation(self.expand(self.norm(x))))


def build() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return the block with fixed random weights and one example input of 128 rows."""
    torch.manual_seed(0)
    return MlpBlock().eval(), (torch.randn(128, 768),)
