"""Meanings of routines that several kernels share: CPU tile products in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["packed_both_product", "packed_depth_first_product", "plain_product"]

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
