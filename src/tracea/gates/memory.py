"""What a kernel keeps, memory and open files: what the process holds is read right before and right after each run.

A leak is what most runs add, whatever they compute. One run may grow a workspace, another thread may allocate in
between: neither is in most runs.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import statistics
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tracea.gates.verdict import Check

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.gates.correctness import Run

__all__ = ["MINIMUM_RUNS", "MemoryWatch", "Prepare"]

Prepare: TypeAlias = Callable[[Sequence["NDArray[Any]"]], object]  # makes what a run on these inputs needs

MINIMUM_RUNS: Final = 8  # fewer say little about most of them
_STATM: Final = Path("/proc/self/statm")
_DESCRIPTORS: Final = ("/proc/self/fd", "/dev/fd")  # the second where there is no first
# glibc's MINSIZE. What is less was not kept by a run: a block that is held took what was too little to be one itself.
_LEAST_BLOCK: Final = 4 * ctypes.sizeof(ctypes.c_size_t)


class MemoryWatch:
    """A kernel whose runs are watched; ``check`` says what they kept."""

    def __init__(self, run: Run, prepare: Prepare | None = None) -> None:
        self._run = run
        self._prepare = prepare
        self._added: list[tuple[int, int]] = []
        self._opened: list[int] = []

    def __call__(self, inputs: Sequence[NDArray[Any]], out: NDArray[Any]) -> None:
        """Prepare and run the kernel, and note what the process holds after the run that it did not hold before it."""
        if self._prepare is not None:
            self._prepare(inputs)
        open_before, before = _open_files(), _held()
        self._run(inputs, out)
        after, open_after = _held(), _open_files()
        if open_before is not None and open_after is not None:
            self._opened.append(open_after - open_before)
        if before is not None and after is not None:
            self._added.append((after[0] - before[0], after[1] - before[1]))

    def check_files(self) -> Check | None:
        """Return whether most runs closed what they opened; None as of ``check``."""
        if len(self._opened) < MINIMUM_RUNS:
            return None
        kept = max(0, statistics.median_low(self._opened))
        detail = f"descriptors that most of {len(self._opened)} runs left open"
        return Check(name="no files kept open", passed=kept == 0, figure=kept, limit=0, detail=detail)

    def check(self) -> Check | None:
        """Return whether most runs kept nothing; None where the system does not say, or the runs were too few."""
        if len(self._added) < MINIMUM_RUNS:
            return None
        heap, mapped = (max(0.0, statistics.median_low(added)) for added in zip(*self._added, strict=True))
        heap = heap if heap >= _LEAST_BLOCK else 0.0
        return Check(
            name="no memory kept",
            passed=heap == mapped == 0.0,
            figure=int(max(heap, mapped)),
            limit=0,
            detail=f"bytes that most of {len(self._added)} runs added: {int(heap)} of the heap, {int(mapped)} mapped",
        )


def _held() -> tuple[int, int] | None:
    """Return the bytes of the heap in use, in all arenas, and of the address space beside it; None: one is unknown.

    The heap's own end moves as its free room is given back, by whoever frees next: that is nobody's leak.
    """
    read = _heap_reader()
    if read is None:
        return None
    try:
        pages = int(_STATM.read_bytes().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    _cache_filler()()  # last: to read a file takes memory too
    used, whole = read()
    return used, pages * mmap.PAGESIZE - whole


def _open_files() -> int | None:
    """Return how many descriptors are open, that of the listing too; None where the system does not say."""
    try:
        return len(os.listdir(_descriptors()))
    except OSError:
        return None


@cache
def _descriptors() -> str:
    return next((path for path in _DESCRIPTORS if os.path.isdir(path)), "")


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
def _heap_reader() -> Callable[[], tuple[int, int]] | None:
    """Return what reads the heap in use, and all that it has of the system; None: no glibc from 2.33 on."""
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is None:
        return None
    function.restype = _Mallinfo
    function.argtypes = []

    def read() -> tuple[int, int]:
        found = function()
        return int(found.uordblks) + int(found.hblkhd), int(found.arena)

    return read


_CACHED_SIZES: Final = range(24, 1033, 16)  # what a block of each size that a thread's cache holds has room for
_CACHED_BLOCKS: Final = 7  # of each; 16 from glibc 2.42 on
_CACHED_BLOCKS_LATER: Final = 16


@cache
def _cache_filler() -> Callable[[], None]:
    """Return what leaves the cache of the calling thread full, whatever it held before."""
    library = ctypes.CDLL(None)
    malloc, free, room_of = library.malloc, library.free, library.malloc_usable_size
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    free.restype, free.argtypes = None, [ctypes.c_void_p]
    room_of.restype, room_of.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    library.gnu_get_libc_version.restype = ctypes.c_char_p
    major, minor = (int(part) for part in library.gnu_get_libc_version().split(b".")[:2])
    count = _CACHED_BLOCKS_LATER if (major, minor) >= (2, 42) else _CACHED_BLOCKS

    def fill() -> None:
        blocks: list[int] = []
        for size in _CACHED_SIZES:
            fitting = 0
            while fitting < count:  # a free block that is a little larger is given whole, and goes elsewhere
                blocks.append(malloc(size))
                fitting += room_of(blocks[-1]) == size
        for block in blocks:
            free(block)

    return fill
