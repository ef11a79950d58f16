"""Where records are kept: one folder a core, since a time on another core is another result."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tracea.doctor import probe_machine

__all__ = ["RESULTS", "folder_of_this_core"]

RESULTS: Final = Path("benchmarks/results")


def folder_of_this_core(results: Path = RESULTS) -> Path:
    """Return the folder in ``results`` that is named after this processor's core, such as ``zen3``."""
    return results / probe_machine().hardware.core
