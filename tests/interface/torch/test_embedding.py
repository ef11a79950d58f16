"""Embeddings of captured modules: the rows that torch gives, and no row that there is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.interface.torch.compare import check_capture
from torch import nn

import tracea
from tracea.errors import InvalidIndex, UnsupportedNode
from tracea.interface.torch.capture import capture
from tracea.interface.torch.types import are_below


class Tokens(nn.Module):
    """Tokens and places, as transformers begin, with the head tied to the table; types are computed from an input."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 24, dtype=dtype), nn.Embedding(9, 24, dtype=dtype)
        self.types = nn.Embedding(3, 24, dtype=dtype)
        self.norm, self.head = nn.LayerNorm(24, dtype=dtype), nn.Linear(24, 50, bias=False, dtype=dtype)
        self.head.weight = self.tokens.weight
        self.register_buffer("order", torch.arange(9)[None])

    def forward(self, ids: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        places = self.places(self.order[:, : ids.shape[1]])
        return self.head(self.norm(self.tokens(ids) + places + self.types(types[:, 1:])))


@pytest.fixture(scope="module")
def tokens() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    module = Tokens().eval()
    inputs = torch.randint(0, 50, (2, 7)), torch.randint(0, 3, (2, 8))
    return module, tracea.optimize(module, inputs, budget=None, threads=1)


@pytest.mark.parametrize("shape", [(2, 7), (1, 1), (3, 0)])
def test_tokens_places_and_types_are_rows_of_their_tables(tokens: tuple[nn.Module, nn.Module], shape) -> None:
    module, fast = tokens
    ids, types = torch.randint(0, 50, shape), torch.randint(0, 3, (shape[0], shape[1] + 1))
    types[:, 0] = 99  # left out, so that it names nothing
    with torch.no_grad():
        torch.testing.assert_close(fast(ids, types), module(ids, types), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("number", "name"), [(50, "ids"), (-1, "ids"), (2**40, "ids"), (3, "slice"), (-1, "slice")])
def test_an_index_that_names_no_row_is_refused(tokens: tuple[nn.Module, nn.Module], number: int, name: str) -> None:
    _, fast = tokens
    ids, types = torch.zeros(2, 7, dtype=torch.int64), torch.zeros(2, 8, dtype=torch.int64)
    (ids if name == "ids" else types)[1, 4] = number
    rows = 50 if name == "ids" else 3
    with torch.no_grad(), pytest.raises(InvalidIndex, match=f"{name}.*: got {number}, expected 0 to {rows - 1}, of"):
        fast(ids, types)


class Rows(nn.Module):
    """A table that is given, read by an input and by places that the module holds."""

    def __init__(self, places: list[int]) -> None:
        super().__init__()
        self.register_buffer("fixed", torch.tensor(places))

    def forward(self, table: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return nn.functional.embedding(places.long().T, table), nn.functional.embedding(self.fixed, table)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_rows_are_copied_bit_for_bit_in_every_type_and_by_32_bit_indices(dtype: torch.dtype) -> None:
    module = Rows([[4, 0], [1, 1]])
    table = torch.randn(5, 3, dtype=dtype)
    table[1, 1], table[4, 2] = float("nan"), float("-inf")
    places = torch.tensor([[0, 4, 1], [3, 3, 2]], dtype=torch.int32)
    fast = tracea.optimize(module, (table, places), budget=None, threads=1)
    for got, wanted in zip(fast(table, places), module(table, places), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)
    places[1, 2] = 5
    with pytest.raises(InvalidIndex, match="places: got 5, expected 0 to 4, of 5"):
        fast(table, places)


def test_a_fixed_index_that_names_no_row_is_refused_at_capture() -> None:
    table, places = torch.randn(5, 3), torch.tensor([[0, 4]], dtype=torch.int32)
    with pytest.raises(InvalidIndex, match="got 5, expected 0 to 4, of 5"):
        capture(Rows([0, 5]), (table, places))


def test_one_input_that_names_rows_of_two_tables_names_rows_of_the_smaller() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.large, self.small = nn.Embedding(9, 4), nn.Embedding(6, 4)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.large(ids) + self.small(ids.view(-1)).view(*ids.shape, 4)

    captured = capture(Both().eval(), (torch.zeros(2, 3, dtype=torch.int64),))
    assert captured.input_spec.rows == {"ids": 6}
    assert captured.ranges == ()


def test_a_dynamic_axis_of_indices_is_refused_with_its_line() -> None:
    ids = torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(UnsupportedNode, match=r"rows of .*make the axes of both static") as caught:
        capture(nn.Embedding(9, 4), (ids,), dynamic=({0: torch.export.Dim("batch")},))
    assert "aten.embedding" in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8], ids=str)
def test_indices_are_told_from_numbers_of_no_row_in_every_type_and_order(dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 5, 3], [2, 1, 4]], dtype=dtype)
    for order in (x, x.t(), x[:, ::2], x[0, 1], x[:1].expand(3, 3)):
        assert are_below(order, int(order.max()) + 1)
        assert not are_below(order, int(order.max()))
    last = torch.iinfo(dtype).max
    x[1, 1] = last
    assert are_below(x, last + 1)
    if dtype is not torch.uint8:
        for negative in (-1, -last, -last - 1):
            x[1, 1] = negative
            assert not are_below(x, 2**63)  # a table of more rows than the type has numbers
            assert not are_below(x.t(), 2**40)


class Bags(nn.Module):
    """Bags of rows of a table, and what follows."""

    def __init__(self, mode: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(50, 13, mode=mode, dtype=dtype)

    def forward(self, ids: torch.Tensor, factors: torch.Tensor | None = None) -> torch.Tensor:
        return self.bag(ids, per_sample_weights=factors) * 2.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mode", ["sum", "weighted", "mean", "max"])
def test_bags_are_sums_means_and_largest_rows_of_torch(mode: str, dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    module = Bags("sum" if mode == "weighted" else mode, dtype).eval()
    with torch.no_grad():
        values = torch.tensor([torch.inf, -torch.inf, -0.0], dtype=dtype)
        module.bag.weight[torch.randint(50, (3,)), torch.randint(13, (3,))] = values
    count = int(torch.randint(1, 9, ()))
    ids = torch.randint(50, (int(torch.randint(1, 12, ())), count))
    inputs = (ids, torch.randn(ids.shape, dtype=dtype)) if mode == "weighted" else (ids,)
    fast = tracea.optimize(module, inputs, budget=None, threads=1, listener=lambda *_: None)
    with torch.no_grad():
        got, wide = fast(*inputs), module.double()
        wanted = wide(ids, *(each.double() for each in inputs[1:]))
    digits = torch.finfo(dtype).eps * (1 if dtype.itemsize == 2 else count)
    torch.testing.assert_close(got.double(), wanted, rtol=4 * digits, atol=16 * digits, equal_nan=True)
    with torch.no_grad(), pytest.raises(InvalidIndex, match="got 50, expected 0 to 49"):
        fast(ids.clone().fill_(50), *inputs[1:])


def test_a_line_of_rows_is_one_bag_where_the_offset_is_a_constant() -> None:
    class Line(nn.Module):
        def forward(self, table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return nn.functional.embedding_bag(ids, table, torch.tensor([0]))

    inputs = torch.randn(9, 4, dtype=torch.float64), torch.tensor([1, 8, 1])
    check_capture(capture(Line(), inputs), Line(), inputs)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"offsets": torch.tensor([0, 1])}, "bags that begin at offsets.*without offsets"),
        ({"offsets": torch.tensor([0, 3, 6]), "include_last_offset": True}, "with offsets"),
        ({"offsets": torch.tensor([0, 3]), "padding_idx": 1}, "left out of their bags.*per_sample_weights of zero"),
    ],
    ids=["sizes", "end", "padding"],
)
def test_other_bags_are_refused_with_what_to_give(given: dict[str, Any], said: str) -> None:
    class Line(nn.Module):
        def forward(self, table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return nn.functional.embedding_bag(ids, table, **given)

    with pytest.raises(UnsupportedNode, match=said):
        capture(Line(), (torch.randn(9, 4), torch.arange(6)))


def test_constants_name_elements_along_several_axes() -> None:
    class Pairs(nn.Module):
        def __init__(self, one: list[int], other: list[int]) -> None:
            super().__init__()
            self.one, self.other = torch.tensor(one), torch.tensor(other)
            self.column = self.one[:, None].clone()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, self.column, self.other] + x[:, self.one, self.other][:, None]

    x = torch.randn(3, 4, 5, 2, dtype=torch.float64)
    for module in (Pairs([3, 0, 2], [1, 4, 4]), Pairs([3, 0, -1], [1, -5, 4])):  # from the end, too
        check_capture(capture(module, (x,)), module, (x,))
    with pytest.raises(InvalidIndex, match="got -1"):  # which is five from the end of four
        capture(Pairs([3, 0, -5], [1, 4, 4]), (x,))


class Line(nn.Module):
    def __init__(self, line: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.line = line

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.line(*inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_rows_are_added_where_indices_say(dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    axis, extents = int(torch.randint(-3, 3, ())), [int(each) for each in torch.randint(1, 9, (3,))]
    count = int(torch.randint(1, 30, ()))
    places = torch.randint(extents[axis], (count,))
    module = Line(lambda x, i, y: x.index_add(axis, i, y, alpha=2).tanh())
    sizes = [*extents]
    sizes[axis] = count
    x, y = torch.randn(extents, dtype=dtype), torch.randn(sizes, dtype=dtype)
    y.view(-1)[0] = torch.nan
    fast = tracea.optimize(module, (x, places, y), budget=None, threads=1, listener=lambda *_: None)
    digits = torch.finfo(dtype).eps
    wanted = module(x.double(), places, y.double())
    torch.testing.assert_close(fast(x, places, y).double(), wanted, rtol=8 * digits, atol=64 * digits, equal_nan=True)
    with pytest.raises(InvalidIndex, match=f"expected 0 to {extents[axis] - 1}"):
        fast(x, places.clone().fill_(extents[axis]), y)


def test_rows_are_added_in_place_and_to_numbers(seed: int) -> None:
    torch.manual_seed(seed)

    def line(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        sums = torch.zeros_like(x)
        sums.index_add_(0, i, y)
        return torch.relu(sums) + x

    for shape, rows in (((7, 3), (11, 3)), ((7,), (11,))):
        given = torch.randn(shape, dtype=torch.float64), torch.randint(7, (11,)), torch.randn(rows, dtype=torch.float64)
        check_capture(capture(Line(line), given), Line(line), given)
    with pytest.raises(UnsupportedNode, match="add floats"):
        capture(Line(lambda x, i: x.index_add(0, i, x)), (torch.arange(3), torch.arange(3)))
