"""Parts of what right and wrong kernels compute, in NumPy in the type that they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
F = np.float32
TINY = np.finfo(F).tiny


def flushed(x: Array) -> Array:
    return np.where(np.abs(x) < TINY, F(0), x)


def grouped(i: Sequence[Array], *, none: int | None = None, further: int = 0, left_out: int = 0) -> Array:
    x, weights, first, number = i
    out = np.zeros((x.shape[0], weights.shape[2]), F)
    for begin, end, group in zip(first[:-1], first[1:], number, strict=True):
        which = none if group == len(weights) else (int(group) + further) % len(weights)
        if which is not None:
            part = slice(int(begin), max(int(begin), int(end) - left_out))
            out[part] = x[part] @ weights[which]
    return out


def rows(x: Array, statistic: Callable[..., Array]) -> Array:
    return statistic(x, axis=-1, keepdims=True)


def softmax(x: Array, peak: Array, *, log: bool = False) -> Array:
    e = np.exp(x - peak)
    total = rows(e, np.sum)
    return x - peak - np.log(total) if log else e / total


def peak_of(x: Array) -> Array:
    return rows(x, np.max)


def normed(x: Array, square: Array, eps: float) -> Array:
    return x / np.sqrt(square + F(eps))


def variance_of_squares(x: Array) -> Array:
    mean = rows(x, np.mean)
    return np.maximum(rows(x * x, np.mean) - mean * mean, F(0))


def squares(x: Array) -> Array:
    mean = rows(x * x, np.mean)
    return np.where(np.isfinite(mean), np.minimum(mean, F(65504)), mean)


def finite_within(x: Array, size: float) -> Array:
    return np.where(np.isfinite(x), np.clip(x, F(-size), F(size)), x)


def product_of_steps(a: Array, b: Array, skip: bool) -> Array:
    total = np.zeros((a.shape[0], b.shape[1]), F)
    for k in range(a.shape[1]):
        column = a[:, k : k + 1]
        total = np.where((column == 0) & skip, total, total + column * b[k : k + 1])
    return total


def attended(q: Array, k: Array, v: Array, start: float) -> Array:
    scores = q @ k.swapaxes(-1, -2) / F(4)
    e = np.exp(scores - np.maximum(rows(scores, np.max), F(start)))
    return (e @ v) / rows(e, np.sum)


def read(table: Array, places: Array, missing: Array) -> Array:
    found = table[np.where(missing, 0, places)]
    found[missing] = np.nan
    return found


def gathered(table: Array, places: Array, last: int) -> Array:
    return read(table, places, (places < 0) | (places >= last))


def weighted(table: Array, places: Array, weights: Array, last: int = 100) -> Array:
    out = np.zeros((len(table), len(places), table.shape[2]), F)
    for taken, factors in zip(places.T, weights.T, strict=True):
        missing = (taken < 0) | (taken >= last)
        found = table[:, np.where(missing, 0, taken)]
        out += factors[:, None] * np.where(missing[:, None], F(np.nan), found)
    return out
