"""The gate of single operands: an operand that changes alone, in the same memory, changes the result.

All inputs of other gates change together from run to run: a kernel that packs its second factor when the first one
changes is right on them, and wrong for a model's weights after a training step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.gates.case import Case, case_of
from tracea.gates.distribution import Distribution
from tracea.gates.guarded import Poison
from tracea.gates.inputs import operands_that_change_alone
from tracea.gates.verdict import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracea.core.op import Op
    from tracea.gates.correctness import Bench, Run

__all__ = ["check_operands"]

_PLAIN: Final = (Distribution.NORMAL.value, Distribution.WIDE.value, Distribution.INTEGER.value)
_KEPT_SHARE: Final = 4  # the first quarter of an operand stays: nobody may know it again by its beginning


def check_operands(run: Run, bench: Bench, op: Op, cases: Sequence[Case]) -> Check | None:
    """Run a case, then with one operand of another case in its place, for each operand; None where there is but one."""
    alone = operands_that_change_alone(op)
    plain = sorted(cases, key=lambda case: _PLAIN.index(case.name) if case.name in _PLAIN else len(_PLAIN))
    if len(alone) < 2 or len(plain) < 2:
        return None
    kept, other = plain[:2]
    wrong: list[str] = []
    for group in alone:
        inputs = list(kept.inputs)
        for index in group:
            whole = len(group) > 1 or op.operands[index].overlaps_itself
            inputs[index] = other.inputs[index] if whole else _tail_of(kept.inputs[index], other.inputs[index])
        names = " and ".join(str(index) for index in group)
        changed = case_of(op, tuple(inputs), name=f"operand {names} alone")
        for case in (kept, changed):
            seen = bench.observe(run, case, poison=Poison.NAN, fresh=False)
            if seen.error or not seen.comparison.passed or seen.unwritten:
                wrong.append(f"{changed.name}: {seen.error or seen.comparison.detail or 'elements left unwritten'}")
    return Check(
        name="follows each operand",
        passed=not wrong,
        figure=len(wrong),
        limit=0,
        detail=wrong[0] if wrong else f"wrong runs of {2 * len(alone)}",
    )


def _tail_of(kept: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Return ``kept`` with all but its first quarter from ``other``."""
    mixed = kept.copy().reshape(-1)
    first = mixed.size // _KEPT_SHARE
    mixed[first:] = np.ascontiguousarray(other).reshape(-1)[first:]
    return mixed.reshape(kept.shape)
