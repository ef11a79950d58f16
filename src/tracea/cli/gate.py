"""``tracea gate``: compare a fresh record or verdict with a stored one, for continuous integration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tracea.cli.console import in_line, print_json, print_notes
from tracea.cli.report_file import require_writable, write_report
from tracea.errors import InvalidOption
from tracea.flow.progress import shown_progress

if TYPE_CHECKING:
    from tracea.profiler.record import Record

__all__ = ["gate"]


def gate(
    fresh: Path | None = None,
    /,
    *,
    baseline: Path,
    margin: float = 0.02,
    only: str | None = None,
    junit: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Compare a record of tracea bench, or a verdict of tracea verify --json, with a baseline.

    Exit code 1: something is slower than in the baseline beyond the noise of both and the margin, fails a check that
    passed, or is missing. Without a fresh record the baseline's suite is measured now, all of it, which takes minutes:
    --only 512 takes the problems whose name contains 512, of a fresh record too.

    Example: tracea gate fresh/gemm-1t.json --baseline benchmarks/results/gemm-1t.json --junit gate.xml

    Parameters
    ----------
    fresh
        The fresh record or verdict.
    baseline
        The stored one.
    margin
        The difference between the intervals that counts: 0.02 is 2 %.
    only
        Measure and compare only problems whose name contains this, such as 2048x2048x2048.
    junit
        Write the result as JUnit XML here too.
    json
        Print the result as JSON.
    """
    from tracea.gates.baseline import against_baseline, read_evidence
    from tracea.gates.junit import to_junit

    if not 0.0 <= margin < 1.0:
        raise InvalidOption(field="--margin", got=margin, expected="from 0 to 1", remedy="--margin 0.02 is 2 %")
    require_writable(junit, option="--junit")
    stored = read_evidence(baseline)
    from tracea.gates.verdict import Verdict

    if not isinstance(stored, Verdict) and only is not None:
        stored = _part(stored, only)
    if fresh is not None:
        found = read_evidence(fresh)
    elif isinstance(stored, Verdict):
        raise InvalidOption(
            field="fresh",
            got="nothing",
            expected="a verdict, since the baseline is one",
            remedy=f"write one by tracea verify with --json ({stored.subject}), and name its file",
        )
    else:
        found = _measured(stored, only)
    verdict = against_baseline(found, stored, margin=margin)
    if json:
        print_json(verdict.to_json())
    else:
        print("\n".join(map(in_line, verdict.lines)))
    written = write_report(junit, to_junit([verdict]), option="--junit")
    return 0 if verdict.passed and written else 1


def _part(record: Record, only: str) -> Record:
    import msgspec

    rows = tuple(row for row in record.rows if only in row.problem)
    if not rows:
        names = [row.problem for row in record.rows]
        raise InvalidOption(field="--only", got=only, expected=names, remedy="name a part of a problem's name")
    return msgspec.structs.replace(record, rows=rows)


def _measured(stored: Record, only: str | None) -> Record:
    """Measure the suite of a baseline as it was measured: same threads, against the peers that it names."""
    from tracea.bench.run import run_suite

    if only is None and len(stored.rows) > 1:
        names = ", ".join(row.problem for row in stored.rows[:3])
        print_notes([f"{len(stored.rows)} problems are measured now; --only takes a part of them by name: {names}, …"])
    families = {peer.partition(".")[0] for row in stored.rows for peer in row.ratios}
    with shown_progress() as progress:
        (record,) = run_suite(
            stored.suite,
            against=tuple(sorted(families)) or ("torch",),
            threads=(stored.environment.threads,),
            only=only,
            library=any(row.notes.get("library") == "competing" for row in stored.rows),
            progress=progress.note,
        )
    return record
