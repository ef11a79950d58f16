"""A trace tells the layouts of images, row-major or channels last, as torch makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.interface.torch.test_trace import Compared, described
from torch import nn
from torch.nn import functional

from tracea.interface.torch import capture as capture_module
from tracea.interface.torch.capture import capture
from tracea.interface.torch.trace import traced

pytestmark = pytest.mark.whole

FORMATS = {"row-major": torch.contiguous_format, "channels last": torch.channels_last}
LAYERS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "convolution": lambda x, w: functional.conv2d(x, w[:, :, :3, :3].contiguous(), padding=1),
    "convolution with a weight so": lambda x, w: functional.conv2d(x, w, padding=1),
    "pointwise": lambda x, w: functional.conv2d(x, w[:, :, :1, :1].contiguous(), stride=2),
    "depthwise": lambda x, w: functional.conv2d(x, w[:, :1].contiguous(), groups=8),
    "largest": lambda x, _: functional.max_pool2d(x, 3, 2, 1),
    "mean": lambda x, _: functional.avg_pool2d(x, 2),
    "mean of all": lambda x, _: functional.adaptive_avg_pool2d(x, 1),
    "means": lambda x, _: functional.adaptive_avg_pool2d(x, (3, 2)),
    "channels joined": lambda x, _: torch.cat([x, x], 1),
    "rows joined": lambda x, _: torch.cat([x, x], 2),
    "joined to other strides": lambda x, _: torch.cat([x, x.transpose(2, 3)], 1),
    "normalized": lambda x, w: functional.batch_norm(x, w[0, :, 0, 0], w[1, :, 0, 0].abs(), w[0, :, 0, 0], None),
    "as rows": lambda x, _: functional.layer_norm(x.permute(0, 2, 3, 1), (8,)).permute(0, 3, 1, 2).relu(),
}


@pytest.mark.parametrize("weight", FORMATS)
@pytest.mark.parametrize("image", FORMATS)
@pytest.mark.parametrize("shape", [(2, 8, 7, 7), (1, 8, 1, 5), (1, 1, 6, 6)], ids=str)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_gives_torchs_strides(layer: str, shape: tuple[int, ...], image: str, weight: str) -> None:
    x = torch.randn(shape).to(memory_format=FORMATS[image])
    w = torch.randn(8, shape[1], 3, 3).to(memory_format=FORMATS[weight])
    try:
        with torch.inference_mode():
            LAYERS[layer](x, w)
    except RuntimeError:
        return  # too small an image, or groups of no channel
    with torch.inference_mode(), Compared():
        LAYERS[layer](x, w)


class Layer(nn.Module):
    def __init__(self, called: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8, 3, 3))
        self.called = called

    def forward(self, x: torch.Tensor) -> Any:
        return self.called(x, self.weight)


@pytest.mark.parametrize("layer", ["convolution", "pointwise", "largest", "mean", "channels joined", "as rows"])
def test_a_layer_of_images_channels_last_is_the_graph_of_export(layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 8, 7, 7).to(memory_format=torch.channels_last)
    module = Layer(LAYERS[layer])
    assert traced(module, (x,)) is not None
    captured = capture(module, (x,))
    monkeypatch.setattr(capture_module, "traced", lambda *_: None)
    assert described(captured, module)[:2] == described(capture(module, (x,)), module)[:2]
