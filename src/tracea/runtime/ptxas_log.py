"""What ptxas writes with -v: each kernel's registers, spills and stack, and what it complained about.

Worked example: «496 bytes stack frame, 744 bytes spill stores, 768 bytes spill loads», then «Used 32 registers».
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

__all__ = ["KernelUsage", "PtxasReport", "parse_ptxas_log"]

_ENTRY: Final = re.compile(r"Compiling entry function '([^']+)'")
_FRAME: Final = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED: Final = re.compile(r"Used (\d+) registers")
_SHARED: Final = re.compile(r"(\d+) bytes smem")
_BARRIERS: Final = re.compile(r"used (\d+) barriers")
_MILLISECONDS: Final = re.compile(r"Compile time = ([\d.]+) ms")
# C7508 «setmaxnreg ignored», C7510 «wgmma serialized», …: losses that no test of the numbers would see.
_ADVISORY: Final = re.compile(r"\((C7\d{3})\)")
_WARNING: Final = re.compile(r"^ptxas warning\s*:\s*(.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelUsage:
    """What one kernel uses. Spilled bytes are those of one thread, as stack bytes are."""

    name: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    barriers: int
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxasReport:
    """The kernels of a log by name, its warnings, and its advisories of lost speed (C7xxx), each as it was written."""

    kernels: Mapping[str, KernelUsage]
    warnings: tuple[str, ...]
    advisories: tuple[str, ...]


def parse_ptxas_log(log: str) -> PtxasReport:
    """Read a compilation's log."""
    kernels: dict[str, KernelUsage] = {}
    warnings: list[str] = []
    advisories: list[str] = []
    name: str | None = None
    frame: tuple[int, int, int] | None = None
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            name, frame = entry[1], None
        elif found := _FRAME.search(line):
            frame = int(found[1]), int(found[2]), int(found[3])
        elif (used := _USED.search(line)) and name is not None and frame is not None:
            kernels[name] = KernelUsage(
                name=name,
                registers=int(used[1]),
                stack_bytes=frame[0],
                spill_store_bytes=frame[1],
                spill_load_bytes=frame[2],
                static_shared_bytes=_number(_SHARED, line),
                barriers=_number(_BARRIERS, line),
                milliseconds=0.0,
            )
        elif (took := _MILLISECONDS.search(line)) and name is not None and name in kernels:
            kernels[name] = replace(kernels[name], milliseconds=float(took[1]))
        elif _ADVISORY.search(line):
            advisories.append(line.removeprefix("ptxas info    : ").strip())
        elif warning := _WARNING.match(line):
            warnings.append(warning[1].strip())
    return PtxasReport(kernels=kernels, warnings=tuple(warnings), advisories=tuple(advisories))


def _number(pattern: re.Pattern[str], line: str) -> int:
    found = pattern.search(line)
    return int(found[1]) if found is not None else 0
