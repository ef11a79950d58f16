"""What is drawn for gradients of attention: large gradients, and queries that see no key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.core.op import AttentionGradientOp

__all__ = ["extreme_gradients", "hidden_queries"]

_SPREAD = 2.0**10  # of products of normal values, and room for their sums


def extreme_gradients(op: AttentionGradientOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Make the result's gradients as large as leaves room for every sum over keys, queries and elements."""
    del rng
    forward, kind = op.forward, op.grad.dtype
    (_, heads, queries, _), (_, _, keys, width) = forward.q.static_shape, forward.v.static_shape
    terms = max(1, width) * max(1, keys, heads * queries) * max(1.0, abs(forward.softmax_scale))
    values[0] = values[0] * (min(kind.largest, kind.compute.largest) / (_SPREAD * terms))


def hidden_queries(op: AttentionGradientOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Let some queries see no key, where the score has an operand that says so."""
    queries, keys = op.forward.q.static_shape[2], op.forward.k.static_shape[2]
    for operand, array in zip(op.forward.score.operands, values[5:], strict=False):
        if operand.static_shape[-2:] != (queries, keys):
            continue
        hidden: Any = rng.random(queries) < 0.25
        array[..., hidden, :] = -np.inf if operand.dtype.is_float else 0.0
