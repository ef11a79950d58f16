"""Windows of tensors and images, and images as sums of windows, are those of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.interface.torch.compare import check_capture
from torch import nn

import tracea
from tracea.core.op import JoinOp, PointwiseOp, ViewKind, ViewOp
from tracea.errors import UnsupportedNode
from tracea.flow.assemble import compute_nodes
from tracea.interface.torch.capture import capture

F = nn.functional


class Line(nn.Module):
    def __init__(self, line: Callable[..., Any]) -> None:
        super().__init__()
        self.line = line

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.line(*inputs)


def numbers(rng: torch.Generator, low: int, high: int, count: int) -> list[int]:
    return torch.randint(low, high, (count,), generator=rng).tolist()


def test_windows_of_any_axis_are_views_that_torch_would_give(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    for _ in range(20):
        shape = numbers(rng, 1, 12, int(torch.randint(1, 5, (), generator=rng)))
        axis = int(torch.randint(-len(shape), len(shape), (), generator=rng))
        size = int(torch.randint(1, shape[axis] + 1, (), generator=rng))
        (step,) = numbers(rng, 1, 5, 1)
        x = torch.randn(shape, generator=rng).transpose(0, -1).contiguous().transpose(0, -1)
        module = Line(lambda x, axis=axis, size=size, step=step: x.unfold(axis, size, step) * 2.0)
        captured = capture(module, (x,))
        check_capture(captured, module, (x,))
        assert sum(isinstance(node.op, ViewOp) and node.op.kind is ViewKind.WINDOWS for node in captured.graph) == 1


def drawn_windows(rng: torch.Generator) -> dict[str, list[int]]:
    size = numbers(rng, 1, 5, 2)
    return {
        "kernel_size": size,
        "padding": [int(torch.randint(0, each // 2 + 1, (), generator=rng)) for each in size],
        "stride": numbers(rng, 1, 6, 2),
    }


@pytest.mark.parametrize("kind", ["images", "one image", "channels last", "of a convolution", "f64"])
def test_windows_of_images_are_those_of_torch(kind: str, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    for _ in range(6):
        n, c = numbers(rng, 1, 4, 2)
        given = drawn_windows(rng) | {"dilation": numbers(rng, 1, 3, 2)}
        reach = [(k - 1) * d + 1 for k, d in zip(given["kernel_size"], given["dilation"], strict=True)]
        x = torch.randn(n, c, *(each + int(torch.randint(0, 9, (), generator=rng)) for each in reach), generator=rng)
        conv: nn.Module = nn.Conv2d(c, 8, 1) if kind == "of a convolution" else nn.Identity()
        x = x.double() if kind == "f64" else x[0] if kind == "one image" else x
        if kind == "channels last":
            x = x.contiguous(memory_format=torch.channels_last)
        module = Line(lambda x, given=given, conv=conv: F.unfold(conv(x), **given)).eval()
        module.add_module("conv", conv)
        check_capture(capture(module, (x,)), module, (x,), 1e-5)


@pytest.mark.parametrize("kind", ["images", "one image", "f64"])
def test_sums_of_windows_are_those_of_torch(kind: str, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    for _ in range(8):
        n, c = numbers(rng, 1, 4, 2)
        given = drawn_windows(rng)
        size = [k + int(torch.randint(0, 9, (), generator=rng)) for k in given["kernel_size"]]
        image = torch.randn(n, c, *size, generator=rng, dtype=torch.float64 if kind == "f64" else torch.float32)
        x = F.unfold(image[0] if kind == "one image" else image, **given)
        module = Line(lambda x, size=size, given=given: F.fold(x, size, **given))
        check_capture(capture(module, (x,)), module, (x,), 1e-5)


def test_windows_side_by_side_are_copied_once() -> None:
    x = torch.randn(2, 12, 6)
    module = Line(lambda x: F.fold(x, (4, 6), (2, 2), stride=2))
    captured = capture(module, (x,))
    assert [type(node.op) for node in compute_nodes(captured.graph)] == [PointwiseOp]
    check_capture(captured, module, (x,))


def test_what_is_taken_apart_and_put_together_runs(seed: int) -> None:
    torch.manual_seed(seed)

    class Outlook(nn.Module):
        def forward(self, x: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
            taken = F.unfold(x, 3, padding=1, stride=2).unflatten(1, (-1, 9))
            mixed = torch.einsum("nckl,nkjl->ncjl", taken, weights.softmax(1)).flatten(1, 2)
            tiles = x.unfold(2, 6, 4).unfold(3, 5, 3)
            return F.fold(mixed, x.shape[2:], 3, padding=1, stride=2), tiles.mean((-1, -2)), tiles * 2.0

    x, weights = torch.randn(2, 5, 14, 11), torch.randn(2, 9, 9, 42)
    fast = tracea.optimize(Outlook(), (x, weights), budget=None, threads=1, listener=lambda *_: None)
    assert any(isinstance(node.op, JoinOp) for node in capture(Outlook(), (x, weights)).graph)
    for got, wanted in zip(fast(x, weights), Outlook()(x, weights), strict=True):
        torch.testing.assert_close(got, wanted)


def test_sums_of_windows_with_gaps_are_refused() -> None:
    with pytest.raises(UnsupportedNode, match="windows with gaps"):
        capture(Line(lambda x: F.fold(x, (5, 5), 2, dilation=2)), (torch.randn(1, 4, 9),))
