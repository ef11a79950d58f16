"""Large arrays lie in huge pages where the system grants them, and belong to one process alone."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np
import pytest
import torch

import tracea
from tracea.core.dtype import DType
from tracea.runtime import huge_pages
from tracea.runtime.buffers import aligned_empty
from tracea.runtime.huge_pages import back_by_huge_pages, whole_huge_pages

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
HUGE_PAGE = 2 << 20


def granted() -> bool:
    """Return whether the system gives huge pages to whom asks for them: a mapping of the test's own says so."""
    if not SETTING.exists() or "[never]" in SETTING.read_text(encoding="ascii"):
        return False
    with mmap.mmap(-1, 4 * HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
        pages.madvise(mmap.MADV_HUGEPAGE)
        memory = np.frombuffer(pages, np.uint8)
        memory[:] = 1
        found = huge_kib(memory.ctypes.data + 2 * HUGE_PAGE)
        del memory
        return found > 0


def huge_kib(address: int) -> int:
    """Return the KiB of huge pages in the mapping that holds an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text(encoding="ascii", errors="replace").splitlines():
        first = line.split()[0]
        if not first.endswith(":"):
            low, high = (int(end, 16) for end in first.split("-"))
            inside = low <= address < high
        elif inside and first == "AnonHugePages:":
            return int(line.split()[1])
    return 0


@pytest.mark.skipif(not granted(), reason="this system grants no huge pages")
def test_a_large_array_lies_in_huge_pages() -> None:
    array = aligned_empty((16, HUGE_PAGE // 4), DType.F32)
    array.fill(1.0)
    assert array.ctypes.data % HUGE_PAGE == 0
    assert huge_kib(array.ctypes.data) * 1024 >= array.nbytes // 2


@pytest.mark.skipif(not granted(), reason="this system grants no huge pages")
def test_a_large_new_result_lies_in_huge_pages() -> None:
    x = torch.ones(2048, 4096)
    result = tracea.ops.copy(x)
    assert torch.equal(result, x)
    assert huge_kib(result.data_ptr() + HUGE_PAGE) * 1024 >= result.nbytes // 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of threads: the child only writes and leaves
def test_what_a_forked_child_writes_is_its_own() -> None:
    array = aligned_empty((HUGE_PAGE // 2,), DType.F32)
    array.fill(1.0)
    child = os.fork()
    if child == 0:
        array.fill(2.0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (array == 1.0).all()


def test_whole_pages_within_a_span() -> None:
    assert whole_huge_pages([(HUGE_PAGE - 4096, 2 * HUGE_PAGE + 4096)]) == [(HUGE_PAGE, HUGE_PAGE)]
    assert whole_huge_pages([(HUGE_PAGE, 3 * HUGE_PAGE)]) == [(HUGE_PAGE, 2 * HUGE_PAGE)]
    assert whole_huge_pages([(HUGE_PAGE + 1, 2 * HUGE_PAGE - 1), (0, 0)]) == []


def test_neighbours_are_taken_together_and_strangers_are_not() -> None:
    half = HUGE_PAGE + HUGE_PAGE // 2
    end = 2 * HUGE_PAGE
    assert whole_huge_pages([(half + 4096, end), (HUGE_PAGE, half)]) == [(HUGE_PAGE, HUGE_PAGE)]
    assert whole_huge_pages([(half + 16384, end), (HUGE_PAGE, half)]) == []
    assert whole_huge_pages([(HUGE_PAGE, end), (half, half + 8)]) == [(HUGE_PAGE, HUGE_PAGE)]


@pytest.mark.skipif(not granted(), reason="this system grants no huge pages")
def test_what_was_written_moves_to_huge_pages_and_stays() -> None:
    # A mapping of its own: where the heap has huge pages already, there is less to move.
    pages = mmap.mmap(-1, 8 * HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    array = np.frombuffer(pages, np.float32)
    array[:] = np.arange(array.size)
    turned, holes = array.reshape(1024, -1).T, array[::3]
    moved = back_by_huge_pages([turned, holes, np.empty((0, 7), np.float32)])
    np.testing.assert_array_equal(array, np.arange(array.size, dtype=np.float32))
    if moved:  # a kernel before Linux 6.1 leaves them as they are
        assert moved >= 3 * HUGE_PAGE
        assert huge_kib(array.ctypes.data + HUGE_PAGE) * 1024 >= 3 * HUGE_PAGE


def test_nothing_moves_where_the_system_never_has_huge_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    array, policy = np.ones(2 * HUGE_PAGE, np.float32), tmp_path / "enabled"
    monkeypatch.setattr(huge_pages, "_POLICY", policy)
    assert back_by_huge_pages([array]) == 0
    policy.write_text("always madvise [never]\n", encoding="ascii")
    assert back_by_huge_pages([array]) == 0


@pytest.mark.skipif(not granted(), reason="this system grants no huge pages")
def test_a_hole_between_two_arrays_keeps_no_other_page_from_moving() -> None:
    pages = mmap.mmap(-1, 8 * HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory = np.frombuffer(pages, np.uint8)
    memory[:] = 1
    first, second = memory[: 4 * HUGE_PAGE], memory[4 * HUGE_PAGE + mmap.PAGESIZE :]
    assert ctypes.CDLL(None).munmap(ctypes.c_void_p(memory.ctypes.data + first.nbytes), mmap.PAGESIZE) == 0
    moved = back_by_huge_pages([first, second])
    assert (first == 1).all()
    assert (second == 1).all()
    if moved:  # a kernel before Linux 6.1 leaves them as they are
        assert moved >= 5 * HUGE_PAGE
