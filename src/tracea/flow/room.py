"""Room: whether a problem's arrays fit this machine, or what a search's process may use; what does not is refused."""

from __future__ import annotations

import os
from typing import Final

from tracea.core.op import Op
from tracea.errors import ResourceExceeded

__all__ = ["require_room"]

_REFERENCE_BYTES: Final = 8  # of an element of the float64 reference
_SMALLER: Final = "take a smaller problem; what runs without a search takes the default schedule"


def require_room(op: Op, doing: str, *, process_bytes: int | None = None, remedy: str = _SMALLER) -> None:
    """Refuse what cannot be held: the least is each operand and the result once, and the float64 reference.

    Units: ``process_bytes`` is what the process that holds them may add, beside this machine's memory.
    Raises: ResourceExceeded.
    """
    result = op.infer()
    needed = sum(kind.nbytes for kind in (*op.operands, result)) + _REFERENCE_BYTES * result.elements
    there = _memory_bytes()
    limit = there if process_bytes is None else min(there, process_bytes)
    if needed > limit:
        raise ResourceExceeded(what=f"{doing} {op.key}", needed_bytes=needed, limit_bytes=limit, remedy=remedy)


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
