"""Where in the user's code a captured node was written."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["line_of_node", "line_of_traceback"]

_FRAME: Final = re.compile(r'^\s*File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<scope>.+)$', re.MULTILINE)
# Frames of these directories are machinery between the user's line and the op: torch itself, Python's library, us.
_MACHINERY: Final = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))
_LIBRARY: Final = sysconfig.get_path("stdlib")
_INSTALLED: Final = ("site-packages", "dist-packages")
_UNKNOWN: Final = "an unknown line"


def line_of_node(node: Node) -> str:
    """Return ``path:line in scope`` of the user's line that made a node; where torch kept none, the module's name."""
    trace = str(node.meta.get("stack_trace") or "")
    found = _last_outside_machinery((m["path"], m["line"], m["scope"]) for m in _FRAME.finditer(trace))
    return found or _module_of(node) or _UNKNOWN


def line_of_traceback(traceback: TracebackType | None) -> str:
    """Return ``path:line in scope`` of the deepest frame of the user's code in a traceback."""
    frames: list[tuple[str, int, str]] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append((code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    return _last_outside_machinery(frames) or _UNKNOWN


def _last_outside_machinery(frames: Iterable[tuple[str, object, str]]) -> str | None:
    found = None
    for path, line, scope in frames:
        is_library = path.startswith(_LIBRARY) and not any(part in path for part in _INSTALLED)
        if not path.startswith(("<", *_MACHINERY)) and not is_library:
            found = f"{path}:{line} in {scope}"
    return found


def _module_of(node: Node) -> str | None:
    stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    entries = [(path, kind) for path, kind in stack.values() if path]
    if not entries:
        return None
    path, kind = entries[-1]
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    return f"module {path!r} ({name.rpartition('.')[2]})"
