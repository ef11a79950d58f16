"""Fitness: one number for a candidate that is fast, exact and sound, for a search that breeds.

Worked example: twice as fast as the reference with a largest error of 5e-5 is 2 − 0.4 · 0.5 = 1.8; a candidate that
failed is −1 whatever it would have taken. Source: FlashCore's fitness function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tracea.errors import InvalidOption

__all__ = ["Fitness"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """speed-up − ``error_weight`` · min(1, error / ``error_scale``) − ``nan_cost`` if NaN − ``failure_cost`` if failed.

    Raises:
        InvalidOption: a weight is negative or no number, or the scale is not positive.
    """

    error_weight: float = 0.4
    error_scale: float = 1e-4
    nan_cost: float = 1.0
    failure_cost: float = 1.0

    def __post_init__(self) -> None:
        for field in ("error_weight", "error_scale", "nan_cost", "failure_cost"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value >= 0.0) or (field == "error_scale" and value == 0.0):
                raise InvalidOption(
                    field=f"fitness.{field}", got=value, expected="a number from 0 on", remedy="use Fitness() as it is"
                )

    def score(
        self, speedup: float | None, *, error: float | None = None, has_nan: bool = False, failed: bool = False
    ) -> float:
        """Return the fitness; None is a speed-up, or an error, that is not known: it counts as zero."""
        score = speedup if speedup is not None and not failed else 0.0
        if error is not None and math.isfinite(error):
            score -= self.error_weight * min(1.0, error / self.error_scale)
        elif error is not None:
            score -= self.error_weight
        return score - self.nan_cost * has_nan - self.failure_cost * failed
