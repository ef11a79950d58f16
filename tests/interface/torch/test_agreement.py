"""A call that depends on those before it, on chance or on a stand-in's error is refused, not frozen as it happened."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from tests.drawn import drawn
from tests.interface.torch.compare import as_array, check_capture
from torch import nn
from torch.nn.functional import dropout

from tracea.core import reference
from tracea.errors import InvalidInput, UnsupportedNode
from tracea.interface.torch.capture import capture
from tracea.interface.torch.module import Compiled, OptimizedModule
from tracea.interface.torch.state import State
from tracea.interface.torch.trace import traced

X = torch.linspace(-2.0, 3.0, 12, dtype=torch.float64).reshape(3, 4)


class Holds(nn.Module):
    made = 0

    def __init__(self, called: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.called = called
        self.count, self.kept, self.shapes = 0, None, {}
        self.results: list[torch.Tensor] = []
        self.norm = nn.BatchNorm1d(4).double()
        self.layers = nn.ModuleList([nn.Linear(4, 4).double(), nn.Linear(4, 4).double()])

    def forward(self, x: torch.Tensor) -> Any:
        return self.called(self, x)


def counts(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.count += 1
    return x * module.count


def takes_turns(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.count += 1
    return module.layers[module.count % 2](x)


def counts_for_all(module: Any, x: torch.Tensor) -> torch.Tensor:
    type(module).made += 1
    return x * type(module).made


def counts_outside(module: Any, x: torch.Tensor, calls: list[None] = []) -> torch.Tensor:  # noqa: B006
    calls.append(None)
    return x * len(calls)


def keeps_its_first_result(module: Any, x: torch.Tensor) -> torch.Tensor:
    if module.kept is None:
        module.kept = x * 2
    return module.kept + x


def keeps_all_results(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.results.append(x * 2)
    return torch.cat(module.results).sum(0)


def trains_later(module: Any, x: torch.Tensor) -> torch.Tensor:
    y = module.norm(x)
    module.norm.train()
    return y


def forgets(module: Any, x: torch.Tensor) -> torch.Tensor:
    if hasattr(module, "count"):
        del module.count
        return x * 2
    return x * 3


def draws(module: Any, x: torch.Tensor) -> torch.Tensor:
    return x * random.random()


def draws_by_numpy(module: Any, x: torch.Tensor) -> torch.Tensor:
    return x * float(np.random.rand())


def catches(module: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        return x * 2 if x.sum().item() > 0 else x * 3
    except Exception:
        return x * 5


@pytest.mark.parametrize(
    "called",
    drawn(
        5,
        [
            *(counts, takes_turns, counts_for_all, counts_outside, keeps_its_first_result, keeps_all_results),
            *(trains_later, forgets, draws, draws_by_numpy, catches),
        ],
        of="other programs",
    ),
)
def test_a_call_that_another_program_computes_is_refused(called: Callable[..., Any]) -> None:
    module = Holds(called).eval()
    before = State.of(module)
    assert traced(module, (X,)) is None
    with pytest.raises(
        UnsupportedNode, match=r"not that of the module's (first|second) call.* at .*test_agreement\.py"
    ):
        capture(module, X)
    changed = before.changed(State.of(module))
    assert changed is None or "made" in changed or "random" in changed, "numbers outside the module are not ours"


def notes(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.count += 1
    module.kept = x.shape
    return x * 2


def keeps_masks(module: Any, x: torch.Tensor) -> torch.Tensor:
    if len(x) not in module.shapes:
        module.shapes[len(x)] = torch.ones(len(x), len(x), dtype=x.dtype).tril()
    return module.shapes[len(x)] @ x


def shows(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.kept = x * 2
    return module.kept + 1


def seeds(module: Any, x: torch.Tensor) -> torch.Tensor:
    random.seed(3)
    return x * random.random()


@pytest.mark.parametrize("called", [notes, keeps_masks, shows, seeds])
def test_what_a_module_keeps_without_need_does_no_harm(called: Callable[..., Any]) -> None:
    module = Holds(called).eval()
    captured = capture(module, X)
    assert (module.count, module.kept, module.shapes) == (0, None, {}), "left as it was, without a tensor's stand-in"
    check_capture(captured, module, (X,))
    check_capture(capture(module, X[:2]), module, (X[:2],))


@pytest.mark.parametrize(
    "off", [lambda y: dropout(y, 0.5, False), lambda y: torch.alpha_dropout(y, 0.5, False), torch.Tensor.double]
)
def test_a_write_to_what_returns_its_input_is_one_to_the_input(off: Callable[..., Any]) -> None:
    def called(module: Any, x: torch.Tensor) -> Any:
        y = x * 2
        z = off(y)
        z += 1
        return y * 3, z

    check_capture(capture(Holds(called).eval(), X), Holds(called).eval(), (X,))


def test_inputs_that_only_the_module_refuses_are_told_so() -> None:
    def checks(module: Any, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_exporting() or not x.cumsum(0).any():
            return x.cumsum(0)
        raise ValueError("not of my taste")

    with pytest.raises(InvalidInput, match="not of my taste"):
        capture(Holds(checks), X)


def compiled(module: nn.Module, args: tuple[Any, ...]) -> Compiled:
    captured = capture(module, args)

    def run(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        bound = zip(captured.input_spec.names, map(as_array, tensors), strict=True)
        return [torch.from_numpy(np.array(value)) for value in reference.run(captured.graph, dict(bound)).values()]

    return Compiled(run=run, input_spec=captured.input_spec, output_spec=captured.output_spec)


def asks_strides(module: Any, x: torch.Tensor) -> torch.Tensor:
    return x * (2 if x.is_contiguous() else 3)


def asks_gradients(module: Any, x: torch.Tensor) -> torch.Tensor:
    return x * (3 if x.requires_grad else 2)


@pytest.mark.parametrize(
    ("called", "other"), [(asks_strides, X.t().contiguous().t()), (asks_gradients, X.clone().requires_grad_())]
)
def test_a_module_that_asks_for_facts_of_an_input_has_a_program_for_each(
    called: Callable[..., Any], other: torch.Tensor
) -> None:
    module = Holds(called)
    compiled_again = Mock(side_effect=functools.partial(compiled, module))
    fast = OptimizedModule(compiled(module, (X,)), recompile=compiled_again)
    with torch.no_grad():
        for given, factor in ((X, 2), (other, 3), (X, 2), (other, 3)):
            torch.testing.assert_close(fast(given), X * factor)
    assert compiled_again.call_count == 1
    with torch.no_grad(), pytest.raises(InvalidInput, match="the module asks for"):
        OptimizedModule(compiled(module, (X,)))(other)


def test_a_write_of_which_export_sees_a_part_is_named() -> None:
    def adds_twice(_: Any, x: torch.Tensor) -> torch.Tensor:
        seen, unseen = x.view_as(x), x.type_as(x)
        seen += 1
        unseen += 1
        return x

    with pytest.raises(UnsupportedNode, match=r"does not write to x what the module's first call does.*type_as"):
        capture(Holds(adds_twice), (X.clone(),))


def test_padding_that_nested_tensors_leave_out_is_told_by_their_name() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    x, padding = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    for mask in (padding, torch.zeros_like(padding)):  # of another call's mask nobody knows
        with pytest.raises(UnsupportedNode, match="enable_nested_tensor=False"):
            capture(nn.TransformerEncoder(layer, 1).eval(), (x, None, mask))
    capture(nn.TransformerEncoder(layer, 1).eval(), (x,))
    plain = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    capture(plain, (x, None, padding))
