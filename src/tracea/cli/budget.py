"""The options of a search's budget, refused in the words of the command line."""

from __future__ import annotations

from tracea.errors import InvalidOption
from tracea.optimizer.budget import Budget

__all__ = ["budget_given", "search_given"]


def budget_given(trials: int, seconds: float | None) -> Budget:
    """Return the budget that ``--trials`` and ``--seconds`` ask for.

    Raises:
        InvalidOption: one of them is none.
    """
    try:
        return Budget(trials, seconds)
    except InvalidOption as fault:
        if fault.field == "budget.trials":
            raise InvalidOption(field="--trials", got=trials, expected=fault.expected, remedy="--trials 16") from None
        raise InvalidOption(
            field="--seconds", got=seconds, expected="a positive finite number", remedy="leave --seconds out"
        ) from None


def search_given(trials: int, seconds: float | None) -> Budget | None:
    """Return the budget that ``--trials`` and ``--seconds`` ask for, None for no trials: no search.

    Raises:
        InvalidOption: one of them is none, or there are seconds for no search.
    """
    if trials < 0:
        remedy = "--trials 16, or --trials 0 to search nothing"
        raise InvalidOption(field="--trials", got=trials, expected="an integer of at least 0", remedy=remedy)
    if trials != 0:
        return budget_given(trials, seconds)
    if seconds is not None:
        raise InvalidOption(
            field="--seconds",
            got=seconds,
            expected="no limit of a search that --trials 0 leaves out",
            remedy="leave it out",
        )
    return None
