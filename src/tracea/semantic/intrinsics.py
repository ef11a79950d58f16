"""Meanings of routines that several kernels share: CPU tile products in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracea.core.dtype import DType

__all__ = [
    "channelwise_product",
    "join_terms",
    "packed_both_product",
    "packed_depth_first_product",
    "plain_product",
    "rows_terms_product",
    "split_terms",
    "terms_of",
    "terms_product",
    "terms_window_product",
    "window_dot",
    "window_product",
]

Array = np.ndarray[Any, Any]


def plain_product(a_MK: Array, b_KN: Array) -> Array:
    """Return a·b of two matrices, neither of them packed."""
    return a_MK @ b_KN


def packed_depth_first_product(a_KM: Array, b_KN: Array) -> Array:
    """Return the product of one packed panel of A (depth first) with a panel or a block of B."""
    return a_KM.T @ b_KN


def packed_both_product(a_PKM: Array, b_QKN: Array) -> Array:
    """Return the product of several packed panels of A and B: rows and columns of all panels in order."""
    a = a_PKM.reshape(-1, *a_PKM.shape[-2:])
    b = b_QKN.reshape(-1, *b_QKN.shape[-2:])
    return np.einsum("pkm,qkn->pmqn", a, b).reshape(a.shape[0] * a.shape[2], b.shape[0] * b.shape[2])


def split_terms(x: Array, terms: int, dtype: np.dtype[Any]) -> Array:
    """Return terms of a narrow float whose sum is ``x``, along a new axis before the last: each rounds what is left.

    Three bfloat16 terms are exact for a float32 that is zero or at least 2^-100 in magnitude, and not so large that
    its first term overflows. What is not finite is its own first term. (The CPU routine keeps all others exactly too.)
    """
    rest = x.astype(np.float32)
    parts: list[Array] = []
    for _ in range(terms):
        with np.errstate(over="ignore"):
            part = rest.astype(dtype)
        parts.append(part)
        with np.errstate(invalid="ignore"):
            rest = np.where(np.isfinite(part.astype(np.float32)), rest - part.astype(np.float32), np.float32(0))
    return np.stack(parts, axis=-2)


def terms_of(dtype: DType) -> int:
    """Return how many bfloat16 terms hold every normal value of a float: each takes its number of digits at least."""
    digits, digits_of_term = (1 - round(math.log2(of.eps)) for of in (dtype, DType.BF16))
    return -(-digits // digits_of_term)


def join_terms(panels: Array, terms: int) -> Array:
    """Return panels (…, depth, terms · width) as the (…, depth, width) values that they are the terms of."""
    split = panels.reshape(*panels.shape[:-1], terms, -1)
    return split[..., ::-1, :].sum(axis=-2)


def terms_product(a_PKM: Array, b_QKN: Array, terms: int, marks: int = 0) -> Array:
    """Return the product of panels of A and B that hold sums of terms, and behind them ``marks`` of each step."""
    a, b = (join_terms(panels[..., : panels.shape[-1] - marks], terms) for panels in (a_PKM, b_QKN))
    return packed_both_product(a, b)


def rows_terms_product(a_MK: Array, b_QKN: Array, terms: int) -> Array:
    """Return the product of a matrix, as its rows lie, and panels of B that hold sums of terms."""
    b = join_terms(b_QKN, terms)
    b_QKN = b.reshape(-1, *b.shape[-2:])
    return np.einsum("mk,qkn->mqn", np.atleast_2d(a_MK), b_QKN).reshape(-1, b_QKN.shape[0] * b_QKN.shape[2])


def channelwise_product(a: Array, b: Array, *, stride: tuple[int, int], dilation: tuple[int, int]) -> Array:
    """Return the results of windows of ``a``, row after row, each channel with taps of its own.

    Shapes:
        a: (…, rows, columns, c), zero-padded; b: (…, r, s, at least c); result: (pixels, c).
    """
    rows, columns, channels = (1, 1, 1, *a.shape)[-3:]
    r, s, _ = (1, 1, 1, *b.shape)[-3:]
    image, taps = a.reshape(rows, columns, channels), b.reshape(r, s, -1)
    (down, right), (gap_r, gap_s) = stride, dilation
    p, q = (rows - (r - 1) * gap_r - 1) // down + 1, (columns - (s - 1) * gap_s - 1) // right + 1
    result = np.zeros((p, q, channels), a.dtype)
    for i in range(r):
        for j in range(s):
            top, side = i * gap_r, j * gap_s
            taken = image[top : top + down * (p - 1) + 1 : down, side : side + right * (q - 1) + 1 : right]
            result += taken * taps[i, j, :channels]
    return result.reshape(p * q, channels)


def terms_window_product(
    a: Array, b: Array, *, terms: int, stride: tuple[int, int], dilation: tuple[int, int], marks: int = 0
) -> Array:
    """Return the results of windows of ``a``, row after row, for the filters of ``b``, both as sums of terms.

    Shapes:
        a: (blocks, rows, columns, terms · lanes + 1); b: (…, panels, blocks, r, s, lanes, terms · width + marks);
        result: (pixels, panels · width).
    """
    blocks, rows, columns, _ = (1, 1, 1, *a.shape)[-4:]
    image = join_terms(a.reshape(blocks, rows, columns, -1)[..., :-1], terms)
    panels, _, r, s, lanes, _ = (1, 1, 1, 1, *b.shape)[-6:]
    filters = join_terms(b.reshape(panels, blocks, r, s, lanes, -1)[..., : b.shape[-1] - marks], terms)
    image = image.transpose(1, 2, 0, 3).reshape(rows, columns, blocks * lanes)
    filters = filters.transpose(2, 3, 1, 4, 0, 5).reshape(r, s, blocks * lanes, -1)
    return window_product(image, filters, stride=stride, dilation=dilation)


def window_product(a: Array, b: Array, *, stride: tuple[int, int], dilation: tuple[int, int]) -> Array:
    """Return the results of windows of ``a``, row after row, for the filters of ``b``.

    Shapes:
        a: (…, rows, columns, c), zero-padded; b: (…, r, s, c, filters); result: (pixels, filters).
    """
    rows, columns, channels = (1, 1, 1, *a.shape)[-3:]
    r, s, _, filters = (1, 1, 1, 1, *b.shape)[-4:]
    image, weights = a.reshape(rows, columns, channels), b.reshape(r, s, channels, filters)
    (down, right), (gap_r, gap_s) = stride, dilation
    p, q = (rows - (r - 1) * gap_r - 1) // down + 1, (columns - (s - 1) * gap_s - 1) // right + 1
    result = np.zeros((p, q, filters), a.dtype)
    for i in range(r):
        for j in range(s):
            top, side = i * gap_r, j * gap_s
            taken = image[top : top + down * (p - 1) + 1 : down, side : side + right * (q - 1) + 1 : right]
            result += np.einsum("pqc,ck->pqk", taken, weights[i, j])
    return result.reshape(p * q, filters)


def window_dot(a: Array, b: Array, *, stride: tuple[int, int], dilation: tuple[int, int]) -> Array:
    """Return the results of windows of ``a``, row after row, for filters that are panels of their own in ``b``.

    Shapes:
        a: (…, rows, columns, c), zero-padded; b: (…, filters, r, s, c, 1); result: (pixels, filters).
    """
    filters = b.reshape((1, 1, 1, 1, 1, *b.shape)[-5:])
    return window_product(a, np.moveaxis(filters, 0, -1)[..., 0, :], stride=stride, dilation=dilation)
