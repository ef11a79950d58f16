"""The stability gate: right not once but every time, on inputs that alternate so that no run lives off another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracea.errors import InvalidOption
from tracea.gates.guarded import Poison
from tracea.gates.verdict import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracea.gates.case import Case
    from tracea.gates.correctness import Bench, Run

__all__ = ["RUNS", "check_stability"]

RUNS = 20


def check_stability(run: Run, bench: Bench, cases: Sequence[Case], *, runs: int = RUNS) -> Check:
    """Run the cases in turns, ``runs`` times in all, and count the runs that were wrong in any way."""
    if runs < 1 or not cases:
        raise InvalidOption(field="runs", got=runs, expected="at least 1 run of 1 case", remedy="run it at least once")
    wrong: list[str] = []
    for index in range(runs):
        case = cases[index % len(cases)]
        seen = bench.observe(run, case, poison=Poison.NAN, fresh=index % 3 == 2)
        beside = seen.unwritten or seen.damage or seen.input_damage
        if seen.error or not seen.comparison.passed or beside or seen.control_changed:
            finding = "memory that is not the output's" if beside else "the thread's rounding or flushing"
            finding = seen.error or seen.comparison.detail or finding
            wrong.append(f"run {index} on {case.name}: {finding}")
    return Check(
        name="right every time",
        passed=not wrong,
        figure=len(wrong),
        limit=0,
        detail=wrong[0] if wrong else f"wrong runs of {runs}",
    )
