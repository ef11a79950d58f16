"""Settings of a run of the GPU suite, as they travel to the processes of its stages; outcomes as they come back."""

from __future__ import annotations

import enum
from typing import Any, Final

import msgspec

__all__ = ["ITEM_SECONDS", "STAGES", "ItemOutcome", "Settings", "StageRequest", "Status"]

# In order, with the seconds that each may take: 570 in all.
STAGES: Final[dict[str, float]] = {
    "compile": 80.0,
    "conformance": 60.0,
    "correctness": 100.0,
    "sanitizer": 50.0,
    "banks": 30.0,
    "tuning": 110.0,
    "contest": 140.0,
}
ITEM_SECONDS: Final = 40.0  # without a sign of life, before an item is ended


class Status(enum.StrEnum):
    """How an item ended. ``dry``: everything before the device was done, and there was no device."""

    PASSED = "passed"
    FAILED = "failed"
    DRY = "dry"
    NOT_CHECKED = "not checked"
    CRASHED = "crashed"
    HUNG = "hung"
    SKIPPED = "skipped"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run is asked.

    ``driver`` is ``cuda``, or ``null`` for a run without a device; ``every`` takes each n-th item of a stage, 1 all of
    them. ``heroes`` is a file of hero configs that the contest takes schedules from. Units: seconds.
    """

    target: str
    driver: str = "cuda"
    device: int = 0
    every: int = 1
    seed: int = 0
    workers: int = 1
    pairs: int = 30
    trials: int = 24
    heroes: str = ""
    item_seconds: float = ITEM_SECONDS


class ItemOutcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What came of one item of a stage; ``data`` are its figures."""

    status: Status
    detail: str = ""
    seconds: float = 0.0
    data: dict[str, Any] = {}


class StageRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the process of a stage is asked.

    ``skip`` are items that are done, ``avoid`` notes that ended badly, each with what came of it. ``until`` is when its
    seconds end by ``time.monotonic``, which is one clock for all processes of a machine: to start took some of them.
    """

    stage: str
    settings: Settings
    seconds: float
    skip: tuple[str, ...] = ()
    avoid: dict[str, str] = {}
    until: float | None = None
