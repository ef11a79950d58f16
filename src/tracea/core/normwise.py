"""The bound of a convolution that is accurate by norm: what Winograd's algorithms keep to, and windows of zeros do not.

In a result of image n and filter k, channel c weighs ``m_c = max|x[n, c]| · Σ_rs |w[k, c, r, s]|``: its largest pixel
and all taps that meet it, instead of the window's own. The result errs by at most ``eps · (c(k) · Σ_c m_c + 430 ·
sqrt(Σ_c m_c²))``. The first term is that of a sum of k products. The second is what the transforms of F(4, 3), and of
F(2, 5), make of one rounding, half an eps, of a pixel, a tap or a product: they grow it by up to (88/3)², 88/3 being
the largest sum of |A^T| · |G| · |B^T| for one tap along an axis. Roundings of different channels are independent, so
that they add as squares do: a sum of many channels hardly sees this term, a filter of one tap sees nothing else.

Subnormals lose up to half of the smallest one in each transform. Nothing is claimed of an image or a filter that is not
finite, nor where the sums of a transformed tile may overflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracea.core.dtype import DType
from tracea.core.function import Array
from tracea.core.ops.conv2d import Conv2dOp

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["beyond_norm", "normwise_error"]

# The largest factors by which F(4x4, 3x3) or F(2x2, 5x5) grow an image, filters and products on their way: squares of
# the largest sum of magnitudes in a row of B^T, G and A^T.
_IMAGE, _FILTERS, _RESULT = 100.0, (31 / 24) ** 2, 361.0
_GROWN = (88 / 3) ** 2 / 2  # eps that one rounding becomes
_STEPS = 8.0  # roundings on the way of an element through both transforms, and the product


def normwise_error(op: Conv2dOp, x: Array, w: Array, constant: float, *, worst_case: bool) -> Array:
    """Return the largest error of each result before its epilogue, as (n, k, 1, 1); ``constant`` is c(k).

    In the worst case roundings are not independent, and there are as many as steps of the transforms.
    """
    peaks, taps = _sizes(op, x, w)
    norm = _summed(peaks, taps)
    grown = _STEPS * norm if worst_case else _root_of_squares(peaks, taps)
    exact = 2.0 if op.accumulator is DType.F64 else 1.0  # the reference itself is of f64
    lost = op.taps + _summed(peaks * _IMAGE, np.ones_like(taps)) + _summed(np.ones_like(peaks), taps * _FILTERS)
    meets = _summed((peaks > 0.0).astype(np.float64), (taps > 0.0).astype(np.float64)) > 0.0
    least = np.where(meets, lost * _RESULT * op.accumulator.smallest, 0.0)
    return op.accumulator.eps * (constant * norm + exact * _GROWN * grown) + least


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


def _root_of_squares(peaks: Array, taps: Array) -> Array:
    """Return sqrt(Σ_c (peaks · taps)²), whose squares are of shares of the largest: none overflows."""
    largest, longest = (values.max(axis=-1, keepdims=True, initial=0.0) for values in (peaks, taps))
    pixels, filters = peaks / np.where(largest > 0.0, largest, 1.0), taps / np.where(longest > 0.0, longest, 1.0)
    return _summed(largest, longest) * np.sqrt(_summed(pixels * pixels, filters * filters))


def _summed(peaks: Array, taps: Array) -> Array:
    total = np.einsum("ngc,gkc->ngk", peaks, taps)
    n, groups, filters = total.shape
    return total.reshape(n, groups * filters)[:, :, None, None]
