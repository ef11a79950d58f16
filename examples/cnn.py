"""ResNet-50 and MobileNetV2 for inference: captured, fused, laid out channels last, compiled.

    tracea optimize examples/cnn.py:resnet50 --trials 8
    python examples/cnn.py

The modules are written out here, with random weights: what counts is the shape of the work.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

import tracea


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1, each with batch norm, around a residual."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            *_unit(channels, width, 1),
            *_unit(width, width, 3, stride=stride),
            *_unit(width, out, 1, activation=None),
        )
        same = channels == out and stride == 1
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(*_unit(channels, out, 1, stride=stride, activation=None))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's image."""
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet50(nn.Module):
    """He et al. 2015, with the stride in the 3×3 convolution."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_unit(3, 64, 7, stride=2), nn.MaxPool2d(3, 2, 1))
        blocks: list[nn.Module] = []
        channels = 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for index in range(count):
                blocks.append(Bottleneck(channels, width, stride if index == 0 else 1))
                channels = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the classes' scores."""
        return self.head(self.pool(self.blocks(self.stem(x))).flatten(1))


class Inverted(nn.Module):
    """Expansion, depthwise 3×3 and projection."""

    def __init__(self, channels: int, out: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels * expansion
        widened = () if expansion == 1 else _unit(channels, wide, 1, activation=nn.ReLU6)
        self.body = nn.Sequential(
            *widened,
            *_unit(wide, wide, 3, stride=stride, groups=wide, activation=nn.ReLU6),
            *_unit(wide, out, 1, activation=None),
        )
        self.residual = channels == out and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's image."""
        return x + self.body(x) if self.residual else self.body(x)


class MobileNetV2(nn.Module):
    """Sandler et al. 2018."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        parts: list[nn.Module] = [*_unit(3, 32, 3, stride=2, activation=nn.ReLU6)]
        channels = 32
        for expansion, out, count, stride in (
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ):
            for index in range(count):
                parts.append(Inverted(channels, out, stride if index == 0 else 1, expansion))
                channels = out
        self.body = nn.Sequential(*parts, *_unit(channels, 1280, 1, activation=nn.ReLU6))
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the classes' scores."""
        return self.head(self.body(x).mean([2, 3]))


def _unit(
    channels: int,
    out: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    activation: type[nn.Module] | None = nn.ReLU,
) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    norm = nn.BatchNorm2d(out)
    with torch.no_grad():  # statistics as a trained network has them, so that values stay of one size
        norm.running_mean.normal_(0.0, 0.1)  # type: ignore[union-attr]
        norm.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]
    return (convolution, norm) if activation is None else (convolution, norm, activation())


def resnet50() -> tuple[nn.Module, tuple[Tensor]]:
    """Return the module and an image, for ``tracea optimize``."""
    torch.manual_seed(0)
    return ResNet50().eval(), (torch.randn(1, 3, 224, 224),)


def mobilenet_v2() -> tuple[nn.Module, tuple[Tensor]]:
    """Return the module and an image, for ``tracea optimize``."""
    torch.manual_seed(0)
    return MobileNetV2().eval(), (torch.randn(1, 3, 224, 224),)


def main() -> None:
    """Compile both without a search, compare with float64, and say how long a call takes."""
    for build in (resnet50, mobilenet_v2):
        module, inputs = build()
        started = time.perf_counter()
        fast = tracea.optimize(module, inputs, budget=None)
        compiled = time.perf_counter() - started
        with torch.inference_mode():
            exact = module.double()(inputs[0].double())
            error = float((fast(*inputs) - exact).abs().max() / exact.abs().max())
            times = []
            for _ in range(10):
                started = time.perf_counter()
                fast(*inputs)
                times.append(time.perf_counter() - started)
        print(f"{build.__name__}: compiled in {compiled:.1f} s, error {error:.1e}, {1e3 * min(times):.1f} ms a call")


if __name__ == "__main__":
    main()
