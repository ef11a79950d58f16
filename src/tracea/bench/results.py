"""Where records are kept: one folder a core, since a time on another core is another result.

So is one on the same core without the instructions that a hypervisor masks, or that the user takes away.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tracea.doctor import probe_machine

__all__ = ["RESULTS", "folder_of_this_core"]

RESULTS: Final = Path("benchmarks/results")


def folder_of_this_core(results: Path = RESULTS) -> Path:
    """Return the folder in ``results`` of this processor's core: ``zen3``, ``sapphirerapids-without-amx_bf16``."""
    hardware = probe_machine().hardware
    return results / "-without-".join((hardware.core, *sorted({*hardware.masked, *hardware.withheld})))
