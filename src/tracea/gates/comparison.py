"""Comparison of one output with what the op means: element by element, non-finite values by kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    actual: NDArray[Any], expected: NDArray[np.float64], bound: NDArray[np.float64], *, signed_zeros: bool = False
) -> Comparison:
    """Compare a stored output with the float64 ``expected``, of which each element may be off by its ``bound``.

    NaN must meet NaN and an infinity the same infinity. Where the bound is infinite the accuracy contract claims
    nothing (a value that may overflow, a function next to its pole), and neither does this. With ``signed_zeros`` a
    zero must meet a zero of its sign, else any.
    """
    got = actual.astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(got - expected)
        share = np.divide(error, bound, out=np.zeros_like(error), where=error != 0.0)
        if not (within := error <= bound).all():
            # The slow way for what is left: kinds that agree, and NaN where only one of the two is a number.
            same = (got == expected) | (np.isnan(got) & np.isnan(expected)) | np.isinf(bound)
            share = np.where(same, 0.0, np.where(within, share, np.where(share > 1.0, share, np.inf)))
    if signed_zeros and (flipped := (got == 0.0) & (expected == 0.0) & (np.signbit(got) != np.signbit(expected))).any():
        share = np.where(flipped, np.inf, share)
    wrong = int(np.count_nonzero(share > 1.0))
    worst = float(np.fmax.reduce(share, axis=None, initial=0.0))  # infinity over an infinite bound is no number
    if not wrong:
        return Comparison(wrong=0, elements=got.size, worst=worst, detail="" if got.size else "no element to compute")
    place = np.unravel_index(int(np.argmax(share)), got.shape)
    where = ", ".join(str(int(axis)) for axis in place)
    detail = (
        f"{wrong} of {got.size} elements, worst at ({where}): "
        f"got {got[place]:.9g}, expected {expected[place]:.9g} ± {bound[place]:.3g}"
    )
    return Comparison(wrong=wrong, elements=got.size, worst=worst, detail=detail)
