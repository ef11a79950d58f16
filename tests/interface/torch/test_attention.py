"""Attention that torch's scaled_dot_product_attention does is one kernel of an optimized module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.drawn import drawn
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import tracea
from tracea.core.op import AttentionOp
from tracea.errors import UnsupportedNode
from tracea.interface.torch.capture import capture

SDPA = nn.functional.scaled_dot_product_attention


class SelfAttention(nn.Module):
    """Heads inside tokens, as a model has them."""

    def __init__(self, width: int = 32, heads: int = 4, kv_heads: int = 4, **given: Any) -> None:
        super().__init__()
        size = width // heads
        self.heads, self.kv_heads, self.size, self.given = heads, kv_heads, size, given
        self.qkv, self.out = nn.Linear(width, (heads + 2 * kv_heads) * size), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, width = x.shape
        sizes = [self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size]
        q, k, v = (part.view(batch, rows, -1, self.size).transpose(1, 2) for part in self.qkv(x).split(sizes, dim=-1))
        attended = SDPA(q, k, v, enable_gqa=self.heads != self.kv_heads, **self.given)
        return self.out(attended.transpose(1, 2).reshape(batch, rows, width))


class Line(nn.Module):
    def __init__(self, call: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.call(*inputs)


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


KEEP = torch.ones(9, 9, dtype=torch.bool).tril()
CASES: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "heads": (SelfAttention(), (values(2, 9, 32),)),
    "causal": (SelfAttention(is_causal=True, scale=0.3), (values(2, 9, 32),)),
    "shared key heads": (SelfAttention(kv_heads=2, is_causal=True), (values(2, 9, 32),)),
    "mask of booleans": (SelfAttention(attn_mask=KEEP), (values(2, 9, 32),)),
    "mask that is added": (SelfAttention(attn_mask=values(4, 9, 9)), (values(2, 9, 32),)),
    "three axes": (Line(SDPA), (values(3, 9, 8), values(3, 7, 8), values(3, 7, 5))),
    "two axes": (Line(SDPA), (values(9, 8), values(7, 8), values(7, 5))),
    "one key head": (Line(SDPA), (values(2, 3, 9, 8), values(2, 1, 7, 8), values(2, 1, 7, 8))),
    "a mask among the inputs": (
        Line(lambda q, k, v, keep: SDPA(q, k, v, attn_mask=keep)),
        (values(2, 3, 9, 8), values(2, 3, 7, 8), values(2, 3, 7, 8), values(2, 1, 1, 7) < 0.5),
    ),
    "windows of images": (Line(SDPA), (values(2, 3, 5, 4, 8), values(2, 3, 5, 6, 8), values(2, 3, 5, 6, 8))),
    "windows, a mask of each": (
        Line(lambda q, k, v, keep: SDPA(q, k, v, attn_mask=keep)),
        (values(2, 3, 5, 4, 8), values(2, 3, 5, 6, 8), values(2, 3, 5, 6, 8), values(3, 1, 4, 6)),
    ),
    "windows, one mask": (
        Line(lambda q, k, v, keep: SDPA(q, k, v, attn_mask=keep)),
        (values(2, 3, 5, 4, 8), values(2, 3, 5, 6, 8), values(2, 3, 5, 6, 8), values(1, 5, 1, 6) < 0.5),
    ),
    "float64": (SelfAttention(is_causal=True).double(), (values(2, 9, 32, dtype=torch.float64),)),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", drawn(3, CASES, of="attention as one kernel"))
def test_attention_is_one_kernel_that_computes_what_eager_does(name: str) -> None:
    module, inputs = CASES[name]
    module = module.eval()
    captured = capture(module, inputs)
    assert sum(isinstance(node.op, AttentionOp) for node in captured.graph.nodes) == 1
    fast = tracea.optimize(module, inputs, budget=None, threads=1)
    with torch.inference_mode():
        expected, found = module(*inputs), fast(*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(9, 8), (2, 9, 8)])
def test_weights_times_themselves_are_products(shape: tuple[int, ...]) -> None:
    module = Line(lambda x: torch.linalg.matrix_power(torch.softmax(x @ x.mT, -1), 2))
    x = values(*shape)
    torch.testing.assert_close(
        tracea.optimize(module, (x,), budget=None, threads=1)(x), module(x), rtol=1e-4, atol=1e-5
    )


def test_more_rows_than_may_share_a_key_head_are_products() -> None:
    codebook = values(1, 8, 16)
    module, x = Line(lambda x: torch.softmax(x @ codebook.mT, -1) @ codebook), values(1100, 5, 16)
    torch.testing.assert_close(
        tracea.optimize(module, (x,), budget=None, threads=1)(x), module(x), rtol=1e-4, atol=1e-5
    )


def test_heads_inside_tokens_are_read_and_written_where_they_lie() -> None:
    captured = capture(SelfAttention(is_causal=True).eval(), (values(2, 9, 32),))
    kinds = [type(node.op).__name__ for node in captured.graph.nodes]
    assert "PointwiseOp" not in kinds  # nothing only copies
    assert kinds.count("GemmOp") == 2


def test_a_dynamic_axis_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedNode, match="attention over a dynamic axis"):
        capture(SelfAttention().eval(), (values(3, 9, 32),), dynamic=({0: torch.export.Dim.AUTO},))


def test_dropout_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedNode, match=r"dropout of 0\.1 in attention"):
        capture(SelfAttention(dropout_p=0.1), (values(2, 9, 32),))


def later(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return key <= query


def leaning(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    return score + 0.1 * (key - query)


BLOCKS = create_block_mask(later, None, None, 16, 16, device="cpu")


@pytest.mark.parametrize(
    ("line", "given"),
    [
        (lambda q: flex_attention(q, q, q), ()),
        (lambda q: flex_attention(q, q, q, score_mod=leaning), ()),
        (lambda q: flex_attention(q, q, q, block_mask=BLOCKS), ()),
        (lambda q, blocks: flex_attention(q, q, q, block_mask=blocks), (BLOCKS,)),
    ],
    ids=["plain", "score", "block mask", "block mask given"],
)
def test_flex_attention_is_refused_by_name(line: Callable[..., torch.Tensor], given: tuple[Any, ...]) -> None:
    with pytest.raises(UnsupportedNode, match=r"flex_attention.*: no op expresses it") as caught:
        tracea.optimize(Line(line).eval(), (values(1, 2, 16, 8), *given), budget=None, threads=1)
    assert f"{__file__}:" in caught.value.location
    assert "torch.nn.functional.scaled_dot_product_attention" in caught.value.remedy
    assert "tracea.ops.attention(score=" in caught.value.remedy
