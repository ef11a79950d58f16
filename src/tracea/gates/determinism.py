"""The determinism gate: the same inputs and threads give the same bits, whatever ran in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracea.errors import InvalidOption
from tracea.gates.guarded import Poison
from tracea.gates.verdict import Check

if TYPE_CHECKING:
    from tracea.gates.case import Case
    from tracea.gates.correctness import Bench, Run

__all__ = ["HASHES", "check_determinism"]

HASHES = 3


def check_determinism(run: Run, bench: Bench, case: Case, between: Case, *, hashes: int = HASHES) -> Check:
    """Run ``case`` several times with ``between`` in between and compare the outputs' hashes.

    The case should have magnitudes over many powers of two, where another order of summation shows in the bits.
    """
    if hashes < 2:
        raise InvalidOption(field="hashes", got=hashes, expected="at least 2", remedy="compare two runs or more")
    found: list[str] = []
    for index in range(hashes):
        poison = Poison.NAN if index % 2 == 0 else Poison.FINITE
        found.append(bench.observe(run, case, poison=poison, fresh=False, digest=True).digest)
        bench.observe(run, between, poison=poison, fresh=False)
    distinct = len(set(found))
    return Check(
        name="same bits every time",
        passed=distinct == 1,
        figure=distinct,
        limit=1,
        detail=f"distinct results of {hashes} runs: {', '.join(dict.fromkeys(found))}",
    )
