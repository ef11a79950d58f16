"""One call for each overload of recurrent layers, of experts and of windows, as a user's line may make it."""

from __future__ import annotations

from typing import Any

import torch
from tests.interface.torch.cases import Call, aten, rows

# As transformers defines it where torch's own operator does not take the type.
_LIBRARY = torch.library.Library("transformers", "FRAGMENT")
_LIBRARY.define("grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")


def _products(x: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    made, first = torch.zeros(len(x), weights.shape[2], dtype=x.dtype), 0
    for matrix, end in zip(weights, ends.tolist(), strict=True):
        made[first:end] = x[first:end] @ matrix
        first = end
    return made


def _made(x: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    del ends
    return x.new_empty(len(x), weights.shape[2])


_LIBRARY.impl("grouped_mm_fallback", _products, "CPU")
torch.library.register_fake("transformers::grouped_mm_fallback", _made, lib=_LIBRARY)

OFFSETS = torch.tensor([2, 2, 5, 7], dtype=torch.int32)
ROWS, STATE = rows(4, 2, 5), rows(4, 2, 3)
WEIGHTS = [rows(3, 5), rows(3, 3), rows(3), rows(3)]


def weights(gates: int) -> list[torch.Tensor]:
    """Return the weights of two directions of a layer, and of the layer behind it."""
    return [rows(gates * 3, width, *rest) for k in (5, 5, 6, 6) for width, *rest in ((k,), (3,))]


LAYERS: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "aten.lstm.input": (
        lambda x, h, c, *w: aten.lstm.input(x, [h, c], list(w), False, 2, 0.0, False, True, False),
        (ROWS, STATE, STATE, *weights(4)),
    ),
    "aten.gru.input": (
        lambda x, h, *w: aten.gru.input(x, h, list(w), False, 2, 0.0, False, True, False),
        (ROWS, STATE, *weights(3)),
    ),
    "aten.rnn_tanh.input": (
        lambda x, h, *w: aten.rnn_tanh.input(x, h, list(w), True, 1, 0.0, False, False, True),
        (ROWS, rows(1, 4, 3), *WEIGHTS),
    ),
    "aten.rnn_relu.input": (
        lambda x, h, *w: aten.rnn_relu.input(x, h, list(w), True, 1, 0.0, False, False, False),
        (ROWS, rows(1, 2, 3), *WEIGHTS),
    ),
    "aten.histc.default": (lambda x: aten.histc.default(x, 3, -1, 1.5) * 2.0, (rows(4, 7),)),
    "aten._grouped_mm.default": (
        # Of small whole numbers, since torch's takes no float64.
        lambda x, w: aten._grouped_mm.default(x.float(), w.float(), OFFSETS).to(x.dtype),
        ((rows(7, 16) * 4).round(), (rows(4, 16, 8) * 4).round()),
    ),
    "transformers.grouped_mm_fallback.default": (
        lambda x, w: torch.ops.transformers.grouped_mm_fallback.default(x, w, OFFSETS) + 1.0,
        (rows(7, 16), rows(4, 16, 8)),
    ),
    "aten.unfold.default": (
        lambda x: (aten.unfold.default(x, 1, 3, 2) * 2.0, aten.unfold.default(x.mT, -2, 2, 1)),
        (rows(2, 9, 4),),
    ),
    "aten.im2col.default": (
        lambda x: aten.im2col.default(x, [3, 2], [1, 2], [1, 0], [2, 1]) + 1.0,
        (rows(2, 3, 7, 6),),
    ),
    "aten.col2im.default": (
        lambda x: aten.col2im.default(x, [7, 6], [3, 2], [1, 1], [1, 0], [2, 1]) + 1.0,
        (rows(2, 12, 20),),
    ),
}
