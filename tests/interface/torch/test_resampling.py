"""Images and sequences of another size: every pixel is torch's, whatever the sizes, the factors and the channels."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.interface.torch.compare import check_capture
from tests.interface.torch.test_joined_images import check, optimized_graph
from tests.interface.torch.test_trace import Compared, by_export, described
from torch import nn

import tracea
from tracea.core.op import JoinOp, PointwiseOp, WeightedRowsOp
from tracea.flow.assemble import compute_nodes
from tracea.interface.torch.capture import capture

F = nn.functional
LINEAR = {  # mode: align_corners, antialias, and torch's name of it for images
    "linear": (False, False, "bilinear"),
    "aligned": (True, False, "bilinear"),
    "cubic": (False, False, "bicubic"),
    "aligned cubic": (True, False, "bicubic"),
    "smoothed": (False, True, "bilinear"),
    "smoothed cubic": (False, True, "bicubic"),
    "aligned smoothed cubic": (True, True, "bicubic"),
}
MODES = ("nearest", "nearest-exact", *LINEAR)


class Resized(nn.Module):
    """An image or sequence of another size, of the input or of what a convolution makes of it, and what follows."""

    def __init__(self, mode: str, given: dict[str, Any], conv: nn.Module | None = None) -> None:
        super().__init__()
        self.mode, self.given, self.conv = mode, given, conv or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given, x = dict(self.given), self.conv(x)
        if self.mode in LINEAR:
            align, smooth, name = LINEAR[self.mode]
            given |= {"align_corners": align, "antialias": smooth, "mode": name if x.dim() == 4 else "linear"}
        else:
            given["mode"] = self.mode
        return torch.tanh(F.interpolate(x, **given))


def drawn_size(rng: torch.Generator, extents: tuple[int, ...]) -> dict[str, Any]:
    """Return a size, or factors of which some are whole."""

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=rng))

    kind = number(0, 4)
    if kind == 0:
        return {"scale_factor": tuple(float(number(1, 10)) for _ in extents)}
    if kind == 1:
        factors = (0.3 + 2.5 * torch.rand(len(extents), generator=rng, dtype=torch.float64)).tolist()
        return {"scale_factor": tuple(max(1.0 / extent, each) for extent, each in zip(extents, factors, strict=True))}
    return {"size": tuple(number(1, 40) for _ in extents)}


def found_width(given: dict[str, Any], width: int) -> int:
    """Return the columns of an image of the size that is given."""
    return given["size"][-1] if "size" in given else int(width * given["scale_factor"][-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        (mode, kind)
        for mode in MODES
        for kind in ("image", "convolution", "channels last", "sequence")
        if kind != "sequence" or mode in ("nearest", "nearest-exact", "linear", "aligned")
    ],
)
def test_an_image_of_any_size_is_that_of_torch(mode: str, kind: str, dtype: torch.dtype, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    for _ in range(4):
        n, c, *extents = (int(torch.randint(1, most, (), generator=rng)) for most in (3, 10, 24, 24))
        extents = extents[:1] if kind == "sequence" else extents
        given = drawn_size(rng, tuple(extents))
        if "smoothed" in mode and found_width(given, extents[-1]) == 1:
            continue  # torch 2.13 gives each row of such an image the first one's value
        x = torch.randn(n, c, *extents, dtype=dtype)
        conv = nn.Conv2d(c, 5, 1).to(dtype) if kind == "convolution" else None
        if kind == "channels last":
            x = x.contiguous(memory_format=torch.channels_last)
            if dtype is torch.float64 and mode.startswith("nearest"):
                continue  # torch's kernels for the two orders disagree about what lies between two pixels
        module = Resized(mode, given, conv).eval()
        captured, exported = capture(module, (x,)), by_export(module, (x,))
        assert described(captured, module) == described(exported, module)
        # Places are rounded as torch rounds them, up to a product and a sum that its kernels round at once.
        check_capture(captured, module, (x,), 1e-11 if dtype is torch.float64 else 4e-5)
        with torch.inference_mode(), Compared():
            module(x)


@pytest.mark.parametrize("factor", [41, 49, 55])
def test_the_nearest_pixel_of_a_large_whole_factor_is_that_of_torch(factor: int) -> None:
    module = Resized("nearest", {"scale_factor": float(factor)})
    x = torch.randn(1, 8, 2, 5)
    check_capture(capture(module, (x,)), module, (x,), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_programs_resize_images_with_extreme_values(dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)

    class Several(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (
                F.interpolate(x, size=(11, 9)),
                F.interpolate(x, size=(4, 15), mode="nearest-exact"),
                F.interpolate(x, size=(13, 6), mode="bilinear"),
                F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
                F.interpolate(x, size=(9, 3), mode="bicubic"),
                F.interpolate(x, size=(3, 5), mode="bilinear", antialias=True),
                F.interpolate(x, size=(2, 11), mode="bicubic", antialias=True),
            )

    x = torch.randn(2, 3, 7, 8)
    values = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 3e4, -3e4])
    x.view(-1)[torch.randperm(x.numel())[:6]] = values
    x = x.to(dtype)
    fast = tracea.optimize(Several().eval(), (x,), budget=None, threads=1, listener=lambda *_: None)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    for number, (got, wanted) in enumerate(zip(fast(x), Several()(x.to(wide)), strict=True)):
        assert got.dtype is dtype
        digits = torch.finfo(dtype).eps
        rtol, atol = (0.0, 0.0) if number < 2 else (8 * digits, 8 * digits * 3e4)
        torch.testing.assert_close(got.to(wide), wanted, rtol=rtol, atol=atol, equal_nan=True)
        if number < 2:
            assert torch.equal(got.signbit() & (got == 0), wanted.signbit() & (wanted == 0))


def test_an_enlargement_that_is_joined_is_two_kernels_and_one_that_puts_it_there() -> None:
    class Up(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.skip, self.deep, self.last = nn.Conv2d(3, 8, 1), nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(16, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            up = F.interpolate(self.deep(x), size=x.shape[2:], mode="bilinear", align_corners=True)
            return self.last(torch.cat([self.skip(x), up], 1))

    graph, _ = optimized_graph(Up(), torch.randn(2, 3, 9, 13))
    kernels = compute_nodes(graph)
    assert len([node for node in kernels if isinstance(node.op, WeightedRowsOp)]) == 2
    assert len([node for node in graph if isinstance(node.op, JoinOp)]) == 1
    assert len([node for node in kernels if isinstance(node.op, PointwiseOp)]) <= 1
    check(Up(), torch.randn(2, 3, 9, 13), compiled=False)


def test_layers_of_the_same_sizes_share_their_places() -> None:
    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            once = F.interpolate(x, size=(9, 9), mode="bilinear")
            return once + F.interpolate(x * 2.0, size=(9, 9), mode="bilinear")

    captured = capture(Twice(), (torch.randn(1, 2, 5, 5),))
    assert len(captured.constants) == 2
