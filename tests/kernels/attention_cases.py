"""The attention kernels that the tests compile: masks, shared key heads, scores, element types, strides, tails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.kernels.conformance import Case

from tracea.core.dtype import DType
from tracea.core.expr import Input, select, tanh
from tracea.core.op import AttentionGradientOp, AttentionOp, Epilogue, Op, PairSpans
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.kernels.attention.spans import Band, span_tables
from tracea.kernels.registry import find
from tracea.semantic.tile_builders import (
    TileGrid,
    block_sparse_tiles,
    causal_tiles,
    dense_tiles,
    local_global_tiles,
    ragged_tiles,
    windowed_tiles,
)
from tracea.semantic.tile_table import TileTable
from tracea.targets import load

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


def listed(tables: Sequence[TileTable], rows: int, band: Band, **more: Any) -> tuple[AttentionOp, list[np.ndarray]]:
    """Return an attention over the pairs of tile tables, of one or of each of 2 x 4 heads, with its two tables."""
    s, t, d = tables[0].extents
    spans, first, fields = span_tables(tables, rows=rows, band=band, each=len(tables) > 1)
    return attention(s=s, t=t, d=d, spans=spans, **more), [first, fields]


def tiling(kind: str) -> tuple[list[TileTable], int, Band]:
    """Return tile tables of every kind, the queries of a list, and what is seen by position."""
    grid = TileGrid(rows=130, columns=100, depth=16, tile_rows=48, tile_columns=32)
    mask = np.random.default_rng(5).random((9, 7)) < 0.4
    blocks = TileGrid(rows=130, columns=100, depth=16, tile_rows=16, tile_columns=16)
    ragged = {"depth": 16, "tile_rows": 32, "tile_columns": 16}
    each = [np.random.default_rng(number).random((9, 7)) < 0.5 for number in range(8)]
    match kind:
        case "dense":
            return [dense_tiles(grid)], 48, Band()
        case "causal":
            return [causal_tiles(grid)], 48, Band(causal=True)
        case "windowed":
            return [windowed_tiles(grid, 9)], 48, Band(window=9)
        case "local_global":
            return [local_global_tiles(grid, 7, 20, causal=True)], 40, Band(window=7, global_tokens=20, causal=True)
        case "blocks":
            return [block_sparse_tiles(blocks, mask)], 48, Band()
        case "blocks_by_head":
            return [block_sparse_tiles(blocks, each_mask) for each_mask in each], 64, Band(causal=True)
        case "ragged":
            return [ragged_tiles([40, 0, 1, 64, 25], [10, 5, 0, 64, 21], **ragged)], 48, Band()
        case "ragged_causal":
            return [ragged_tiles([70, 60], [50, 50], causal=True, **ragged)], 50, Band(causal=True, window=20)
        case _:
            raise AssertionError(kind)


TILINGS = ("dense", "causal", "windowed", "local_global", "blocks", "blocks_by_head", "ragged", "ragged_causal")


def listed_inputs(op: AttentionOp, tables: Sequence[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """Return random operands, and the tables."""
    operands = op.operands[: len(op.operands) - len(tables)]
    return [*(rng.standard_normal(x.static_shape).astype(x.dtype.numpy) for x in operands), *tables]


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
            ("side_by_side", attention(**{**short, "s": 15}, t=1100, d=40, dv=72, score=alibi(2, 15, 1100)), parts),
            ("streams", attention(1, 2, 2, 1, 1100, 24, 150), {"part": 700, "bk": 256}),
            ("streams_of_all", attention(**{**short, "s": 7}, t=1100, d=40, dv=72), {"part": 700, "bk": 512}),
            ("added", attention(**{**short, "s": 5}, t=700, score=added(5, 700)), {"part": 700, "bk": 256}),
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


def random_attention(number: int, rng: np.random.Generator) -> AttentionOp:
    """Return an attention of one batch with up to 600 tokens; ``number`` from 0 to 5 chooses the form of its score."""
    kv_heads, sharing = (int(value) for value in rng.integers(1, 4, 2))
    s, t = (int(value) for value in rng.integers(1, 600, 2))
    heads = kv_heads * sharing
    score = (None, added(s, t), allowed(1, heads, s, t), alibi(heads, s, t), SOFT_CAP, None)[number]
    more = {} if score is None else {"score": score}
    window = (None, int(rng.integers(1, 90)))[int(rng.integers(2))]
    d, dv = (int(value) for value in rng.integers(1, 130, 2))
    return attention(1, heads, kv_heads, s, t, d, dv, causal=bool(rng.integers(2)), window=window, **more)


def random_case(number: int, op: Op, variant: str, rng: np.random.Generator) -> Case:
    """Return an op with any schedule of a variant's space on matrix tiles."""
    space = find(variant).space
    assert space is not None
    schedules = space(op, load("amx"))
    chosen = schedules.schedule(schedules.rows[int(rng.integers(0, len(schedules)))])
    return Case.of(f"random{number}", variant, op, **dict(chosen))


def gradient(forward: AttentionOp, grad: TensorType | None = None) -> AttentionGradientOp:
    """Return the gradients of an attention."""
    y = TensorType(forward.shape, forward.q.dtype)
    return AttentionGradientOp(forward=forward, grad=y if grad is None else grad, y=y)


def gradient_cases() -> tuple[Case, ...]:
    """Kernels of gradients: blocks are small, so that there are several of queries and of keys, with tails."""
    small = {"bq": 16, "bk": 24}
    strided = replace(strided_attention(), out=None)
    position = alibi(4, 37, 45)
    return tuple(
        Case.of(f"gradient_{name}", "attention.gradient", op, **schedule)
        for name, op, schedule in (
            ("default", gradient(attention(1, 2, 2, 65, 300, 64)), {}),
            ("dense", gradient(attention(s=150, dv=20)), small),
            ("wide", gradient(attention(1, 2, 2, s=70, d=140, dv=70)), small),
            ("causal", gradient(attention(s=130, t=131, causal=True)), small),
            ("causal_window", gradient(attention(s=130, t=100, causal=True, window=40)), small),
            ("far_window", gradient(attention(s=150, t=20, window=9)), small),
            ("no_keys", gradient(attention(t=0)), small),
            ("f64", gradient(attention(dtype=DType.F64, causal=True)), small),
            ("bf16", gradient(attention(dtype=DType.BF16, dv=7)), small),
            ("strided", gradient(strided, TensorType((2, 2, 19, 7), F32, StridedLayout((600, 300, 1, 21)))), small),
            ("added", gradient(attention(score=added(37, 45))), small),
            ("allowed", gradient(attention(score=allowed(37, 45), causal=True)), small),
            ("alibi", gradient(attention(score=position)), small),
            ("soft_cap", gradient(attention(score=SOFT_CAP, window=20)), small),
            ("negative_scale", gradient(attention(scale=-0.3)), small),
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
            ("spans", attention(s=130, t=100, spans=PairSpans(rows=48, room=64)), small),
            ("spans_by_head", attention(s=70, t=100, spans=PairSpans(rows=24, room=512, each=True)), small),
            ("spans_scored", attention(s=70, dv=7, score=SOFT_CAP, spans=PairSpans(rows=70, room=64)), small),
            ("spans_bf16", attention(s=50, dtype=DType.BF16, spans=PairSpans(rows=64, room=64)), small),
        )
    )


def attention_tile_cases() -> tuple[Case, ...]:
    """Kernels on matrix tiles: the forms of score, mask and layout that they take, with blocks that leave tails."""
    small = {"bq": 64, "bk": 32}
    one = {"heads": 2, "kv_heads": 2}
    return tuple(
        Case.of(f"amx_attention_{name}", "attention.amx", op, **schedule)
        for name, op, schedule in (
            ("default", attention(1, 2, 2, 65, 300, 64), {}),
            ("dense", attention(d=40, dv=70), small),
            ("causal", attention(s=130, t=131, causal=True), small),
            ("panels", attention(1, 2, 1, 200, 230, 33, 31, causal=True), {"bq": 224, "bk": 96}),
            ("window", attention(s=130, t=100, window=5), {"bq": 128, "bk": 64}),
            ("causal_window", attention(s=130, t=100, causal=True, window=40), small),
            ("far_window", attention(s=150, t=20, window=9), small),
            ("few_keys", attention(t=3, **one), small),
            ("no_keys", attention(t=0, **one), small),
            ("one_query", attention(s=1, t=70, **one), small),
            ("strided", strided_attention(), small),
            ("bf16", attention(s=130, t=131, d=40, dtype=DType.BF16, causal=True), small),
            ("bf16_window", attention(s=130, t=100, d=64, dv=33, dtype=DType.BF16, window=40), small),
            ("f16", attention(s=70, t=131, dv=20, dtype=DType.F16), small),
            ("mixed", replace(attention(s=70), q=TensorType((2, 4, 70, 16), DType.BF16)), small),
            ("added", attention(score=added(37, 45)), small),
            ("allowed", attention(score=allowed(37, 45)), small),
            ("alibi", attention(score=alibi(4, 37, 45), causal=True), small),
            ("soft_cap", attention(score=SOFT_CAP, window=20), small),
            ("negative_scale", attention(scale=-0.3), small),
        )
    )


def gradient_tile_cases() -> tuple[Case, ...]:
    """Gradients on matrix tiles: the forms that attention takes there, with several blocks of queries and of keys."""
    small = {"bq": 64, "bk": 32}
    grad = TensorType((2, 2, 19, 7), F32, StridedLayout((600, 300, 1, 21)))
    return tuple(
        Case.of(f"amx_gradient_{name}", "attention.gradient_amx", op, **schedule)
        for name, op, schedule in (
            ("default", gradient(attention(1, 2, 2, 65, 300, 64)), {}),
            ("dense", gradient(attention(d=40, dv=70)), small),
            ("causal", gradient(attention(s=130, t=131, causal=True)), small),
            ("panels", gradient(attention(1, 2, 1, 200, 230, 33, 31, causal=True)), {"bq": 224, "bk": 96}),
            ("window", gradient(attention(s=130, t=100, window=5)), {"bq": 128, "bk": 64}),
            ("causal_window", gradient(attention(s=130, t=100, causal=True, window=40)), small),
            ("far_window", gradient(attention(s=150, t=20, window=9)), small),
            ("few_keys", gradient(attention(t=3)), small),
            ("no_keys", gradient(attention(t=0)), small),
            ("one_query", gradient(attention(s=1, t=70)), small),
            ("bf16", gradient(attention(s=130, t=131, dtype=DType.BF16, causal=True)), small),
            ("f16", gradient(attention(s=70, t=131, dv=20, dtype=DType.F16)), small),
            ("added", gradient(attention(score=added(37, 45))), small),
            ("allowed", gradient(attention(score=allowed(37, 45), causal=True)), small),
            ("alibi", gradient(attention(score=alibi(4, 37, 45))), small),
            ("soft_cap", gradient(attention(score=SOFT_CAP, window=20)), small),
            ("strided", gradient(replace(strided_attention(), out=None), grad), small),
            ("negative_scale", gradient(attention(scale=-0.3)), small),
        )
    )
