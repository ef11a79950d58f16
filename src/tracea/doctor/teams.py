"""Teams: threads that are pinned, one a core, start on something together, and say when each began and ended."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from tracea.errors import RunError

__all__ = ["Task", "shortest", "span", "together"]

Task: TypeAlias = Callable[[int], object]  # takes the thread's number; a foreign call, which releases Python's lock


def shortest(team: tuple[int, ...], task: Task, repeats: int) -> float:
    """Return the shortest of several times, in seconds, from the first thread's start to the last one's end."""
    return min(span(together(team, task)) for _ in range(repeats))


def span(times: list[tuple[float, float]]) -> float:
    """Return the seconds from the first start to the last end."""
    return max(end for _, end in times) - min(start for start, _ in times)


def together(team: tuple[int, ...], task: Task) -> list[tuple[float, float]]:
    """Run ``task(rank)`` on each core of the team at once and return when each began and ended, in seconds.

    Raises: what a task raised. RunError: a thread cannot have its core, or cannot begin; then no task runs.
    """
    gate = threading.Barrier(len(team))
    times = [(0.0, 0.0)] * len(team)
    failed: list[BaseException] = []

    def work(rank: int, core: int) -> None:
        try:
            _move_to(core)
            gate.wait()
            start = time.perf_counter()
            task(rank)
            times[rank] = (start, time.perf_counter())
        except threading.BrokenBarrierError:
            return  # another one failed, and says how
        except BaseException as error:
            failed.append(error)
            gate.abort()  # else the others would wait for this one without end

    threads = [threading.Thread(target=work, args=(rank, core)) for rank, core in enumerate(team)]
    try:
        for thread in threads:
            thread.start()
    except RuntimeError as error:  # the system has no more threads
        gate.abort()
        raise RunError(
            kernel="a team of threads", detail=str(error), remedy="allow the process more threads"
        ) from error
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return times


def _move_to(core: int) -> None:
    """Let this thread, and no other, run on one core."""
    if not hasattr(os, "sched_setaffinity"):
        return
    try:
        os.sched_setaffinity(0, {core})
    except OSError as error:
        raise RunError(
            kernel="a team of threads",
            detail=f"core {core} cannot be had: {error.strerror}",
            remedy="run it again: a core was taken from this process meanwhile",
        ) from error
