"""A trace leaves to torch.export what it would see otherwise than a call of the module does, and does no harm to it."""

from __future__ import annotations

import copy
import dataclasses
import functools
import io
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tracea
from tracea.errors import UnsupportedNode
from tracea.interface.torch.capture import capture
from tracea.interface.torch.state import State
from tracea.interface.torch.streams import kept_apart
from tracea.interface.torch.trace import traced

pytestmark = pytest.mark.whole


class Calls(nn.Module):
    def __init__(self, called: Callable[..., Any]) -> None:
        super().__init__()
        self.called = called

    def forward(self, *inputs: Any) -> Any:
        return self.called(*inputs)


def values(module: nn.Module, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Return what two calls of the optimized module give."""
    fast = tracea.optimize(module, inputs, budget=None, threads=1, listener=lambda *_: None)
    with torch.no_grad():
        return [fast(*inputs), fast(*inputs)]


def test_what_a_module_keeps_in_a_cache_outside_is_a_tensor_like_any_other() -> None:
    @functools.lru_cache
    def mask(extent: int) -> torch.Tensor:
        return torch.ones(extent, extent).tril().t()

    @functools.lru_cache
    def scales() -> torch.Tensor:
        return torch.tensor([1.0, 2.0, 3.0, 4.0])[None].expand(3, 4)[:, :]

    module, x = Calls(lambda x: (x @ mask(x.shape[-1])) * scales()), torch.randn(3, 4, requires_grad=True)
    program = traced(module, (x.detach(),))
    assert program is not None
    kept = mask(4)
    assert type(kept) is torch.Tensor
    assert not kept.is_inference()
    assert kept.equal(torch.ones(4, 4).triu())
    module(x).sum().backward()  # the cached tensors take part in gradients
    torch.testing.assert_close(values(module, x.detach())[0], module(x).detach())
    kept.zero_()  # what the program holds is its own
    assert all(tensor.count_nonzero() for tensor in program.constants.values())


def test_a_number_read_from_a_tensor_made_in_forward_is_left_to_export() -> None:
    for called in (lambda x: x * torch.ones(3).sum().item(), lambda x: x * torch.ones(3).tolist()[0]):
        assert traced(Calls(called), (torch.ones(3, 4),)) is None


class Swaps(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        one, two = torch.full((4,), 2.0), torch.full((4,), 3.0)
        if kind == "buffers":
            self.register_buffer("one", one)
            self.register_buffer("two", two)
        elif kind == "parameters":
            self.one, self.two = nn.Parameter(one), nn.Parameter(two)
        else:
            self.one, self.two = one, two

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.one
        self.one, self.two = self.two, self.one
        return y


class Reverses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tensors = [torch.full((4,), 2.0), torch.full((4,), 3.0)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.tensors[0]
        self.tensors.reverse()
        return y


@dataclasses.dataclass
class Config:
    tensor: torch.Tensor
    calls: int = 0


class Configured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = Config(torch.full((4,), 3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.config.tensor
        self.config.tensor = self.config.tensor + 1
        return y


@pytest.mark.parametrize(
    "make",
    [*[functools.partial(Swaps, kind) for kind in ("buffers", "parameters", "tensors")], Reverses, Configured],
)
def test_tensors_that_change_places_are_refused_and_put_back(make: Callable[[], nn.Module]) -> None:
    module, x = make(), torch.ones(3, 4)
    before = State.of(module)
    assert traced(module, (x,)) is None
    assert before.changed(State.of(module)) is None
    if isinstance(module, Swaps) and isinstance(module.one, nn.Parameter):
        return  # torch.export puts parameters back itself: docs/torch.md
    with pytest.raises(UnsupportedNode):
        capture(module, x)
    assert before.rebound(State.of(module)) is None
    assert type(module(x)) is torch.Tensor
    with pytest.raises(UnsupportedNode):
        values(make(), x)


def counts(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.number += 1
    return x * module.number


def counts_within(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.config.calls += 1
    return x * 2


def remembers(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.last = x.shape
    return x * 2


def draws(module: Any, x: torch.Tensor) -> torch.Tensor:
    return x * next(module.numbers)


@pytest.mark.parametrize("forward", [counts, counts_within, remembers, draws])
def test_a_module_that_changes_itself_is_left_to_export(forward: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
    class Changes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.number, self.config, self.numbers = 1, Config(torch.ones(3)), iter([2.0, 3.0])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return forward(self, x)

    module = Changes()
    assert traced(module, (torch.ones(3, 4),)) is None
    assert (module.number, module.config.calls, next(module.numbers)) == (1, 0, 2.0)


def in_a_thread(x: torch.Tensor) -> torch.Tensor:
    results: list[torch.Tensor] = []

    def run() -> None:
        try:
            results.append(x * 2)
        except Exception:
            return

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0] if results else x + 1


QUESTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "is_inference_mode_enabled": lambda x: x * 2 if torch.is_inference_mode_enabled() else x * 3,
    "is_grad_enabled": lambda x: x * 2 if torch.is_grad_enabled() else x * 3,
    "is_inference": lambda x: x * 2 if x.is_inference() else x * 3,
    "_base": lambda x: x * 2 if x[1:]._base is not None else x * 3,
    "_is_view": lambda x: x * 2 if x[1:]._is_view() else x * 3,
    "_version": lambda x: x * (2 + x._version),
    "storage_offset": lambda x: x[1:] * (1 + x[1:].storage_offset()),
    "is_leaf": lambda x: x * 2 if x.is_leaf else x * 3,
    "grad": lambda x: x * 2 if x.grad is None else x * 3,
    "grad_fn": lambda x: x * 2 if x.grad_fn is None else x * 3,
    "data": lambda x: x.data * 2,
    "names": lambda x: x * len(x.names),
    "a text": lambda x: x * len(str(x.shape) + repr(x)),
    "hasattr": lambda x: x * (2 if hasattr(x, "grad_fn") else 3),
    "strides of doubt": lambda x: x * (x.t() * torch.arange(3.0)).stride(0),
    "contiguity of doubt": lambda x: x * 2 if (x.t() * torch.arange(3.0)).is_contiguous() else x * 3,
    "another thread": in_a_thread,
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_that_a_trace_would_answer_otherwise_is_left_to_export(name: str) -> None:
    asked = (torch.is_grad_enabled, torch.is_inference_mode_enabled)
    assert traced(Calls(QUESTIONS[name]), (torch.ones(3, 4),)) is None
    assert asked == (torch.is_grad_enabled, torch.is_inference_mode_enabled), "not put back"
    assert (torch.ones(2, requires_grad=True) * 2).requires_grad, "the trace's modes came back after it"


FACTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "shape": lambda x: x * (x.shape[0] + x.size(1) + x.dim() + x.ndim + x.numel() + len(x)),
    "kind": lambda x: x * 2 if x.dtype is torch.float32 and x.is_floating_point() and not x.is_complex() else x * 3,
    "place": lambda x: x * 2 if x.device.type == "cpu" and x.layout is torch.strided and not x.is_cuda else x * 3,
    "size": lambda x: x * (x.element_size() + x.itemsize + x.nbytes),
    "gradient": lambda x: x * 2 if x.requires_grad or (x * 2).requires_grad else x * 3,
    "strides": lambda x: x * x.t().stride()[0] * (2 if x.is_contiguous() and not x.t().is_contiguous() else 3),
    "strides of a result": lambda x: x * (x * 2).relu().stride(0),
    "contiguous": lambda x: x.contiguous() * x.t().contiguous().t(),
    "attribute": lambda x: x * (2 if hasattr(x, "node") else 3),
    "itself": lambda x: (
        x * (2 if x.float() is x is nn.Dropout().eval()(x) is x.flatten(1) and x.relu() is not x else 3)
    ),
    "no attributes": lambda x: x * (2 if vars(x) else 3),
    "no gradients": torch.no_grad()(lambda x: x * 2),
}


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_of_a_value_is_that_of_the_tensor(name: str) -> None:
    module, x = Calls(FACTS[name]), torch.linspace(-2.0, 3.0, 12).reshape(3, 4)
    assert traced(module, (x,)) is not None
    torch.testing.assert_close(values(module, x)[1], module(x))


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.ones(4) * 3)
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.p * self.scale


class Dropping(Own):
    def __getstate__(self) -> Any:
        return {**vars(self), "scale": 1.0}


class Fresh(Own):
    def __deepcopy__(self, memo: Any) -> Any:
        return Fresh()


class Holding(Own):
    class Scale:
        value = 2.0

        def __reduce_ex__(self, protocol: Any) -> Any:
            return (Holding.Scale, ())

    def __init__(self) -> None:
        super().__init__()
        self.held = [Holding.Scale()]


@pytest.mark.parametrize("kind", [Dropping, Fresh, Holding])
def test_a_module_whose_copy_need_not_be_alike_is_left_to_export(kind: type[Own]) -> None:
    x = torch.ones(3, 4)
    assert traced(Own(), (x,)) is not None
    assert traced(kind(), (x,)) is None
    assert traced(nn.Sequential(kind()), (x,)) is None


def test_only_what_this_thread_writes_is_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    below, other = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", below)
    with kept_apart("stdout") as written:
        stream = sys.stdout
        thread = threading.Thread(target=lambda: print("theirs"))
        thread.start()
        thread.join()
        print("ours")
        assert below.getvalue() == "theirs\n"
    assert sys.stdout is below
    assert written == {"stdout": "ours\n"}
    print("late", file=stream)
    assert below.getvalue() == "theirs\nlate\n"
    with kept_apart("stdout"):
        monkeypatch.setattr(sys, "stdout", other)
    assert sys.stdout is other, "another stream that someone put there meanwhile"


def test_attributes_of_parameters_are_those_of_the_module() -> None:
    class Reads(Own):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.p * getattr(self.p, "factor", 1.0) * getattr(self.b, "factor", 1.0)

    reads, x = Reads(), torch.ones(3, 4)
    reads.register_buffer("b", torch.ones(4))
    reads.p.factor, reads.b.factor = 5.0, 7.0
    wanted = reads(x).detach()
    assert traced(reads, (x,)) is not None
    torch.testing.assert_close(values(reads, x)[0], wanted)
    assert wanted.eq(105).all()
    assert vars(copy.deepcopy(reads).p) == {}, "torch copies them now: frozen_copy need not"


def test_a_tensor_outside_that_becomes_another_is_left_to_export() -> None:
    one, two = torch.full((4,), 2.0), torch.full((4,), 3.0)

    def swapped(x: torch.Tensor) -> torch.Tensor:
        y = x * one
        one.set_(two)
        return y + x * one

    assert traced(Calls(swapped), (torch.ones(3, 4),)) is None


def _of_kind(x: torch.Tensor) -> torch.Tensor:
    return x + 1.0 if type(x) is torch.Tensor else x - 1.0


class OfHelper(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _of_kind(x)


class OfMethod(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.of_kind(x)

    def of_kind(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1.0 if x.__class__ is torch.Tensor else x - 1.0


@pytest.mark.parametrize("module", [OfHelper(), OfMethod(), Calls(_of_kind)], ids=["helper", "method", "attribute"])
def test_an_answer_that_depends_on_the_type_of_a_stand_in_is_refused(module: nn.Module) -> None:
    with pytest.raises(UnsupportedNode, match=r"whose result is not that of the module's.*isinstance answers"):
        capture(module, (torch.randn(3),))


def test_a_question_for_the_type_that_changes_nothing_is_captured() -> None:
    def line(x: torch.Tensor) -> torch.Tensor:
        assert isinstance(x, torch.Tensor)
        return x + 0.0 * (type(x) is torch.Tensor)

    assert len(capture(Calls(line), (torch.randn(3),)).graph.outputs) == 1
