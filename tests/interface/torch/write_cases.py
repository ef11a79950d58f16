"""One call for each overload that writes a part of a tensor, beside those of cases.py."""

from __future__ import annotations

from typing import Any

import torch
from tests.interface.torch.cases import Call, M, V, X, aten, rows

WRITES: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "aten.copy.default": (lambda x, y: aten.copy.default(x, y.float()) + y, (X, V)),
    "aten.slice_scatter.default": (
        lambda x, y, z: (
            aten.slice_scatter.default(x, y * 2.0, -1, 1, 6, 2),
            aten.slice_scatter.default(x, z, 1, 3, 9223372036854775807),
            aten.slice_scatter.default(x, z, 1, -6, -3),
            aten.slice_scatter.default(x, x * 3.0),
            aten.slice_scatter.default(x, x[:0], 0, 2, 1),
        ),
        (X, rows(4, 3), rows(4, 3)),
    ),
    "aten.select_scatter.default": (
        lambda x, y: (aten.select_scatter.default(x, y.relu(), 1, -2), aten.select_scatter.default(x[:1], V, 0, 0)),
        (X, rows(4)),
    ),
    "aten.index_copy.default": (
        lambda x, at, y, one: (
            aten.index_copy.default(x, 1, at, y),  # of places that are named twice, the last one
            aten.index_copy.default(x, -2, one, x[:1] + 1.0),
            aten.index_copy.default(x, 1, torch.tensor([1, 3, 5, 0]), y),
            aten.index_copy.default(x, 1, torch.tensor([1, 3]), y[:, 1:3]),
        ),
        (X, torch.tensor([4, 1, 0, 4]), rows(4, 4), torch.tensor([2])),
    ),
    "aten.index_put.default": (
        lambda x, at, y, m, one: (
            aten.index_put.default(x, [None, at], y),
            aten.index_put.default(x, [one], V),
            aten.index_put.default(x, [m[:, 0]], V[2]),
            aten.index_put.default(x, [m], y[0, 0]),
        ),
        (X, torch.tensor([5, 2, 0]), rows(4, 3), M, torch.tensor(3)),
    ),
}
