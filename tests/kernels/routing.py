"""Operands of grouped products: which rows are whose, and values that show what is read beyond them."""

from __future__ import annotations

import numpy as np

from tracea.core.op import GroupedGemmOp


def grouped_inputs(
    op: GroupedGemmOp, first: np.ndarray, number: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return operands of a routing; the rows of no group and the matrices without rows are NaN, which nothing reads."""
    x, weights = rng.standard_normal(op.x.shape), rng.standard_normal(op.weights.shape)
    bias = [rng.standard_normal((op.groups, op.n))] if op.bias is not None else []
    counts = np.diff(first)
    x[np.repeat(number, counts) == op.groups] = np.nan
    for unused in set(range(op.groups)) - set(number[counts > 0].tolist()):
        weights[unused] = np.nan
        for values in bias:
            values[unused] = np.nan
    given = [x, weights, *bias]
    stored = [values.astype(type_.dtype.numpy) for values, type_ in zip(given, op.operands, strict=False)]
    return [*stored, first.astype(np.int32), number.astype(np.int32)]


def random_routing(op: GroupedGemmOp, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return parts of any groups in any order, some of them empty, some of no group."""
    cuts = np.sort(rng.integers(0, op.m + 1, max(0, op.parts - 1)))
    cuts[rng.random(cuts.size) < 0.3] = 0  # several parts of no rows
    return np.concatenate([[0], np.sort(cuts), [op.m]]), rng.integers(0, op.groups + 1, op.parts)
