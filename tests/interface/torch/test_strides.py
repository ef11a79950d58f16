"""Example inputs of unusual strides: their program, and calls with inputs of the same shape and other strides."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import tracea
from tracea.errors import InvalidInput, InvalidStride, OverlappingOutput

Made = Callable[[], torch.Tensor]
SHAPE = (12, 8)

STRIDES: dict[str, Made] = {
    "windows": lambda: torch.randn(30).unfold(0, 8, 2),
    "closer windows": lambda: torch.randn(30).unfold(0, 8, 1)[:12],
    "rows of one": lambda: torch.randn(1, 8).expand(12, 8),
    "one number": lambda: torch.randn(()).expand(12, 8),
    "interleaved": lambda: torch.randn(200).as_strided(SHAPE, (5, 7)),
    "with gaps": lambda: torch.randn(40, 9)[2:38:3, 1:],
    "transposed": lambda: torch.randn(8, 12).t(),
    "row-major": lambda: torch.randn(12, 8),
}


def optimized(module: nn.Module, example: torch.Tensor) -> nn.Module:
    return tracea.optimize(module, (example,), budget=None, threads=1, listener=lambda *_: None)


@pytest.mark.parametrize("example", ["windows", "rows of one", "interleaved", "with gaps"])
def test_inputs_of_any_strides_are_taken_whatever_the_strides_of_the_example(example: str) -> None:
    class Shifted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 + 1

    fast = optimized(Shifted(), STRIDES[example]())
    for made in STRIDES.values():
        x = made()
        before = x.clone()
        torch.testing.assert_close(fast(x), x * 2 + 1)
        assert torch.equal(x, before)
    assert len(fast._others) <= 1  # one program more takes all strides but the example's


class Doubling(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + 1


@pytest.mark.parametrize("example", ["windows", "rows of one"])
def test_a_write_to_an_input_is_right_where_the_elements_of_the_example_overlap(example: str) -> None:
    fast = optimized(Doubling(), STRIDES[example]())
    for name in ("row-major", "transposed", "with gaps"):
        x = STRIDES[name]()
        before = x.clone()
        torch.testing.assert_close(fast(x), before * 2 + 1)
        torch.testing.assert_close(x, before * 2)
    with pytest.raises(OverlappingOutput):
        fast(STRIDES[example]())


def test_a_module_that_asks_for_strides_gets_a_program_for_those_of_the_call() -> None:
    class Asking(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if x.is_contiguous() else x - 1

    fast = optimized(Asking(), STRIDES["windows"]())
    for name in ("windows", "row-major", "rows of one"):
        x = STRIDES[name]()
        torch.testing.assert_close(fast(x), Asking()(x))


class Asks(nn.Module):
    """One of which torch.export is needed: its stand-ins answer for the example alone."""

    def __init__(self, question: Callable[[torch.Tensor], float]) -> None:
        super().__init__()
        self.question = question

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addcmul(x, x, x) + self.question(x)


OF_STRIDES: dict[str, Callable[[torch.Tensor], float]] = {
    "stride": lambda x: x.stride(0),
    "is_contiguous": lambda x: float(x.is_contiguous()),
    "dim_order": lambda x: x.dim_order()[0],
    "stride of a tensor like it": lambda x: torch.empty_like(x).stride(0),
}
OF_PLACES: dict[str, Callable[[torch.Tensor], float]] = {
    "storage_offset": lambda x: x.storage_offset(),
    "untyped_storage": lambda x: x.untyped_storage().nbytes(),
    "_is_view": lambda x: float(x._is_view()),
}


@pytest.mark.parametrize("name", OF_STRIDES)
def test_strides_that_forward_asks_for_are_those_of_the_call_where_torch_export_follows(name: str) -> None:
    module = Asks(OF_STRIDES[name])
    fast = optimized(module, STRIDES["row-major"]())
    for x in (STRIDES["row-major"](), STRIDES["transposed"](), STRIDES["row-major"]()):
        torch.testing.assert_close(fast(x), module(x))


@pytest.mark.parametrize("name", OF_PLACES)
def test_places_in_memory_that_forward_asks_for_are_the_examples_or_refused(name: str) -> None:
    module, x = Asks(OF_PLACES[name]), STRIDES["row-major"]()
    fast = optimized(module, x)
    torch.testing.assert_close(fast(x), module(x))
    with pytest.raises(InvalidStride, match=r"storage_offset=8.* expected Place\(storage_offset=0"):
        fast(torch.randn(13, 8)[1:])


def test_a_gradient_that_forward_asks_for_is_the_examples_or_refused_where_torch_export_follows() -> None:
    module, x = Asks(lambda x: float(x.requires_grad)), STRIDES["row-major"]()
    fast = optimized(module, x)
    torch.testing.assert_close(fast(x), module(x))
    with torch.no_grad(), pytest.raises(InvalidInput, match="got requires_grad=True, expected requires_grad=False"):
        fast(x.clone().requires_grad_())
