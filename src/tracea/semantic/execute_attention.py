"""What the nodes of attention do to memory, in NumPy: scores, running peaks and totals, weighted sums."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from tracea.core.attention_meaning import hidden_pairs
from tracea.errors import RunError
from tracea.semantic.execute import region
from tracea.semantic.intrinsics import join_terms
from tracea.semantic.machine import Array, Executor
from tracea.semantic.nodes_attention import (
    AttentionCombine,
    AttentionFinish,
    AttentionStart,
    AttentionState,
    AttentionStep,
)
from tracea.semantic.nodes_spans import SpanUse

__all__ = ["AttentionNode", "attend", "by_query", "matrix"]

AttentionNode: TypeAlias = AttentionStart | AttentionStep | AttentionFinish | AttentionCombine


def attend(node: AttentionNode, executor: Executor) -> None:
    """Execute one node of attention.

    Raises:
        RunError: an access out of bounds, or regions that do not fit each other.
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        match node:
            case AttentionStart():
                for name, value in (("peaks", -np.inf), ("totals", 0.0), ("sums", 0.0)):
                    region(getattr(node.state, name), executor, node)[...] = value
            case AttentionStep():
                _step(node, executor)
            case AttentionFinish():
                target = region(node.target, executor, node)
                rows = math.prod(target.shape[:-1])
                totals = region(node.state.totals, executor, node).reshape(-1)[:rows]
                sums = by_query(region(node.state.sums, executor, node))[:rows]
                means = np.where(totals[:, None] == 0.0, 0.0, sums / np.where(totals == 0.0, 1.0, totals)[:, None])
                target[...] = means.reshape(target.shape).astype(target.dtype)
            case AttentionCombine():
                _combine(node, executor)


def _step(node: AttentionStep, executor: Executor) -> None:
    env = executor.env
    queries, keys, values = _rows(node, executor)
    rows, first_query, first_key = (int(index.evaluate(env)) for index in (node.rows, node.first_query, node.first_key))
    if rows > queries.shape[0] or keys.shape[0] != values.shape[0]:
        detail = f"{rows} rows of {queries.shape[0]} queries, {keys.shape[0]} keys with {values.shape[0]} values"
        raise RunError(kernel="AttentionStep", detail=detail)
    queries = queries[:rows]
    operands = [matrix(region(part, executor, node)).astype(np.float64) for part in node.operands]
    scores = np.broadcast_to(node.score.evaluate([node.scale * (queries @ keys.T), *operands]), (rows, keys.shape[0]))
    hidden = hidden_pairs(first_query, rows, first_key, keys.shape[0], causal=node.causal, window=node.window)
    if node.span is not None:
        hidden |= _outside(node.span, executor, first_query + np.arange(rows), first_key + np.arange(len(keys)))
    scores = np.where(hidden, -np.inf, scores)
    for own in (node.scores, node.weights):
        if own is not None:
            region(own, executor, node)[...] = np.nan  # whatever the routine leaves there
    _update(node.state, executor, node, scores, values)


def _rows(node: AttentionStep, executor: Executor) -> tuple[Array, Array, Array]:
    """Return the queries, keys and values of a step, row by row."""
    regions = [region(part, executor, node) for part in (node.queries, node.keys, node.values)]
    if node.weights is None:
        queries, (keys, values) = by_query(regions[0]), (matrix(part) for part in regions[1:])
    else:
        assert node.count is not None
        count = int(node.count.evaluate(executor.env))
        width = region(node.state.sums, executor, node).shape[-2]
        terms = int(node.intrinsic.attribute("terms"))
        queries, keys, columns = (by_query(join_terms(part.astype(np.float64), terms)) for part in regions)
        keys, values = keys[:count], columns.T[:count, :width]
    return queries.astype(np.float64), keys.astype(np.float64), values.astype(np.float64)


def _outside(span: SpanUse, executor: Executor, queries: Array, keys: Array) -> Array:
    """Return which pairs are not the span's."""
    env = executor.env
    begin, end, behind, ahead = (int(index.evaluate(env)) for index in (span.begin, span.end, span.behind, span.ahead))
    distance = keys[None, :] - queries[:, None]
    return ((queries < begin) | (queries >= end))[:, None] | (distance < -behind) | (distance > ahead)


def _combine(node: AttentionCombine, executor: Executor) -> None:
    target = region(node.target, executor, node)
    peaks, totals, sums = (region(part, executor, node) for part in node.state.regions)
    parts, rows = peaks.shape[-3], math.prod(target.shape[:-1])
    width, panel = sums.shape[-2:]
    peak, total = (part.reshape(parts, peaks.shape[-2] * panel)[:, :rows] for part in (peaks, totals))
    top = peak.max(axis=0, initial=-np.inf)
    share = np.exp(peak - np.where(top == -np.inf, 0.0, top))
    summed = sums.reshape(parts, peaks.shape[-2], width, panel).transpose(0, 1, 3, 2)
    summed = summed.reshape(parts, peaks.shape[-2] * panel, width)[:, :rows]
    whole = (share * total).sum(axis=0)[:, None]
    means = np.where(whole == 0.0, 0.0, (share[:, :, None] * summed).sum(axis=0) / np.where(whole == 0.0, 1.0, whole))
    target[...] = means.reshape(target.shape).astype(target.dtype)


def _update(state: AttentionState, executor: Executor, node: AttentionStep, scores: Array, values: Array) -> None:
    rows = scores.shape[0]
    peaks, totals, sums = (region(part, executor, node) for part in state.regions)
    before, total, summed = peaks.reshape(-1).copy(), totals.reshape(-1).copy(), by_query(sums).copy()
    peak = np.maximum(before[:rows], scores.max(axis=1, initial=-np.inf))
    top = np.where(peak == -np.inf, 0.0, peak)
    weights, fade = np.exp(scores - top[:, None]), np.exp(before[:rows] - top)
    total[:rows] = total[:rows] * fade + weights.sum(axis=1)
    summed[:rows] = summed[:rows] * fade[:, None] + weights @ values
    before[:rows] = peak
    peaks[...], totals[...] = before.reshape(peaks.shape), total.reshape(totals.shape)
    panels, width, panel = sums.shape[-3:]
    sums[...] = summed.reshape(panels, panel, width).transpose(0, 2, 1).reshape(sums.shape)


def by_query(panels: Array) -> Array:
    """Return (panels, depth, panel), after axes of extent 1, as (queries, depth)."""
    last = panels.reshape(panels.shape[-3:])
    return last.transpose(0, 2, 1).reshape(-1, last.shape[1])


def matrix(array: Array) -> Array:
    """Return the last two axes of a region whose others have extent 1."""
    return array.reshape(array.shape[-2:])
