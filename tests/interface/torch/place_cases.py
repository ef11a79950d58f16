"""One call for each overload that finds places, or reads and writes by them, as a user's line may make it."""

from __future__ import annotations

from typing import Any

import torch
from tests.interface.torch.cases import Call, X, Z, aten, mask, rows

PLACES: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "aten.max.dim": (
        lambda x: (aten.max.dim(x, -1)[0] + aten.max.dim(x, 1, True)[0][..., 0], *aten.max.dim(x, 0)),
        (X,),
    ),
    "aten.min.dim": (lambda x: (aten.min.dim(x, 0)[0], aten.min.dim(x.mT, 1, True)[1], *aten.min.dim(x, 2)), (Z,)),
    "aten.argmax.default": (
        lambda x: (aten.argmax.default(x), aten.argmax.default(x, 1), aten.argmax.default(x.mT, -2, True) * 2),
        (Z,),
    ),
    "aten.argmin.default": (lambda x: (aten.argmin.default(x, None, True), aten.argmin.default(x, 0)), (Z,)),
    "aten.topk.default": (
        lambda x: (*aten.topk.default(x, 3), *aten.topk.default(x.mT, 2, 1, False), aten.topk.default(x, 1, 0)[0]),
        (Z,),
    ),
    "aten.sort.default": (
        lambda x: (*aten.sort.default(x), *aten.sort.default(x.mT, 1, True), aten.sort.default(x, 0)[0] + 1.0),
        (Z,),
    ),
    "aten.sort.stable": (
        lambda x: (*aten.sort.stable(x, stable=True, dim=1), aten.sort.stable(x.mT, stable=False, dim=-1)[1]),
        (Z,),
    ),
    "aten.argsort.default": (lambda x: (aten.argsort.default(x), aten.argsort.default(x.mT, 0, True) * 2), (Z,)),
    "aten.argsort.stable": (
        lambda x: (aten.argsort.stable(x, stable=True), aten.argsort.stable(x.mT, stable=True, dim=1)),
        (Z,),
    ),
    "aten.msort.default": (lambda x: (aten.msort.default(x), aten.msort.default(x.mT) * 2.0), (Z,)),
    "aten.gather.default": (
        lambda x, at: (aten.gather.default(x, 1, at), aten.gather.default(x.mT, -1, at.mT) * 2.0),
        (Z, torch.tensor([[[0, 3, 2, 1, 0, 3], [1, 1, 3, 2, 2, 0]]])),
    ),
    "aten.take_along_dim.default": (
        lambda x, at, flat: (
            aten.take_along_dim.default(x, at, 1),
            aten.take_along_dim.default(x.mT[:1], at.mT, -1) + 1.0,
            aten.take_along_dim.default(x, flat),
        ),
        (Z, torch.tensor([[[0, 3, 2, 1, 0, 3], [1, 1, 3, 2, 2, 0]]]), torch.tensor([[40, 7], [0, 47]])),
    ),
    "aten.scatter.src": (
        lambda x, at, y: (
            aten.scatter.src(x, 1, at, y),
            aten.scatter.src(x.mT, 0, at.mT, y.mT) + 1.0,
        ),
        (X, torch.tensor([[0, 5, 2], [1, 1, 3], [4, 4, 4], [3, 0, 3]]), rows(4, 6) + 9.0),
    ),
    "aten.scatter.value": (
        lambda x, at: (aten.scatter.value(x, -1, at, 0.3), aten.scatter.value(x > 0, 1, at, True)),
        (X, torch.tensor([[0, 5, 2], [1, 1, 3], [4, 4, 4], [3, 0, 3]])),
    ),
    "aten.one_hot.default": (
        lambda at: (aten.one_hot.default(at, 6), aten.one_hot.default(at[None], 9) * 2),
        (torch.tensor([[0, 5, 2], [1, 1, 3]]),),
    ),
    "aten.index.Tensor": (
        lambda x, at, m, one: (
            aten.index.Tensor(x, [at]),
            aten.index.Tensor(x * 2.0, [None, None, one]),
            aten.index.Tensor(m, [None, at]),
            aten.index.Tensor(x, [None, torch.tensor([0, 2])]),
            aten.index.Tensor(x, [at, torch.tensor([3, 1])]),
            aten.index.Tensor(x, [at, None, at]),
            aten.index.Tensor(x, [None, torch.tensor([[0], [3]]), torch.tensor([5, 1])]),
        ),
        (Z, torch.tensor([[1, 0], [0, 1]]), mask(2, 4), torch.tensor(5)),
    ),
    "aten.index_select.default": (
        lambda x, at: (
            aten.index_select.default(x, -1, at),
            aten.index_select.default(x, 0, torch.tensor([3, 0, 3])),
            aten.index_select.default(x, 1, torch.tensor([1, 2, 3])),
        ),
        (X, torch.tensor([5, 0, 5])),
    ),
}
