"""Derives the polynomials of math_double.h: Chebyshev interpolation in 50 digits, then rounded to doubles.

    python -m tests.headers.double_polynomials

prints each as the header has it. What an interpolation errs by is within twice the least error of its degree here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath

_HALF_LN2 = 0.34657359028  # ln(2) / 2, rounded up
_FARTHEST = 28.5  # past 40 / sqrt(2), where gelu ends; erf ends before
_MIDDLE = 4  # erfcx is smooth in t = (z - 4) / (z + 4)


def _expm1_rest(r: Any) -> Any:
    """(exp(r) - 1 - r) / r^2, by its series near 0, where the quotient cancels."""
    return mpmath.nsum(lambda k: r**k / mpmath.factorial(k + 2), [0, 40])


def _erf_near(s: Any) -> Any:
    """erf(x) / x in s = x^2."""
    x = mpmath.sqrt(abs(s))
    return mpmath.erf(x) / x if x else 2 / mpmath.sqrt(mpmath.pi)


def _erfcx(t: Any) -> Any:
    z = _MIDDLE * (1 + t) / (1 - t)
    return mpmath.exp(z * z) * mpmath.erfc(z) * (z + _MIDDLE)


_FITTED: dict[str, tuple[Callable[[Any], Any], tuple[float, float], int]] = {
    "expm1_rest": (_expm1_rest, (-_HALF_LN2, _HALF_LN2), 10),
    "erf_near": (_erf_near, (0.0, 1.0), 12),
    "erfcx": (_erfcx, (-1.0, (_FARTHEST - _MIDDLE) / (_FARTHEST + _MIDDLE)), 24),
}


def derived(name: str) -> tuple[list[float], float]:
    """Return the coefficients, the constant one first, and the largest error of the unrounded polynomial."""
    function, interval, count = _FITTED[name]
    with mpmath.workdps(50):
        found, error = mpmath.chebyfit(function, list(interval), count, error=True)
        return [float(number) for number in reversed(found)], float(error)


if __name__ == "__main__":
    for each in _FITTED:
        numbers, largest = derived(each)
        print(f"// {each}: {largest:.2g}\n{', '.join(number.hex() for number in numbers)}")
