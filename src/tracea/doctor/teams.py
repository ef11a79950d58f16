"""Teams: threads that are pinned, one a core, start on something together, and say when each began and ended."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Task", "shortest", "span", "together"]

Task: TypeAlias = Callable[[int], object]  # takes the thread's number; a foreign call, which releases Python's lock


def shortest(team: tuple[int, ...], task: Task, repeats: int) -> float:
    """Return the shortest of several times, in seconds, from the first thread's start to the last one's end."""
    return min(span(together(team, task)) for _ in range(repeats))


def span(times: list[tuple[float, float]]) -> float:
    """Return the seconds from the first start to the last end."""
    return max(end for _, end in times) - min(start for start, _ in times)


def together(team: tuple[int, ...], task: Task) -> list[tuple[float, float]]:
    """Run ``task(rank)`` on each core of the team at once and return when each began and ended, in seconds."""
    gate = threading.Barrier(len(team))
    times = [(0.0, 0.0)] * len(team)

    def work(rank: int, core: int) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {core})  # of this thread only
        gate.wait()
        start = time.perf_counter()
        task(rank)
        times[rank] = (start, time.perf_counter())

    threads = [threading.Thread(target=work, args=(rank, core)) for rank, core in enumerate(team)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times
