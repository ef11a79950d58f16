"""A trace follows writes in place: the program is that of the module which returns new tensors instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.interface.torch.compare import check_capture
from tests.interface.torch.test_trace import Calls
from torch import nn
from torch.nn import functional

from tracea.errors import UnsupportedNode
from tracea.interface.torch.aliases import hands_on, returning
from tracea.interface.torch.capture import capture
from tracea.interface.torch.result_types import RESULT_TYPES, VIEWS_OF_TYPES
from tracea.interface.torch.trace import traced

pytestmark = pytest.mark.whole

Forward = Callable[[torch.Tensor], Any]


def in_turn(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y += x
    y.mul_(3).clamp_(0, 4)
    return y


def by_a_view(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).view(-1)
    y.sub_(1)
    return y


def of_numbers(x: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros(3, 3)
    y = x + mask
    mask.fill_(2.0).masked_fill_(torch.ones(3, 3).triu_(1).bool(), -5.0)
    mask[0] = 7.0
    return y * mask


def of_numbers_instead(x: torch.Tensor) -> torch.Tensor:
    upper = torch.tensor([[0.0, 1, 1], [0, 0, 1], [0, 0, 0]]).bool()
    mask = torch.full((3, 3), 2.0).masked_fill(upper, -5.0)
    return (x + torch.zeros(3, 3)) * torch.cat([torch.full((1, 3), 7.0), mask[1:]])


def of_a_part(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    left, right = (x * 2).chunk(2)
    left.relu_()
    return left, right  # which shares left's memory, no element of it


# What writes, and what returns the same without.
WRITES: dict[str, tuple[Forward, Forward]] = {
    "relu": (lambda x: (x * 2).relu_(), lambda x: (x * 2).relu()),
    "silu": (lambda x: functional.silu(x * 2, inplace=True), lambda x: functional.silu(x * 2)),
    "relu6": (lambda x: functional.relu6(x * 2, inplace=True), lambda x: functional.relu6(x * 2)),
    "hardswish": (lambda x: functional.hardswish(x * 2, inplace=True), lambda x: functional.hardswish(x * 2)),
    "leaky relu": (lambda x: functional.leaky_relu(x * 2, 0.1, True), lambda x: functional.leaky_relu(x * 2, 0.1)),
    "elu": (lambda x: functional.elu(x * 2, inplace=True), lambda x: functional.elu(x * 2)),
    "dropout": (lambda x: functional.dropout(x * 2, 0.1, False, True) + 1, lambda x: x * 2 + 1),
    "in turn": (in_turn, lambda x: ((x * 2 + x) * 3).clamp(0, 4)),
    "by a view": (by_a_view, lambda x: (x * 2).view(-1) - 1),
    "of numbers": (of_numbers, of_numbers_instead),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_gives_the_program_without_it(name: str) -> None:
    writes, returns = WRITES[name]
    x = torch.randn(4, 4) if name != "of numbers" else torch.randn(3, 3)
    one, other = traced(Calls(writes), (x,)), traced(Calls(returns), (x,))
    assert one is not None
    assert other is not None
    if name != "of numbers":  # whose constants are made in other ways
        assert str(one.graph) == str(other.graph)
    before = x.clone()
    check_capture(capture(Calls(writes).double(), (x.double(),)), Calls(writes).double(), (x.double(),))
    assert torch.equal(x, before)


def read_by_the_old_name(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    flat = y.view(-1)
    y.add_(1)
    return flat


def read_by_the_whole(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[0] = 1.0
    return y


def turned(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return y.t_()


LEFT: dict[str, Forward] = {
    "read by the old name": read_by_the_old_name,
    "read by the whole": read_by_the_whole,
    "a part": of_a_part,
    "an input": lambda x: x.add_(1),
    "a view of an input": lambda x: x.view(-1).relu_(),
    "what dropout hands on": lambda x: functional.dropout(x, 0.1, False).add_(1),
    "other strides": turned,
    "random": lambda x: x + torch.zeros(4, 4).normal_(),
    "into another's memory": lambda x: torch.add(x, 1, out=torch.empty(4, 4)),
    "memory of its own": lambda x: x + torch.zeros(4, 4).share_memory_(),
    "another size": lambda x: x + torch.zeros(16).resize_(4, 4),
    "into numbers": lambda x: torch.zeros(4, 4).copy_(x),
}


@pytest.mark.parametrize("name", LEFT)
def test_a_write_that_others_see_is_left_to_export(name: str) -> None:
    assert traced(Calls(LEFT[name]), (torch.ones(4, 4),)) is None


def test_a_write_to_a_tensor_of_the_module_is_left_to_export() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.calls.view(2, 2).type_as(self.calls).add_(1).view(-1)

    module = Counts()
    assert traced(module, (torch.ones(4),)) is None
    assert torch.equal(module.calls, torch.zeros(4))


def counted(kept: dict[str, torch.Tensor]) -> Forward:
    return lambda x: x + kept.setdefault("calls", torch.zeros(4)).add_(1)


def replaced(kept: dict[str, torch.Tensor]) -> Forward:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = x + kept.setdefault("row", torch.zeros(4, 4))[0]
        kept["row"] = torch.ones(4, 4)
        return y

    return forward


def added(kept: dict[str, torch.Tensor]) -> Forward:
    def forward(x: torch.Tensor) -> torch.Tensor:
        row = kept.setdefault("row", torch.zeros(4))
        kept["row"] = row + 1
        return x + row.view(2, 2).view(4)

    return forward


@pytest.mark.parametrize("make", [counted, replaced, added])
def test_tensors_of_numbers_that_calls_hand_on_are_left_to_export(make: Callable[..., Forward]) -> None:
    assert traced(Calls(make({})), (torch.ones(4),)) is None
    with pytest.raises(UnsupportedNode):
        capture(Calls(make({})), (torch.ones(4),))


def test_a_table_that_is_kept_outside_is_a_constant_whatever_is_read_of_it() -> None:
    kept: dict[int, torch.Tensor] = {}

    def forward(x: torch.Tensor) -> torch.Tensor:
        table = torch.arange(8.0, dtype=torch.double).sin().masked_fill_(torch.eye(8)[2].bool(), 5.0)
        table = kept.setdefault(8, table)
        return x * table[: x.shape[-1]] + table[1]

    x = torch.randn(3, 4, dtype=torch.double)
    assert traced(Calls(forward), (x,)) is not None
    check_capture(capture(Calls(forward), (x,)), Calls(forward), (x,))


def test_operators_that_hand_on_their_operand_are_known() -> None:
    kinds = {name.split(".")[1] for name in VIEWS_OF_TYPES} | {"alias", "detach", "reshape", "reshape_as"}
    kinds |= {"contiguous", "to"}
    for name in sorted({*RESULT_TYPES, *VIEWS_OF_TYPES}):
        _, packet, overload = name.split(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload)
        handed = packet in kinds | {"flatten", "ravel", "dropout", "feature_dropout", "alpha_dropout"}
        assert hands_on(operator) == handed, name


@pytest.mark.parametrize(
    ("writes", "returns"),
    [("relu_.default", "relu.default"), ("add_.Tensor", "add.Tensor"), ("dropout_.default", "dropout.default")],
)
def test_what_writes_has_what_returns(writes: str, returns: str) -> None:
    def named(name: str) -> Any:
        packet, overload = name.split(".")
        return getattr(getattr(torch.ops.aten, packet), overload)

    assert returning(named(writes)) is named(returns)


@pytest.mark.parametrize("name", ["add.out", "relu.default", "normal_.default", "__iand__.Tensor"])
def test_what_has_no_such_operator(name: str) -> None:
    packet, overload = name.split(".")
    assert returning(getattr(getattr(torch.ops.aten, packet), overload)) is None
