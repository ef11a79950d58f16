"""Laxer: a fresh verdict is held to the limits of its baseline, whatever limits it says of itself.

Which side of a limit is good follows from the check: latency and what is counted "at least" have a least, all else a
most. A limit that is stricter than the baseline's is the check's own affair: it has been kept, or the check has failed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tracea.gates.verdict import Check

__all__ = ["LATENCY", "contradicts", "has_least", "held_to"]

LATENCY: Final = "latency: "  # how the names of the latency gate's checks begin; the fastest library's name follows


def has_least(check: Check) -> bool:
    """Whether the limit is the least that a figure may be, not the most."""
    return check.name.startswith(LATENCY) or "at least" in check.detail


def contradicts(check: Check) -> bool:
    """Tell whether a check passed beyond its own limit; a timed figure may, by as much as its interval holds."""
    if not check.passed or isinstance(check.figure, str) or isinstance(check.limit, str):
        return False
    if check.name.startswith(LATENCY):
        return (check.figure if check.interval is None else check.interval[1]) < check.limit
    is_most = _is_right(check) or check.limit == 0
    return is_most and not has_least(check) and check.figure > check.limit


def _is_right(check: Check) -> bool:
    """Whether the figure is an error beside float64, found here or by the emulator ("emulated over 7 steps: ...")."""
    return check.name.rpartition(": ")[2].startswith("correct on ")


def held_to(now: Check, before: Check, *, same_kernel: bool) -> Check:
    """Return a check by the baseline's limit where its own is laxer: failed where its figure is beyond that.

    Of another kernel only what is asked of the op itself: its registers have limits of their own.
    """
    if not (same_kernel or _is_right(now) or now.name.startswith(LATENCY)):
        return now
    if any(isinstance(each, str) for each in (now.figure, now.limit, before.limit)):
        return now
    figure, limit, kept = float(now.figure), float(now.limit), float(before.limit)
    least = has_least(before)
    if limit >= kept if least else limit <= kept:
        return now
    if now.name.startswith(LATENCY) and now.interval is not None:  # slower for certain, as the gate itself says
        figure = now.interval[1]
    is_beyond = figure < kept if least else figure > kept
    said = f"by the baseline's limit: {now.limit:g} of the fresh verdict is laxer"
    detail = "; ".join(filter(None, (now.detail, said)))
    return replace(now, passed=now.passed and not is_beyond, limit=before.limit, detail=detail)
