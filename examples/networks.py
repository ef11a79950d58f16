"""Networks of other people, with random weights: captured, fused, compiled as they are written.

    python examples/networks.py vit convnext efficientnet unet latent_decoder densenet speech

`python benchmarks/time_models.py --networks` times them beside PyTorch, Inductor and ONNX Runtime.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import (
    adaptive_avg_pool2d,
    gelu,
    max_pool2d,
    scaled_dot_product_attention,
    silu,
)

import tracea

Network = tuple[nn.Module, tuple[Tensor, ...]]
IMAGE = (1, 3, 224, 224)


def encoder(width: int, heads: int, layers: int) -> nn.Sequential:
    """Return blocks of a transformer that normalise first."""
    return nn.Sequential(
        *(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
    )


class VisionTransformer(nn.Module):
    """Dosovitskiy et al. 2021: ViT-S/16, of half as many layers."""

    def __init__(self, width: int = 384, heads: int = 6, layers: int = 6) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 197, width))
        self.blocks = encoder(width, heads, layers)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1000))

    def forward(self, x: Tensor) -> Tensor:
        """Return the classes' scores."""
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1) + self.places
        return self.head(self.blocks(tokens)[:, 0])


class ConvNeXtBlock(nn.Module):
    """7×7 by channel, then two products a pixel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.spread = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.pixel = nn.Sequential(
            nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.scale = nn.Parameter(0.1 * torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's image."""
        return x + (self.scale * self.pixel(self.spread(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


class PixelNorm(nn.LayerNorm):
    """A layer norm of each pixel's channels."""

    def forward(self, x: Tensor) -> Tensor:
        """Return an image (n, c, h, w)."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Squeeze(nn.Module):
    """A factor for each channel from the means of all."""

    def __init__(self, width: int, few: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(width, few, 1), nn.Conv2d(few, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled image."""
        return x * torch.sigmoid(self.up(silu(self.down(adaptive_avg_pool2d(x, 1)))))


def unit(
    channels: int, filters: int, size: int, stride: int = 1, groups: int = 1, *, active: bool = True
) -> list[nn.Module]:
    """Return a convolution, its batch norm and SiLU."""
    conv = nn.Conv2d(channels, filters, size, stride, size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(filters), *([nn.SiLU()] if active else [])]


class MobileBlock(nn.Module):
    """Tan and Le 2019: wider, by channel, squeezed, narrow again."""

    def __init__(self, channels: int, filters: int, size: int, stride: int, wider: int) -> None:
        super().__init__()
        width = channels * wider
        self.body = nn.Sequential(
            *(unit(channels, width, 1) if wider > 1 else ()),
            *unit(width, width, size, stride, width),
            Squeeze(width, max(1, channels // 4)),
            *unit(width, filters, 1, active=False),
        )
        self.adds = channels == filters and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's image."""
        return x + self.body(x) if self.adds else self.body(x)


def double(channels: int, filters: int) -> nn.Sequential:
    """Return two convolutions with batch norm and ReLU."""
    parts: list[nn.Module] = []
    for given in (channels, filters):
        parts += [nn.Conv2d(given, filters, 3, padding=1, bias=False), nn.BatchNorm2d(filters), nn.ReLU()]
    return nn.Sequential(*parts)


class UNet(nn.Module):
    """Ronneberger et al. 2015, of padded convolutions and half the width."""

    def __init__(self, widths: Sequence[int] = (32, 64, 128, 256)) -> None:
        super().__init__()
        self.down = nn.ModuleList(double(a, b) for a, b in pairwise((3, *widths)))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairwise(widths))
        self.mix = nn.ModuleList(double(b, a) for a, b in pairwise(widths))
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of two classes for each pixel."""
        kept: list[Tensor] = []
        for depth, part in enumerate(self.down):
            x = part(x if depth == 0 else max_pool2d(x, 2))
            kept.append(x)
        for depth in reversed(range(len(self.up))):
            x = self.mix[depth](torch.cat([kept[depth], self.up[depth](x)], 1))
        return self.head(x)


class Residual(nn.Module):
    """Two convolutions behind group norms and SiLU."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for given in (channels, filters):
            parts += [nn.GroupNorm(32, given), nn.SiLU(), nn.Conv2d(given, filters, 3, padding=1)]
        self.body = nn.Sequential(*parts)
        self.shortcut = nn.Conv2d(channels, filters, 1) if channels != filters else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's image."""
        return self.shortcut(x) + self.body(x)


class PixelAttention(nn.Module):
    """Attention of one head between an image's pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, width, eps=1e-6)
        self.q, self.k, self.v, self.out = (nn.Conv2d(width, width, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Return the image with what its pixels attend to."""
        normed = self.norm(x)
        q, k, v = (part(normed).flatten(2).transpose(1, 2)[:, None] for part in (self.q, self.k, self.v))
        return x + self.out(scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2).reshape(x.shape))


def doubled(width: int) -> nn.Sequential:
    """Return twice as many rows and columns, and a convolution."""
    return nn.Sequential(nn.Upsample(scale_factor=2.0), nn.Conv2d(width, width, 3, padding=1))


class DenseLayer(nn.Module):
    """Huang et al. 2017: new channels beside all before."""

    def __init__(self, channels: int, grown: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, 4 * grown, 1, bias=False),
            nn.BatchNorm2d(4 * grown),
            nn.ReLU(),
            nn.Conv2d(4 * grown, grown, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return old and new channels."""
        return torch.cat([x, self.body(x)], 1)


class SpeechEncoder(nn.Module):
    """Radford et al. 2023: two convolutions over a spectrogram, then two blocks of the base model's six."""

    def __init__(self, width: int = 512, frames: int = 500) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(80, width, 3, padding=1), nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.register_buffer("places", torch.randn(frames, width))
        self.blocks = encoder(width, 8, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, frames, width)."""
        x = gelu(self.second(gelu(self.first(x))))
        return self.blocks(x.transpose(1, 2) + self.places)


def vit() -> Network:
    """Return a vision transformer."""
    return VisionTransformer().eval(), (torch.randn(IMAGE),)


def convnext() -> Network:
    """Return ConvNeXt-T (Liu et al. 2022)."""
    widths = (96, 192, 384, 768)
    parts: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), PixelNorm(widths[0])]
    for stage, (width, count) in enumerate(zip(widths, (3, 3, 9, 3), strict=True)):
        if stage:
            parts += [PixelNorm(widths[stage - 1]), nn.Conv2d(widths[stage - 1], width, 2, 2)]
        parts += [ConvNeXtBlock(width) for _ in range(count)]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(widths[-1]), nn.Linear(widths[-1], 1000))
    return nn.Sequential(*parts, *head).eval(), (torch.randn(IMAGE),)


def efficientnet() -> Network:
    """Return EfficientNet-B0."""
    parts, channels = unit(3, 32, 3, 2), 32
    for wider, filters, count, stride, size in (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):
        for index in range(count):
            parts.append(MobileBlock(channels, filters, size, 1 if index else stride, wider))
            channels = filters
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))
    return nn.Sequential(*parts, *unit(channels, 1280, 1), *head).eval(), (torch.randn(IMAGE),)


def unet() -> Network:
    """Return a U-Net for 256×256 pixels."""
    return UNet().eval(), (torch.randn(1, 3, 256, 256),)


def latent_decoder() -> Network:
    """Return a decoder of latent diffusion (Rombach et al. 2022), of half the width, to 128×128 pixels."""
    parts = (
        nn.Conv2d(4, 256, 3, padding=1),
        Residual(256, 256),
        PixelAttention(256),
        Residual(256, 256),
        doubled(256),
        Residual(256, 128),
        doubled(128),
        Residual(128, 64),
        nn.GroupNorm(32, 64),
        nn.SiLU(),
        nn.Conv2d(64, 3, 3, padding=1),
    )
    return nn.Sequential(*parts).eval(), (torch.randn(1, 4, 32, 32),)


def densenet() -> Network:
    """Return DenseNet-121."""
    parts: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = 64
    for stage, count in enumerate((6, 12, 24, 16)):
        if stage:
            parts += [
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels // 2, 1, bias=False),
                nn.AvgPool2d(2),
            ]
            channels //= 2
        for _ in range(count):
            parts.append(DenseLayer(channels))
            channels += 32
    head = (nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))
    return nn.Sequential(*parts, *head).eval(), (torch.randn(IMAGE),)


def speech() -> Network:
    """Return an encoder of Whisper for ten seconds."""
    return SpeechEncoder().eval(), (torch.randn(1, 80, 1000),)


def main(names: Sequence[str]) -> None:
    """Compile those that are named without a search, compare them with float64, and say how long a call takes."""
    for build in (vit, convnext, efficientnet, unet, latent_decoder, densenet, speech):
        if build.__name__ not in names:
            continue
        module, inputs = build()
        started = time.perf_counter()
        fast = tracea.optimize(module, inputs, budget=None)
        compiled = time.perf_counter() - started
        with torch.inference_mode():
            found = fast(*inputs)
            times: list[float] = []
            for _ in range(10):
                started = time.perf_counter()
                fast(*inputs)
                times.append(time.perf_counter() - started)
            exact = module.double()(*(each.double() for each in inputs))
            error = float((found - exact).abs().max() / exact.abs().max())
        print(f"{build.__name__}: compiled in {compiled:.1f} s, error {error:.1e}, {1e3 * min(times):.1f} ms a call")


if __name__ == "__main__":
    main(sys.argv[1:] or ("vit",))
