"""GpuRecord: a run of the GPU suite as it is kept in ``benchmarks/results/<gpu>.json``.

While the run goes on it is in ``<gpu>.unfinished.json`` beside it, written after every item: what is stopped, or fails
in the first second, costs no earlier measurement.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from tracea.bench.gpu.settings import ItemOutcome, Settings, Status
from tracea.bench.unfinished import Unfinished
from tracea.profiler.environment import Environment
from tracea.profiler.record import write_json

__all__ = ["GpuRecord", "Journal", "StageRecord", "file_name"]

SCHEMA_VERSION: Final = 1
_BAD: Final = (Status.FAILED, Status.CRASHED, Status.HUNG)


class StageRecord(msgspec.Struct, kw_only=True):
    """One stage: its items' outcomes in the order in which they ended. Units: seconds."""

    budget_seconds: float
    seconds: float = 0.0
    reason: str = ""
    items: dict[str, ItemOutcome] = {}

    @property
    def counts(self) -> dict[str, int]:
        """How many items ended in which way."""
        found: dict[str, int] = {}
        for item in self.items.values():
            found[item.status.value] = found.get(item.status.value, 0) + 1
        return found


class GpuRecord(msgspec.Struct, kw_only=True):
    """The hardware, its driver, the toolchain, the command, and what came of each stage.

    ``measured`` tells whether a device took part: without one nothing in the record is a time. ``is_complete`` tells
    that the run of the whole suite came to its end; a part of it never is.
    """

    schema_version: int = SCHEMA_VERSION
    command: str
    measured: bool
    settings: Settings
    device: dict[str, Any]
    environment: Environment
    stages: dict[str, StageRecord] = {}
    is_complete: bool = False

    @property
    def failures(self) -> list[str]:
        """The items that went wrong, as ``stage: item: detail``."""
        return [
            f"{stage}: {name}: {item.status}: {item.detail}"
            for stage, record in self.stages.items()
            for name, item in record.items.items()
            if item.status in _BAD
        ]


def file_name(device: dict[str, Any], settings: Settings, *, is_part: bool = False) -> str:
    """Return the record's file name: the device's, or the absent device's target; a part of the suite has its own."""
    part = "-part" * is_part
    if settings.driver == "null":
        return f"dry-run-{settings.target}{part}.json"
    return re.sub(r"[^a-z0-9]+", "-", str(device.get("name", "gpu")).lower()).strip("-") + f"{part}.json"


class Journal:
    """The record on disk, rewritten after each change, and at its own place when the run is over.

    Without a folder it is kept in memory only.
    """

    def __init__(self, record: GpuRecord, folder: Path | None, *, is_part: bool = False) -> None:
        self.record = record
        self._is_part = is_part
        self.path = None if folder is None else folder / file_name(record.device, record.settings, is_part=is_part)

    def save(self) -> None:
        """Write the record as it is now, beside the place where it goes."""
        if self.path is not None:
            write_json(Unfinished.place(self.path), self.record)

    def finish(self) -> None:
        """Write the record of a run that came to its end to its own place."""
        self.record.is_complete = not self._is_part
        if self.path is not None:
            write_json(self.path, self.record)
            Unfinished.place(self.path).unlink(missing_ok=True)
