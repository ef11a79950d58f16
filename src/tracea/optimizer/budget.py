"""Budget: how many trials and seconds a search may take."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final

from tracea.core.names import as_given
from tracea.errors import InvalidOption

__all__ = ["MOST_TRIALS", "Budget", "check_budget"]

MOST_TRIALS: Final = 1_000_000  # more than years of trials: larger numbers are slips of the hand

_LONGEST: Final = sys.float_info.max  # what no clock reaches, and larger whole numbers are no float


@dataclass(frozen=True, slots=True)
class Budget:
    """Trials (50 where none are said) and seconds, whichever runs out first; None is no limit in seconds.

    A million trials are the most. The seconds are the search's own, from its first trial; a trial that is under way
    when they run out is finished.
    """

    trials: int = 50
    seconds: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.trials, bool) or not isinstance(self.trials, int) or self.trials < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(
                field="budget.trials",
                got=as_given(self.trials),
                expected="an integer of at least 1",
                remedy="trials=50; None in place of the budget searches nothing",
            )
        if self.trials > MOST_TRIALS:
            raise InvalidOption(
                field="budget.trials",
                got=as_given(self.trials),
                expected=f"an integer of {MOST_TRIALS:,} at most",
                remedy="trials=50; a search ends where every schedule was tried",
            )
        if self.seconds is not None and not (
            isinstance(self.seconds, (int, float))  # pyright: ignore[reportUnnecessaryIsInstance]
            and not isinstance(self.seconds, bool)
            and 0.0 < self.seconds <= _LONGEST
        ):
            raise InvalidOption(
                field="budget.seconds",
                got=as_given(self.seconds),
                expected="a positive finite number, or None",
                remedy="seconds=None",
            )

    def allows(self, *, trials: int, seconds: float) -> bool:
        """Tell whether another trial may start after this many trials and seconds."""
        return trials < self.trials and (self.seconds is None or seconds < self.seconds)


def check_budget(budget: Any, *, without: str = "no search") -> Budget | None:
    """Return what a caller gave as a budget: a Budget, or None, which means what ``without`` says.

    Raises:
        InvalidOption: it is something else, such as a number of trials.
    """
    if budget is None or isinstance(budget, Budget):
        return budget
    raise InvalidOption(
        field="budget",
        got=as_given(budget),
        expected=f"a tracea.Budget, or None: {without}",
        remedy=f"budget=tracea.Budget(trials={budget if type(budget) is int and budget > 0 else 50})",
    )
