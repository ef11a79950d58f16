"""Memory that a kernel keeps: what the process holds is read right before and right after each run.

A leak is what most runs add, whatever they compute. One run may grow a workspace, another thread may allocate in
between: neither is in most runs.
"""

from __future__ import annotations

import ctypes
import mmap
import statistics
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracea.gates.verdict import Check

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.gates.correctness import Run

__all__ = ["MINIMUM_RUNS", "MemoryWatch"]

MINIMUM_RUNS: Final = 8  # a small block may come from what the allocator keeps for its thread: seven of a size
_STATM: Final = Path("/proc/self/statm")


class MemoryWatch:
    """A kernel whose runs are watched; ``check`` says what they kept."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._added: list[tuple[int, int]] = []

    def __call__(self, inputs: Sequence[NDArray[Any]], out: NDArray[Any]) -> None:
        """Run the kernel, and note what the process holds afterwards that it did not hold before."""
        before = _held()
        self._run(inputs, out)
        after = _held()
        if before is not None and after is not None:
            self._added.append((after[0] - before[0], after[1] - before[1]))

    def check(self) -> Check | None:
        """Return whether most runs kept nothing; None where the system does not say, or the runs were too few."""
        if len(self._added) < MINIMUM_RUNS:
            return None
        heap, mapped = (max(0.0, statistics.median_low(added)) for added in zip(*self._added, strict=True))
        return Check(
            name="no memory kept",
            passed=heap == mapped == 0.0,
            figure=int(max(heap, mapped)),
            limit=0,
            detail=f"bytes that most of {len(self._added)} runs added: {int(heap)} of the heap, {int(mapped)} mapped",
        )


def _held() -> tuple[int, int] | None:
    """Return the bytes of the heap in use, in all arenas, and of the address space; None where one is unknown."""
    read = _heap_reader()
    if read is None:
        return None
    try:
        pages = int(_STATM.read_bytes().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return read(), pages * mmap.PAGESIZE


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` of malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


@cache
def _heap_reader() -> Callable[[], int] | None:
    """Return what reads the heap in use; None where the C library is not glibc from 2.33 on."""
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is None:
        return None
    function.restype = _Mallinfo
    function.argtypes = []

    def read() -> int:
        found = function()
        return int(found.uordblks) + int(found.hblkhd)

    return read
