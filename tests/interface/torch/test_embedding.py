"""Embeddings of captured modules: the rows that torch gives, and no row that there is not."""

from __future__ import annotations

import pytest
import torch
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
