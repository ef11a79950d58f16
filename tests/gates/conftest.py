"""What a planted kernel left open is closed after its test: hundreds of files would starve the tests behind it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture(autouse=True)
def files_left_open() -> Iterator[None]:
    """Close after the test what it has opened on the null device."""
    before = _on_the_null_device()
    yield
    for descriptor in _on_the_null_device() - before:
        os.close(descriptor)


def _on_the_null_device() -> set[int]:
    null = Path(os.devnull).stat()
    found: set[int] = set()
    for name in os.listdir(_DESCRIPTORS) if _DESCRIPTORS.is_dir() else []:
        try:
            status = os.fstat(int(name))
        except OSError:  # the descriptor that listed them
            continue
        if (status.st_rdev, status.st_ino) == (null.st_rdev, null.st_ino):
            found.add(int(name))
    return found
