"""What a call or a constant part of forward gets wrong is told in the words of the call, not of torch's insides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tracea
from tracea.core.op import AdaptivePool2dOp, PointwiseOp
from tracea.errors import InvalidDType, InvalidInput, InvalidShape, UnsupportedNode
from tracea.flow.assemble import compute_nodes
from tracea.interface.torch.capture import capture

F = nn.functional


class Line(nn.Module):
    def __init__(self, line: Callable[..., Any]) -> None:
        super().__init__()
        self.line = line
        self.table = nn.Embedding(8, 4)

    def forward(self, *inputs: Any) -> Any:
        return self.line(self, *inputs)


def optimized(line: Callable[..., Any], *inputs: Any) -> Any:
    return tracea.optimize(Line(line).eval(), inputs, budget=None, threads=1)


def positions(self: Line, x: torch.Tensor) -> torch.Tensor:
    return x + self.table(torch.arange(x.shape[1]))


def test_a_constant_part_that_raises_is_the_refusal_of_the_inputs() -> None:
    with pytest.raises(InvalidInput, match=r"\(2, 9, 4\) of torch.float32, with which Line raises IndexError"):
        optimized(positions, torch.randn(2, 9, 4))
    fast = optimized(positions, torch.randn(2, 8, 4))
    with pytest.raises(InvalidShape, match=r"no program can be made for these: \(2, 9, 4\).*raises IndexError"):
        fast(torch.randn(2, 9, 4))


def test_a_second_result_that_is_not_kept_is_named() -> None:
    with pytest.raises(UnsupportedNode, match=r"result 1 of aten\.adaptive_max_pool2d.*use its first result only"):
        optimized(lambda self, x: F.adaptive_max_pool2d(x, 2, return_indices=True), torch.randn(1, 3, 4, 4))


def test_a_call_of_another_element_type_or_nesting_says_where_and_what() -> None:
    def line(self: Line, d: dict[str, Any]) -> torch.Tensor:
        (first,) = d["a"]
        return F.linear(first, self.table.weight) + d["b"]

    fast = optimized(line, {"a": (torch.ones(4),), "b": 1.0})
    for given, place, said in (
        ({"a": (torch.ones(4, dtype=torch.float64),), "b": 1.0}, "", "got torch.float64, expected f32"),
        ({"a": torch.ones(4), "b": 1.0}, r"inputs\[0\]\['a'\]", "got a tensor, expected a tuple of 1"),
        ({"a": (torch.ones(4),), "c": 1.0}, r"inputs\[0\]", "got a dict of 'a', 'c', expected a dict of 'a', 'b'"),
    ):
        with pytest.raises((InvalidInput, InvalidDType), match=f"{place}.*{said}"):
            fast(given)


class Silent(Exception):
    def __str__(self) -> str:
        raise ValueError("cannot say")


def test_an_exception_that_cannot_say_what_it_is_is_named() -> None:
    def line(self: Line, x: torch.Tensor) -> torch.Tensor:
        raise Silent

    with pytest.raises(InvalidInput, match="raises Silent"):
        optimized(line, torch.randn(3))


def test_example_inputs_that_share_memory_are_named_where_a_write_cannot_be_followed() -> None:
    def line(self: Line, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    x = torch.randn(4)
    with pytest.raises(UnsupportedNode, match="Example inputs 0 and 1 share memory"):
        capture(Line(line), (x, x))


@pytest.mark.parametrize("pooled", [F.adaptive_avg_pool2d, F.adaptive_max_pool2d])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_grids_of_windows_are_pooled_by_one_kernel(pooled: Any, dtype: torch.dtype) -> None:
    x = torch.randn(2, 4, 9, 11).to(dtype)
    captured = capture(Line(lambda self, x: pooled(x, (20, 23))), (x,))
    ops = [type(node.op) for node in compute_nodes(captured.graph)]
    assert ops == [AdaptivePool2dOp, PointwiseOp]  # the copy puts the result in torch's order
    found = optimized(lambda self, x: pooled(x, (20, 23)), x)(x)
    torch.testing.assert_close(found, pooled(x, (20, 23)))


def test_the_remedy_says_what_to_write_instead() -> None:
    indices = torch.tensor([1, 2])
    with pytest.raises(UnsupportedNode, match="call it outside of the optimized module"):
        optimized(
            lambda _, x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1), align_corners=True), torch.randn(1, 3, 4, 4)
        )
    with pytest.raises(UnsupportedNode, match=r"sum nn\.Embedding's rows yourself"):
        optimized(lambda self, x: F.embedding_bag(x, self.table.weight, torch.tensor([0, 0])), indices)


def test_what_the_module_refuses_whatever_the_inputs_is_told_with_its_line_and_a_way_out() -> None:
    def line(self: Line, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, torch.ones(4, 3, 3, 3), stride=2, padding="same")

    x = torch.randn(1, 3, 8, 8)
    with pytest.raises(InvalidInput, match=r"strided convolutions at .*test_refused_calls\.py:\d+ in line") as caught:
        capture(Line(line), (x,))
    assert "padding=1 of a 3x3 kernel" in caught.value.remedy
    capture(Line(lambda _, x: F.conv2d(x, torch.ones(4, 3, 3, 3), stride=2, padding=1)), (x,))
    with pytest.raises(InvalidInput, match=r"where none work, mend that line"):
        capture(Line(lambda _, x: x.view(5, 7)), (x,))


def test_an_extent_that_values_decide_is_told_as_that() -> None:
    with pytest.raises(UnsupportedNode, match=r"an extent that values decide.*keep the shape, torch\.where"):
        optimized(lambda _, x: x[x > 0], torch.randn(3, 4))


@pytest.mark.parametrize("less", [lambda y: y - 1, lambda y: y.reshape(4, 3).relu().reshape(3, 4)])
def test_a_branch_of_torch_is_no_fault_of_the_inputs(less: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def branch(_: Line, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y + 1, less, (x,))

    with pytest.raises(UnsupportedNode, match="cond"):
        optimized(branch, torch.randn(3, 4))


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return x * scale


def test_a_parameter_that_has_only_a_name_is_told_to_keep_its_default() -> None:
    fast = tracea.optimize(Scaled(), (torch.ones(3, 4),), budget=None, threads=1)
    with pytest.raises(InvalidInput, match="parameters that have only a name keep their defaults"):
        fast(torch.ones(3, 4), scale=2.0)


def test_what_torch_says_of_a_gradient_of_a_result_is_in_the_documentation() -> None:
    fast = tracea.optimize(nn.Linear(4, 2), (torch.ones(3, 4),), budget=None, threads=1)
    result = fast(torch.ones(3, 4))  # the weights ask for a gradient, and this is no inference mode
    assert not result.requires_grad
    with pytest.raises(RuntimeError) as caught:
        result.sum().backward()
    pages = Path(__file__).parents[3] / "docs"
    assert str(caught.value).rstrip(".") in (pages / "torch.md").read_text(encoding="utf-8")
    with pytest.raises(InvalidInput, match="got requires_grad=True, expected inference"):
        fast(torch.ones(3, 4, requires_grad=True))


@pytest.mark.whole
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.float32(2.0), r"a numpy\.float32 among the {0}.*{1} a number of Python, float\(x\) or int\(x\)$"),
        (np.arange(3), r"a numpy\.ndarray among the {0}.*{1} a tensor, torch\.from_numpy\(x\)$"),
        (2j, r"a complex among the {0}.*{1} a tensor, torch\.tensor\(x\)$"),
        (torch.float16, r"a torch\.dtype among the {0}.*{1} tensors alone .* strings and None$"),
        (slice(2), r"a slice among the {0}.*{1} tensors alone .* strings and None$"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_of_no_kind_that_a_program_has_is_told_what_to_give(value: Any, said: str) -> None:
    with pytest.raises(UnsupportedNode, match=said.format("arguments", "give")):
        capture(Line(lambda self, x, given: x * 2.0), (torch.ones(3), value))
    with pytest.raises(UnsupportedNode, match=said.format("results", "return")):
        capture(Line(lambda self, x: (x * 2.0, value)), (torch.ones(3),))


@pytest.mark.whole
@pytest.mark.parametrize("name", ["inv", "cholesky", "solve"])
def test_an_operator_that_torch_takes_apart_behind_a_check_is_the_one_problem(name: str) -> None:
    def line(self: Line, x: torch.Tensor) -> torch.Tensor:
        called = getattr(torch.linalg, name)
        return torch.addcmul(x, x, called(x, x) if name == "solve" else called(x))

    with pytest.raises(UnsupportedNode, match=rf"^aten\.linalg_{name}\.default: no op expresses it") as caught:
        capture(Line(line), (torch.eye(3),))
    assert not any(said in str(caught.value) for said in ("token", "with_effects", "addcmul"))


@pytest.mark.whole
@pytest.mark.parametrize("step", [1, 2])
def test_a_write_to_a_part_of_windows_is_named(step: int) -> None:
    def line(self: Line, x: torch.Tensor) -> torch.Tensor:
        windows = x.clone().unfold(1, 2, step)
        windows[..., 0].mul_(2)
        return windows

    with pytest.raises(UnsupportedNode, match=r"a write to a part of windows.*before it is unfolded"):
        capture(Line(line), (torch.randn(4, 6),))
