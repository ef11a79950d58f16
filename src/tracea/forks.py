"""Whether this process is the child of a fork: threads of OpenMP do not exist there, and who asks for them waits."""

from __future__ import annotations

import os

__all__ = ["is_child"]

_FORKED: list[bool] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _FORKED.append(True))


def is_child() -> bool:
    """Tell whether the process was forked since Tracea was imported."""
    return bool(_FORKED)
