"""Mixtures of experts are captured: tokens sorted by expert, products of each expert's rows, and the way back."""

from __future__ import annotations

import math

import pytest
import torch
from tests.interface.torch.compare import check_capture
from torch import nn

import tracea
from tracea.core.op import GroupedGemmOp, LargestOp
from tracea.errors import InvalidGraph, InvalidIndex, UnsupportedNode
from tracea.flow.assemble import compute_nodes
from tracea.interface.optimized import optimize_graph
from tracea.interface.torch.capture import capture

GROUPED = torch._grouped_mm  # pyright: ignore[reportPrivateUsage]


class Experts(nn.Module):
    """A layer of experts as it is written today: all tokens of an expert at once."""

    def __init__(self, experts: int, width: int, hidden: int, each: int, *, by_index: bool = False) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, 2 * hidden, width) / math.sqrt(width))
        self.bias = nn.Parameter(torch.randn(experts, 2 * hidden))
        self.down = nn.Parameter(torch.randn(experts, width, hidden) / math.sqrt(hidden))
        self.each, self.by_index = each, by_index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(self.each)
        ids, order = torch.sort(chosen.reshape(-1))
        counts = torch.histc(ids.float(), bins=len(self.up), min=0, max=len(self.up) - 1)
        offsets = counts.cumsum(0, dtype=torch.int32)
        gate, up = (GROUPED(x[order // self.each], self.up.mT, offs=offsets) + self.bias[ids]).chunk(2, -1)
        found = GROUPED(nn.functional.silu(gate) * up, self.down.mT, offs=offsets)
        found = found * weights.reshape(-1)[order][:, None]
        back = order.argsort()
        if self.by_index:  # which torch.export is asked for
            back = torch.empty_like(order)
            back[order] = torch.arange(len(order))
        return found[back].view(len(x), self.each, -1).sum(1)


@pytest.mark.parametrize("tokens", [1, 7, 300])
@pytest.mark.parametrize("by_index", [False, True])
def test_a_layer_of_experts_is_that_of_torch_whatever_the_routing(tokens: int, by_index: bool, seed: int) -> None:
    torch.manual_seed(seed)
    module = Experts(5, 24, 16, 2, by_index=by_index).eval()
    fast = tracea.optimize(module, (torch.randn(tokens, 24),), budget=None, threads=1)
    captured = capture(module, (torch.randn(tokens, 24),))
    assert captured.ranges == ()
    assert not captured.input_spec.rows
    assert sum(isinstance(node.op, GroupedGemmOp) for node in compute_nodes(captured.graph)) == 2
    for bias in (0.0, 9.0, -9.0):  # as many as come, all to one expert, none to it
        x = torch.randn(tokens, 24)
        with torch.inference_mode():
            module.router.bias[3] = bias
            torch.testing.assert_close(
                tracea.optimize(module, (x,), budget=None, threads=1)(x), module(x), rtol=1e-4, atol=1e-5
            )
            module.router.bias[3] = 0.0
            torch.testing.assert_close(fast(x), fast(x), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("rows", [1, 255, 256, 257, 1100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_products_of_groups_are_those_of_each_group(rows: int, dtype: torch.dtype, seed: int) -> None:
    class Products(nn.Module):
        def forward(self, x: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
            return GROUPED(x, weights, offs=offsets)

    torch.manual_seed(seed)
    groups = 6
    x, weights = torch.randn(rows, 16).to(dtype), torch.randn(groups, 16, 8).to(dtype)
    last = torch.tensor([rows] * groups, dtype=torch.int32)
    fast = tracea.optimize(Products(), (x, weights, last), budget=None, threads=2)
    drawn = [torch.randint(0, rows + 1, (groups,)).sort()[0].int() for _ in range(3)]
    for offsets in (*drawn, last, torch.zeros(groups, dtype=torch.int32)):
        wanted, first = torch.zeros(rows, 8, dtype=torch.float64), 0
        for group, end in enumerate(offsets.tolist()):
            wanted[first:end] = x[first:end].double() @ weights[group].double()
            first = end
        found = fast(x, weights, offsets).double()
        torch.testing.assert_close(found, wanted, rtol=2**-7 if dtype is torch.bfloat16 else 1e-5, atol=1e-4)
    for bad in ([0, 0, 2, 1, 1, 1], [0, 0, 0, 0, 0, rows + 1], [-1, 0, 0, 0, 0, 0]):
        with pytest.raises(InvalidIndex, match=f"expected 0 to {rows}"):
            fast(x, weights, torch.tensor(bad, dtype=torch.int32))


def test_what_is_written_in_an_order_is_read_in_its_inverse(seed: int) -> None:
    class Back(nn.Module):
        def forward(self, x: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, ...]:
            order = keys.argsort(stable=True)
            back, rows = torch.empty_like(order), torch.zeros_like(x)
            back[order] = torch.arange(len(order))
            rows[order] = x * 2.0
            return x[back], rows, back

    torch.manual_seed(seed)
    inputs = torch.randn(300, 5), torch.randint(0, 9, (300,))
    captured = capture(Back(), inputs)
    assert captured.ranges == ()
    assert sum(isinstance(node.op, LargestOp) for node in captured.graph) == 3
    check_capture(captured, Back(), inputs)


def test_a_sampler_writes_back_what_it_sorted(seed: int) -> None:
    class TopP(nn.Module):
        def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
            values, order = logits.sort(-1)
            cut = values.softmax(-1).cumsum(-1) <= 0.1
            columns, down = logits.sort(0, descending=True)
            return (
                logits.masked_fill(cut.scatter(-1, order, cut), -math.inf),
                torch.zeros_like(logits).scatter(0, down, columns * 2.0),
                torch.zeros_like(logits).scatter(1, order.flip(0)[:, :1], values),
            )

    torch.manual_seed(seed)
    module, inputs = TopP(), (torch.randn(3, 40),)
    captured = capture(module, inputs)
    assert captured.ranges == ()
    found, wanted = (
        call(*inputs) for call in (tracea.optimize(module, inputs, budget=None, threads=1, listener=print), module)
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_masks_are_written_by_an_order() -> None:
    class Mask(nn.Module):
        def forward(self, keys: torch.Tensor) -> torch.Tensor:
            found = torch.zeros(len(keys), dtype=torch.bool)
            found[keys.argsort()] = torch.tensor([True, False, True, True, False])
            return found

    module, inputs = Mask(), (torch.randn(5),)
    check_capture(capture(module, inputs), module, inputs)


def test_an_order_of_columns_is_none_of_all_places() -> None:
    class Columns(nn.Module):
        def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            found = x.clone()
            found[keys.argsort(0)] = values  # six places, of which each column names the first three
            return found

    inputs = torch.randn(6), torch.randn(3, 2), torch.ones(3, 2)
    check_capture(capture(Columns(), inputs), Columns(), inputs)


def test_ends_that_are_known_and_descend_are_refused() -> None:
    class Products(nn.Module):
        def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
            return GROUPED(x, weights, offs=torch.tensor([3, 2], dtype=torch.int32))

    with pytest.raises(UnsupportedNode, match=r"groups of rows that end at \[3, 2\], of 5"):
        capture(Products(), (torch.randn(5, 8).bfloat16(), torch.randn(2, 8, 8).bfloat16()))


def test_tables_that_a_caller_makes_are_refused_in_a_graph() -> None:
    captured = capture(Experts(3, 8, 8, 1).eval(), (torch.randn(4, 8),))
    with pytest.raises(InvalidGraph, match="ops that read by no tables"):
        optimize_graph(captured.graph, {name: each.numpy() for name, each in captured.constants.items()})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_histograms_are_those_of_torch(dtype: torch.dtype, seed: int) -> None:
    class Counts(nn.Module):
        def __init__(self, bins: int, least: float, most: float) -> None:
            super().__init__()
            self.given = {"bins": bins, "min": least, "max": most}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.histc(x, **self.given)

    torch.manual_seed(seed)
    for bins, least, most in ((1, 0.0, 1.0), (7, -2.0, 3.0), (64, 0.0, 63.0), (10, 1.0, 2.0)):
        module = Counts(bins, least, most)
        x = torch.randn(5, 41, dtype=dtype) * 3
        x[0] = torch.randint(-1, 65, (41,)).to(dtype)
        captured = capture(module, (x,))
        if bins in (1, 64):  # where no rounding of a width decides
            check_capture(captured, module, (x,), 0.0)
        x[1, :4] = torch.tensor([math.nan, math.inf, -math.inf, most])
        fast = tracea.optimize(module, (x,), budget=None, threads=1)
        assert (fast(x) - module(x)).abs().sum() <= 2  # an element within a rounding of a bin's edge


def test_histograms_of_too_much_are_refused() -> None:
    class Counts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.histc(x, 1000, 0, 1)

    with pytest.raises(UnsupportedNode, match=r"a histogram of 5000 elements in 1000 bins.*up to 4194304 pairs"):
        capture(Counts(), (torch.randn(5000),))
