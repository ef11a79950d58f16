"""What the nodes of attention's gradients do to memory, in NumPy."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from tracea.core.attention_meaning import hidden_pairs
from tracea.semantic.execute import region
from tracea.semantic.execute_attention import by_query, matrix
from tracea.semantic.machine import Array, Executor
from tracea.semantic.nodes_attention_gradient import (
    AttentionDeltas,
    AttentionGradient,
    AttentionPeaks,
    AttentionSlopeEnd,
    KeyBlock,
)

__all__ = ["GradientNode", "differentiate"]

GradientNode: TypeAlias = AttentionPeaks | AttentionDeltas | AttentionGradient | AttentionSlopeEnd


def differentiate(node: GradientNode, executor: Executor) -> None:
    """Execute one node of attention's gradients.

    Raises:
        RunError: an access out of bounds.
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore", divide="ignore"):
        match node:
            case AttentionPeaks():
                _peaks(node, executor)
            case AttentionDeltas():
                grads, results = (by_query(region(part, executor, node)) for part in (node.grads, node.results))
                totals, deltas = region(node.totals, executor, node), region(node.deltas, executor, node)
                deltas[...] = (grads.astype(np.float64) * results).sum(axis=1).reshape(deltas.shape)
                totals[...] = np.where(totals == 0.0, 0.0, 1.0 / np.where(totals == 0.0, 1.0, totals))
            case AttentionGradient():
                _gradient(node, executor)
            case AttentionSlopeEnd():
                target = region(node.target, executor, node)
                rows = math.prod(target.shape[:-1])
                target[...] = by_query(region(node.sums, executor, node))[:rows].reshape(target.shape)


def _products(node: KeyBlock, executor: Executor) -> tuple[Array, Array, list[Array]]:
    """Return the scaled products of a block, which pairs are hidden, and the score's operands."""
    rows, first_query, first_key = (
        int(i.evaluate(executor.env)) for i in (node.rows, node.first_query, node.first_key)
    )
    queries = by_query(region(node.queries, executor, node)).astype(np.float64)[:rows]
    keys = matrix(region(node.keys, executor, node)).astype(np.float64)
    hidden = hidden_pairs(first_query, rows, first_key, len(keys), causal=node.causal, window=node.window)
    operands = [matrix(region(part, executor, node)).astype(np.float64) for part in node.operands]
    region(node.scores, executor, node)[...] = np.nan  # whatever the routine leaves there
    return node.scale * (queries @ keys.T), hidden, operands


def _scores(node: KeyBlock, products: Array, hidden: Array, operands: list[Array]) -> Array:
    return np.where(hidden, -np.inf, np.broadcast_to(node.score.evaluate([products, *operands]), products.shape))


def _peaks(node: AttentionPeaks, executor: Executor) -> None:
    scores = _scores(node, *_products(node, executor))
    rows = len(scores)
    peaks, totals = (region(part, executor, node) for part in (node.peaks, node.totals))
    peak, total = peaks.reshape(-1).copy(), totals.reshape(-1).copy()
    top = np.maximum(peak[:rows], scores.max(axis=1, initial=-np.inf))
    shift = np.where(top == -np.inf, 0.0, top)
    total[:rows] = total[:rows] * np.exp(peak[:rows] - shift) + np.exp(scores - shift[:, None]).sum(axis=1)
    peak[:rows] = top
    peaks[...], totals[...] = peak.reshape(peaks.shape), total.reshape(totals.shape)


def _gradient(node: AttentionGradient, executor: Executor) -> None:
    products, hidden, operands = _products(node, executor)
    scores = _scores(node, products, hidden, operands)
    rows = len(scores)
    peak, inverse, delta = (
        region(part, executor, node).reshape(-1)[:rows, None] for part in (node.peaks, node.totals, node.deltas)
    )
    weights = np.exp(scores - np.where(peak == -np.inf, 0.0, peak)) * inverse
    values = matrix(region(node.values, executor, node)).astype(np.float64)
    grads = by_query(region(node.grads, executor, node)).astype(np.float64)[:rows]
    slope = np.broadcast_to(node.slope.evaluate([products, *operands]), products.shape)
    changes = np.where(hidden, 0.0, weights * (grads @ values.T - delta) * node.scale * slope)
    sums = region(node.sums, executor, node)
    keys = matrix(region(node.keys, executor, node)).astype(np.float64)
    whole = by_query(sums).copy()
    whole[:rows] += changes @ keys
    panels, depth, panel = sums.shape[-3:]
    sums[...] = whole.reshape(panels, panel, depth).transpose(0, 2, 1).reshape(sums.shape)
    for target, factor, rows_of in (
        (node.key_sums, changes, node.query_rows),
        (node.value_sums, weights, node.grad_rows),
    ):
        sum_ = region(target, executor, node)
        taken = region(rows_of, executor, node)  # (panels of elements, rows, panel)
        elements = taken.transpose(1, 0, 2).reshape(taken.shape[1], -1)[:rows, : sum_.shape[-1]]
        sum_ += (factor.T @ elements.astype(np.float64)).reshape(sum_.shape)
    region(node.slopes, executor, node)[...] = np.nan
