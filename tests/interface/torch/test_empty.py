"""Models of nothing: a batch of no images, and rows that a slice leaves none of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tracea

F = torch.nn.functional
FILTERS = torch.randn(3, 4, 3, 3)
IMAGES, SEQUENCES, ROWS = torch.randn(0, 3, 8, 8), torch.randn(0, 3, 8), torch.randn(4, 6)
NONE = torch.zeros(0, dtype=torch.int64)
LINES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = {
    "windows of one size": (lambda x: F.adaptive_avg_pool2d(x, 2) * 2.0, IMAGES),
    "windows of several sizes": (lambda x: F.adaptive_avg_pool2d(x, 3), IMAGES),
    "the largest of several sizes": (lambda x: F.adaptive_max_pool1d(x, 3), SEQUENCES),
    "an enlargement": (lambda x: F.interpolate(x, scale_factor=2), IMAGES),
    "a transposed convolution": (lambda x: torch.relu(F.conv_transpose2d(x, FILTERS)), IMAGES),
    "phases of one": (lambda x: F.conv_transpose2d(x, FILTERS, stride=2), IMAGES),
    "phases of a sequence": (lambda x: F.conv_transpose1d(x, FILTERS[..., 0], stride=2), SEQUENCES),
    "a classifier": (lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1) @ torch.ones(3, 2), IMAGES),
    "a sum of nothing": (lambda x: x[4:].sum(0), ROWS),
    "what follows a sum of nothing": (lambda x: x[:2] + torch.relu(x[4:] * 2.0).sum(0) + 1.0, ROWS),
    "a number of nothing": (lambda x: x[4:].sum(), ROWS),
    "a mean of nothing": (lambda x: x[4:].mean(0), ROWS),
    "a product of nothing": (lambda x: x[4:].prod(0), ROWS),
    "chunks of nothing": (lambda x: torch.add(*x[:, 6:].chunk(2, 1)), ROWS),
    "parts of size 0": (lambda x: x[4:].split(0)[0], ROWS),
    "a sum of a product of nothing": (lambda x: (x[4:] @ x.T).sum(0), ROWS),
    "no rows": (lambda x: x[NONE] * 2.0, ROWS),
    "no columns": (lambda x: x[:, NONE], ROWS),
    "no elements": (lambda x: x[NONE, NONE], ROWS),
    "rows of an empty index": (lambda x: x.index_select(0, NONE), ROWS),
    "gathered columns of nothing": (lambda x: x.gather(1, NONE.expand(4, 0)), ROWS),
    "a gathered number of nothing": (lambda x: x.sum().gather(0, NONE), ROWS),
    "rows of nothing added": (lambda x: x.index_add(0, NONE, x[NONE]), ROWS),
}


@pytest.mark.parametrize("name", LINES)
def test_nothing_is_what_torch_makes_of_it(name: str) -> None:
    line, x = LINES[name]

    class Line(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return line(x)

    fast = tracea.optimize(Line(), (x,), budget=None, threads=1, listener=lambda *_: None)
    torch.testing.assert_close(fast(x), Line()(x), equal_nan=True)


def test_a_graph_without_edges_follows_one_that_has_some() -> None:
    class Messages(torch.nn.Module):
        def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(x).index_add(0, target, x[source] * 2.0) + x

    edges = torch.tensor([0, 1, 1]), torch.tensor([2, 0, 3])
    fast = tracea.optimize(Messages(), (ROWS, *edges), budget=None, threads=1, listener=lambda *_: None)
    for each in (edges, (NONE, NONE.clone()), edges):
        torch.testing.assert_close(fast(ROWS, *each), Messages()(ROWS, *each))
