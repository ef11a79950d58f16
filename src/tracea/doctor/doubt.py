"""Doubt: which measured ceilings other programs have spoiled, known by the load or by figures that cannot all be true.

What shares the cores makes every rate too low and every time too high; the best of several runs hides some of it only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tracea.doctor.ceilings import Ceilings

__all__ = ["OTHERS", "Row", "doubts", "why_under_load"]

# Others that take this much of one core shift a median by more than the differences that a search decides by.
OTHERS: Final = 0.2
# A load average above this many runnable threads a core: where nobody counted what others took meanwhile.
_BUSY: Final = 0.5
# Half of the bytes that a copy moves are read, so that reading alone is at least as fast as that half: below this share
# of it, the read was disturbed. Not of the whole: writes past the caches do not wait for the buffers that reads wait
# for, and an undisturbed core copied 28.9 GB/s where it read 18.4 (benchmarks/NOTES.md).
_READ_OVER_COPY: Final = 0.95
# More threads that move this much less than one were kept from running together.
_MORE_OVER_ONE: Final = 0.9
# Threads that are there start within microseconds; a millisecond is another program's time slice.
_FORK_JOIN_US: Final = 1_000.0

# A line of the report: ("copy", 2) a pattern and its threads, ("fork_join", 0) the fork-join.
Row = tuple[str, int]


def why_under_load(ceilings: Ceilings) -> str:
    """Say which load the ceilings were measured under, with its number; nothing where there was none to speak of."""
    cores = max((row.threads for row in ceilings.peaks), default=1)
    if ceilings.busy_cores is not None:
        if ceilings.busy_cores < OTHERS:
            return ""
        return f"while other programs used {ceilings.busy_cores:.1f} of {cores} cores"
    if ceilings.load is not None and ceilings.load > _BUSY * cores:
        return f"at a load of {ceilings.load:.1f} on {cores} cores"
    return ""


def doubts(ceilings: Ceilings) -> dict[Row, str]:
    """Return by line why its figure cannot be the machine's, beside the other figures."""
    found: dict[Row, str] = {}
    moved = {(row.pattern, row.threads): row.gbytes for row in ceilings.bandwidths}
    for (pattern, threads), gbytes in moved.items():
        alone = moved.get((pattern, 1))
        if threads > 1 and alone is not None and gbytes < _MORE_OVER_ONE * alone:
            found[pattern, threads] = f"{threads} threads moved {gbytes:.1f} GB/s, one alone {alone:.1f}"
        copy = moved.get(("copy", threads))
        if pattern == "read" and copy is not None and gbytes < _READ_OVER_COPY * copy / 2:
            found[pattern, threads] = (
                f"{_threads(threads)} read {gbytes:.1f} GB/s and copied {copy:.1f} GB/s, which reads {copy / 2:.1f}"
            )
    if ceilings.fork_join_us is not None and ceilings.fork_join_us > _FORK_JOIN_US:
        found["fork_join", 0] = f"a fork-join took {ceilings.fork_join_us / 1_000:.0f} ms: a time slice of others"
    return found


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
