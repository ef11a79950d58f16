"""What attention means in NumPy float64, and how far a correct kernel's result may lie from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.function import Array
from tracea.core.interval import around, enclose
from tracea.core.ops.attention import SPAN_FIELDS, AttentionOp

__all__ = [
    "attention_error",
    "attention_scores",
    "attention_value",
    "hidden_from",
    "hidden_pairs",
    "normalised_weights",
    "unclaimed_sums",
]

_FAINT: Final = 16.0  # of the smallest normal number: a weight below may be flushed


def hidden_pairs(first_query: int, queries: int, first_key: int, keys: int, *, causal: bool, window: int | None) -> Any:
    """Return which keys (columns) each query (row) does not see, for positions from the first ones on."""
    distance = (first_query + np.arange(queries))[:, None] - (first_key + np.arange(keys))[None, :]
    hidden = np.zeros(distance.shape, dtype=np.bool_)
    if causal:
        hidden |= distance < 0
    if window is not None:
        hidden |= np.abs(distance) >= window
    return hidden


def hidden_from(op: AttentionOp, arrays: Sequence[Array]) -> Any:
    """Return the pairs that an op's mask by position, or its tables, hide: broadcasts to (batch, heads, s, t)."""
    batch, heads, queries, _ = op.q.static_shape
    keys = op.k.static_shape[2]
    if op.spans is None:
        return hidden_pairs(0, queries, 0, keys, causal=op.causal, window=op.window)
    first, spans = (np.asarray(table, dtype=np.int64) for table in arrays[-2:])
    shape = (batch, heads) if op.spans.each else (1, 1)
    seen = np.zeros((math.prod(shape), queries, keys), dtype=np.bool_)
    blocks = max(1, -(-queries // op.spans.rows))
    distance = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    for number in range(len(first) - 1):
        for span in range(first[number], first[number + 1]):
            begin, end, key_begin, key_end, behind, ahead = spans[span * SPAN_FIELDS : (span + 1) * SPAN_FIELDS]
            part = distance[begin:end, key_begin:key_end]
            seen[number // blocks, begin:end, key_begin:key_end] |= (part >= -behind) & (part <= ahead)
    return ~seen.reshape(*shape, queries, keys)


def attention_scores(op: AttentionOp, arrays: Sequence[Array]) -> Array:
    """Return the scores (batch, heads, s, t) that the softmax takes, -inf where the mask hides the key."""
    q, k = arrays[:2]
    operands = arrays[3 : 3 + len(op.score.operands)]
    products = op.softmax_scale * (q @ np.repeat(k, q.shape[1] // max(1, k.shape[1]), axis=1).swapaxes(-1, -2))
    scores = np.broadcast_to(op.score.expr.evaluate([products, *operands]), products.shape)
    return np.where(hidden_from(op, arrays), -np.inf, scores)


def normalised_weights(scores: Array) -> tuple[Array, Array]:
    """Return ``exp(scores - peak)`` over its sum, and the distances from the peak; zeros where no key is seen."""
    peak = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    distance = scores - np.where(peak == -np.inf, 0.0, peak)
    e = np.exp(distance)
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0.0, 1.0, total), distance


def attention_value(op: AttentionOp, arrays: Sequence[Array]) -> Array:
    """Return the weighted sums of values; a value that is not finite reaches only the queries that see its key."""
    q, _, v = arrays[:3]
    weights, _ = normalised_weights(attention_scores(op, arrays))
    values = np.repeat(v, q.shape[1] // max(1, v.shape[1]), axis=1)
    found = weights @ np.where(np.isfinite(values), values, 0.0)
    if np.isfinite(values).all():
        return found
    seen = ~hidden_from(op, arrays)
    shares = np.where(np.isnan(weights), 1.0, weights)
    for odd in (np.inf, -np.inf):
        reached = (seen & (shares > 0.0)).astype(np.float64) @ (values == odd).astype(np.float64) > 0
        found = found + np.where(reached, odd, 0.0)
    lost = (seen & (shares == 0.0)).astype(np.float64) @ np.isinf(values).astype(np.float64) > 0
    lost |= np.broadcast_to(seen, weights.shape).astype(np.float64) @ np.isnan(values).astype(np.float64) > 0
    return np.where(lost, np.nan, found)


def unclaimed_sums(op: AttentionOp, arrays: Sequence[Array], compute: DType) -> Array:
    """Return of which results nothing is claimed: zeros may meet values that are not finite, or sums may overflow.

    A kernel may weigh a block's hidden keys by 0, or not read them, and a weight that is no normal number may be
    flushed; so nothing is claimed where a value that is not finite stands at such a key. Weights are relative to the
    largest one until the end, so that a sum may be as large as all values that a query sees together.
    """
    q, _, v = arrays[:3]
    values = np.repeat(v, q.shape[1] // max(1, v.shape[1]), axis=1)
    odd = ~np.isfinite(values)
    scores = attention_scores(op, arrays)
    _, distance = normalised_weights(scores)
    faint = (distance < math.log(_FAINT * compute.smallest / compute.eps)) & (scores > -np.inf)
    beside = (hidden_from(op, arrays) | faint).astype(np.float64) @ odd.astype(np.float64) > 0
    together = (scores > -np.inf).astype(np.float64) @ np.where(odd, 0.0, np.abs(values))
    return beside | (together > compute.largest)


def weight_error(
    op: AttentionOp, arrays: Sequence[Array], compute: DType, constant: Callable[[int], float]
) -> tuple[Array, Array]:
    """Return the largest relative error of the weights, and the largest of the scaled products.

    Shapes: both (batch, heads, s, t).
    """
    q, k = arrays[:2]
    operands = arrays[3 : 3 + len(op.score.operands)]
    eps = compute.eps
    keys = np.repeat(k, q.shape[1] // max(1, k.shape[1]), axis=1).swapaxes(-1, -2)
    scores = attention_scores(op, arrays)
    seen = np.isfinite(scores)
    of_products = (constant(q.shape[3]) + 3) * eps * np.abs(op.softmax_scale) * (np.abs(q) @ np.abs(keys))
    error = of_products
    if not op.score.is_identity:
        products = op.softmax_scale * (q @ keys)
        low, high = enclose(op.score.expr, [around(products, error), *((x, x) for x in operands)], compute)
        error = np.maximum(high - scores, scores - low)
    error = np.where(seen, error, 0.0)
    _, distance = normalised_weights(np.where(seen, scores, -np.inf))
    shift = error + 2 * eps * np.where(seen, np.abs(distance), 0.0)
    relative = np.expm1(shift + np.max(shift, axis=-1, keepdims=True, initial=0.0) + 16 * eps)
    # A kernel may round the weights to the storage type before the second product, as matrix units ask for.
    return relative + op.q.dtype.eps + 2 * constant(k.shape[2]) * eps, of_products


def attention_error(
    op: AttentionOp, arrays: Sequence[Array], compute: DType, constant: Callable[[int], float]
) -> Array:
    """Return the largest error of the weighted sums; ``constant`` is that of a sum of so many terms, in eps."""
    q, _, v = arrays[:3]
    values = np.abs(np.repeat(v, q.shape[1] // max(1, v.shape[1]), axis=1))
    scores = attention_scores(op, arrays)
    seen = np.isfinite(scores)
    weights, _ = normalised_weights(np.where(seen, scores, -np.inf))
    relative, _ = weight_error(op, arrays, compute, constant)
    # What would underflow, or is about to, may be flushed, of a sum that is at least 1: twice the smallest normal.
    shares = weights * relative + np.where(seen, 2 * compute.smallest / compute.eps, 0.0)
    values = np.where(np.isfinite(values), values, 0.0)
    # A product of a weight and a value next to zero loses half the smallest, and what rescales its sum as much again.
    lost = 2 * compute.smallest * (seen.astype(np.float64) @ (values > 0.0))
    return shares @ values + lost
