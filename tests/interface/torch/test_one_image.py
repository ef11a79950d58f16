"""One image, sequence or volume without a batch, as torch's layers take it: a batch of one of the same kernels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.interface.torch.compare import check_capture
from tests.interface.torch.test_images import optimized_graph
from tests.interface.torch.test_trace import Compared, by_export
from torch import nn

import tracea
from tracea.core.op import Conv2dOp, GemmOp, Pool2dOp
from tracea.flow.assemble import compute_nodes
from tracea.interface.torch.capture import capture

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv2d": (lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1), (3, 9, 8)),
    "conv2d of a word": (lambda: nn.Conv2d(3, 4, 3, padding="same"), (3, 9, 8)),
    "conv2d that reflects": (lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), (3, 9, 8)),
    "conv2d of one channel": (lambda: nn.Conv2d(1, 1, 3), (1, 9, 8)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, groups=2, bias=False), (4, 8)),
    "conv1d of a word": (lambda: nn.Conv1d(4, 6, 3, padding="same"), (4, 8)),
    "conv3d": (lambda: nn.Conv3d(3, 4, 3, padding=(0, 1, 1)), (3, 5, 6, 7)),
    "conv3d of a word": (lambda: nn.Conv3d(3, 4, 3, padding="same"), (3, 5, 6, 7)),
    "transposed conv2d": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), (3, 5, 6)),
    "transposed conv1d": (lambda: nn.ConvTranspose1d(3, 4, 3, stride=2), (3, 8)),
    "max_pool3d": (lambda: nn.MaxPool3d(2), (3, 4, 9, 8)),
    "avg_pool3d": (lambda: nn.AvgPool3d(3, 2, 1), (3, 5, 9, 20)),
    "adaptive_avg_pool3d": (lambda: nn.AdaptiveAvgPool3d((2, 3, 1)), (3, 4, 9, 8)),
    "max_pool2d": (lambda: nn.MaxPool2d(3, 2, 1), (3, 9, 8)),
    "avg_pool2d": (lambda: nn.AvgPool2d(2), (3, 9, 8)),
    "adaptive_avg_pool2d": (lambda: nn.AdaptiveAvgPool2d((3, 1)), (3, 9, 8)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_takes_one_without_a_batch(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    make, shape = LAYERS[name]
    module, x = make().double().eval(), torch.randn(shape, dtype=torch.float64)
    for captured in (capture(module, (x,)), by_export(module, (x,))):
        check_capture(captured, module, (x,))
    with torch.inference_mode(), Compared():  # the trace's rules against what torch returns
        module(x)


class Residual(nn.Module):
    """Two convolutions with activations, and the way around them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.factor = nn.Parameter(torch.randn(4, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) * self.factor + x)


def network() -> nn.Module:
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(0), nn.Linear(4, 2))
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.SiLU(), nn.MaxPool2d(2), Residual(), *head).eval()


def test_what_follows_a_convolution_of_one_image_is_in_its_kernel() -> None:
    graph, _ = optimized_graph(network(), torch.randn(3, 10, 12))
    kinds = [type(node.op) for node in compute_nodes(graph)]
    assert kinds == [Conv2dOp, Pool2dOp, Conv2dOp, Conv2dOp, Pool2dOp, GemmOp]


@pytest.mark.slow
def test_a_network_of_one_image_computes_what_eager_does(seed: int) -> None:
    torch.manual_seed(seed)
    module, x = network(), torch.randn(3, 10, 12)
    fast = tracea.optimize(module, x, budget=None)
    with torch.inference_mode():
        torch.testing.assert_close(fast(x), module(x))
