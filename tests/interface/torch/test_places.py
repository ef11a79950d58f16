"""Places in captured modules: of extremes, of the largest few, and elements, rows and sums that they lead to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.interface.torch.test_trace import Calls
from torch import nn

import tracea
from tracea.errors import InvalidIndex, UnsupportedNode
from tracea.interface.torch.capture import capture

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0)


def compiled(module: nn.Module, inputs: tuple[Any, ...]) -> nn.Module:
    return tracea.optimize(module, inputs, budget=None, threads=1, listener=lambda *_: None)


def check(call: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """Compare a program with torch: integers and what is only moved are equal to the last bit."""
    fast = compiled(Calls(call), inputs)
    with torch.inference_mode():
        wanted, found = call(*inputs), fast(*inputs)
    pairs = zip(wanted, found, strict=True) if isinstance(wanted, tuple) else [(wanted, found)]
    for one, other in pairs:
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert torch.equal(one.nan_to_num(nan=1e4), other.nan_to_num(nan=1e4))


def with_special(rng: np.random.Generator, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Return small whole numbers, many of them equal, with values of their own here and there."""
    x = torch.from_numpy(rng.integers(-3, 4, shape)).to(dtype)
    for value in SPECIAL if dtype.is_floating_point else ():
        x[torch.from_numpy(rng.random(shape) < 0.06)] = value
    return x


def extremes(axis: int) -> Callable[..., Any]:
    def call(x: torch.Tensor) -> Any:
        kept = (*x.max(axis, keepdim=True), x.argmin(axis, keepdim=True))
        return (x.argmax(), x.argmin(axis), *x.min(axis), *kept)

    return call


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.uint8], ids=str)
def test_extremes_of_any_axis_are_at_the_places_of_torch(rng, dtype: torch.dtype) -> None:
    x = with_special(rng, dtype, *(int(size) for size in rng.integers(1, 20, 3)))
    check(extremes(int(rng.integers(-3, 3))), x)


@pytest.mark.slow
@pytest.mark.parametrize("axis", [1, -1])
def test_extremes_of_images_channels_last_and_of_rows_with_gaps(rng, axis: int) -> None:
    x = with_special(rng, torch.float32, 2, 5, 7, 6)
    check(extremes(axis), x.contiguous(memory_format=torch.channels_last))
    check(extremes(axis), x[:, :, ::2, 1:])

    class Classes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(5, 4, 1, bias=False)
            self.conv.weight.data.copy_(torch.eye(4, 5)[:, :, None, None])

        def forward(self, x: torch.Tensor) -> Any:
            y = self.conv(x)
            return y.argmax(axis), *y.topk(2, axis)

    module, finite = Classes(), torch.from_numpy(rng.permutation(420).reshape(2, 5, 7, 6)).float()
    with torch.inference_mode():
        for one, other in zip(module(finite), compiled(module, (finite,))(finite), strict=True):
            assert torch.equal(one, other)


def test_an_extreme_of_no_axis_of_one_number_and_of_nothing() -> None:
    for line in (lambda x: x.argmax(), lambda x: x.max(0).indices, lambda x: x.topk(1).indices + x.argmin(-1)):
        check(line, torch.tensor(2.5))
    check(lambda x: (x.argmax(1), *x.min(1), *x.topk(2, 1)), torch.ones(0, 3))
    with pytest.raises(UnsupportedNode, match=r"the 0 largest of an axis.*leave the line out"):
        capture(Calls(lambda x: x.topk(0)[1]), (torch.ones(3),))
    check(lambda x: (*x.sort(), x.argsort(descending=True)), torch.tensor(2.5))
    check(lambda x: (*x.sort(1), x.argsort(0), x.msort()), torch.ones(0, 3))
    with pytest.raises(UnsupportedNode, match=r"the extreme of a mask.*mask\.int"):
        capture(Calls(lambda x: (x > 0).sort().values), (torch.ones(200),))
    with pytest.raises(UnsupportedNode, match=r"the extreme of a mask.*mask\.int"):
        capture(Calls(lambda x: (x > 0).max(0)[1]), (torch.ones(200),))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int8], ids=str)
@pytest.mark.parametrize("largest", [True, False])
def test_the_k_largest_are_those_of_torch_and_of_equal_ones_the_first(rng, dtype: torch.dtype, largest: bool) -> None:
    columns, axis = int(rng.integers(2, 60)), int(rng.integers(3))
    shape = [int(size) for size in rng.integers(1, 9, 3)]
    shape[axis] = columns
    x, k = with_special(rng, dtype, *shape), int(rng.integers(1, columns + 1))
    fast = compiled(Calls(lambda x: tuple(x.topk(k, axis, largest, sorted=False))), (x,))
    values, places = fast(x)
    expected = x.sort(dim=axis, descending=largest, stable=True).indices.narrow(axis, 0, k)
    assert torch.equal(places, expected)
    assert torch.equal(values.nan_to_num(nan=9), x.gather(axis, expected).nan_to_num(nan=9))
    check(lambda x: x.topk(k, axis, largest)[0], x)  # the values of equal elements are the same


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.int8, torch.uint8], ids=str)
def test_an_axis_in_order_is_that_of_a_stable_sort(rng, dtype: torch.dtype) -> None:
    for columns in (int(rng.integers(1, 90)), int(rng.integers(260, 400))):
        axis, descending = int(rng.integers(3)), bool(rng.integers(2))
        shape = [int(size) for size in rng.integers(1, 6, 3)]
        shape[axis] = columns
        x, k = with_special(rng, dtype, *shape), int(rng.integers(1, columns + 1))

        def lines(x: torch.Tensor) -> Any:
            values, places = x.sort(dim=axis, descending=descending, stable=True)  # noqa: B023
            return values, places, *x.topk(k, axis, descending), x.argsort(dim=axis, descending=descending, stable=True)  # noqa: B023

        expected = x.sort(dim=axis, descending=descending, stable=True)
        values, places, first, at, again = compiled(Calls(lines), (x,))(x)
        assert torch.equal(places, expected.indices)
        assert torch.equal(again, places)
        assert torch.equal(at, places.narrow(axis, 0, k))
        for found, wanted in ((values, expected.values), (first, expected.values.narrow(axis, 0, k))):
            assert found.dtype is dtype
            assert torch.allclose(found, wanted, 0, 0, equal_nan=True)


def test_places_in_order_name_rows_without_a_check(rng) -> None:
    x = torch.from_numpy(rng.standard_normal((40, 3)))
    captured = capture(Calls(lambda x: x[x[:, 0].argsort()]), (x,))
    assert not captured.ranges
    check(lambda x: x[x[:, 0].argsort()], x)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.bool], ids=str)
def test_elements_that_indices_name_are_those_of_torch(rng, dtype: torch.dtype) -> None:
    sizes = [int(size) for size in rng.integers(2, 9, 3)]
    x = torch.from_numpy(rng.integers(-9, 9, sizes)).to(dtype)
    for axis in range(-3, 3):
        shape = [int(rng.integers(1, size + 1)) for size in sizes]
        shape[axis] = int(rng.integers(1, 12))
        index = torch.from_numpy(rng.integers(0, sizes[axis], shape))
        check(lambda x, at, axis=axis: x.gather(axis, at), x, index)
    other = x.permute(2, 0, 1)[:, :, 1:]
    index = torch.from_numpy(rng.integers(0, other.shape[1], (other.shape[0], 3, other.shape[2])))
    check(lambda x, at: (x.gather(1, at), torch.take_along_dim(x, at[:1], 1)), other, index.mT.contiguous().mT)


@pytest.mark.slow
def test_elements_that_there_are_not_are_refused_whether_named_by_an_input_or_computed() -> None:
    x, index = torch.arange(12.0).reshape(3, 4), torch.tensor([[0, 3], [1, 1], [2, 0]])
    fast = compiled(Calls(lambda x, at: x.gather(1, at)), (x, index))
    computed = compiled(Calls(lambda x, at: x.gather(1, at + 1)), (x, index - 1))
    for wrong in (4, -1, 2**40):
        index[1, 1] = wrong
        with pytest.raises(InvalidIndex, match=f"got {wrong}, expected 0 to 3, of 4"):
            fast(x, index)
    index[1, 1] = 4
    with pytest.raises(InvalidIndex, match="got 4, expected 0 to 3, of 4"):
        computed(x, index - 1)
    both = compiled(Calls(lambda x, i, j: x[i, j]), (x, torch.tensor([0, 2]), torch.tensor([[1], [3]])))
    assert both(x, torch.tensor([0, 2]), torch.tensor([[1], [3]])).tolist() == [[1.0, 9.0], [3.0, 11.0]]
    for rows, columns in ((3, 0), (0, 4), (-1, 1)):  # though the element between them is in the tensor
        with pytest.raises(InvalidIndex):
            both(x, torch.tensor([rows, 0]), torch.tensor([[columns], [0]]))


class Chosen(nn.Module):
    """A table read at places that forward finds, and arithmetic on these."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> Any:
        place = x.argmax(-1)
        _, first = x.topk(3, -1)
        rows = self.table(place), self.table(first), x[torch.arange(x.shape[0]), place], x.gather(1, first)
        return *rows, place + 1, first * 2 - place[:, None], first == place[:, None], self.table(place.clamp(0, 3) + 5)


def test_places_that_are_found_are_no_rows_to_check_and_may_be_computed_with() -> None:
    x = torch.randn(6, 9, dtype=torch.float64)
    captured = capture(Chosen(), (x,))
    assert captured.ranges == ()
    assert not captured.input_spec.small
    module = Chosen()
    for one, other in zip(module(x), compiled(module, (x,))(x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    x[:, -1] = -math.inf
    wide = capture(Calls(lambda x, y: y[x.argmax(-1)]), (x, torch.randn(8, 2)))
    assert [(item.rows, item.first) for item in wide.ranges] == [(8, 1)]  # of nine places the last one is no row


def test_results_that_nothing_reads_are_not_computed() -> None:
    x = torch.randn(4, 6)
    captured = capture(Calls(lambda x: x.max(1).values + x.min(1)[0]), (x,))
    assert not captured.constants
    values = capture(Calls(lambda x: x.topk(2)[1]), (x,))
    assert [node.op.name for node in values.graph if node.op.name == "gather_rows"] == []


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.bool], ids=str)
def test_writes_by_place_are_those_of_torch_and_of_equal_places_the_last_counts(rng, dtype: torch.dtype) -> None:
    for count in (1, 2, 7, 16):
        sizes = [int(size) for size in rng.integers(1, 9, 3)]
        axis = int(rng.integers(-3, 3))
        sizes[axis] = int(rng.integers(count, 40))
        x, source = with_special(rng, dtype, *sizes), with_special(rng, dtype, *sizes)
        shape = list(sizes)
        shape[axis] = count
        index = torch.from_numpy(rng.permuted(np.broadcast_to(np.arange(sizes[axis]), (*sizes, sizes[axis])), axis=-1))
        index = index.movedim(-1, axis - 1 if axis < 0 else axis).narrow(axis - 1 if axis < 0 else axis, 0, count)
        index = index.select(axis if axis < 0 else axis + 1, 0)
        assert list(index.shape) == shape
        check(lambda x, at, y, axis=axis: (x.scatter(axis, at, y), x.scatter(axis, at, 1)), x, index, source)
    x, index = torch.zeros(2, 5), torch.tensor([[3, 3, 0], [4, 4, 4]])
    found = compiled(Calls(lambda x, at, y: x.scatter(1, at, y)), (x, index, torch.ones(2, 3)))(
        x, index, torch.arange(1.0, 7.0).reshape(2, 3)
    )
    assert found.tolist() == [[3.0, 0.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0, 6.0]]
    with pytest.raises(InvalidIndex, match="got 5, expected 0 to 4, of 5"):
        compiled(Calls(lambda x, at: x.scatter(1, at, 2.0)), (x, index))(x, index + 1)


@pytest.mark.slow
def test_a_gate_of_experts_is_written_where_the_largest_are(rng) -> None:
    class Gate(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            probabilities = x.softmax(-1)
            weights, experts = probabilities.topk(2, -1)
            weights = weights / weights.sum(-1, keepdim=True)
            mask = nn.functional.one_hot(experts, x.shape[-1])
            return torch.zeros_like(x).scatter(-1, experts, weights), mask, mask.to(x.dtype) * x[..., None, :]

    x = torch.from_numpy(rng.permutation(35 * 7).reshape(5, 7, 7)).float() * 0.1
    assert capture(Gate(), (x,)).ranges == ()
    for one, other in zip(Gate()(x), compiled(Gate(), (x,))(x), strict=True):
        assert one.dtype is other.dtype
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_one_hot_of_a_number_of_classes_checks_its_places() -> None:
    fast = compiled(Calls(lambda at: nn.functional.one_hot(at, 4)), (torch.tensor([0, 3]),))
    assert fast(torch.tensor([2, 1])).tolist() == [[0, 0, 1, 0], [0, 1, 0, 0]]
    for wrong in (-1, 4):
        with pytest.raises(InvalidIndex, match=f"got {wrong}, expected 0 to 3, of 4"):
            fast(torch.tensor([0, wrong]))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            lambda x, at: x.scatter(1, at.repeat(1, 9), 1.0),
            r"a write at 18 places of each line of 6 .* up to 16 of so few",
        ),
        (
            lambda x, at: x.repeat(1, 200).scatter(1, at, 1.0),
            r"a write at 2 places of each line of 1200 .* at most 2048",
        ),
        (lambda x, at: x.scatter(1, at[:2], 1.0), r"a write at places i64\[2×2\] in a part of .*index\.expand"),
        (lambda x, at: x.scatter(1, at, 1.0, reduce="add"), "no op expresses it"),
    ],
    ids=["many", "wide", "part", "sum"],
)
def test_writes_by_place_that_are_refused_say_what_to_do(line: Callable[..., Any], said: str) -> None:
    with pytest.raises(UnsupportedNode, match=said):
        capture(Calls(line), (torch.ones(3, 6), torch.tensor([[0, 1]] * 3)))
