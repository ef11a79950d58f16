"""Exhaustive search in the enumeration's order: for sweeps that are recorded and replayed."""

from __future__ import annotations

from typing import ClassVar

from tracea.optimizer.samplers.base import Sampler


class GridSampler(Sampler):
    """Proposes untried rows in the order of the space."""

    name: ClassVar[str] = "grid"

    def _propose(self) -> int:
        return int(self._taken.argmin())
