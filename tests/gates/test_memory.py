"""What a kernel keeps of memory from run to run is a finding; what it needs while it runs is not."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tracea.core.op import GemmOp
from tracea.gates import QUICK, judge
from tracea.gates.memory import MINIMUM_RUNS, MemoryWatch

Array = np.ndarray[Any, Any]
OP = GemmOp.of(m=21, n=53, k=100)
LIBC = ctypes.CDLL(None)
LIBC.malloc.restype = ctypes.c_void_p
LIBC.free.argtypes = [ctypes.c_void_p]
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]

if not hasattr(LIBC, "mallinfo2"):
    pytest.skip("this C library does not say what its heap holds", allow_module_level=True)


def right(inputs: Sequence[Array], out: Array) -> None:
    np.matmul(inputs[0], inputs[1], out=out)


def with_every_run(act: Callable[[], object]) -> Callable[[Sequence[Array], Array], None]:
    def run(inputs: Sequence[Array], out: Array) -> None:
        right(inputs, out)
        act()

    return run


def leaks() -> dict[str, tuple[Callable[[], object], int]]:
    kept: list[Array] = []
    return {
        "a small block": (lambda: LIBC.malloc(48), 48),
        "a large block": (lambda: LIBC.malloc(1 << 20), 1 << 20),
        "a page of its own": (lambda: LIBC.mmap(None, 4096, 3, 0x22, -1, 0), 4096),
        "results": (lambda: kept.append(np.empty((21, 53), np.float32)), 21 * 53 * 4),
    }


@pytest.mark.parametrize("name", leaks())
def test_what_every_run_keeps_is_found(name: str) -> None:
    act, least = leaks()[name]
    verdict = judge(with_every_run(act), OP, seed=1)
    (failure,) = verdict.failures
    assert failure.name == "no memory kept"
    assert isinstance(failure.figure, int)
    assert least <= failure.figure <= least + 4096


def test_what_a_run_gives_back_is_not_kept() -> None:
    def borrow() -> None:
        for size in (48, 4096, 1 << 20):
            LIBC.free(LIBC.malloc(size))
        np.empty(1 << 22)

    verdict = judge(with_every_run(borrow), OP, seed=1)
    assert verdict.passed, str(verdict)
    assert verdict.checks[-1].name == "no memory kept"


def test_a_workspace_that_grows_once_is_not_a_leak() -> None:
    workspaces: list[int] = []
    grow = with_every_run(lambda: workspaces or workspaces.append(LIBC.malloc(1 << 20)))
    assert judge(grow, OP, seed=1).passed


@pytest.mark.parametrize("kept", [0, 48])
def test_what_is_made_before_a_run_is_not_what_the_run_keeps(kept: int) -> None:
    run = with_every_run(lambda: LIBC.malloc(kept) if kept else None)
    verdict = judge(run, OP, seed=1, prepare=lambda inputs: LIBC.malloc(1 << 20))
    assert [check.name for check in verdict.failures] == ["no memory kept"] * bool(kept), str(verdict)
    assert all(check.figure < 1 << 20 for check in verdict.failures), str(verdict)


def passed_on(blocks: int, kept: int) -> Callable[[Sequence[Array], Array], None]:
    """A kernel whose threads free what its caller allocated, but for ``kept`` blocks."""

    def run(inputs: Sequence[Array], out: Array) -> None:
        own = [LIBC.malloc(56) for _ in range(blocks)]
        freed_by_a_thread(own[kept:])

    return run


def freed_by_a_thread(blocks: Sequence[int]) -> None:
    """Free blocks in threads that end: their caches go to the lists of the arena, which count as free."""
    for block in blocks:
        thread = ctypes.c_ulong()
        # The thread's function is free itself. Python's own join does not wait for the end of the system's thread.
        assert LIBC.pthread_create(ctypes.byref(thread), None, LIBC.free, ctypes.c_void_p(block)) == 0
        assert LIBC.pthread_join(thread, None) == 0


def freed_here(blocks: Sequence[int]) -> None:
    """Free blocks in this thread: they go to its cache first, which counts as in use."""
    for block in blocks:
        LIBC.free(block)


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("before", [freed_by_a_thread, freed_here], ids=["cache empty", "cache full"])
def test_blocks_that_only_change_lists_are_neither_kept_nor_given_back(
    before: Callable[[Sequence[int]], None], kept: int
) -> None:
    """Between runs the caller empties the cache of its thread, or fills it: runs seem to keep memory, or to hide it."""
    nothing = np.empty(0)
    for _ in range(4):
        watch = MemoryWatch(passed_on(2, kept))
        for _ in range(20):
            before([LIBC.malloc(56) for _ in range(14)])
            watch([nothing], nothing)
        check = watch.check()
        assert check is not None
        assert check.passed == (kept == 0), str(check)
        assert check.figure in ((64, 80) if kept else (0,)), str(check)  # a block of 80 may be given whole


@pytest.mark.parametrize("kept", [0, 1])
def test_a_kernel_that_starts_threads_is_judged_by_what_it_keeps(kept: int) -> None:
    def run(inputs: Sequence[Array], out: Array) -> None:
        right(inputs, out)
        passed_on(3, kept)(inputs, out)

    assert [check.name for check in judge(run, OP, seed=1).failures] == ["no memory kept"] * kept


def test_a_file_that_every_run_leaves_open_is_found_and_one_that_is_kept_is_not() -> None:
    opened: list[int] = []

    def leave_open(at_most: int) -> Callable[[], object]:
        return lambda: len(opened) < at_most and opened.append(os.open(os.devnull, os.O_RDONLY))

    try:
        verdict = judge(with_every_run(leave_open(1)), OP, seed=1)
        assert verdict.passed, str(verdict)
        verdict = judge(with_every_run(leave_open(10_000)), OP, seed=1)
    finally:
        for each in opened:
            os.close(each)
    (failure,) = verdict.failures
    assert (failure.name, failure.figure) == ("no files kept open", 1)


def test_a_few_runs_say_nothing_about_leaks() -> None:
    verdict = judge(right, OP, seed=1, distributions=QUICK, runs=2)
    assert "no memory kept" not in {check.name for check in verdict.checks}
    watch = MemoryWatch(right)
    a, b, out = np.ones((2, 2)), np.ones((2, 2)), np.empty((2, 2))
    for _ in range(MINIMUM_RUNS - 1):
        watch([a, b], out)
    assert watch.check() is None
    watch([a, b], out)
    assert watch.check() is not None


def test_a_heap_that_others_cut_back_between_runs_is_not_kept() -> None:
    """A run takes 8 MB from the heap's end and frees them; only the next to free anything gives them back."""
    LIBC.free(LIBC.malloc(16 << 20))  # from then on the C library keeps so much at the heap's end

    def run(inputs: Sequence[Array], out: Array) -> None:
        for block in [LIBC.malloc(100_000) for _ in range(80)]:
            LIBC.free(block)

    watched = MemoryWatch(run)
    for _ in range(MINIMUM_RUNS):
        LIBC.malloc_trim(0)
        watched([], np.zeros(1))
    check = watched.check()
    assert check is not None
    assert check.passed, str(check)
