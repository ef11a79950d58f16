"""A number beside a tensor is read as eager reads it: as the tensor's type where eager compares, adds or moves it."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from tests.interface.torch.compare import bindings_of, check_capture, results_of
from tests.interface.torch.modules import inputs_of

from tracea.core.op import PointwiseOp
from tracea.core.passes.pipeline import run_pipeline
from tracea.interface.torch.capture import capture

COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
NUMBERS = (0.1, 0.3, 65504, 65519.0, 123456.1, 3e38, 1e39, 1e-50, -0.7)
NARROW = (torch.bfloat16, torch.float16)
OTHERS = (torch.float64, torch.float32, torch.bfloat16, torch.int32)


class Several(torch.nn.Module):
    def __init__(self, functions: list[Callable[..., torch.Tensor]]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        return [function(self, *inputs) for function in self.functions]


def check(functions: list[Callable[..., torch.Tensor]], *inputs: torch.Tensor) -> None:
    module = Several(functions).eval()
    check_capture(capture(module, inputs), module, inputs, tolerance=0.0)


@pytest.mark.parametrize("dtype", [*NARROW, torch.float32, torch.float64, torch.int32, torch.uint8, torch.bool])
def test_a_number_is_compared_in_the_type_that_eager_compares_in(dtype: torch.dtype) -> None:
    x = torch.tensor([0.1, 0.3, 1.0, 44.0, -0.7, 65504.0, torch.inf, torch.nan]).nan_to_num(3.0, 254.0, 0.0)
    x = torch.cat([x, torch.tensor([0.1, torch.inf, torch.nan])]).to(dtype) if dtype.is_floating_point else x.to(dtype)
    numbers = (*NUMBERS, 300, 16777217.0, True) if not dtype.is_floating_point else NUMBERS
    check([lambda _, x, c=compare, n=number: c(x, n) for compare in COMPARISONS for number in numbers], x)


@pytest.mark.parametrize("dtype", [*NARROW, torch.float32, torch.int32])
@pytest.mark.parametrize("other", OTHERS)
def test_tensors_are_compared_in_the_type_that_eager_compares_in(dtype: torch.dtype, other: torch.dtype) -> None:
    x = torch.tensor([0.1, 1.0, 44.0, 16777216.0, 16777217.0, 100000.0], dtype=torch.float64).to(dtype)
    value = 0.1 if other.is_floating_point else 16777217
    single = torch.tensor(value, dtype=other)
    functions = [
        function
        for compare in COMPARISONS
        for function in (
            lambda _, x, y, row, c=compare: c(x, y),
            lambda _, x, y, row, c=compare: c(y, x),
            lambda _, x, y, row, c=compare: c(x, row),
            lambda _, x, y, row, c=compare: c(x, single),
            lambda _, x, y, row, c=compare: c(y, single),
        )
    ]
    check(functions, x, single.clone(), single.expand(6).clone())


@pytest.mark.parametrize("dtype", NARROW)
def test_numbers_that_are_chosen_or_moved_have_the_type_that_eager_gives_them(dtype: torch.dtype) -> None:
    x = torch.tensor([0.1, 0.3, 1.0, -0.7], dtype=dtype)
    tenth = torch.tensor(0.1)
    moved = [
        lambda _, x: torch.where(x > 5.0, x, 0.1),
        lambda _, x: torch.where(x > 5.0, tenth, x),
        lambda _, x: x.masked_fill(x < 5.0, 0.1),
        lambda _, x: torch.full_like(x, 0.1),
        lambda _, x: x.clamp(0.1, 0.3),
        lambda _, x: x.clamp_max(0.1),
        lambda _, x: torch.nn.functional.hardtanh(x, -0.1, 0.1),
        lambda _, x: torch.maximum(x, tenth),
        lambda _, x: torch.minimum(tenth, x),
    ]
    # What reads them without a rounding between, as a fused kernel does.
    check([lambda m, x, f=f: f(m, x) == 0.1 for f in moved], x)
    check([lambda m, x, f=f: f(m, x).double() for f in moved], x)


@pytest.mark.parametrize("dtype", NARROW)
def test_numbers_are_rounded_before_sums_and_powers_and_not_before_products(dtype: torch.dtype) -> None:
    x = torch.tensor([0.1, 0.3, 1.0, -0.7], dtype=dtype)
    tenth = torch.tensor(0.1)
    sums = [
        lambda _, x: x - 0.1,
        lambda _, x: x + -0.1,
        lambda _, x: 0.1 - x,
        lambda _, x: x - tenth,
        lambda _, x: torch.add(x, x, alpha=-0.1),
        lambda _, x: x * 0.1,
        lambda _, x: x / 0.1,
        lambda _, x: x.abs() ** 0.1,
        lambda _, x: 0.1**x,
    ]
    assert sums[0](None, x)[0] == 0.0  # a bfloat16 0.1 less 0.1: eager rounds the number
    module = Several(sums).eval()
    captured = capture(module, (x,))
    for got, wanted in zip(results_of(captured, captured.graph, bindings_of(captured, (x,))), module(x), strict=True):
        assert torch.equal(got.to(dtype), wanted)


def test_the_threshold_of_softplus_is_of_float32() -> None:
    check([lambda _, x: torch.nn.functional.softplus(x, threshold=0.1) < 0.5], torch.tensor([0.1, 0.2, 0.0]))


def test_a_number_has_an_axis_to_turn_or_to_move() -> None:
    check([lambda _, x: x.amax().flip(0), lambda _, x: x.amax().movedim(0, -1) * 2], torch.randn(3, 4))


# Of x, and of y = x * 1.103 as it is stored: what jumps where a rounding to 16 bits lies.
JUMPS: dict[str, Callable[..., torch.Tensor]] = {
    "==": lambda _, x, y: (x * 1.103) == y,
    ">=": lambda _, x, y: torch.where((x * 1.103) >= y, 1.0, 0.0),
    "of f64": lambda _, x, y: (x * 1.103) == y.double(),
    "of another type": lambda _, x, y: (x * 1.103) == y.float(),
    "of a number": lambda _, x, y: (x * 70000.0) == float("inf"),
    "isfinite": lambda _, x, y: (x * 70000.0).isfinite(),
    "logical_not": lambda _, x, y: torch.logical_not(x * 1e-9),
    "count_nonzero": lambda _, x, y: (x * 1e-9).count_nonzero(-1),
    "norm of order 0": lambda _, x, y: torch.linalg.vector_norm(x * 1e-9, 0),
    "any": lambda _, x, y: (x * 1e-9).any(-1),
    "sign": lambda _, x, y: (x * 1e-9).sign(),
    "nan_to_num": lambda _, x, y: torch.nan_to_num(x * 70000.0),
    "nan_to_num of a product": lambda _, x, y: torch.nan_to_num((x * 256.0) @ (y * 256.0).t(), 0.0, 1.0, -1.0),
}


@pytest.mark.parametrize("dtype", [*NARROW, torch.float64])
@pytest.mark.parametrize("name", JUMPS)
def test_what_jumps_reads_a_value_as_eager_stores_it(name: str, dtype: torch.dtype) -> None:
    x = inputs_of((4, 16))[0].to(dtype)
    check([JUMPS[name]], x, x * 1.103)


@pytest.mark.parametrize("dtype", [*NARROW, torch.float32])
def test_a_comparison_is_in_the_kernel_of_what_it_compares(dtype: torch.dtype) -> None:
    module = Several([lambda _, x, y: torch.where((x * 1.1 - 0.3) > y, x.sign(), 0.0).nan_to_num()]).eval()
    inputs = (torch.randn(4, 16, dtype=dtype), torch.randn(4, 16, dtype=dtype))
    captured = capture(module, inputs)
    graph = run_pipeline(captured.graph, bindings_of(captured, inputs)).graph
    assert sum(isinstance(node.op, PointwiseOp) for node in graph.nodes) == 1
