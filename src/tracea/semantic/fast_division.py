"""Division by a number that the host knows: one multiplication and one shift, right for every 0 <= x < 2³¹.

Worked example, d = 3. The host computes ``m = ceil(2³³ / 3) = 2863311531`` and ``s = 2``; the device computes
``umulhi(2·x, m) >> 2``, that is ``floor(x·m / 2³³)``. The constant is a third of 2³³ rounded up: ``m·3 = 2³³ + 1``. So
``x·m / 2³³`` is larger than ``x / 3`` by ``x / (3·2³³)``, less than 1/12, which cannot carry a fraction of at most
2/3 over the next integer.

In general, after Granlund and Montgomery (*Division by Invariant Integers using Multiplication*, 1994, theorem 4.2):
let ``l = ceil(log2 d)`` and ``m = ceil(2^(31+l) / d)``. The error ``e = m·d − 2^(31+l)`` is in ``0 .. d − 1``, hence
at most ``2^l``, and then ``floor(x·m / 2^(31+l)) = x div d`` for all ``0 <= x < 2³¹``. Since ``d > 2^(l−1)``, m is
below 2³²: an unsigned word. ``umulhi`` shifts by 32, one too many where d is 1; x has a bit to spare, so 2·x goes in.

A smaller constant is not nearly right. ``m = ceil(2³² / d)`` without a shift, for d = 222², is wrong at x = 147 851.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tracea.errors import InvalidSchedule

__all__ = ["LIMIT", "FastDivision", "first_error", "umulhi"]

LIMIT = 1 << 31
"""Numbers that are divided are below this."""

_WORD = 32

Number = TypeVar("Number", int, np.ndarray)


@dataclass(frozen=True, slots=True, kw_only=True)
class FastDivision:
    """``x div divisor`` as ``umulhi(2·x, multiplier) >> shift``, the two words that the host passes to a kernel.

    Raises:
        InvalidSchedule: the words are not right for every x below 2³¹; the error names the first one that is wrong.
    """

    divisor: int
    multiplier: int
    shift: int

    def __post_init__(self) -> None:
        if self.divisor < 1 or not 0 <= self.multiplier < 1 << _WORD or not 0 <= self.shift < _WORD:
            raise InvalidSchedule(
                field="fast division (divisor, multiplier, shift)",
                got=(self.divisor, self.multiplier, self.shift),
                expected="a divisor >= 1, a word, a shift below 32",
                remedy="use FastDivision.by(divisor)",
            )
        wrong = first_error(self.multiplier, _WORD - 1 + self.shift, self.divisor)
        if wrong is not None:
            raise InvalidSchedule(
                field=f"fast division by {self.divisor}",
                got=f"multiplier {self.multiplier}, shift {self.shift}: wrong at x = {wrong}",
                expected="right for every x below 2^31",
                remedy="use FastDivision.by(divisor)",
            )

    @classmethod
    def by(cls, divisor: int) -> FastDivision:
        """Return the words for a divisor.

        Raises:
            InvalidSchedule: the divisor is below 1.
        """
        if divisor < 1:
            raise InvalidSchedule(
                field="divisor", got=divisor, expected=">= 1", remedy="guard the division; nothing is divided by 0"
            )
        if divisor >= LIMIT:
            return cls(divisor=divisor, multiplier=0, shift=0)  # every quotient is 0
        shift = (divisor - 1).bit_length()
        return cls(divisor=divisor, multiplier=-(-(1 << (_WORD - 1 + shift)) // divisor), shift=shift)

    def quotient(self, x: Number) -> Number:
        """Return what the device computes for ``0 <= x < 2³¹``: one number, or an array of 64-bit integers."""
        return umulhi(x << 1, self.multiplier) >> self.shift

    def remainder(self, x: Number) -> Number:
        """Return what is left: ``x − quotient·divisor``."""
        return x - self.quotient(x) * self.divisor

    @staticmethod
    def text(x: str, multiplier: str, shift: str) -> str:
        """Return the quotient as CUDA text, from the texts of an unsigned x and of the two words."""
        return f"(__umulhi(({x}) << 1, {multiplier}) >> {shift})"


def umulhi(x: Number, y: int) -> Number:
    """Return the upper word of the product of two unsigned words (``__umulhi``): of numbers, or of a 64-bit array."""
    if isinstance(x, np.ndarray):
        return (x.astype(np.uint64) * np.uint64(y) >> np.uint64(_WORD)).astype(np.int64)
    return (x * y) >> _WORD


def first_error(multiplier: int, power: int, divisor: int, limit: int = LIMIT) -> int | None:
    """Return the least ``0 <= x < limit`` with ``floor(x·multiplier / 2^power) != x div divisor``; None if all agree.

    With ``e = multiplier·divisor − 2^power >= 0`` and ``x = q·d + r``, the floor is too large exactly where
    ``x·multiplier >= (q + 1)·2^power``. At the end of a block of d numbers, ``r = d − 1``, that is ``x·e >= 2^power``;
    so the first block in which it happens is found by one division, and the first x in it by another.
    """
    scale = 1 << power
    error = multiplier * divisor - scale
    if error < 0:  # x = d gives 0; if d is out of range, no x is large enough to reach 1
        return divisor if divisor < limit else None
    if error == 0:
        return None
    least = -(-scale // error)  # from here on a block's end goes wrong
    block = max(0, -(-(least + 1 - divisor) // divisor))
    first = -(-(block + 1) * scale // multiplier)
    return first if first < limit else None
