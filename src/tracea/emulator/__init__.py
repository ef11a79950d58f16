"""Emulator: runs the emitted text of GPU kernels on the host, adversarially; see docs/emulator.md."""

from __future__ import annotations

from tracea.emulator.emulate import DEFAULT_SCHEDULES, emulate
from tracea.emulator.report import Access, AccessCost, Finding, Place, Report, merge

__all__ = ["DEFAULT_SCHEDULES", "Access", "AccessCost", "Finding", "Place", "Report", "emulate", "merge"]
