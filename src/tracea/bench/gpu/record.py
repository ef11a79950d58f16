"""GpuRecord: a run of the GPU suite as it is kept in ``benchmarks/results/<gpu>.json``, written after every item."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from tracea.bench.gpu.settings import ItemOutcome, Settings, Status
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

    ``measured`` tells whether a device took part: without one nothing in the record is a time.
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


def file_name(device: dict[str, Any], settings: Settings) -> str:
    """Return the record's file name: the device's, or the absent device's target."""
    if settings.driver == "null":
        return f"dry-run-{settings.target}.json"
    return re.sub(r"[^a-z0-9]+", "-", str(device.get("name", "gpu")).lower()).strip("-") + ".json"


class Journal:
    """The record on disk, rewritten after each change; without a folder it is kept in memory only."""

    def __init__(self, record: GpuRecord, folder: Path | None) -> None:
        self.record = record
        self.path = None if folder is None else folder / file_name(record.device, record.settings)

    def save(self) -> None:
        """Write the record as it is now."""
        if self.path is not None:
            write_json(self.path, self.record)
