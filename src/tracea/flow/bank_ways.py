"""Bank conflicts of an emulated text against those that its kernel's certificate states, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tracea.gates.verdict import Check

if TYPE_CHECKING:
    from tracea.emulator.report import AccessCost, Report
    from tracea.semantic.proofs import Certificate

__all__ = ["check_banks"]


def check_banks(certificate: Certificate, reports: Iterable[Report]) -> Check:
    """Return whether no line's accesses of shared memory have more ways than are certified for the buffers it names."""
    certified: dict[str, int] = {}
    for fact in certificate.about("banks"):
        buffer = str(fact.value("buffer"))
        certified[buffer] = max(int(fact.value("ways") or 1), certified.get(buffer, 1))
    costs = {cost for report in reports for cost in report.accesses if cost.space == "shared"}
    above = [cost for cost in costs if cost.worst > _limit(cost.place.text, certified)]
    worst = max(above or costs, key=_ways_and_line, default=None)
    if worst is None:
        return Check(name="bank conflicts", passed=True, figure=0, limit=0, detail="no access of shared memory")
    return Check(
        name="bank conflicts",
        passed=not above,
        figure=worst.worst,
        limit=_limit(worst.place.text, certified),
        detail=f"ways, as certified of {', '.join(_named(worst.place.text, certified)) or 'the kernel'}: {worst.place}"
        if above
        else f"ways at most on {len({cost.place for cost in costs})} lines, as certified of their buffers",
    )


def _ways_and_line(cost: AccessCost) -> tuple[int, int]:
    return cost.worst, -cost.place.line


def _named(text: str, certified: Mapping[str, int]) -> Sequence[str]:
    return [name for name in sorted(certified) if re.search(rf"\b{name}\b", text)]


def _limit(text: str, certified: Mapping[str, int]) -> int:
    """Return the most ways of the buffers that a line names, or of all where it names none."""
    return max((certified[name] for name in _named(text, certified) or certified), default=1)
