"""Pace: whether a core has to itself what it shares with its other hardware thread, by how long the same work takes.

Where a core runs two hardware threads, what another program runs on the other one takes its half of what both share:
the decoder, the first cache, the execution units. Where that program is another machine's, a guest has no counter of
it: no time was taken away ("steal"), and nothing was switched out. A checksum of 16 KiB from the first cache is bound
by what is shared: 4.3 us alone and 9.2 us beside a busy neighbour, where kernels take 1.2 to 3 times as long
(benchmarks/NOTES.md, 2026-11-27), some more than others: a comparison then says who suffers less, not who is faster.
"""

from __future__ import annotations

import binascii
import errno
import math
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

from tracea.profiler.machine import cores_allowed

__all__ = ["SHARED", "CorePacer", "Pacer", "known_least", "remember_least", "shared_time"]

Pacer: TypeAlias = Callable[[], float]

SHARED: Final = 0.4  # by what share of its least the work takes longer on a core that is surely shared
_BYTES: Final = bytes(range(256)) * 64
_TAKEN: Final = 3  # runs, of which the least counts: an interrupt is no neighbour
_MOST_CORES: Final = 16  # beyond these a look at each would take as long as what it watches
_WAKING: Final = 0.2  # of the time that a core is watched: it had rested, and its clock rises first


_least_ns: dict[str, float] = {}  # of this process, and of those that told it theirs, by core


def known_least() -> dict[str, float]:
    """Return the least nanoseconds that the work took so far, by core: what another process may be told."""
    return dict(_least_ns)


def remember_least(found: Mapping[str, float]) -> None:
    """Learn what another process of this run knows, so that a short one knows a core at rest that it never meets."""
    for core, took in found.items():
        _least_ns[core] = min(took, _least_ns.get(core, math.inf))


class CorePacer:
    """Times the same few microseconds of work, and says how many times its least so far it takes now: 1 at best.

    A team that has all cores of the process is as slow as its slowest one: each is looked at in turn, by the calling
    thread, which returns to the cores it had. Of one thread, or of a team on some of many cores, the core that the
    thread is on. What any pacer of the process found, and was told of others' (:func:`remember_least`), counts for all
    that use the system's clock; a core whose neighbour never rested meanwhile has no other least, and shows 1.
    """

    def __init__(self, *, threads: int = 1, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        cores = cores_allowed()
        self._cores: tuple[int, ...] = cores if 1 < threads == len(cores) <= _MOST_CORES and _can_move() else ()
        self._clock = clock
        self._names = [str(core) for core in self._cores or cores] if self._cores or len(cores) == 1 else ["any"]
        self._least = _least_ns if clock is time.perf_counter_ns else {}

    def __call__(self) -> float:
        """Return the slowest core's time over its least so far; some 15 microseconds a core."""
        try:
            with _visits(self._cores) as visits:
                taken = dict(zip(self._names, [self.took() for _ in visits], strict=True))
        except OSError:  # the system refuses to move threads, or took a core away
            self._cores, self._names = (), ["any"]
            taken = {"any": self.took()}
        for core, now in taken.items():
            self._least[core] = min(now, self._least.get(core, math.inf))
        return max((now / self._least[core] for core, now in taken.items() if self._least[core] > 0.0), default=1.0)

    def took(self) -> float:
        """Return the nanoseconds that the work takes on this core now."""
        found = math.inf
        for _ in range(_TAKEN):
            start = self._clock()
            binascii.crc32(_BYTES)
            found = min(found, self._clock() - start)
        return found


def shared_time(cores: Sequence[int], *, seconds: float = 0.15) -> dict[int, float]:
    """Return for each core which share of ``seconds`` of work on it was slowed by what it shares: 0 to 1.

    Nothing of cores that a thread cannot choose. A core that is never alone meanwhile shows 0.
    """
    found: dict[int, float] = {}
    if not cores or not _can_move():
        return found
    pacer = CorePacer()
    with suppress(OSError), _visits(cores) as visits:
        for core, _ in zip(cores, visits, strict=True):
            begin = time.perf_counter()
            taken: list[tuple[float, float]] = []
            while (now := time.perf_counter() - begin) < seconds:
                taken.append((now, pacer.took()))
            awake = [took for at, took in taken if at >= _WAKING * seconds] or [1.0]
            limit = (1.0 + SHARED) * min(awake)
            found[core] = sum(took > limit for took in awake) / len(awake)
    return found


def _can_move() -> bool:
    """Tell whether a thread can choose its core here."""
    return hasattr(os, "sched_setaffinity")


@contextmanager
def _visits(cores: Sequence[int]) -> Generator[Iterator[None]]:
    """Give an iterator that moves this thread to each core in turn, or leaves it where it is; then undo that.

    Whoever moves the thread meanwhile is right: it stays there, and the iterator raises OSError.
    """
    if not cores:
        yield iter((None,))
        return
    home = os.sched_getaffinity(0)
    at = [home]

    def moves() -> Iterator[None]:
        for core in cores:
            if os.sched_getaffinity(0) != at[-1]:
                raise OSError(errno.EAGAIN, "another program moved this thread")
            os.sched_setaffinity(0, {core})
            at.append({core})
            yield

    try:
        yield moves()
    finally:
        if os.sched_getaffinity(0) == at[-1]:
            os.sched_setaffinity(0, home)
