from __future__ import annotations

import copy
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.interface.torch.compare import as_array
from torch import nn

import tracea
from tracea.core import reference
from tracea.errors import InvalidDevice, InvalidDType, InvalidInput, InvalidOption, InvalidShape, TraceaWarning
from tracea.interface.torch import module as module_module
from tracea.interface.torch.capture import capture
from tracea.interface.torch.module import Compiled, OptimizedModule


def compiled(module: nn.Module, inputs: Any, **options: Any) -> Compiled:
    """A program that is the float64 reference of the captured graph."""
    captured = capture(module, inputs, **options)

    def run(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        for tensor, wanted in zip(tensors, captured.input_spec.types, strict=True):
            assert wanted.layout is None or tensor.stride() == wanted.strides
            assert wanted.layout is not None or tensor.is_contiguous()
        bound = dict(zip(captured.input_spec.names, map(as_array, tensors), strict=True))
        bound |= {name: as_array(tensor) for name, tensor in captured.constants.items()}
        results = reference.run(captured.graph, bound, rounded=True)
        return [torch.from_numpy(np.array(value)).float() for value in results.values()]

    return Compiled(
        run=run,
        input_spec=captured.input_spec,
        output_spec=captured.output_spec,
        report=SimpleNamespace(plan={"linear": "packed"}, explain=lambda: "because"),
    )


@pytest.fixture(scope="module")
def linear() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(4, 3).eval()


@pytest.fixture
def fast(linear: nn.Module) -> OptimizedModule:
    return OptimizedModule(compiled(linear, torch.randn(5, 4)))


def test_a_call_gives_what_the_module_gives(linear: nn.Module, fast: OptimizedModule) -> None:
    x = torch.randn(5, 4)
    torch.testing.assert_close(fast(x), linear(x).detach())
    assert not fast(x).requires_grad


def test_other_strides_are_copied(linear: nn.Module, fast: OptimizedModule) -> None:
    x = torch.randn(4, 5).t()
    torch.testing.assert_close(fast(x), linear(x).detach())
    strided = OptimizedModule(compiled(linear, x))
    torch.testing.assert_close(strided(x.contiguous()), linear(x).detach())
    torch.testing.assert_close(strided(x), linear(x).detach())


class Nested(nn.Module):
    def forward(self, x, parts, scale=2):
        return {"sum": x + parts["a"][0], "scaled": (x * scale,)}


def test_nested_calls_and_keywords(linear: nn.Module) -> None:
    module = Nested()
    x, a = torch.randn(2, 3), torch.randn(3)
    fast = OptimizedModule(compiled(module, (x, {"a": [a]})))
    torch.testing.assert_close(fast(x, {"a": [a]}), module(x, {"a": [a]}))
    with pytest.raises(InvalidInput, match="nesting"):
        fast(x, {"a": (a,)})
    with pytest.raises(InvalidInput, match="nesting"):
        fast(x, {"a": [a]}, scale=2)


def nested(layout: torch.layout) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them a prototype
        return torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=layout)


@pytest.mark.parametrize(
    ("bad", "error", "said"),
    [
        (torch.randn(6, 4), InvalidShape, r"got \(6, 4\), expected \(5, 4\)"),
        (torch.randn(4), InvalidShape, r"got \(4,\), expected \(5, 4\)"),
        (torch.randn(5, 4, dtype=torch.float64), InvalidDType, "got torch.float64, expected f32"),
        (torch.randn(5, 4, device="meta"), InvalidDevice, "got meta, expected cpu"),
        (torch.randn(5, 4).to_sparse(), InvalidInput, "to_dense"),
        (nested(torch.jagged), InvalidInput, "got a nested tensor.*to_padded_tensor"),
        (nested(torch.strided), InvalidInput, "got a nested tensor.*to_padded_tensor"),
        (np.zeros((5, 4), np.float32), InvalidInput, "ndarray"),
        (None, InvalidInput, "nesting|NoneType"),
    ],
)
def test_other_inputs_are_refused_with_numbers(fast: OptimizedModule, bad: Any, error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        fast(bad)


def test_too_many_inputs_are_refused(fast: OptimizedModule) -> None:
    with pytest.raises(InvalidInput, match="nesting"):
        fast(torch.randn(5, 4), torch.randn(5, 4))


def test_gradients_are_refused_and_inference_modes_are_not(linear: nn.Module, fast: OptimizedModule) -> None:
    x = torch.randn(5, 4, requires_grad=True)
    for other in (x, x.detach().t().contiguous().t().requires_grad_()):
        with pytest.raises(InvalidInput, match=r"inference only in this version.*torch\.no_grad"):
            fast(other)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), linear(x))
    with torch.inference_mode():
        torch.testing.assert_close(fast(x), linear(x))


def test_another_shape_is_compiled_once(linear: nn.Module) -> None:
    asked: list[tuple[int, ...]] = []

    def again(inputs: tuple[Any, ...]) -> Compiled:
        asked.append(tuple(inputs[0].shape))
        return compiled(linear, inputs)

    fast = OptimizedModule(compiled(linear, torch.randn(5, 4)), recompile=again)
    for rows in (5, 6, 7, 6, 5):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(fast(x), linear(x).detach())
    assert asked == [(6, 4), (7, 4)]


class Scaled(nn.Module):
    def forward(self, x, factor):
        return x * factor


def test_a_number_is_told_from_another_by_its_bits() -> None:
    asked: list[Any] = []

    def again(inputs: tuple[Any, ...]) -> Compiled:
        asked.append(inputs[1])
        return compiled(Scaled(), inputs)

    x = torch.ones(3)
    fast = OptimizedModule(compiled(Scaled(), (x, 1.0)), recompile=again)
    for factor in (0.0, -0.0, float("nan"), 1, 0.0, -0.0, float("nan"), True, float("inf"), 1.0):
        found, wanted = fast(x, factor), x * factor
        torch.testing.assert_close(found, wanted, equal_nan=True)
        assert found.signbit().equal(wanted.signbit())
    assert list(map(repr, asked)) == ["0.0", "-0.0", "nan", "1", "True", "inf"]


def test_a_program_that_does_not_take_what_it_was_made_for_is_not_kept(linear: nn.Module) -> None:
    asked: list[Any] = []

    def again(inputs: tuple[Any, ...]) -> Compiled:
        asked.append(inputs)
        return compiled(linear, torch.randn(7, 4))

    fast = OptimizedModule(compiled(linear, torch.randn(5, 4)), recompile=again)
    with pytest.raises(InvalidShape, match=r"got \(6, 4\), expected \(5, 4\)"):
        fast(torch.randn(6, 4))
    assert len(asked) == 1
    assert not fast._others


def test_of_ever_other_shapes_sixteen_programs_are_kept_and_the_longest_unused_makes_room(linear: nn.Module) -> None:
    asked: list[int] = []

    def again(inputs: tuple[Any, ...]) -> Compiled:
        asked.append(len(inputs[0]))
        return compiled(linear, inputs)

    fast = OptimizedModule(compiled(linear, torch.randn(50, 4)), recompile=again)
    for rows in range(1, 16):
        fast(torch.randn(rows, 4))
    fast(torch.randn(1, 4))  # used again: now the program of 2 rows has rested longest
    with pytest.warns(TraceaWarning, match="17 shapes or types of inputs have come, and 16 programs are kept"):
        fast(torch.randn(16, 4))
    assert len(fast._others) == 15
    x = torch.randn(17, 4)
    torch.testing.assert_close(fast(x), linear(x).detach())  # a second warning would be an error here
    assert len(fast._others) == 15
    assert asked == list(range(1, 18))
    for rows in (50, 1, *range(4, 18)):  # the first program stays, whatever was used since
        fast(torch.randn(rows, 4))
    assert asked == list(range(1, 18))
    copied = copy.copy(fast)
    copied(torch.randn(17, 4))
    for rows in (2, 3):
        fast(torch.randn(rows, 4))
    assert asked == [*range(1, 18), 2, 3]


def test_a_dynamic_axis_takes_any_extent_within_its_bounds(linear: nn.Module) -> None:
    rows = torch.export.Dim("rows", min=2, max=8)
    fast = OptimizedModule(compiled(linear, torch.randn(5, 4), dynamic=({0: rows},)))
    for extent in (2, 5, 8):
        x = torch.randn(extent, 4)
        torch.testing.assert_close(fast(x), linear(x).detach())
    with pytest.raises(InvalidShape, match="got 9, expected 2 <= input_dim0 <= 8"):
        fast(torch.randn(9, 4))


def test_the_report_is_handed_on(fast: OptimizedModule) -> None:
    assert fast.plan == {"linear": "packed"}
    assert fast.explain() == "because"


def test_training_and_conversions_are_refused(fast: OptimizedModule) -> None:
    assert fast.eval() is fast
    assert not fast.training
    for change in (fast.train, fast.half, lambda: fast.to("cpu")):
        with pytest.raises(InvalidOption):
            change()


def test_calls_of_other_arguments_name_those_that_were_captured() -> None:
    x, a = torch.randn(2, 3), torch.randn(3)
    fast = OptimizedModule(compiled(Nested(), (x, {"a": [a]}, 3)))
    expected = r"expected 3 positional arguments: \(x, {…}, 3\)\. Remedy: call with the arguments in the places"
    for args, kwargs, got in (
        ((x,), {}, "1 positional argument"),
        ((), {}, "0 positional arguments"),
        ((x, {"a": [a]}), {"scale": 3}, "2 positional arguments and scale="),
        ((x, x, x, x), {}, "4 positional arguments"),
    ):
        with pytest.raises(InvalidInput, match=f"arguments: got {got}, {expected}"):
            fast(*args, **kwargs)


def test_another_type_is_said_before_another_shape(linear: nn.Module) -> None:
    fast = OptimizedModule(compiled(linear, torch.randn(5, 4)), recompile=lambda inputs: compiled(linear, inputs))
    said = r"input: got torch\.float64, expected f32 as compiled; .*Double and Float\. Remedy: convert it with \.to\("
    with pytest.raises(InvalidDType, match=said):
        fast(torch.randn(6, 4, dtype=torch.float64))


def test_a_shape_that_the_module_refuses_is_not_to_be_compiled(linear: nn.Module) -> None:
    fast = OptimizedModule(compiled(linear, torch.randn(5, 4)), recompile=lambda inputs: compiled(linear, inputs))
    with pytest.raises(InvalidShape, match=r"\(5, 4\) as compiled; .*mat1 and mat2 shapes.* Remedy: give what was"):
        fast(torch.randn(5, 3))


def test_a_refusal_says_each_thing_once() -> None:
    fast = tracea.optimize(nn.Sequential(nn.Linear(8, 4)), (torch.zeros(3, 8),), budget=None, threads=1)
    with pytest.raises(InvalidDType) as caught:
        fast(torch.zeros(3, 8, dtype=torch.float64))
    for part in ("f32 as compiled", "mat1 and mat2", "Sequential", "inputs that", "torch.float32"):
        assert str(caught.value).count(part) <= 1, part
    with pytest.raises(InvalidDevice) as caught:
        fast(torch.zeros(3, 8, device="meta"))
    assert str(caught.value).count("got meta, expected cpu") == 1


def test_what_was_optimized_is_not_optimized_again(fast: OptimizedModule) -> None:
    for module, field in ((fast, "module"), (nn.Sequential(nn.ReLU(), fast), r"module\.1")):
        said = f"{field}: got an optimized module, expected the module that it was made from"
        with pytest.raises(InvalidInput, match=said):
            tracea.optimize(module, (torch.randn(5, 4),), budget=None)


class ByStride(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * float(x.stride(0))


@pytest.mark.parametrize(
    ("example", "given"),
    [
        (torch.ones(1, 4), torch.ones(1, 8)[:, :4]),
        (torch.ones(4, 1), torch.ones(4).as_strided((4, 1), (1, 4))),
        (torch.ones(0, 4), torch.ones(0, 8)[:, :4]),
        (torch.ones(3, 4), torch.ones(4, 3).t()),
    ],
)
def test_strides_that_a_module_asks_for_are_those_of_axes_of_one_element_too(
    example: torch.Tensor, given: torch.Tensor
) -> None:
    module = ByStride()
    fast = tracea.optimize(module, (example,), budget=None)
    for x in (given, example, given):
        torch.testing.assert_close(fast(x), module(x))


def test_nested_tensors_are_refused_by_name(fast: OptimizedModule) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them a prototype
        nested = torch.nested.nested_tensor([torch.ones(4), torch.ones(3)])
    with pytest.raises(InvalidInput, match="got a nested tensor"):
        fast(nested)


def test_a_kept_program_is_found_by_its_shapes_without_asking_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [torch.randn(rows, 8) for rows in range(1, 18)]
    fast = tracea.optimize(nn.ReLU(), (inputs[0],), budget=None, threads=1, listener=lambda *_: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceaWarning)  # of 17 shapes 16 are kept
        for x in inputs:
            fast(x)
    known = inputs[:1] + inputs[2:]
    with monkeypatch.context() as patch:
        patch.setattr(module_module, "_checked", lambda *_: pytest.fail("a program was asked"))
        for x in known:
            assert torch.equal(fast(x), x.relu())
            assert torch.equal(copy.copy(fast)(x), x.relu())
    assert torch.equal(fast(inputs[3].t().contiguous().t()), inputs[3].relu())  # in other strides
    assert torch.equal(fast(inputs[1]), inputs[1].relu())  # compiled again, in place of the one that rested longest
    with pytest.raises(InvalidDType):
        fast(inputs[3].double().half().to(torch.complex64))
