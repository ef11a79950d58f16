"""Ops of rows, reductions, indices and sparse products run on kernels of ours alone: they call no operator of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.drawn import drawn
from torch.utils._python_dispatch import TorchDispatchMode

import tracea

pytestmark = pytest.mark.usefixtures("one_thread")

ops = tracea.ops


class Counted(TorchDispatchMode):
    """Lists the calls of aten."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(str(func))
        return func(*args, **(kwargs or {}))


X, Y = torch.randn(6, 40, 12), torch.randn(6, 40, 12).softmax(1)
G, W, B = torch.randn(6, 40, 12), torch.randn(12), torch.randn(12)
CHANNELS, OTHERS = torch.rand(40), torch.rand(40)
LOGITS, CLASSES = torch.randn(9, 7), torch.arange(9) % 7
COUNTS = torch.arange(48).reshape(6, 8)
LEFT, RIGHT, BLOCKS = torch.randn(40, 64), torch.randn(64, 48), torch.ones(2, 2, dtype=torch.bool)
WEIGHTS, SHIFTS, ENDS = torch.randn(3, 64, 20), torch.randn(3, 20), torch.tensor([7, 7, 33])
TURNED = torch.randn(3, 20, 64).transpose(1, 2)
HEADS = torch.randn(1, 2, 9, 16)
SEEN, LENGTHS = torch.ones(2, 2, dtype=torch.bool), torch.tensor([4, 5])
COS = torch.randn(40, 6)
FIRST_OF_SEVEN = torch.arange(63).reshape(9, 7) % 9
ONE, TABLE = torch.ones(()), torch.randn(48, 5)
NARROW, LOW = RIGHT[:, :4], RIGHT[:4]
CHAIN = ops.fuse(["add", "gelu", "mul"])

CALLS: dict[str, Callable[[], Any]] = {
    "softmax": lambda: ops.softmax(X),
    "softmax of columns": lambda: ops.softmax(X, 1),
    "log_softmax": lambda: ops.log_softmax(X, 0),
    "softmax_backward": lambda: ops.softmax_backward(G, Y, 1),
    "log_softmax_backward": lambda: ops.log_softmax_backward(G, Y),
    "layer_norm": lambda: ops.layer_norm(X, W, B),
    "rms_norm": lambda: ops.rms_norm(X, W),
    "layer_norm_backward": lambda: ops.layer_norm_backward(G, X, W),
    "rms_norm_backward": lambda: ops.rms_norm_backward(G, X, W),
    "attention": lambda: ops.attention(HEADS, HEADS, HEADS, causal=True),
    "attention of blocks": lambda: ops.attention(HEADS, HEADS, HEADS, block_mask=SEEN, block_size=8),
    "attention of lengths": lambda: ops.attention(HEADS, HEADS, HEADS, lengths=[4, 5]),
    "attention of a tensor of lengths": lambda: ops.attention(HEADS, HEADS, HEADS, lengths=LENGTHS),
    "attention of global tokens": lambda: ops.attention(HEADS, HEADS, HEADS, window=3, global_tokens=2),
    "attention_backward": lambda: ops.attention_backward(HEADS, HEADS, HEADS, HEADS, HEADS, causal=True),
    "group_norm": lambda: ops.group_norm(X, 4, CHANNELS, OTHERS),
    "group_norm_backward": lambda: ops.group_norm_backward(G, X, 4, CHANNELS),
    "batch_norm_training_backward": lambda: ops.batch_norm_training_backward(G, X, CHANNELS),
    "batch_norm": lambda: ops.batch_norm(X, OTHERS, CHANNELS),
    "batch_norm_training": lambda: ops.batch_norm_training(X, CHANNELS, OTHERS),
    "sum": lambda: ops.sum(X, (0, 2)),
    "mean": lambda: ops.mean(X),
    "prod": lambda: ops.prod(X, 1),
    "amax": lambda: ops.amax(X, 0, True),
    "amin": lambda: ops.amin(X, 2),
    "var": lambda: ops.var(X, 1),
    "std": lambda: ops.std(X, 2),
    "any": lambda: ops.any(X, 0),
    "all": lambda: ops.all(COUNTS, 1),
    "sum of integers": lambda: ops.sum(COUNTS, 0),
    "argmax": lambda: ops.argmax(X, 1),
    "argmin of integers": lambda: ops.argmin(COUNTS),
    "cumsum": lambda: ops.cumsum(X, 1),
    "topk": lambda: ops.topk(X, 3, 1),
    "sort": lambda: ops.sort(X, 1),
    "argsort of integers": lambda: ops.argsort(COUNTS, 0, descending=True),
    "cumsum_backward": lambda: ops.cumsum_backward(X, 1),
    "topk_backward": lambda: ops.topk_backward(LOGITS, FIRST_OF_SEVEN, 9, 0),
    "embedding_backward": lambda: ops.embedding_backward(LOGITS, CLASSES, 9),
    "activation_backward": lambda: ops.activation_backward(G, X, "gelu"),
    "sum_backward": lambda: ops.sum_backward(W, (6, 40, 12), (0, 1)),
    "mean_backward": lambda: ops.mean_backward(ONE, (6, 40, 12)),
    "amax_backward": lambda: ops.amax_backward(CHANNELS, X, (0, 2)),
    "amin_backward": lambda: ops.amin_backward(W, X, (0, 1)),
    "prod_backward": lambda: ops.prod_backward(ONE, X),
    "var_backward": lambda: ops.var_backward(W, X, (0, 1)),
    "std_backward": lambda: ops.std_backward(CHANNELS, X, (0, 2)),
    "copy": lambda: ops.copy(X),
    "embedding": lambda: ops.embedding(COUNTS, TABLE),
    "rope": lambda: ops.rope(X, COS, COS),
    "rope_backward": lambda: ops.rope_backward(X, COS, COS, interleaved=True),
    "cross_entropy": lambda: ops.cross_entropy(LOGITS, CLASSES, label_smoothing=0.1),
    "cross_entropy_backward": lambda: ops.cross_entropy_backward(ONE, LOGITS, CLASSES),
    "low_rank_mlp": lambda: ops.low_rank_mlp(LEFT, NARROW, LOW, activation="gelu"),
    "block_sparse_matmul": lambda: ops.block_sparse_matmul(LEFT, RIGHT, BLOCKS, block_size=32, factor="b"),
    "block_sparse_matmul of a": lambda: ops.block_sparse_matmul(LEFT, RIGHT, BLOCKS, block_size=32, factor="a"),
    "grouped_gemm": lambda: ops.grouped_gemm(LEFT, WEIGHTS, ENDS, bias=SHIFTS, activation="gelu"),
    "grouped_gemm of turned weights": lambda: ops.grouped_gemm(LEFT, TURNED, ENDS),
    "fuse": lambda: CHAIN(X, W, G),
    "gemm": lambda: ops.gemm(LEFT, RIGHT),
}


@pytest.fixture(scope="module", autouse=True)
def modes_are_set_up() -> None:
    """Let a process make its first call under a mode: torch sets its compiler up then, and makes a tensor for that."""
    with Counted():
        ops.sum(X)


@pytest.mark.parametrize("name", drawn(18, CALLS, of="calls without aten"))
def test_no_call_of_aten(name: str) -> None:
    for _ in range(2):  # a new signature, then a known one
        with ops.library(False), Counted() as counted:
            CALLS[name]()
        assert not counted.calls


def test_a_call_of_aten_is_counted() -> None:
    with Counted() as counted:
        torch.softmax(X, 1)
    assert counted.calls == ["aten._softmax.default"]
