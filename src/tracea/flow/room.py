"""Room: whether a problem's arrays fit this machine, or what a search's process may use; what does not is refused."""

from __future__ import annotations

import os
from typing import Final

from tracea.core.graph import Graph
from tracea.core.op import Op
from tracea.errors import ResourceExceeded

__all__ = ["require_memory", "require_room", "require_room_for_results"]

_REFERENCE_BYTES: Final = 8  # of an element of the float64 reference
_SMALLER: Final = "take a smaller problem; what runs without a search takes the default schedule"


def require_room(op: Op, doing: str, *, process_bytes: int | None = None, remedy: str = _SMALLER) -> None:
    """Refuse what cannot be held: the least is each operand and the result once, and the float64 reference.

    Units: ``process_bytes`` is what the process that holds them may add, beside this machine's memory.
    Raises: ResourceExceeded.
    """
    result = op.infer()
    needed = sum(kind.nbytes for kind in (*op.operands, result)) + _REFERENCE_BYTES * result.elements
    require_memory(f"{doing} {op.key}", needed, remedy=remedy, process_bytes=process_bytes)


def require_memory(what: str, needed_bytes: int, *, remedy: str, process_bytes: int | None = None) -> None:
    """Refuse what is larger than this machine's memory, or than what a process may add to it.

    Raises: ResourceExceeded.
    """
    there = _memory_bytes()
    limit = there if process_bytes is None else min(there, process_bytes)
    if needed_bytes > limit:
        raise ResourceExceeded(what=what, needed_bytes=needed_bytes, limit_bytes=limit, remedy=remedy)


def require_room_for_results(graph: Graph) -> None:
    """Refuse a graph whose results this machine's memory cannot hold; a symbolic result counts as none.

    Raises: ResourceExceeded.
    """
    results = {node.id: node.type for node in graph.outputs if node.type.is_static}
    require_memory(
        f"the results {', '.join(f'{name} {kind}' for name, kind in results.items())}",
        sum(kind.nbytes for kind in results.values()),
        remedy="split the graph's inputs, and run it on one part after the other",
    )


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
