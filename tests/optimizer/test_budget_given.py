"""What a caller gives as a budget."""

from __future__ import annotations

import pytest

from tracea.errors import InvalidOption
from tracea.optimizer.budget import Budget, check_budget


def test_a_budget_and_none_pass() -> None:
    budget = Budget(trials=4)
    assert check_budget(budget) is budget
    assert check_budget(None) is None


@pytest.mark.parametrize(("given", "remedy"), [(4, "trials=4"), (0, "trials=50"), ("4", "trials=50")])
def test_anything_else_is_refused_with_the_call_that_was_meant(given: object, remedy: str) -> None:
    with pytest.raises(InvalidOption, match=remedy):
        check_budget(given)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), 10**400, "1"])
def test_seconds_are_a_positive_number_that_a_clock_has(seconds: float) -> None:
    with pytest.raises(InvalidOption, match=r"budget\.seconds"):
        Budget(seconds=seconds)
