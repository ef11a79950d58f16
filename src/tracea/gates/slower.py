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
    detail = f"now {now}, baseline {before}; slower where all of the interval is below the limit"
    may_be, surely = now.low < least / (1.0 + RESOLUTION), now.high < least
    return _check(name, now.median, least, detail, (now.low, now.high), may_be=may_be, surely=surely)


def compare_times(name: str, now: Measurement, before: Measurement, margin: float) -> Check:
    """Return the check of a time against the baseline's on the same machine."""
    low, high = now.interval_us
    most = before.interval_us[1] * (1.0 + margin)
    detail = f"now {now}; baseline {before}; no peer in common"
    may_be, surely = high > most * (1.0 + RESOLUTION), low > most
    return _check(name, now.median_us, most, detail, (low, high), may_be=may_be, surely=surely)


def _check(
    name: str, figure: float, limit: float, detail: str, interval: tuple[float, float], *, may_be: bool, surely: bool
) -> Check:
    """Return the check: slower ``surely`` where both ends say so, unclear where one does by more than a race tells."""
    unclear = may_be and not surely
    return Check(
        name=name,
        passed=not may_be and not surely,
        figure=figure,
        limit=limit,
        detail=f"{detail}{_UNCLEAR * unclear}",
        interval=interval,
        is_unclear=unclear,
    )
