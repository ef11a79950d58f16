"""A call of a signature that was seen goes to native code: no operand is read in Python, which takes longer than it."""

from __future__ import annotations

import pytest
import torch

import tracea
from tracea.errors import InvalidIndex
from tracea.interface import operands
from tracea.runtime import buffers, program

X = torch.linspace(-1, 1, 2 * 4 * 9).reshape(2, 4, 3, 3)
W, B, G = torch.ones(4), torch.zeros(4), torch.ones_like(X)
TABLE, PLACES = torch.arange(10.0).reshape(5, 2), torch.tensor([0, 4, 4])
CALLS = {
    "embedding": lambda: tracea.ops.embedding(PLACES, TABLE),
    "embedding_backward": lambda: tracea.ops.embedding_backward(TABLE[:3], PLACES, 5),
    "cross_entropy": lambda: tracea.ops.cross_entropy(TABLE[:3].repeat(1, 3), PLACES),
    "cross_entropy_backward": lambda: tracea.ops.cross_entropy_backward(B[0], TABLE[:3].repeat(1, 3), PLACES),
    "topk_backward": lambda: tracea.ops.topk_backward(TABLE[0], PLACES[1:], 5),
    "group_norm": lambda: tracea.ops.group_norm(X, 2, W, B),
    "group_norm_backward": lambda: tracea.ops.group_norm_backward(G, X, 2, W),
    "batch_norm_training": lambda: tracea.ops.batch_norm_training(X, W, B),
    "batch_norm_training of 16 bits": lambda: tracea.ops.batch_norm_training(X.half(), W.half(), B.half()),
    "batch_norm_training_backward": lambda: tracea.ops.batch_norm_training_backward(G, X, W),
    "topk": lambda: tracea.ops.topk(X, 2),
    "sort": lambda: tracea.ops.sort(X),
}
INDEXED = ("embedding", "embedding_backward", "cross_entropy", "cross_entropy_backward", "topk_backward")


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_repeated_call_reads_no_operand_in_python(monkeypatch, call):
    before = call()

    def refused(*arguments):
        raise AssertionError("an operand was read in Python")

    for module in (operands, buffers, program):
        monkeypatch.setattr(module, "view", refused)
    after = call()
    for one, other in zip(
        *(result if isinstance(result, tuple) else (result,) for result in (before, after)), strict=True
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "name", [name for name in CALLS if "embedding" in name or "cross" in name or name == "topk_backward"]
)
def test_a_wrong_index_is_refused_after_right_ones(name):
    CALLS[name]()
    try:
        PLACES[2] = 40
        with pytest.raises(InvalidIndex, match="got 40, expected 0 to"):
            CALLS[name]()
    finally:
        PLACES[2] = 4
    CALLS[name]()
