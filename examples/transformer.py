"""GPT-2, BERT and a block of Llama for inference: captured, fused, heads read where they lie, caches in and out.

    tracea optimize examples/transformer.py:gpt2_prefill --trials 8
    python examples/transformer.py [small]

The modules are written out here, with random weights: what counts is the shape of the work. Each is there with
attention by ``scaled_dot_product_attention`` and with attention written out; both become the same kernels.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import tracea

Caches = tuple[tuple[Tensor, Tensor], ...]


@dataclass(frozen=True)
class Config:
    """The sizes of a model; ``written_out`` says how its attention is written."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    kv_heads: int = 12
    hidden: int = 3072
    words: int = 50257
    positions: int = 1024
    written_out: bool = False


def attend(
    config: Config, q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """Return softmax(q kᵀ / √d, masked) v; the mask is added, and a head of keys serves several of queries."""
    shared = config.heads // config.kv_heads
    if not config.written_out:
        return nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=shared > 1
        )
    if shared > 1:
        k, v = (_repeated(each, shared) for each in (k, v))
    scores = q @ k.transpose(-2, -1) / math.sqrt(config.width // config.heads)
    if causal:
        hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    if mask is not None:
        scores = scores + mask
    return torch.softmax(scores, dim=-1) @ v


def _repeated(x: Tensor, times: int) -> Tensor:
    batch, heads, rows, size = x.shape
    return x[:, :, None].expand(batch, heads, times, rows, size).reshape(batch, heads * times, rows, size)


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def _merged(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class Gpt2Block(nn.Module):
    """Norms before attention and MLP; one product for queries, keys and values."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.first, self.second = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.qkv, self.out = nn.Linear(config.width, 3 * config.width), nn.Linear(config.width, config.width)
        self.widen, self.narrow = nn.Linear(config.width, config.hidden), nn.Linear(config.hidden, config.width)

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the block's tokens, and keys and values of all tokens so far."""
        q, k, v = (_heads(part, self.config.heads) for part in self.qkv(self.first(x)).split(x.shape[-1], dim=-1))
        if cache is not None:
            k, v = (torch.cat((old, new), dim=2) for old, new in zip(cache, (k, v), strict=True))
        attended = attend(self.config, q, k, v, causal=cache is None)
        x = x + self.out(_merged(attended))
        widened = nn.functional.gelu(self.widen(self.second(x)), approximate="tanh")
        return x + self.narrow(widened), (k, v)


class Gpt2(nn.Module):
    """Radford et al. 2019: tokens, and the caches of the tokens before them, to the last token's scores and caches."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = nn.Embedding(config.words, config.width)
        self.places = nn.Embedding(config.positions, config.width)
        self.blocks = nn.ModuleList(Gpt2Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, tokens: Tensor, caches: Caches | None = None) -> tuple[Tensor, Caches]:
        """Return the scores of the word that comes next, and every block's keys and values."""
        before = 0 if caches is None else caches[0][0].shape[2]
        x = self.words(tokens) + self.places.weight[before : before + tokens.shape[1]]
        kept: list[tuple[Tensor, Tensor]] = []
        for number, block in enumerate(self.blocks):
            x, cache = block(x, None if caches is None else caches[number])
            kept.append(cache)
        return self.norm(x[:, -1]) @ self.words.weight.t(), tuple(kept)


class BertBlock(nn.Module):
    """Norms behind attention and MLP; three products for queries, keys and values."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.q, self.k, self.v = (nn.Linear(config.width, config.width) for _ in range(3))
        self.out, self.first = nn.Linear(config.width, config.width), nn.LayerNorm(config.width, eps=1e-12)
        self.widen, self.narrow = nn.Linear(config.width, config.hidden), nn.Linear(config.hidden, config.width)
        self.second = nn.LayerNorm(config.width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the block's tokens; the mask is added to the scores."""
        q, k, v = (_heads(part(x), self.config.heads) for part in (self.q, self.k, self.v))
        attended = attend(self.config, q, k, v, mask=mask)
        x = self.first(x + self.out(_merged(attended)))
        return self.second(x + self.narrow(nn.functional.gelu(self.widen(x))))


class Bert(nn.Module):
    """Devlin et al. 2018: tokens and which of them count, to the tokens' features and those of the first one."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = nn.Embedding(config.words, config.width)
        self.places, self.kinds = nn.Embedding(config.positions, config.width), nn.Embedding(2, config.width)
        self.norm = nn.LayerNorm(config.width, eps=1e-12)
        self.blocks = nn.ModuleList(BertBlock(config) for _ in range(config.layers))
        self.pool = nn.Linear(config.width, config.width)

    def forward(self, tokens: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of every token, and the pooled ones."""
        mask = (1.0 - counts[:, None, None, :]) * -1e9
        x = self.norm(self.words(tokens) + self.kinds.weight[0] + self.places.weight[: tokens.shape[1]])
        for block in self.blocks:
            x = block(x, mask)
        return x, torch.tanh(self.pool(x[:, 0]))


class LlamaBlock(nn.Module):
    """Touvron et al. 2023: RMS norms, rotated queries and keys, fewer heads of keys, a gated MLP."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, size = config, config.width // config.heads
        self.first, self.second = nn.RMSNorm(config.width, eps=1e-6), nn.RMSNorm(config.width, eps=1e-6)
        self.q = nn.Linear(config.width, config.width, bias=False)
        self.k, self.v = (nn.Linear(config.width, config.kv_heads * size, bias=False) for _ in range(2))
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.gate, self.up = (nn.Linear(config.width, config.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(config.hidden, config.width, bias=False)
        angles = torch.arange(config.positions)[:, None] * 10000.0 ** (-torch.arange(0, size, 2) / size)
        self.register_buffer("cosines", torch.cat((angles, angles), -1).cos(), persistent=False)
        self.register_buffer("sines", torch.cat((angles, angles), -1).sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: x and the result are (batch, tokens, width)."""
        q, k, v = (
            _heads(part(normed), heads)
            for normed in (self.first(x),)
            for part, heads in (
                (self.q, self.config.heads),
                (self.k, self.config.kv_heads),
                (self.v, self.config.kv_heads),
            )
        )
        q, k = (self._turned(each) for each in (q, k))
        attended = attend(self.config, q, k, v, causal=True)
        x = x + self.out(_merged(attended))
        normed = self.second(x)
        return x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))

    def _turned(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        cosines, sines = self.cosines[: x.shape[2]], self.sines[: x.shape[2]]  # type: ignore[index]
        return x * cosines + torch.cat((-second, first), dim=-1) * sines


GPT2 = Config()
BERT = Config(words=30522, positions=512)
LLAMA = Config(layers=1, width=1024, heads=16, kv_heads=4, hidden=2816, words=0, positions=2048)


def small(config: Config) -> Config:
    """Return the same model at a size that computes in no time."""
    sizes = {"width": 32, "heads": 4, "kv_heads": 4 if config.kv_heads == config.heads else 2, "hidden": 64}
    return replace(config, layers=min(config.layers, 2), words=min(config.words, 50), positions=64, **sizes)


def gpt2_prefill(config: Config = GPT2, tokens: int = 128) -> tuple[nn.Module, tuple[Tensor]]:
    """Return GPT-2 small and the tokens that are read at once."""
    torch.manual_seed(0)
    return Gpt2(config).eval(), (torch.randint(config.words, (1, tokens)),)


def gpt2_decode(config: Config = GPT2, before: int = 128) -> tuple[nn.Module, tuple[Tensor, Caches]]:
    """Return GPT-2 small, one token, and the caches of those before it."""
    torch.manual_seed(0)
    shape = (1, config.heads, before, config.width // config.heads)
    caches = tuple((torch.randn(shape), torch.randn(shape)) for _ in range(config.layers))
    return Gpt2(config).eval(), (torch.randint(config.words, (1, 1)), caches)


def bert(config: Config = BERT, tokens: int = 128) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Return BERT-base, tokens, and a mask that leaves the last eighth of them out."""
    torch.manual_seed(0)
    counts = (torch.arange(tokens) < tokens - tokens // 8).float()[None]
    return Bert(config).eval(), (torch.randint(config.words, (1, tokens)), counts)


def llama_block(config: Config = LLAMA, tokens: int = 128) -> tuple[nn.Module, tuple[Tensor]]:
    """Return a block of width 1024, 16 heads of queries over 4 of keys, and the features of some tokens."""
    torch.manual_seed(0)
    return LlamaBlock(config).eval(), (torch.randn(1, tokens, config.width),)


BUILDERS = {gpt2_prefill: GPT2, gpt2_decode: GPT2, bert: BERT, llama_block: LLAMA}


def error(module: nn.Module, inputs: tuple[Any, ...], results: Any) -> float:
    """Return how far results are from float64, of the largest element of each; the module is float64 from then on."""
    wide = pytree.tree_map(lambda x: x.double() if x.is_floating_point() else x, inputs)
    pairs = zip(pytree.tree_leaves(results), pytree.tree_leaves(module.double()(*wide)), strict=True)
    return max(float((found - exact).abs().max() / exact.abs().max()) for found, exact in pairs)


def main() -> None:
    """Compile each without a search, compare with float64, and time a call; ``small`` is for a quick look."""
    for build, config in BUILDERS.items():
        module, inputs = build(small(config), 8) if "small" in sys.argv[1:] else build()
        started = time.perf_counter()
        fast = tracea.optimize(module, inputs, budget=None)
        compiled = time.perf_counter() - started
        times = []
        with torch.inference_mode():
            for _ in range(10):
                started = time.perf_counter()
                results = fast(*inputs)
                times.append(time.perf_counter() - started)
            off = error(module, inputs, results)
        print(f"{build.__name__}: compiled in {compiled:.1f} s, error {off:.1e}, {1e3 * min(times):.2f} ms a call")


if __name__ == "__main__":
    main()
