"""Random search without replacement: the baseline that any other strategy has to beat."""

from __future__ import annotations

from typing import ClassVar

from tracea.optimizer.samplers.base import Sampler


class RandomSampler(Sampler):
    """Proposes untried rows uniformly."""

    name: ClassVar[str] = "random"

    def _propose(self) -> int:
        return self._any_untried()
