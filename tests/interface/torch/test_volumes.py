"""Networks of volumes: planes stay images from kernel to kernel, and what follows a convolution goes into its sums."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.interface.torch.test_joined_images import check, optimized_graph
from torch import nn

from tracea.core.op import Conv2dOp, JoinOp, PointwiseOp
from tracea.flow.assemble import compute_nodes


class Residual(nn.Module):
    """Two convolutions of volumes with norms, and the way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv3d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm3d(channels) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(inner)) + x)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(3, 8, (3, 5, 5), stride=(1, 2, 2), padding=(1, 2, 2)),
        nn.BatchNorm3d(8),
        nn.ReLU(),
        Residual(8),
        nn.Conv3d(8, 12, (1, 3, 3), groups=2),
        nn.SiLU(),
        nn.Conv3d(12, 10, (3, 1, 1), stride=(2, 1, 1)),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(10, 4),
    )


@pytest.mark.parametrize(
    ("volumes", "compiled"), [pytest.param(1, True, marks=pytest.mark.slow), (2, False)], ids=["program", "graph"]
)
def test_a_network_of_volumes_computes_what_float64_does(volumes: int, compiled: bool, seed: int) -> None:
    torch.manual_seed(seed)
    check(network(), torch.randn(volumes, 3, 5, 10, 12), compiled=compiled)


def test_norms_activations_and_residuals_are_in_the_sums() -> None:
    module = nn.Sequential(nn.Conv3d(3, 8, 1), Residual(8), nn.Conv3d(8, 6, 1))
    graph, _ = optimized_graph(module, torch.randn(1, 3, 4, 6, 6))
    kernels = compute_nodes(graph)
    # Of each large convolution: planes 0, 1 to 2 and 3 sum two, three and two planes of filters.
    assert len([node for node in kernels if isinstance(node.op, Conv2dOp)]) == 1 + 2 * 7 + 1
    assert len([node for node in graph if isinstance(node.op, JoinOp)]) == 2
    # The result, row-major for the caller: no kernel that only changes an order, none for a norm or an activation.
    assert len([node for node in kernels if isinstance(node.op, PointwiseOp)]) <= 1


@pytest.mark.parametrize(
    "line",
    [
        lambda x: torch.cat([x, torch.relu(x)], 1),
        lambda x: x.mean((2, 3, 4)),
        lambda x: x.mean((3, 4), keepdim=True) * x,
        lambda x: x[:, :, 1:].sum(2),
        lambda x: x.permute(0, 2, 3, 4, 1).reshape(-1, x.shape[1]) + torch.arange(4.0),
        lambda x: nn.functional.conv3d(x, torch.ones(3, 4, 1, 1, 1).to(x), None, (2, 1, 1), (2, 0, 0)),
        lambda x: nn.functional.conv3d(x, torch.ones(3, 4, 1, 1, 1).to(x), x[0, :3, 0, 0, 0], 1, (2, 0, 0)).sigmoid(),
        lambda x: nn.functional.conv3d(x, torch.ones(3, 4, 1, 1, 1).to(x), None, (2,), (1,), (1,)),
        lambda x: nn.functional.conv3d(x, torch.ones(3, 4, 3, 3, 3).to(x), None, 1, "same", (1,)),
        lambda x: x + torch.arange(60.0).reshape(3, 4, 5) + torch.arange(4.0).reshape(4, 1, 1, 1),
        lambda x: x.sum((2, 3, 4), keepdim=True),
    ],
    ids=[
        "joined",
        "mean",
        "scaled",
        "planes",
        "voxels",
        "planes of zero",
        "planes of bias",
        "one number",
        "same",
        "broadcast",
        "sum",
    ],
)
def test_what_is_made_of_volumes(line: Callable[[torch.Tensor], torch.Tensor], seed: int) -> None:
    torch.manual_seed(seed)

    class Made(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv3d(2, 4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return line(self.conv(x))

    check(Made(), torch.randn(2, 2, 4, 5, 6), compiled=False)
