"""What the nodes of attention's gradients do to memory, in NumPy."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from tracea.core.attention_meaning import hidden_pairs
from tracea.semantic.access import Region
from tracea.semantic.execute import region
from tracea.semantic.execute_attention import by_query, matrix
from tracea.semantic.intrinsics import join_terms
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
    queries = _panels(node, executor, node.queries)[:rows]
    keys = _rows(node, executor, node.keys)
    hidden = hidden_pairs(first_query, rows, first_key, len(keys), causal=node.causal, window=node.window)
    operands = [matrix(region(part, executor, node)).astype(np.float64) for part in node.operands]
    region(node.scores, executor, node)[...] = np.nan  # whatever the routine leaves there
    return node.scale * (queries @ keys.T), hidden, operands


def _panels(node: KeyBlock, executor: Executor, panels: Region) -> Array:
    """Return rows, or columns, out of their panels."""
    found = region(panels, executor, node).astype(np.float64)
    return by_query(found if node.count is None else join_terms(found, int(node.intrinsic.attribute("terms"))))


def _rows(node: KeyBlock, executor: Executor, rows: Region) -> Array:
    """Return rows of keys or values, as they lie or out of their panels."""
    if node.count is None:
        return matrix(region(rows, executor, node)).astype(np.float64)
    return _panels(node, executor, rows)[: int(node.count.evaluate(executor.env))]


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
    values = _rows(node, executor, node.values)
    grads = _panels(node, executor, node.grads)[:rows]
    slope = np.broadcast_to(node.slope.evaluate([products, *operands]), products.shape)
    changes = np.where(hidden, 0.0, weights * (grads @ values.T - delta) * node.scale * slope)
    sums = region(node.sums, executor, node)
    whole = by_query(sums).copy()
    keys = _rows(node, executor, node.keys)
    if node.terms is not None:
        keys = _panels(node, executor, node.terms.key_columns).T[: len(keys), : whole.shape[1]]
    whole[:rows] += changes @ keys
    panels, depth, panel = sums.shape[-3:]
    sums[...] = whole.reshape(panels, panel, depth).transpose(0, 2, 1).reshape(sums.shape)
    for target, factor, rows_of in (
        (node.key_sums, changes, node.query_rows),
        (node.value_sums, weights, node.grad_rows),
    ):
        sum_ = region(target, executor, node)
        elements = _panels(node, executor, rows_of).T[:rows, : sum_.shape[-1]]
        sum_ += (factor.T @ elements).reshape(sum_.shape)
    own = () if node.terms is None else (node.terms.weights, node.terms.slopes, node.terms.turned)
    for left in (node.slopes, *own):
        region(left, executor, node)[...] = np.nan
