"""Comparison of one output with what the op means: element by element, non-finite values by kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.core.dtype import DType

__all__ = ["Comparison", "compare_output"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How far an output is from its meaning; ``worst`` is the largest error over its bound, inf for a wrong kind."""

    wrong: int
    elements: int
    worst: float
    detail: str

    @property
    def passed(self) -> bool:
        """Whether every element is within its bound."""
        return self.wrong == 0


def compare_output(
    actual: NDArray[Any], expected: NDArray[np.float64], bound: NDArray[np.float64], dtype: DType
) -> Comparison:
    """Compare ``actual``, stored as ``dtype``, with the float64 ``expected`` within ``bound``.

    NaN must meet NaN and an infinity the same infinity. Where the exact value is within its bound of the type's
    largest number, that number and infinity are both right.
    """
    got = actual.astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(got - expected)
        share = np.where(error == 0.0, 0.0, error / bound)
        overflow = _may_overflow(expected, bound, dtype) & (got == np.copysign(np.inf, expected))
    finite = np.isfinite(expected) & np.isfinite(got)
    same_kind = (np.isnan(expected) & np.isnan(got)) | (got == expected) | overflow
    # A bound that is NaN vouches for nothing: `not <=` refuses it, `>` would let it through.
    right = same_kind | (finite & (share <= 1.0))
    wrong = int(np.count_nonzero(~right))
    worst = _worst(share, right, same_kind, finite)
    if not wrong:
        return Comparison(wrong=0, elements=got.size, worst=worst, detail="")
    place = np.unravel_index(int(np.argmax(~right)), got.shape)
    where = ", ".join(str(int(axis)) for axis in place)
    detail = (
        f"{wrong} of {got.size} elements, first at ({where}): "
        f"got {got[place]:.9g}, expected {expected[place]:.9g} ± {bound[place]:.3g}"
    )
    return Comparison(wrong=wrong, elements=got.size, worst=worst, detail=detail)


def _may_overflow(expected: NDArray[np.float64], bound: NDArray[np.float64], dtype: DType) -> NDArray[np.bool_]:
    if not dtype.is_float:
        return np.zeros(expected.shape, np.bool_)
    return np.abs(expected) + bound >= dtype.largest


def _worst(
    share: NDArray[np.float64], right: NDArray[np.bool_], same_kind: NDArray[np.bool_], finite: NDArray[np.bool_]
) -> float:
    if not share.size:
        return 0.0
    judged = np.where(same_kind, 0.0, np.where(finite, share, np.inf))
    judged = np.where(np.isnan(judged), np.where(right, 0.0, np.inf), judged)
    return float(judged.max())
