"""What is drawn for gradients: large ones of attention, queries that see no key; rows of a norm as any slab's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracea.gates import inputs_slabs as slabs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.core.op import AttentionGradientOp, NormGradientOp, StatisticsOp

__all__ = ["extreme_gradients", "extreme_rows", "hidden_queries", "rows_far_from_zero", "special_rows"]

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


def rows_far_from_zero(op: NormGradientOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Rows of x about means far from zero."""
    _of_x(slabs.far_from_zero, op, values, rng)


def extreme_rows(op: NormGradientOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Rows of x as large as their squares may be, or subnormal; or the gradients, as large as their sums may be."""
    if rng.random() < 0.5:
        _of_x(slabs.extreme, op, values, rng)
    else:
        slabs.extreme(op.for_x, values, rng)


def special_rows(op: NormGradientOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Rows of x with infinities, or rows of gradients."""
    if rng.random() < 0.5:
        _of_x(slabs.special, op, values, rng)
    else:
        slabs.special(op.for_x, values, rng)


def _of_x(
    rule: Callable[[StatisticsOp, list[NDArray[np.float64]], np.random.Generator], None],
    op: NormGradientOp,
    values: list[NDArray[np.float64]],
    rng: np.random.Generator,
) -> None:
    alone = [values[1]]
    rule(op.normal, alone, rng)
    values[1] = alone[0]
