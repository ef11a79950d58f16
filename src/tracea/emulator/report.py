"""What an emulation found: findings with the emitted line, and what each line's accesses cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

__all__ = ["Access", "AccessCost", "Finding", "Place", "Report", "merge"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """A call of a primitive: the line of the kernel's body that leads to it.

    Where a tile routine or another function makes the call, ``inner_line`` is that line of its header, or of the text.
    """

    line: int
    primitive: str
    text: str = ""
    inner_line: int = 0  # 0: the line itself calls the primitive

    def __str__(self) -> str:
        """Render as ``line 12: load_tile(...) (cp_async, within line 40)``."""
        if self.line == 0:
            return self.primitive or "kernel"
        inside = f", within line {self.inner_line}" if self.inner_line else ""
        return f"line {self.line}: {self.text} ({self.primitive}{inside})" if self.primitive else f"line {self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One kind of mistake at one place (for a race: one pair of places), with the first example of ``count``.

    ``iteration`` counts the example's thread's earlier executions of the same call.
    """

    kind: str
    place: Place
    other: Place | None = None
    detail: str = ""
    block: int = 0
    thread: int = 0
    iteration: int = 0
    count: int = 1
    seed: int = 0

    def __str__(self) -> str:
        """Render on one line."""
        other = f"; other: {self.other}" if self.other is not None else ""
        return (
            f"{self.kind} at {self.place}{other}: {self.detail} [block {self.block}, thread {self.thread}, "
            f"iteration {self.iteration}, seed {self.seed}, {self.count}×]"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCost:
    """What the accesses of one place cost, by observed addresses.

    Units: ``actual`` and ``ideal`` are wavefronts of 128 bytes (shared) or sectors of 32 bytes (global); ``worst`` is
    the most ways that one wavefront's lanes meet in one bank (shared), or sectors of one request (global).
    """

    place: Place
    space: Literal["shared", "global"]
    requests: int
    actual: int
    ideal: int
    bytes: int
    worst: int

    @property
    def conflicts(self) -> int:
        """Wavefronts, or sectors, beyond the ideal number."""
        return self.actual - self.ideal


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One access of a warp, of a traced line: the addresses of its lanes that took part, in order.

    Shared addresses count from the block's first byte, global ones from element (0, …) of ``buffer``.
    """

    place: Place
    block: int
    space: Literal["shared", "global"]
    addresses: tuple[int, ...]
    buffer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of one kernel over some schedules.

    ``superfluous`` are synchronising calls whose ordering nothing needed in any schedule (asked for separately).
    ``traced`` are the accesses of the line that was asked for, in the first schedule.
    ``deterministic``: all schedules left the same bits. ``calls`` counts primitives of one schedule, and
    ``statements`` those of the text that all its threads executed.
    """

    kernel: str
    seeds: tuple[int, ...]
    findings: tuple[Finding, ...]
    accesses: tuple[AccessCost, ...]
    calls: Mapping[str, int]
    statements: int = 0
    deterministic: bool = True
    superfluous: tuple[Place, ...] = ()
    necessary: tuple[Place, ...] = ()
    traced: tuple[Access, ...] = ()
    seconds: float = 0.0  # of emulation, without compilation

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of all findings."""
        return frozenset(finding.kind for finding in self.findings)

    def bank_ways(self, line: int | None = None, primitive: str | None = None) -> int:
        """Return the most ways of shared-memory accesses, of one line or one primitive where given; 1 is ideal."""
        return max((cost.worst for cost in self._costs("shared", line, primitive)), default=0)

    def conflicts(self, line: int | None = None, primitive: str | None = None) -> int:
        """Return the wavefronts beyond the ideal of shared-memory accesses."""
        return sum(cost.conflicts for cost in self._costs("shared", line, primitive))

    def _costs(self, space: str, line: int | None, primitive: str | None) -> Iterable[AccessCost]:
        return (
            cost
            for cost in self.accesses
            if cost.space == space
            and (line is None or cost.place.line == line)
            and (primitive is None or cost.place.primitive == primitive)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "calls": dict(self.calls), "clean": self.clean}

    def to_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def __str__(self) -> str:
        """Render the findings, one a line."""
        head = f"{self.kernel}: {'clean' if self.clean else f'{len(self.findings)} finding(s)'} over seeds {self.seeds}"
        return "\n".join([head, *(f"  {finding}" for finding in self.findings)])


def merge(reports: Iterable[Report]) -> Report:
    """Return one report of several problems of one kernel; superfluous is what no problem needed."""
    given = list(reports)
    findings: dict[tuple[str, Place, Place | None], Finding] = {}
    for report in given:
        for finding in report.findings:
            key = (finding.kind, finding.place, finding.other)
            seen = findings.get(key)
            findings[key] = finding if seen is None else replace(seen, count=seen.count + finding.count)
    necessary = {place for report in given for place in report.necessary}
    superfluous = {place for report in given for place in report.superfluous} - necessary
    calls: dict[str, int] = {}
    for report in given:
        for name, count in report.calls.items():
            calls[name] = calls.get(name, 0) + count
    return Report(
        kernel=given[0].kernel,
        seeds=tuple(sorted({seed for report in given for seed in report.seeds})),
        findings=tuple(findings.values()),
        accesses=tuple(cost for report in given for cost in report.accesses),
        calls=calls,
        statements=sum(report.statements for report in given),
        deterministic=all(report.deterministic for report in given),
        superfluous=tuple(sorted(superfluous)),
        necessary=tuple(sorted(necessary)),
        seconds=sum(report.seconds for report in given),
    )
