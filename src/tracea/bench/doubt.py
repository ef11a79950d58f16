"""Doubt: why the times of a comparison may be wrong, in the words of every table that shows them.

An interval of order statistics says how far the rounds of one comparison differ. It cannot say that the rounds were
those of another machine: one on which other programs used the cores, for some rounds on one side only. Where that
happened to half of them no order statistic holds, and where the interval is wide it says itself that nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracea.doctor.doubt import OTHERS
from tracea.profiler.measurement import Measurement, Ratio
from tracea.profiler.record import Row

__all__ = ["DOUBT", "WIDE", "why_in_doubt", "why_row_in_doubt", "why_wide"]

DOUBT: Final = "doubt"  # the name of a row's note
# A ratio that may be half as large again as it may be is a guess: of 279 ratios in benchmarks/results 2 % are wider.
WIDE: Final = 1.5


def why_in_doubt(processes: Sequence[Measurement]) -> str:
    """Say why a time may be wrong: others used the cores, or so many rounds were disturbed that no median holds."""
    busy = max((each.busy_cores for each in processes if each.busy_cores is not None), default=0.0)
    if busy >= OTHERS:
        cores = len(processes[0].environment.cores)
        return f"others used {busy:.1f} of {cores} core{'s' if cores > 1 else ''}"
    worst = max(processes, key=lambda each: each.disturbed / len(each.samples_us))
    rounds = len(worst.samples_us)
    return f"{worst.disturbed} of {rounds} rounds disturbed" if 2 * worst.disturbed >= rounds else ""


def why_wide(ratio: Ratio) -> str:
    """Say why a ratio decides nothing: its interval reaches too far."""
    if ratio.low > 0.0 and ratio.high <= WIDE * ratio.low:
        return ""
    return f"the interval spans a factor of {ratio.high / ratio.low:.1f}" if ratio.low > 0.0 else "no interval"


def why_row_in_doubt(row: Row) -> str:
    """Say why a row's times and ratios may be wrong, or nothing.

    A row notes what disturbed any of its processes; one from before that was kept is judged by its last process.
    """
    disturbed = row.notes[DOUBT] if DOUBT in row.notes else why_in_doubt(row.measurements)
    return "; ".join(filter(None, (disturbed, *dict.fromkeys(map(why_wide, row.ratios.values())))))
