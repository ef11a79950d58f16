"""What is no flag, no sequence, no mask or no result is refused by name, before anything reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tracea
from tracea.errors import InvalidDType, InvalidOp, InvalidShape, TraceaError

X = torch.randn(4, 6)
Q = torch.randn(1, 2, 5, 16)
A, B, MASK = torch.randn(33, 64), torch.randn(64, 50), torch.ones(2, 2, dtype=torch.bool)
SEVERAL = torch.ones(3)

REFUSED: dict[str, tuple[type[TraceaError], str, Callable[[], Any]]] = {
    "causal": (InvalidOp, "causal", lambda: tracea.ops.attention(Q, Q, Q, causal=SEVERAL)),
    "operands": (InvalidOp, "operands", lambda: tracea.ops.attention(Q, Q, Q, operands=5)),
    "score": (InvalidOp, "score", lambda: tracea.ops.attention(Q, Q, Q, score=[1])),
    "keepdim": (InvalidOp, "keepdim", lambda: tracea.ops.sum(X, 1, keepdim=SEVERAL)),
    "correction": (InvalidOp, "correction", lambda: tracea.ops.var(X, 1, correction=float("nan"))),
    "mask of bf16": (
        InvalidDType,
        "block_mask",
        lambda: tracea.ops.block_sparse_matmul(A, B, MASK.bfloat16(), block_size=32),
    ),
    "ragged mask": (
        InvalidDType,
        "block_mask",
        lambda: tracea.ops.block_sparse_matmul(A, B, [[1], [1, 0]], block_size=32),
    ),
    "block": (InvalidOp, "block_size", lambda: tracea.ops.block_sparse_matmul(A, B, MASK, block_size=2**70)),
    "no array as out": (
        InvalidShape,
        "out",
        lambda: tracea.ops.block_sparse_matmul(A, B, MASK, block_size=32, out="x"),
    ),
    "out of another shape": (
        InvalidShape,
        r"out: got \(33, 50, 1\)",
        lambda: tracea.ops.block_sparse_matmul(A, B, MASK, block_size=32, out=torch.empty(33, 50, 1)),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(name: str) -> None:
    kind, match, call = REFUSED[name]
    with pytest.raises(kind, match=match):
        call()


def test_flags_of_numpy_are_flags() -> None:
    assert tracea.ops.sum(X, 1, keepdim=np.True_).shape == (4, 1)
