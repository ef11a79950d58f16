"""Example inputs of unusual strides: their program, and calls with inputs of the same shape and other strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tracea
from tracea.errors import InvalidInput, InvalidStride, OverlappingOutput
from tracea.interface.torch.capture import capture
from tracea.interface.torch.specs import check_facts

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


class Applies(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


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


def halved(h: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """Halve a part of ``h`` or a copy of it, which the strides say, and read ``h``."""
    part.mul_(0.5)
    return h + 1


IMAGE = (2, 3, 2, 4)
LAST = torch.channels_last
# Of images: what writes, by the strides of x, to x or to a copy, or so to a value of forward.
EITHER: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "flatten": lambda x: halved(x, x.flatten(1)),
    "reshape": lambda x: x.reshape(2, -1).relu_(),
    "reshape_as": lambda x: x.reshape_as(torch.empty(6, 8)).relu_(),
    "ravel": lambda x: halved(x, x.ravel()),
    "contiguous": lambda x: x.contiguous().mul_(2),
    "to": lambda x: halved(x, x.to(memory_format=LAST)),
    "float": lambda x: halved(x, x.float(memory_format=LAST)),
    "contiguous of a value": lambda x: halved(h := x * 2, h.contiguous()),
    "flatten of a value": lambda x: halved(h := x * 2, h.flatten(1)),
    "inplace": lambda x: (nn.functional.relu(x.reshape(-1), inplace=True), x + 1)[1],
    "inplace by its place": lambda x: (nn.functional.relu(x.reshape(-1), True), x + 1)[1],
    "out": lambda x: (torch.neg(x, out=x.contiguous()), x + 1)[1],
    "a part": lambda x: (x.contiguous()[:, 1:].zero_(), x + 1)[1],
    "dropout that is off": lambda x: (nn.functional.dropout(x.reshape(2, -1), 0.5, False).add_(1), x + 1)[1],
    "dropout of a part": lambda x: (nn.functional.dropout1d(x.reshape(2, 3, 8)[1:], 0.5, False).add_(1), x + 1)[1],
    "what a write reads": lambda x: (y := x.reshape(2, -1), x.neg_(), y + 1)[2],
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", EITHER)
def test_what_a_write_reaches_by_strides_is_that_of_the_call(name: str, mode: Callable[[], Any]) -> None:
    module, lies = Applies(EITHER[name]), (torch.contiguous_format, LAST)
    with mode():
        for first, then in (lies, lies[::-1]):
            captured = capture(module, (torch.randn(IMAGE).contiguous(memory_format=first),))
            other = torch.randn(IMAGE).contiguous(memory_format=then)
            with pytest.raises(InvalidStride):
                check_facts(captured.input_spec, [other])


def test_a_write_that_counts_no_version_is_one_to_all_that_strides_decide() -> None:
    module = Applies(lambda x: (torch._foreach_add_([x.reshape(2, -1)], 1.0), x + 1)[1])
    captured = capture(module, (torch.randn(IMAGE).contiguous(memory_format=LAST),))  # of which reshape is a copy
    with pytest.raises(InvalidStride):
        check_facts(captured.input_spec, [torch.randn(IMAGE)])


@torch.no_grad()
@pytest.mark.parametrize("name", ["flatten", "reshape", "contiguous"])
def test_a_write_to_a_copy_of_what_has_gaps_is_taken(name: str) -> None:
    module = Applies(EITHER[name])
    for fast in (optimized(module, torch.randn(IMAGE)), optimized(module, torch.randn(2, 3, 2, 8)[..., ::2])):
        for call in (torch.randn(2, 3, 2, 8)[..., ::2], torch.randn(2, 6, 2, 4)[:, ::2]):
            theirs = torch.empty_strided(call.shape, call.stride()).copy_(call)
            torch.testing.assert_close(fast(call), module(theirs))
            torch.testing.assert_close(call, theirs)


@torch.no_grad()
def test_a_write_that_reaches_the_input_or_a_copy_is_what_eager_leaves() -> None:
    module = Applies(EITHER["flatten"])
    for example in (torch.contiguous_format, LAST):
        fast = optimized(module, torch.randn(IMAGE).contiguous(memory_format=example))
        for format_ in (torch.contiguous_format, LAST, torch.contiguous_format):
            ours = torch.randn(IMAGE).contiguous(memory_format=format_)
            theirs = ours.clone()
            torch.testing.assert_close(fast(ours), module(theirs))
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "forward",
    [
        lambda x: (x * 2).relu_().reshape(2, -1).exp(),  # written to before
        lambda x: torch.addcmul(x, x, x).relu_().reshape(2, -1).sum(-1, True),
    ],
)
def test_a_write_to_what_no_strides_decide_leaves_a_program_of_any(
    forward: Callable[[torch.Tensor], torch.Tensor], mode: Callable[[], Any]
) -> None:
    with mode():
        assert capture(Applies(forward), (torch.randn(IMAGE),)).input_spec.strides is None


def test_a_write_to_another_memory_than_what_strides_decide_leaves_a_program_of_any() -> None:
    module = Applies(lambda x: torch.addcmul(x.reshape(2, -1), x.flatten(1), x.flatten(1)).relu_())
    assert capture(module, (torch.randn(IMAGE),)).input_spec.strides is None


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
