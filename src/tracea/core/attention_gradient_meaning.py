"""What the gradients of attention are in NumPy float64, and how far a correct kernel's may lie from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tracea.core.attention_meaning import attention_scores, normalised_weights, weight_error
from tracea.core.dtype import DType
from tracea.core.function import Array
from tracea.core.interval import around, enclose
from tracea.core.ops.attention_gradient import AttentionGradientOp

__all__ = ["attention_gradient_error", "attention_gradient_value"]

_FLUSHED_TERMS = 3  # of a product of sums of terms, each of which may lose half of what a number may


@dataclass(frozen=True, slots=True)
class _Pairs:
    """What is known of each pair: (batch, key heads, sharing, s, t); operands with their heads split likewise."""

    weights: Array
    changes: Array  # of the products, by the scores
    delta: Array
    rated: Array  # g vᵀ
    slope: Array

    @classmethod
    def of(cls, op: AttentionGradientOp, arrays: Sequence[Array]) -> _Pairs:
        grad, y, q, k, v, *operands = arrays
        forward, kv_heads = op.forward, k.shape[1]
        scores = attention_scores(forward, arrays[2:])
        weights, _ = normalised_weights(scores)
        products = forward.softmax_scale * (q @ np.repeat(k, _sharing(q, k), axis=1).swapaxes(-1, -2))
        slope = np.broadcast_to(op.slope.evaluate([products, *operands]), scores.shape)
        g = _split(grad, kv_heads)
        rated = g @ v[:, :, None].swapaxes(-1, -2)
        delta = (g * _split(y, kv_heads)).sum(axis=-1, keepdims=True)
        w, slope = _split(weights, kv_heads), _split(slope, kv_heads)
        seen = _split(np.isfinite(scores), kv_heads)
        changes = np.where(seen, w * (rated - delta) * np.where(seen, slope, 0.0) * forward.softmax_scale, 0.0)
        return cls(w, changes, delta, rated, slope)


def attention_gradient_value(op: AttentionGradientOp, arrays: Sequence[Array]) -> Array:
    """Return the three gradients, flattened one after the other."""
    grad, _, q, k = arrays[:4]
    pairs = _Pairs.of(op, arrays)
    return _joined(pairs.weights, pairs.changes, grad, q, k)


def _joined(weights: Array, changes: Array, grad: Array, q: Array, k: Array) -> Array:
    kv_heads = k.shape[1]
    dq = changes @ k[:, :, None]
    dk = (changes.swapaxes(-1, -2) @ _split(q, kv_heads)).sum(axis=2)
    dv = (weights.swapaxes(-1, -2) @ _split(grad, kv_heads)).sum(axis=2)
    return np.concatenate([part.reshape(-1) for part in (dq, dk, dv)])


def attention_gradient_error(
    op: AttentionGradientOp, arrays: Sequence[Array], compute: DType, constant: Callable[[int], float]
) -> Array:
    """Return the largest error of each element; ``constant`` is that of a sum of so many terms, in eps."""
    grad, y, q, k, v, *operands = arrays
    pairs, kv_heads, eps = _Pairs.of(op, arrays), k.shape[1], compute.eps
    relative, product_error = weight_error(op.forward, arrays[2:], compute, constant)
    relative = _split(relative, kv_heads)
    # A weight or a slope that is no normal number may be flushed, and so may what it is multiplied to: a key of such
    # weights alone has a gradient of their size.
    flushed = 2 * compute.smallest / compute.eps
    weights = pairs.weights * relative + flushed
    g, width = np.abs(_split(grad, kv_heads)), v.shape[-1]
    rated = g @ np.abs(v)[:, :, None].swapaxes(-1, -2)
    delta = (g * np.abs(_split(y, kv_heads))).sum(axis=-1, keepdims=True)
    difference = (constant(width) + 2) * eps * (rated + delta)
    products = op.forward.softmax_scale * (q @ np.repeat(k, _sharing(q, k), axis=1).swapaxes(-1, -2))
    low, high = enclose(op.slope, [around(products, product_error), *((x, x) for x in operands)], compute)
    slope_error = np.broadcast_to(np.maximum(high - low, 0.0), products.shape)
    slope = np.abs(pairs.slope)
    scale = abs(op.forward.softmax_scale)
    far = np.abs(pairs.rated - pairs.delta) + difference
    steep = slope + _split(slope_error, kv_heads)
    changes = scale * (weights * far * steep + pairs.weights * (difference * steep + far * (steep - slope)))
    changes = changes + 6 * eps * np.abs(pairs.changes) + flushed
    counts = (k.shape[2], q.shape[2] * _sharing(q, k))
    sums = [(constant(count) + 1) * eps for count in counts]
    spread = _joined(weights, changes, np.abs(grad), np.abs(q), np.abs(k))
    size = _joined(pairs.weights, np.abs(pairs.changes), np.abs(grad), np.abs(q), np.abs(k))
    first = np.arange(size.size) < q.size
    lost = _FLUSHED_TERMS * flushed * np.where(first, *map(float, counts))
    return (spread + np.where(first, *sums) * (size + spread) + lost) * (1.0 + eps)


def _sharing(q: Array, k: Array) -> int:
    return q.shape[1] // max(1, k.shape[1])


def _split(array: Array, kv_heads: int) -> Array:
    """Return (batch, heads, …) as (batch, key heads, heads that share it, …)."""
    return array.reshape(array.shape[0], kv_heads, array.shape[1] // max(1, kv_heads), *array.shape[2:])
