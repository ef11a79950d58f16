"""Which accuracy contract an op asks for: by element, or by norm."""

from __future__ import annotations

from enum import Enum

__all__ = ["Accuracy"]


class Accuracy(Enum):
    """What a result's error is measured against; ``tracea.core.accuracy`` says the bounds.

    The names are those of error analysis (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 1.2).
    """

    ELEMENTWISE = "elementwise"  # against the result's own products: a window of zeros gives zero, NaN stays in its place
    NORMWISE = "normwise"  # against the largest pixel and the sum of the taps, of finite images: allows Winograd
