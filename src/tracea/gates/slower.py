"""Slower: what a ratio or a time says of ours against the baseline's, beyond the noise of both and a margin.

Worked example: the library took 1.10 [1.08, 1.12] times our time, and the margin is 5 %: the limit is 1.08 / 1.05. Now
1.07 [1.05, 1.09] is no slower; of 1.01 [0.99, 1.02] all of the interval lies below the limit: slower for certain.

Of 5.55 [0.37, 12.92] nothing is known: it may be no slower, and may be far slower. Such a check is unclear: its
interval holds the limit, and a ratio below it by more than the resolution (3 %, as a race's). Else it passes.
"""

from __future__ import annotations

from typing import Final

from tracea.gates.verdict import Check
from tracea.profiler.measurement import Measurement, Ratio
from tracea.profiler.sequential import RESOLUTION

__all__ = ["compare_ratios", "compare_times"]

_UNCLEAR: Final = "; too noisy to tell"


def compare_ratios(name: str, now: Ratio, before: Ratio, margin: float) -> Check:
    """Return the check of a ratio peer / ours against the baseline's: a lower one is slower."""
    least = before.low / (1.0 + margin)
    is_slower, may_be = now.high < least, now.low < least / (1.0 + RESOLUTION)
    unclear = may_be and not is_slower
    return Check(
        name=name,
        passed=not may_be and not is_slower,
        figure=now.median,
        limit=least,
        detail=f"now {now}, baseline {before}; slower where all of the interval is below the limit{_UNCLEAR * unclear}",
        interval=(now.low, now.high),
        is_unclear=unclear,
    )


def compare_times(name: str, now: Measurement, before: Measurement, margin: float) -> Check:
    """Return the check of a time against the baseline's on the same machine."""
    most = before.interval_us[1] * (1.0 + margin)
    is_slower, may_be = now.interval_us[0] > most, now.interval_us[1] > most * (1.0 + RESOLUTION)
    unclear = may_be and not is_slower
    return Check(
        name=name,
        passed=not may_be and not is_slower,
        figure=now.median_us,
        limit=most,
        detail=f"now {now}; baseline {before}; no peer in common{_UNCLEAR * unclear}",
        interval=now.interval_us,
        is_unclear=unclear,
    )
