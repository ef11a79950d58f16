"""Whose memory a result is: a caller writes to one, and to nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tracea
from tracea.interface.torch.module import OptimizedModule


class Line(nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call
        self.weight = nn.Parameter(torch.arange(32.0).reshape(4, 8), requires_grad=False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.call(self, x, x * 2)


MODULES: dict[str, Callable[[Line, torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "a clone": lambda _, x, y: (y, y.clone()),
    "a copy of the type that it has": lambda _, x, y: (y, y.to(torch.float32, copy=True)),
    "a write to a clone": lambda _, x, y: (y, y.clone().add_(0)),
    "views": lambda _, x, y: (y, y.view(4, 8), y.view(-1), y.t(), y[:2], y.detach()),
    "strided twice": lambda _, x, y: (y.t(), y.t().clone(), y.t() * 1),
    "inputs": lambda _, x, y: (x, x.clone(), x.view(-1), x.t(), y),
    "weights": lambda m, x, y: (m.weight, m.weight.clone(), m.weight.t(), y),
    "the same sum": lambda _, x, y: (x + y, x + y, x.exp(), x.exp()),
    "constants": lambda _, x, y: (y, torch.ones(3), torch.ones(3)),
    "a clone of a dropout that is off": lambda _, x, y: (y, nn.functional.dropout(y, 0.5, training=False).clone()),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_write_to_one_result_changes_no_other_and_no_input(name: str) -> None:
    module = Line(MODULES[name]).eval()
    x = torch.arange(32.0).reshape(4, 8) / 32
    fast = tracea.optimize(module, (x,), budget=None, threads=1)
    with torch.inference_mode():
        wanted = [result.clone() for result in module(x)]
        given, kept = x.clone(), [result.clone() for result in fast(x)]
        for index in range(len(wanted)):
            results = fast(given)
            results[index].fill_(-7.0)
            for other, (found, value) in enumerate(zip(results, wanted, strict=True)):
                if other != index:
                    torch.testing.assert_close(found, value)
            assert torch.equal(given, x)
        for found, value in zip(fast(x), kept, strict=True):
            assert torch.equal(found, value)


@pytest.mark.parametrize("again", [lambda y: y, lambda y: nn.functional.dropout(y, 0.5, training=False)])
def test_what_forward_returns_twice_is_one_tensor_as_in_eager(again: Callable[[torch.Tensor], torch.Tensor]) -> None:
    fast = tracea.optimize(Line(lambda _, x, y: (y, [again(y)])).eval(), (torch.ones(4, 8),), budget=None, threads=1)
    with torch.inference_mode():
        first, (second,) = fast(torch.ones(4, 8))
    assert first is second


class Images(nn.Module):
    """Results whose memory torch has channels last, and some that it has row-major."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.up = nn.Conv2d(3, 8, 3, padding=1), nn.ConvTranspose2d(8, 3, 2, stride=2)
        self.register_buffer("mean", torch.tensor([0.25, 0.5, 0.75]).reshape(1, 3, 1, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.conv(x)
        pooled = nn.functional.max_pool2d(y, 2)
        lasting = y, torch.relu(y), pooled, self.up(y), torch.cat([y, x], 1), x, x + 1.0, x - self.mean
        return *lasting, pooled.permute(0, 2, 3, 1), y.mean((2, 3)), y.flatten(1), torch.softmax(y, 1)


@pytest.mark.parametrize("last", ["input", "filters", "none"])
def test_images_lie_as_those_of_torch_and_apart(last: str, seed: int) -> None:
    torch.manual_seed(seed)
    module, x = Images().eval(), torch.randn(2, 3, 8, 6)
    if last == "filters":
        module = module.to(memory_format=torch.channels_last)
    if last == "input":
        x = x.to(memory_format=torch.channels_last)
    fast = tracea.optimize(module, (x,), budget=None, threads=1)
    with torch.inference_mode():
        wanted = [result.clone() for result in module(x)]
        for result, value in zip(fast(x), wanted, strict=True):
            is_last = value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last)
            assert result.is_contiguous(memory_format=torch.channels_last if is_last else torch.contiguous_format)
            torch.testing.assert_close(result, value)
        for index in range(len(wanted)):
            results = fast(x.clone(memory_format=torch.preserve_format))
            results[index].fill_(-7.0)
            for other, (found, value) in enumerate(zip(results, wanted, strict=True)):
                if other != index:
                    torch.testing.assert_close(found, value)


def test_tensors_in_the_strides_compiled_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 3, 8, 6).to(memory_format=torch.channels_last)
    fast = tracea.optimize(nn.ReLU().eval(), (x,), budget=None, threads=1)
    long_ways: list[torch.Size] = []
    long_way = OptimizedModule._run_other

    def seen(self: OptimizedModule, args: Any, kwargs: Any) -> Any:
        long_ways.append(args[0].shape)
        return long_way(self, args, kwargs)

    monkeypatch.setattr(OptimizedModule, "_run_other", seen)
    assert torch.equal(fast(x), x.relu())
    assert not long_ways
    for other in (
        x.contiguous(),
        x.double().float()[:, :, :, :6],
        x.permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2),
    ):
        assert torch.equal(fast(other), x.relu())
    assert len(long_ways) >= 2


class Centred(nn.Module):
    """Takes a mean of each channel off, as the first step of a classifier does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - torch.tensor([0.25, 0.5, 0.75]).reshape(1, 3, 1, 1)) * 2.0


def test_a_number_for_each_channel_leaves_an_image_as_it_lies() -> None:
    x = torch.randn(2, 3, 8, 6).to(memory_format=torch.channels_last)
    result = tracea.optimize(Centred().eval(), (x,), budget=None, threads=1)(x)
    assert result.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(result, Centred()(x))


def test_an_image_channels_last_is_returned_by_the_kernel_that_makes_it() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2))
    x = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    assert len(tracea.optimize(module.eval(), (x,), budget=None, threads=1).plan) == 2
