"""``tracea gate``: compare a fresh record or verdict with a stored one, for continuous integration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from tracea.cli.console import in_line, print_json, print_notes
from tracea.cli.report_file import require_writable, write_report
from tracea.errors import InvalidOption
from tracea.flow.phases import telling
from tracea.flow.progress import shown_progress

if TYPE_CHECKING:
    from tracea.flow.progress import Progress
    from tracea.gates.baseline import Comparison
    from tracea.profiler.record import Record

__all__ = ["INCONCLUSIVE", "gate"]

INCONCLUSIVE: Final = 3  # the exit code where a load or noise spoiled the comparison


def gate(
    fresh: Path | None = None,
    /,
    *,
    baseline: Path,
    margin: float = 0.05,
    only: str | None = None,
    junit: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Compare a record of tracea bench, or a verdict of tracea verify --json, with a baseline.

    Exit code 1: something is slower than in the baseline beyond the noise of both and the margin, fails a check that
    passed, or is missing. Exit code 3, inconclusive: it was slower in each of two measurements, and other programs used
    the cores; or the interval holds both what is no slower and what is slower beyond the margin. Without a fresh record
    the baseline's suite is measured now, all of it, which takes minutes: --only 512 takes the problems whose name
    contains 512, of a fresh record too.

    Example: tracea gate fresh/gemm-1t.json --baseline benchmarks/results/zen4/gemm-1t.json --junit gate.xml

    Parameters
    ----------
    fresh
        The fresh record or verdict.
    baseline
        The stored one.
    margin
        The difference between the intervals that counts, for what changes between two runs: 0.05 is 5 %.
    only
        Measure and compare only problems whose name contains this, such as 2048x2048x2048.
    junit
        Write the result as JUnit XML here too.
    json
        Print the result as JSON.
    """
    from tracea.gates.baseline import against_baseline, read_evidence
    from tracea.gates.junit import to_junit
    from tracea.gates.verdict import Verdict

    if not 0.0 <= margin < 1.0:
        raise InvalidOption(field="--margin", got=margin, expected="from 0 to 1", remedy="--margin 0.05 is 5 %")
    _refuse_overwriting(junit, baseline=baseline, fresh=fresh)
    require_writable(junit, option="--junit")
    stored = read_evidence(baseline)
    if only is not None:
        if isinstance(stored, Verdict):
            raise InvalidOption(
                field="--only",
                got=only,
                expected="a suite's record",
                remedy="leave it out: a verdict is compared whole",
            )
        stored = _part(stored, only)
    doubt = ""
    if fresh is not None:
        verdict = against_baseline(read_evidence(fresh), stored, margin=margin)
    elif isinstance(stored, Verdict):
        raise InvalidOption(
            field="fresh",
            got="nothing",
            expected="a verdict, since the baseline is one",
            remedy=f"write one by tracea verify with --json ({stored.subject}), and name its file",
        )
    else:
        verdict, doubt = _measured_verdict(stored, only, margin)
    if verdict.is_unclear and not doubt:
        doubt = "intervals are too wide to tell a slowdown beyond the margin. Remedy: measure again on a quiet machine"
    if json:
        result = verdict.to_dict()
        print_json(result if not doubt else {**result, "inconclusive": doubt})
    else:
        print("\n".join(map(in_line, verdict.lines)))
        if doubt:
            print(in_line(f"inconclusive, neither passed nor a regression: {doubt}"))
    written = write_report(
        junit,
        to_junit([verdict], not_checked={verdict.subject: verdict.not_checked}, inconclusive=doubt),
        option="--junit",
    )
    if doubt and written:
        return INCONCLUSIVE
    return 0 if verdict.passed and written else 1


def _refuse_overwriting(junit: Path | None, *, baseline: Path, fresh: Path | None) -> None:
    """Refuse a report in the place of what it compares, by whatever name or link."""
    for side, path in (("--baseline", baseline), ("the fresh record", fresh)):
        if junit is None or path is None or not (junit.is_file() and path.is_file()):
            continue
        if junit.samefile(path):
            raise InvalidOption(
                field="--junit",
                got=f"{junit}, which is {side}",
                expected="another file",
                remedy="name a file of its own, such as gate.xml",
            )


def _measured_verdict(stored: Record, only: str | None, margin: float) -> tuple[Comparison, str]:
    """Measure and compare; what failed once is measured once more, and counts where it fails again.

    The text is empty, or says why what failed twice proves nothing: others used the cores before or after.
    """
    import msgspec

    from tracea.doctor import diagnose_load
    from tracea.gates.baseline import NOT_MEASURED, against_baseline
    from tracea.profiler.load import measure_load

    if only is None and len(stored.rows) > 1:
        names = ", ".join(row.problem for row in stored.rows[:3])
        print_notes([f"{len(stored.rows)} problems are measured now; --only takes a part of them by name: {names}, …"])
    with shown_progress() as progress, telling(progress.phase):
        loads = [measure_load()]
        found = _measured(stored, only, progress)
        loads.append(measure_load())
        verdict = against_baseline(found, stored, margin=margin)
        if verdict.passed:
            return verdict, ""
        slower = _slower(verdict, found)
        for name in slower:
            progress.note(f"{name} was slower than in the baseline: measured once more")
            again = {row.problem: row for row in _measured(stored, name, progress).rows}
            rows = tuple(again.get(row.problem, row) if row.problem == name else row for row in found.rows)
            found = msgspec.structs.replace(found, rows=rows)
            loads.append(measure_load())
    verdict = against_baseline(found, stored, margin=margin)
    missing = any(check.figure == NOT_MEASURED for check in verdict.failures)
    if verdict.passed or missing:  # what is missing is so under any load
        return verdict, ""
    busy = next(filter(None, map(diagnose_load, loads)), None)
    return verdict, "" if busy is None else str(busy)


def _slower(verdict: Comparison, found: Record) -> list[str]:
    """Return the problems that were measured and are slower."""
    from tracea.gates.baseline import NOT_MEASURED

    names = [row.problem for row in found.rows]
    slower = [check.name for check in verdict.failures if check.figure != NOT_MEASURED]
    return [name for name in names if any(check.startswith(f"{name}: ") for check in slower)]


def _part(record: Record, only: str) -> Record:
    import msgspec

    rows = tuple(row for row in record.rows if only in row.problem)
    if not rows:
        names = [row.problem for row in record.rows]
        raise InvalidOption(field="--only", got=only, expected=names, remedy="name a part of a problem's name")
    return msgspec.structs.replace(record, rows=rows)


def _measured(stored: Record, only: str | None, progress: Progress) -> Record:
    """Measure the suite of a baseline as it was measured: same threads, against the peers that it names."""
    from tracea.bench.peers import FAMILIES
    from tracea.bench.run import run_suite

    # A record keeps what peers are called, such as "torch.mm(out=)" or "Inductor flex_attention".
    named = {peer for row in stored.rows for peer in row.ratios}
    families = {family for family in FAMILIES if any(re.match(rf"{family}\b", peer, re.IGNORECASE) for peer in named)}
    (record,) = run_suite(
        stored.suite,
        against=tuple(sorted(families)) or ("torch",),
        threads=(stored.environment.threads,),
        only=only,
        library=any(row.notes.get("library") == "competing" for row in stored.rows),
        progress=progress.note,
    )
    return record
