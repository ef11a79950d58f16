"""Policy: what the ops of this thread, or of this asynchronous task, may use."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from tracea.interface.operands import flag

__all__ = ["library", "library_allowed"]

_library: Final[ContextVar[bool]] = ContextVar("tracea.ops.library", default=True)

# Called on every op: whether a library's variants may run it.
library_allowed = _library.get


@contextmanager
def library(allowed: bool) -> Generator[None]:
    """Allow or forbid the library's variants (torch's oneDNN and MKL) within a ``with`` block.

    >>> with tracea.ops.library(False):
    ...     c = tracea.ops.gemm(a, b)  # a kernel of ours, whatever was measured

    It is how tests and benchmarks judge our own kernels. Threads that the block starts do not inherit it.

    Raises: InvalidOp: it is neither True nor False.
    """
    token = _library.set(flag("library", allowed))
    try:
        yield
    finally:
        _library.reset(token)
