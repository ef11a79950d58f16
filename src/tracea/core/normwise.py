"""The bound of a convolution that is accurate by norm: what Winograd's algorithms keep to, and windows of zeros do not.

A result of image n and filter k errs by at most ``c · eps · N`` with ``N = Σ_c max|x[n, c]| · Σ_rs |w[k, c, r, s]|``:
it is measured against the largest pixel of each channel and all taps that meet it, instead of against its own window.
Subnormals lose up to half of the smallest one in each transform. Nothing is claimed of an image or a filter that is not
finite, nor where the sums of a transformed tile may overflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracea.core.function import Array
from tracea.core.ops.conv2d import Conv2dOp

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["beyond_norm", "norm_of"]

# The largest factors by which F(4x4, 3x3) grows an image, filters and products on their way: squares of the largest sum
# of magnitudes in a row of B^T, G and A^T.
_IMAGE, _FILTERS, _RESULT = 100.0, 1.0, 361.0


def norm_of(op: Conv2dOp, x: Array, w: Array) -> tuple[Array, Array]:
    """Return ``N`` as (n, k, 1, 1), and what subnormals may lose, in units of the smallest one."""
    peaks, taps = _sizes(op, x, w)
    norm = _summed(peaks, taps)
    lost = op.taps + _summed(peaks, np.ones_like(taps)) + _summed(np.ones_like(peaks), taps)
    return norm, np.where(norm > 0.0, lost * _RESULT, 0.0)


def beyond_norm(op: Conv2dOp, x: Array, w: Array) -> NDArray[np.bool_]:
    """Return where nothing is claimed, as (n, k, 1, 1)."""
    peaks, taps = _sizes(op, x, w)
    largest = op.accumulator.largest
    grown = _summed(peaks * _IMAGE, taps * _FILTERS)
    image = _summed((~(peaks * _IMAGE <= largest)).astype(np.float64), np.ones_like(taps))
    filters = _summed(np.ones_like(peaks), (~(taps * _FILTERS <= largest)).astype(np.float64))
    return ~(grown * _RESULT <= largest) | (image > 0.0) | (filters > 0.0)


def _sizes(op: Conv2dOp, x: Array, w: Array) -> tuple[Array, Array]:
    """Return the largest magnitude of each channel, (n, groups, c), and the sum of a filter's, (groups, k, c)."""
    filters, channels, *_ = w.shape
    peaks = np.abs(x).max(axis=(2, 3), initial=0.0).reshape(len(x), op.groups, channels)
    return peaks, np.abs(w).sum(axis=(2, 3)).reshape(op.groups, filters // op.groups, channels)


def _summed(peaks: Array, taps: Array) -> Array:
    total = np.einsum("ngc,gkc->ngk", peaks, taps)
    n, groups, filters = total.shape
    return total.reshape(n, groups * filters)[:, :, None, None]
