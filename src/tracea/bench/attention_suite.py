"""The attention suite: prefill, causal or not, windows over a long sequence, a few queries over a long cache."""

from __future__ import annotations

from tracea.bench.problem import Problem
from tracea.core.dtype import DType
from tracea.core.op import AttentionOp
from tracea.core.tensor_type import TensorType

__all__ = ["attention_problem", "attention_problems"]

_PREFILL = ((8, 512), (12, 1024), (8, 2048))
_WINDOWS = (128, 256)
_DECODED_KEYS = 32_768


def attention_problem(
    group: str, heads: int, queries: int, keys: int, *, causal: bool = False, window: int | None = None, size: int = 64
) -> Problem:
    """Attention of one sequence, every head with keys of its own."""
    q, k = TensorType((1, heads, queries, size), DType.F32), TensorType((1, heads, keys, size), DType.F32)
    mask = (" causal" if causal else "") + ("" if window is None else f" window {window}")
    shape = f"{heads}x{queries}x{size}" if queries == keys else f"{heads}x{queries}x{size} over {keys}"
    return Problem(name=f"{shape}{mask}", group=group, op=AttentionOp(q=q, k=k, v=k, causal=causal, window=window))


def attention_problems() -> tuple[Problem, ...]:
    """Return the suite's problems."""
    return (
        *(attention_problem("dense", heads, s, s) for heads, s in _PREFILL),
        *(attention_problem("causal", heads, s, s, causal=True) for heads, s in _PREFILL),
        attention_problem("window", 8, 4096, 4096),
        *(attention_problem("window", 8, 4096, 4096, window=window) for window in _WINDOWS),
        *(attention_problem("decode", 12, queries, _DECODED_KEYS) for queries in (1, 8)),
    )
