"""Convolutional networks: what they compute against float64, and that no kernel of them only moves an image."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from examples.cnn import Bottleneck, Inverted, MobileNetV2, ResNet50, _unit
from tests.drawn import drawn
from tests.interface.torch.compare import check_capture
from torch import nn

import tracea
from tracea.core.graph import Graph
from tracea.core.op import Conv2dOp, GemmOp, Pool2dOp, ReduceOp, SourceOp, ViewOp
from tracea.core.ops.images import is_channels_last
from tracea.core.passes.pipeline import run_pipeline
from tracea.core.reference import run as reference_run
from tracea.errors import UnsupportedNode
from tracea.interface.torch.capture import capture


class Gate(nn.Module):
    """Squeeze and excitation: an image times one number for each channel, and the image once more."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.squeeze, self.widen = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        image = self.conv(x)
        gate = torch.sigmoid(self.widen(torch.relu(self.squeeze(image.mean([2, 3], keepdim=True)))))
        return image * gate + 1.0, image


MODELS: dict[str, Any] = {
    "a residual network": lambda: nn.Sequential(
        *_unit(3, 16, 3, stride=2), nn.MaxPool2d(3, 2, 1), Bottleneck(16, 8, 2), nn.AdaptiveAvgPool2d(1)
    ),
    "inverted residuals": lambda: nn.Sequential(
        *_unit(3, 16, 3, activation=nn.ReLU6), Inverted(16, 16, 1, 2), Inverted(16, 24, 2, 3)
    ),
    "activations": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3, padding="same"),
        nn.SiLU(),
        nn.Conv2d(8, 12, 1),
        nn.Hardswish(inplace=True),
        nn.AvgPool2d(2),
        nn.Conv2d(12, 5, 3, groups=1, dilation=2, padding=2),
        nn.Hardtanh(-0.5, 0.7),
        nn.Flatten(1),
        nn.Linear(240, 7),
    ),
    "a gate of channels": Gate,
    "one channel": lambda: nn.Sequential(nn.Conv2d(3, 1, 3), nn.BatchNorm2d(1), nn.ReLU(), nn.Conv2d(1, 4, 3)),
}


def optimized_graph(module: nn.Module, x: torch.Tensor) -> tuple[Graph, dict[str, Any]]:
    captured = capture(module.eval(), (x,))
    values = {name: tensor.detach().numpy() for name, tensor in captured.constants.items()}
    result = run_pipeline(captured.graph, values)
    return result.graph, values | dict(result.values)


@pytest.mark.parametrize("last", [False, True], ids=["row-major", "channels last"])
@pytest.mark.parametrize("name", MODELS)
def test_a_network_means_the_same_as_a_graph(name: str, last: bool, seed: int) -> None:
    torch.manual_seed(seed)
    module = MODELS[name]().eval()
    x = torch.randn(2, 3, 12, 16)
    if last:
        x = x.to(memory_format=torch.channels_last)
    graph, values = optimized_graph(module, x)
    (source,) = graph.inputs
    found = reference_run(graph, {source.id: x.numpy(), **{name: values[name] for name in graph.constants}})
    with torch.inference_mode():
        expected = module.double()(x.double())
    several = expected if isinstance(expected, tuple) else (expected,)
    for got, wanted in zip(found.values(), several, strict=True):
        assert got.shape == tuple(wanted.shape)
        assert float(abs(got - wanted.numpy()).max()) <= 1e-5 * max(1.0, float(wanted.abs().max()))


@pytest.mark.costly
@pytest.mark.parametrize("name", drawn(2, ["a residual network", "activations", "a gate of channels"], of="networks"))
def test_a_network_computes_what_float64_does(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    module = MODELS[name]().eval()
    x = torch.randn(1, 3, 12, 16)
    with torch.inference_mode():
        fast = tracea.optimize(module, (x,), budget=None, threads=1)
        results = fast(x)
        expected = module.double()(x.double())
    for got, wanted in zip(_several(results), _several(expected), strict=True):
        assert got.stride() == torch.empty(wanted.shape).stride()
        assert float((got - wanted).abs().max()) <= 1e-4 * max(1.0, float(wanted.abs().max()))


def _several(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("model", [ResNet50, MobileNetV2])
def test_no_kernel_of_a_network_only_moves_an_image(model: type[nn.Module]) -> None:
    graph, _ = optimized_graph(model(10), torch.randn(1, 3, 224, 224))
    kernels = [node for node in graph if not isinstance(node.op, SourceOp | ViewOp)]
    assert {type(node.op) for node in kernels} <= {Conv2dOp, Pool2dOp, GemmOp, ReduceOp}
    convolutions = [node for node in kernels if isinstance(node.op, Conv2dOp)]
    assert len(convolutions) == {ResNet50: 53, MobileNetV2: 52}[model]
    assert all(is_channels_last(node.type) for node in convolutions)
    for node in convolutions[1:]:  # the first reads what the caller gives
        assert is_channels_last(node.op.operands[0])


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # torch's own, of the line that is refused
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (lambda x: nn.functional.max_pool2d(x, 2, dilation=2), "a window with gaps"),
        (lambda x: nn.functional.avg_pool2d(x, 2, divisor_override=3), "a divisor of its own"),
        (lambda x: nn.functional.conv2d(x, torch.ones(4, 3, 2, 2), padding="same"), "padding of unequal sides"),
    ],
)
def test_what_is_not_captured_is_refused_with_its_line(line: Any, reason: str) -> None:
    class Line(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return line(x)

    with pytest.raises(UnsupportedNode, match=reason) as caught:
        capture(Line(), (torch.randn(1, 3, 8, 8),))
    assert "test_images.py:" in str(caught.value)


F = nn.functional
SINGLE: dict[str, tuple[Any, tuple[int, ...]]] = {
    # Of (6, 9, 8), (9, 9, 8) and (6, 9): channels taken for images, or for rows, give another shape or value.
    "adaptive_avg_pool2d to one": (lambda x: F.adaptive_avg_pool2d(x, 1), (6, 9, 8)),
    "adaptive_avg_pool2d to a grid": (lambda x: F.adaptive_avg_pool2d(x, (4, 3)), (9, 9, 8)),
    "adaptive_avg_pool2d of all rows": (lambda x: F.adaptive_avg_pool2d(x, (None, 3)), (6, 9, 8)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (4, 3)) * 2.0, (9, 9, 8)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, (3, 2), padding=1), (6, 9, 8)),
    "max_pool2d": (lambda x: torch.relu(F.max_pool2d(x, 3, stride=2, ceil_mode=True)), (6, 9, 8)),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 4), (6, 9)),
    "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 1), (6, 9)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, padding=1), (6, 9)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), (6, 9)),
}


@pytest.mark.parametrize("name", SINGLE)
def test_one_image_without_a_batch_axis_is_pooled_as_torch_pools_it(name: str) -> None:
    line, shape = SINGLE[name]

    class Line(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return line(x)

    x = torch.randn(shape, dtype=torch.float64)
    check_capture(capture(Line(), (x,)), Line(), (x,))
