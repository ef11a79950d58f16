"""The attention kernels that the tests compile: masks, shared key heads, scores, element types, strides, tails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.kernels.conformance import Case

from tracea.core.dtype import DType
from tracea.core.expr import Input, select, tanh
from tracea.core.op import AttentionOp, Epilogue
from tracea.core.tensor_type import StridedLayout, TensorType

F32, BOOL = DType.F32, DType.BOOL
NEVER = float("-inf")
SOFT_CAP = Epilogue(tanh(Input(0) / 5.0) * 5.0)


def attention(  # noqa: PLR0917 - the axes, in their order
    batch: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    s: int = 37,
    t: int = 45,
    d: int = 16,
    dv: int | None = None,
    dtype: DType = F32,
    **more: Any,
) -> AttentionOp:
    """Return an attention over contiguous tensors."""
    q, k = TensorType((batch, heads, s, d), dtype), TensorType((batch, kv_heads, t, d), dtype)
    v = TensorType((batch, kv_heads, t, d if dv is None else dv), dtype)
    return AttentionOp(q=q, k=k, v=v, **more)


def tokens_first(batch: int, tokens: int, heads: int, size: int, dtype: DType = F32) -> TensorType:
    """Return (batch, heads, tokens, size) of a tensor that lies as (batch, tokens, heads, size), as a model's does."""
    row = heads * size
    return TensorType((batch, heads, tokens, size), dtype, StridedLayout((tokens * row, size, row, 1)))


def strided_attention(s: int = 19) -> AttentionOp:
    """Every tensor with elements apart."""
    q = TensorType((2, 2, s, 10), F32, StridedLayout((2000, 7, 60, 14)))
    k = TensorType((2, 2, 23, 10), F32, StridedLayout((1, 2, 4, 100)))
    v = TensorType((2, 2, 23, 7), F32, StridedLayout((900, 3, 40, 6)))
    out = TensorType((2, 2, s, 7), F32, StridedLayout((600, 300, 1, 21)))
    return AttentionOp(q=q, k=k, v=v, causal=True, out=out)


def added(*shape: int, dtype: DType = F32) -> Epilogue:
    """Return the score with a mask that is added."""
    return Epilogue(Input(0) + Input(1), (TensorType(shape, dtype),))


def allowed(*shape: int) -> Epilogue:
    """Return the score with a mask that says which keys are seen."""
    return Epilogue(select(Input(1), Input(0), NEVER), (TensorType(shape, BOOL),))


def alibi(heads: int, s: int, t: int) -> Epilogue:
    """Return a slope a head times the distance, from tensors of slopes and positions."""
    operands = (TensorType((heads, 1, 1), F32), TensorType((s, 1), F32), TensorType((t,), F32))
    return Epilogue(Input(0) + Input(1) * (Input(3) - Input(2)), operands)


def decode_cases() -> tuple[Case, ...]:
    """Kernels for few queries: keys in parts, those of a part in blocks, heads that share keys."""
    parts = {"part": 512, "bk": 64}
    short = {"heads": 2, "kv_heads": 1, "s": 3}
    cached = AttentionOp(q=tokens_first(1, 2, 4, 16), k=tokens_first(1, 700, 2, 16), v=tokens_first(1, 700, 2, 16))
    return tuple(
        Case.of(f"decode_{name}", "attention.decode", op, **schedule)
        for name, op, schedule in (
            ("default", attention(1, 2, 2, 1, 1100, 64), {}),
            ("parts", attention(2, 4, 2, 3, 1100, 24, 20), parts),
            ("one_part", attention(1, 2, 2, 5, 70, 16, 80), parts),
            ("no_keys", attention(1, 2, 2, 5, 0, 16), parts),
            ("causal", attention(**{**short, "s": 15}, t=530, causal=True), parts),
            ("window", attention(**short, t=1100, window=600), parts),
            ("causal_window", attention(**{**short, "s": 15}, t=530, causal=True, window=4), parts),
            ("f64", attention(**short, t=600, dtype=DType.F64), parts),
            ("f16", attention(**short, t=600, dtype=DType.F16), parts),
            ("bf16", attention(**short, t=600, d=17, dv=7, dtype=DType.BF16), parts),
            ("interleaved", cached, parts),
            ("copied", cached, {**parts, "copy_keys": 1, "copy_values": 1}),
            ("strided", replace(strided_attention(5), causal=False), parts),
            ("allowed", attention(**short, t=1100, score=allowed(1, 1, 1, 1100)), parts),
            ("alibi", attention(1, 4, 2, 2, 600, score=alibi(4, 2, 600)), parts),
            ("negative_scale", attention(**short, t=600, scale=-0.3), parts),
        )
    )


def attention_cases() -> tuple[Case, ...]:
    """Kernels of every structure, for all instruction sets; blocks are small, so that there are several with tails."""
    return (*flash_cases(), *decode_cases())


def flash_cases() -> tuple[Case, ...]:
    """Kernels for blocks of queries."""
    small = {"bk": 16}
    one = {"heads": 2, "kv_heads": 2}
    interleaved = AttentionOp(
        q=tokens_first(2, 37, 4, 16), k=tokens_first(2, 45, 2, 16), v=tokens_first(2, 45, 2, 16), causal=True
    )
    return tuple(
        Case.of(f"attention_{name}", "attention.flash", op, **schedule)
        for name, op, schedule in (
            ("default", attention(1, 2, 2, 65, 300, 64), {}),
            ("dense", attention(dv=20), small),
            ("causal", attention(s=130, t=131, causal=True), small),
            ("window", attention(s=130, t=100, window=5), small),
            ("causal_window", attention(s=130, t=100, causal=True, window=40), small),
            ("far_window", attention(s=150, t=20, window=9), small),
            ("few_keys", attention(t=3, **one), small),
            ("no_keys", attention(t=0, **one), small),
            ("one_query", attention(s=1, t=70, **one), small),
            ("f64", attention(dtype=DType.F64, causal=True), small),
            ("f16", attention(dtype=DType.F16, causal=True), small),
            ("bf16", attention(dtype=DType.BF16, dv=7), small),
            ("interleaved", interleaved, small),
            ("copied", interleaved, {**small, "copy_keys": 1, "copy_values": 1}),
            ("strided", strided_attention(), small),
            ("added", attention(score=added(37, 45)), small),
            ("added_by_head", attention(score=added(2, 4, 37, 45, dtype=DType.F16)), small),
            ("allowed_keys", attention(score=allowed(2, 1, 1, 45), causal=True), small),
            ("allowed", attention(score=allowed(37, 45)), small),
            ("alibi", attention(score=alibi(4, 37, 45), causal=True), small),
            ("soft_cap", attention(score=SOFT_CAP, window=20), small),
            ("negative_scale", attention(scale=-0.3), small),
            ("no_scale", attention(scale=0.0, causal=True), small),
        )
    )
