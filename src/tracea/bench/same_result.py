"""Same result: whether a contender computes what is wanted, not how well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["error_and_limit"]

_TOLERANCE: Final = 2e-3  # of the largest result, however small that is: a softmax's may all be below this


def error_and_limit(found: NDArray[Any], expected: NDArray[Any]) -> tuple[float, float]:
    """Return the largest difference of two results and what it may be; the difference is NaN where one of them is."""
    largest = max(float(np.abs(expected).max(initial=0.0)), float(np.finfo(np.float32).tiny))
    return float(np.abs(found - expected).max(initial=0.0)), _TOLERANCE * largest
