"""Lowerings of attention: torch's scaled_dot_product_attention as one op, whatever axes stand before the tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tracea.core.dtype import DType
from tracea.core.expr import Input, select
from tracea.core.op import AttentionOp, Epilogue
from tracea.core.ops.attention import like_queries

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.core.tensor_type import Dim, TensorType
    from tracea.interface.torch.lowering import Lowering

__all__ = ["flash_for_cpu", "scaled_dot_product_attention"]

_AXES: Final = 4  # (batch, heads, tokens, size)


def scaled_dot_product_attention(
    low: Lowering,
    q: Node,
    k: Node,
    v: Node,
    attn_mask: Node | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Node:
    """Lower attention; a mask is one of booleans, true where a key is seen, or is added."""
    if dropout_p > 0.0:
        low.refuse(f"dropout of {dropout_p} in attention", "call eval() on the module, or pass dropout_p=0.0")
    axes = q.type.rank
    if not (axes == k.type.rank == v.type.rank and axes >= 2):
        low.refuse(f"attention over {axes}, {k.type.rank} and {v.type.rank} axes", "give all of them the same axes")
    if not all(node.type.is_static for node in (q, k, v)):
        low.refuse("attention over a dynamic axis", "write it as products and a softmax, or compile each shape")
    if not q.type.dtype.is_float:
        low.refuse(f"attention over {q.type.dtype.value}", "convert it to floats")
    if axes > _AXES:
        k, v = (low.expand(node, (*q.type.shape[:-3], *node.type.shape[-3:])) for node in (k, v))
    queries, keys, values = (low.reshape(node, _four(node.type)) for node in (q, k, v))
    heads, kv_heads = queries.type.shape[1], keys.type.shape[1]
    if heads != kv_heads and not (enable_gqa or kv_heads == 1):
        low.refuse(f"{heads} query heads over {kv_heads} key heads", "pass enable_gqa=True")
    batch = queries.type.shape[0]
    keys, values = (_of_batch(low, node, batch) for node in (keys, values))
    masks = () if attn_mask is None else (_of_four(low, attn_mask, q.type.shape),)
    op = AttentionOp(
        q=queries.type,
        k=keys.type,
        v=values.type,
        causal=bool(is_causal),
        scale=scale,
        score=_score(masks),
    )
    op = replace(op, out=like_queries(op.q, op.infer()))
    part = "" if op.shape == low.shape else "heads"
    attended = low.graph.add(op, [queries, keys, values, *masks], name=low.label(part))
    return low.reshape(attended, low.shape)


def flash_for_cpu(
    low: Lowering,
    q: Node,
    k: Node,
    v: Node,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Node | None = None,
    scale: float | None = None,
) -> tuple[Node, None]:
    """Lower what torch makes of attention on a CPU, but for the logarithms of sums, which nothing may use."""
    gqa = q.type.rank == k.type.rank == _AXES and q.type.shape[1] != k.type.shape[1]
    result = scaled_dot_product_attention(low, q, k, v, attn_mask, dropout_p, is_causal, scale, gqa)
    return result, None


def _score(masks: Sequence[Node]) -> Epilogue:
    if not masks:
        return Epilogue.identity()
    (mask,) = masks
    seen = mask.type.dtype is DType.BOOL
    expr = select(Input(1), Input(0), float("-inf")) if seen else Input(0) + Input(1)
    return Epilogue(expr, (mask.type,))


def _four(given: TensorType) -> tuple[int, ...]:
    """Return an extent of batches, one of heads, and the last two; axes before the heads are all batches."""
    shape = given.static_shape
    *batch, heads = (1, 1, *shape[:-2])
    return (math.prod(batch), heads, *shape[-2:])


def _of_four(low: Lowering, mask: Node, queries: tuple[Dim, ...]) -> Node:
    """Return a mask for batches that are one axis, where those of the queries are several."""
    if len(queries) <= _AXES or mask.type.rank < _AXES:
        return mask
    batches = mask.type.shape[:-3]
    if any(dim != 1 for dim in batches):
        mask = low.expand(mask, (*queries[:-3], *mask.type.shape[-3:]))
    return low.reshape(mask, _four(mask.type))


def _of_batch(low: Lowering, node: Node, batch: Dim) -> Node:
    """Return keys or values of the queries' batch; one sequence of them serves all."""
    shape = node.type.shape
    return low.expand(node, (batch, *shape[1:])) if shape[0] == 1 and batch != 1 else node
