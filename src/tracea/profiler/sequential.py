"""A sequential test: look after every round, stop as soon as the answer is certain, and be wrong no more often for it.

An interval for a fixed number of samples is wrong far more often than it says when one looks again and again and stops
at the first pleasant answer. The interval here holds at all times at once.

Worked example: ours was faster in each of the first 8 rounds. If neither were faster, each round would be a fair coin;
a bet of one unit, spread evenly over all biases of the coin, would now be worth 2^8 / 9 = 28.4. By Ville's inequality
it reaches 20 at any time with a probability of at most 1 / 20, so with 95 % confidence the median is not 1.

Source: H. Robbins, Statistical methods related to the law of the iterated logarithm, Ann. Math. Statist. 41(5), 1970
(mixtures, Ville's inequality); S. Howard and A. Ramdas, Sequential estimation of quantiles with applications to A/B
testing and best-arm identification, Bernoulli 28(3), 2022 (their inversion to an interval of the median).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tracea.errors import InvalidOption
from tracea.profiler.measurement import CONFIDENCE, Ratio

__all__ = ["RESOLUTION", "RULE", "Rule", "Standing", "sequential_interval"]

RESOLUTION: Final = 0.03  # what a race must be able to tell: two tunings shall not differ by more


def sequential_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return (low, high) of the median, valid at every length of the sequence at once; (0, inf) while it is too short.

    A median x is out once the bet against it is worth 1 / (1 - confidence): with k of n samples below x the bet is
    worth 2^n / ((n + 1) · C(n, k)). Assumes no more than that a round, whatever went before it, is as likely to fall
    below the median as above.
    """
    ordered, n = sorted(samples), len(samples)
    most = math.log(2.0) * n - math.log(n + 1) + math.log1p(-confidence)
    out = -1  # the largest k that is out
    while out + 1 < n - out - 1 and _log_choose(n, out + 1) <= most:
        out += 1
    return (0.0, math.inf) if out < 0 else (ordered[out], ordered[n - out - 1])


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


class Standing(enum.StrEnum):
    """What a comparison says of a challenger: faster or slower beyond the noise; equal as far as matters; or nothing.

    A tie is a finding: the whole interval lies within the resolution about 1. Where it holds 1 and reaches beyond, the
    samples are too noisy to tell.
    """

    FASTER = "faster"
    SLOWER = "slower"
    TIE = "tie"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a comparison ends, and what it says then.

    It ends early when the interval of the ratio lies beyond 1 ± ``margin``, the smallest difference that matters, or
    within it; else after ``most`` rounds. What leaves 1 out then is decided, what lies within ``resolution`` about 1 is
    a tie. While neither is so it goes on, up to ``extension`` times as many rounds or for ``seconds`` in all; after
    that it is unclear.

    Raises:
        InvalidOption: a confidence outside (0, 1), a negative margin, resolution or time, fewer than one round, or an
            extension below 1.
    """

    confidence: float = CONFIDENCE
    margin: float = 0.01
    most: int = 60
    resolution: float = RESOLUTION
    extension: int = 4
    seconds: float = 60.0

    def __post_init__(self) -> None:
        for field, is_good, expected in (
            ("confidence", 0.0 < self.confidence < 1.0, "between 0 and 1"),
            ("margin", 0.0 <= self.margin < 1.0, "from 0 to 1"),
            ("most", self.most >= 1, "at least 1 round"),
            ("resolution", 0.0 <= self.resolution < 1.0, "from 0 to 1"),
            ("extension", self.extension >= 1, "at least 1 time"),
            ("seconds", self.seconds >= 0.0, "from 0 on"),
        ):
            if not is_good:
                raise InvalidOption(
                    field=f"rule.{field}", got=getattr(self, field), expected=expected, remedy="use Rule() as it is"
                )

    def ratio(self, quotients: Sequence[float], *, comparisons: int = 1) -> Ratio:
        """Return the ratio that the quotients show; of several ``comparisons`` all hold together (Bonferroni)."""
        confidence = 1.0 - (1.0 - self.confidence) / max(1, comparisons)
        low, high = sequential_interval(quotients, confidence)
        ordered = sorted(quotients)
        median = 0.5 * (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2])
        return Ratio(median=median, low=low, high=high, pairs=len(ordered), confidence=confidence)

    def is_over(self, ratio: Ratio) -> bool:
        """Whether more rounds would change nothing that matters."""
        above, below = 1.0 + self.margin, 1.0 / (1.0 + self.margin)
        return ratio.low > above or ratio.high < below or (below <= ratio.low and ratio.high <= above)

    def standing(self, ratio: Ratio) -> Standing:
        """Return what a comparison says; a tie where equal within the resolution, and else inside the noise unclear."""
        if ratio.low > 1.0:
            return Standing.FASTER
        if ratio.high < 1.0:
            return Standing.SLOWER
        above = 1.0 + self.resolution
        return Standing.TIE if 1.0 / above <= ratio.low and ratio.high <= above else Standing.UNCLEAR


RULE: Final = Rule()
