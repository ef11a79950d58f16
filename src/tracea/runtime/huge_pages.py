"""Huge pages behind memory that was written before anyone could ask for them: weights that programs read in place.

A weight that is read whole in each run crosses 512 pages of 4 KiB where one of 2 MiB would do; each crossing ends what
the processor fetches ahead, and asks for an address to be translated.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np

__all__ = ["HUGE_PAGE", "back_by_huge_pages", "whole_huge_pages"]

HUGE_PAGE: Final = 2 << 20  # bytes
_BETWEEN: Final = 8192  # bytes at most between neighbours that an allocator laid side by side
_COLLAPSE: Final = 25  # MADV_COLLAPSE of madvise(2), Linux 6.1 and later: move to huge pages what is there already
_POLICY: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def back_by_huge_pages(arrays: Iterable[np.ndarray[Any, Any]]) -> int:
    """Move what arrays hold to huge pages where it fills some, and return how many bytes were moved or lay there.

    Advice: addresses and contents stay, and where the system has no such pages, or was told never to use them, nothing
    happens and 0 is returned.
    """
    if sys.platform != "linux" or not _is_allowed():
        return 0
    advise = ctypes.CDLL(None).madvise
    advise.argtypes, advise.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    pages = whole_huge_pages(_span(array) for array in arrays)
    each = (page for first, nbytes in pages for page in range(first, first + nbytes, HUGE_PAGE))
    # One at a time: a hole between two arrays is to keep no other page from moving.
    return sum(HUGE_PAGE for page in each if advise(page, HUGE_PAGE, _COLLAPSE) == 0)


def whole_huge_pages(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return address and bytes of the whole huge pages within spans (first, end), neighbours taken together.

    ``whole_huge_pages([(0x1ff000, 0x500000)])`` is ``[(0x200000, 0x200000)]``.
    """
    joined: list[tuple[int, int]] = []
    for first, end in sorted(spans):
        if joined and first <= joined[-1][1] + _BETWEEN:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((first, end))
    inner = ((-(-first // HUGE_PAGE) * HUGE_PAGE, end // HUGE_PAGE * HUGE_PAGE) for first, end in joined)
    return [(first, end - first) for first, end in inner if end > first]


def _span(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    first = int(array.__array_interface__["data"][0])
    reach = sum((extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True))
    return first, first + reach + array.itemsize if array.size else first


def _is_allowed() -> bool:
    try:
        return "[never]" not in _POLICY.read_text(encoding="ascii")
    except OSError:
        return False
