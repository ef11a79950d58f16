"""Baseline: a fresh record against a stored one; a regression is what is slower, or wrong, beyond the noise of both.

Worked example: in the baseline the library takes 1.10 [1.08, 1.12] times our time. Measured again it is
1.07 [1.05, 1.09]: the intervals overlap, so nothing is known to have changed. At 1.01 [0.99, 1.02] they are apart, by
more than a margin of 5 %: a regression. The ratio to a peer is compared and not the time, since a machine that is
slower today is slower for both.

An interval holds the noise within one run. Between two runs memory lies elsewhere and neighbours are others, which no
interval of one run can tell: the margin is the allowance for that, a choice and no measurement.
"""

from __future__ import annotations

import math
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from tracea.errors import InvalidOption
from tracea.gates.laxer import LATENCY, contradicts, held_to
from tracea.gates.slower import compare_ratios, compare_times
from tracea.gates.verdict import Check, Verdict
from tracea.profiler.measurement import Ratio
from tracea.profiler.record import Record, Row, read

__all__ = ["MARGIN", "NOT_MEASURED", "Comparison", "against_baseline", "read_evidence"]

MARGIN: Final = 0.05
NOT_MEASURED: Final = "not measured"  # the figure of what the baseline has and the fresh record lacks
_PARTS_FOR_GPU: Final = 4  # of a subject: op | variant | target | schedule
_MOST_BYTES: Final = 2**26  # a record of a suite has two hundred thousand at most
_AS_BEFORE: Final = "failed in the baseline too"
_BUSY_CORES: Final = 0.2  # others that take less of a core are not named: no machine is wholly idle


class _OfModels(msgspec.Struct, frozen=True):
    """What tells the record of a whole model's times from a suite's."""

    processes: list[msgspec.Raw]


class _Judged(msgspec.Struct, frozen=True):
    subject: str
    checks: tuple[Check, ...]
    seed: int | None
    passed: bool | None = None
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfTarget(Verdict):
    """A verdict that says what it was made for, as that of tracea verify does."""

    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Verdict):
    """The verdict on what is fresh against a baseline, and what of it could not be looked at: never called passed."""

    not_checked: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """What the text says: the result, each check, then what was not checked."""
        return (*super(Comparison, self).lines, *(f"  ??   not checked: {text}" for text in self.not_checked))


def read_evidence(path: Path) -> Record | Verdict:
    """Read what was kept as a baseline: a benchmark's record, or a verdict as ``to_json`` writes it.

    Raises:
        InvalidOption: there is no such file, it is neither of the two, or a verdict contradicts its own checks.
    """
    data = _content(path)
    try:
        judged = msgspec.json.decode(data, type=_Judged)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        _refuse_malformed(path, data, error)
        _refuse_models(path, data)
        record = read(path)
        if not record.rows:
            raise InvalidOption(
                field=f"record {path}", got="no rows", expected="at least one problem", remedy="measure by tracea bench"
            ) from None
        return record
    verdict = Verdict(subject=judged.subject, checks=judged.checks, seed=judged.seed)
    if judged.target:
        verdict = _OfTarget(subject=judged.subject, checks=judged.checks, seed=judged.seed, target=judged.target)
    _refuse_contradictions(path, verdict, said=judged.passed)
    return verdict


def _content(path: Path) -> bytes:
    try:
        status = path.stat()
        reason = ""
        if not stat.S_ISREG(status.st_mode):
            reason = "no regular file"
        elif status.st_size > _MOST_BYTES:
            reason = f"{status.st_size} bytes, of at most {_MOST_BYTES}"
        else:
            return path.read_bytes()
    except OSError as error:
        reason = str(error.strerror)
    raise InvalidOption(
        field="file",
        got=f"{path}: {reason}",
        expected="a record that tracea bench wrote, or a verdict of tracea verify --json",
        remedy="name a file that can be read, and no pipe",
    )


def _refuse_contradictions(path: Path, verdict: Verdict, *, said: bool | None) -> None:
    remedy = "the file was edited: write it again by tracea verify --json"
    if said is not None and said is not verdict.passed:
        raise InvalidOption(
            field=f"{path}: passed",
            got=f"{str(said).lower()}, with {len(verdict.failures)} of {len(verdict.checks)} checks failed",
            expected=str(verdict.passed).lower(),
            remedy=remedy,
        )
    for check in verdict.checks:
        if check.detail != _AS_BEFORE and contradicts(check):
            raise InvalidOption(
                field=f"{path}: check {check.name}",
                got=f"passed, with a figure of {check.figure}",
                expected=f"{'at least' if check.name.startswith(LATENCY) else 'at most'} {check.limit}, the limit",
                remedy=remedy,
            )
    latencies = [check.name for check in verdict.checks if check.name.startswith(LATENCY)]
    if len(latencies) > 1:
        raise InvalidOption(
            field=f"{path}: checks",
            got=f"{len(latencies)} of latency: {', '.join(latencies)}",
            expected="at most 1, of the fastest library",
            remedy=remedy,
        )
    for check in verdict.checks:
        if check.interval is not None and not _is_ordered(check):
            raise InvalidOption(
                field=f"{path}: check {check.name}",
                got=f"{check.figure} in {list(check.interval)}",
                expected="0 < low <= figure <= high, all finite",
                remedy=remedy,
            )


def _is_ordered(check: Check) -> bool:
    if check.interval is None or isinstance(check.figure, str):
        return False
    return 0.0 < check.interval[0] <= check.figure <= check.interval[1] < math.inf


def _refuse_malformed(path: Path, data: bytes, error: Exception) -> None:
    """Say what is wrong where a file is no JSON, or a verdict by its fields and none by what they hold.

    Raises:
        InvalidOption: it is one of these.
    """
    remedy = "write it again, by tracea verify --json or tracea bench: it was cut or edited"
    wanted = "a whole record of tracea bench, or verdict of tracea verify --json"
    try:
        named = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as broken:
        raise InvalidOption(field=f"file {path}", got=str(broken), expected=wanted, remedy=remedy) from broken
    if named.keys() & {"subject", "checks"}:
        raise InvalidOption(
            field=f"verdict {path}", got=str(error), expected="a verdict of tracea verify --json", remedy=remedy
        ) from error
    if not named.keys() & {"schema_version", "rows", "processes"}:
        keys = ", ".join(sorted(named)[:5]) or "no fields"
        raise InvalidOption(field=f"file {path}", got=f"an object of {keys}", expected=wanted, remedy=remedy)


def _refuse_models(path: Path, data: bytes) -> None:
    try:
        found = msgspec.json.decode(data, type=_OfModels)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    raise InvalidOption(
        field="file",
        got=f"{path}: times of a whole model in {len(found.processes)} processes",
        expected="a suite's record by tracea bench --suite, or a verdict of tracea verify --json",
        remedy="name one of those; a model's times are those of tracea optimize, which have no gate yet",
    )


def against_baseline(fresh: Record | Verdict, baseline: Record | Verdict, *, margin: float = MARGIN) -> Comparison:
    """Compare two records, or two verdicts: one check for each problem, or check, of the baseline.

    Raises:
        InvalidOption: one is a record and the other a verdict, they are of two suites or numbers of threads, of two
            ops or targets, or the baseline has nothing to compare; a record names a problem twice, has one without a
            measurement, or a ratio that no measurement gives.
    """
    if isinstance(fresh, Verdict) and isinstance(baseline, Verdict):
        _require_one_subject(fresh, baseline)
        subject = f"{fresh.subject} against its baseline"
        unseen: list[str] = []
        checks = tuple(_checks(fresh, baseline, margin, unseen))
        return Comparison(subject=subject, checks=checks, seed=fresh.seed, not_checked=tuple(unseen))
    if isinstance(fresh, Verdict) or isinstance(baseline, Verdict):
        kinds = ["verdict" if isinstance(each, Verdict) else "record" for each in (fresh, baseline)]
        raise InvalidOption(
            field="baseline", got=kinds, expected="two of a kind", remedy="compare what belongs together"
        )
    mine, theirs = ((each.suite, each.environment.threads) for each in (fresh, baseline))
    if mine != theirs:
        raise InvalidOption(
            field="suite and threads",
            got=_suite(fresh),
            expected=_suite(baseline),
            remedy="measure the suite of the baseline, with as many threads",
        )
    for side, each in (("fresh record", fresh), ("baseline", baseline)):
        _require_one_measured_row_a_problem(side, each)
        _require_ordered_ratios(side, each)
    rows = {row.problem: row for row in fresh.rows}
    same = fresh.environment.hardware == baseline.environment.hardware
    checks = [check for row in baseline.rows for check in _row(rows.get(row.problem), row, margin, same_machine=same)]
    return Comparison(subject=f"{_suite(fresh)}, against its baseline", checks=tuple(checks), seed=None)


def _suite(record: Record) -> str:
    count = record.environment.threads
    return f"suite {record.suite}, {count} thread{'' if count == 1 else 's'}"


def _require_one_subject(fresh: Verdict, baseline: Verdict) -> None:
    """Require one op and one target; the variant and the schedule that run it may have changed since."""
    mine, theirs = _op_and_targets(fresh), _op_and_targets(baseline)
    if mine[0] != theirs[0] or any(a != b for a, b in zip(mine[1], theirs[1], strict=True) if a and b):
        raise InvalidOption(
            field="op and target of the verdict",
            got=_shown(mine),
            expected=_shown(theirs),
            remedy="verify the op and target of the baseline, or name the baseline of this one",
        )


def _op_and_targets(verdict: Verdict) -> tuple[str, tuple[str, str]]:
    """Return the op, and the target as the file says it and as the subject of a GPU's verdict does; "" is not said."""
    parts = verdict.subject.split(" | ")
    said = verdict.target if isinstance(verdict, _OfTarget) else ""
    return parts[0], (said, parts[2] if len(parts) == _PARTS_FOR_GPU else "host")


def _shown(found: tuple[str, tuple[str, str]]) -> str:
    return f"{found[0]} for {' and '.join(dict.fromkeys(filter(None, found[1])))}"


def _require_ordered_ratios(side: str, record: Record) -> None:
    for number, row in enumerate(record.rows):
        for peer, ratio in row.ratios.items():
            if not 0.0 < ratio.low <= ratio.median <= ratio.high < math.inf:
                raise InvalidOption(
                    field=f"{side}: rows[{number}] ({row.problem}): {peer} / ours",
                    got=f"low {ratio.low:g}, median {ratio.median:g}, high {ratio.high:g}",
                    expected="0 < low <= median <= high, all finite",
                    remedy="measure the problem again by tracea bench",
                )


def _require_one_measured_row_a_problem(side: str, record: Record) -> None:
    seen: set[str] = set()
    for number, row in enumerate(record.rows):
        if row.problem in seen:
            raise InvalidOption(
                field=f"{side}: rows[{number}]",
                got=f"{row.problem}, which an earlier row has",
                expected="one row a problem",
                remedy="leave out all rows of the problem but the one that counts, or measure it again",
            )
        if not row.measurements:
            raise InvalidOption(
                field=f"{side}: rows[{number}]",
                got=f"{row.problem} with 0 measurements",
                expected="at least 1 measurement, the first one ours",
                remedy="measure the problem again by tracea bench",
            )
        seen.add(row.problem)


def _numbered(checks: Iterable[Check]) -> Iterator[tuple[tuple[str, int], Check]]:
    """Yield checks by name and by how many of that name came before: a verdict on two kernels has some twice.

    Latency has one name, whichever library was the fastest: what is judged is the ratio to the fastest.
    """
    before: Counter[str] = Counter()
    for check in checks:
        name = LATENCY if check.name.startswith(LATENCY) else check.name
        yield (name, before[name]), check
        before[name] += 1


def _checks(fresh: Verdict, baseline: Verdict, margin: float, unseen: list[str]) -> Iterator[Check]:
    """Yield a check for each of the baseline and each new one; ``unseen`` takes what could not be compared."""
    now = dict(_numbered(fresh.checks))
    for key, before in _numbered(baseline.checks):
        check = now.pop(key, None)
        if check is None:
            yield Check(name=before.name, passed=False, figure="not checked", limit="as in the baseline")
            continue
        if not before.passed and not check.passed:
            check = replace(check, passed=True, detail=_AS_BEFORE)
        elif check.passed:
            check = held_to(check, before, same_kernel=fresh.subject == baseline.subject)
        if key[0] == LATENCY and check.passed:
            check = _latency(check, before, margin, unseen)
        yield check
    yield from now.values()


def _latency(now: Check, before: Check, margin: float, unseen: list[str]) -> Check:
    """Return the check of the ratio against the baseline's; one by a release that kept no interval stays as it is."""
    mine, theirs = _ratio_of(now), _ratio_of(before)
    if mine is None or theirs is None:
        side = "fresh verdict" if mine is None else "baseline"
        unseen.append(
            f"{now.name} against the baseline: the {side} has no interval of this ratio. "
            "Remedy: write it again by tracea verify --json"
        )
        return now
    found = compare_ratios(now.name, mine, theirs, margin)
    said = [_AS_BEFORE] if now.detail == _AS_BEFORE else []
    if now.name != before.name:
        said.append(f"the fastest library was that of {before.name.removeprefix(LATENCY)}")
    return replace(found, detail="; ".join([*said, found.detail]))


def _ratio_of(check: Check) -> Ratio | None:
    if check.interval is None or isinstance(check.figure, str):
        return None
    return Ratio(median=check.figure, low=check.interval[0], high=check.interval[1], pairs=0)


def _row(now: Row | None, before: Row, margin: float, *, same_machine: bool) -> Iterable[Check]:
    if now is None:
        return [Check(name=before.problem, passed=False, figure=NOT_MEASURED, limit="as in the baseline")]
    if now.ratios.keys() & before.ratios.keys():
        return [
            _under_load(compare_ratios(f"{before.problem}: {peer} / ours", now.ratios[peer], ratio, margin), now)
            if peer in now.ratios
            else _lost(before.problem, peer, ratio)
            for peer, ratio in before.ratios.items()
        ]
    if not same_machine:
        detail = "no peer in common, and times of two machines say nothing of the code"
        return [Check(name=before.problem, passed=False, figure="not comparable", limit="a common peer", detail=detail)]
    return [
        _under_load(compare_times(f"{before.problem}: µs", now.measurements[0], before.measurements[0], margin), now)
    ]


def _under_load(check: Check, now: Row) -> Check:
    """Name the load that a record says its row was measured under, where nothing can be told."""
    busy = max((each.busy_cores or 0.0 for each in now.measurements), default=0.0)
    if not check.is_unclear or busy < _BUSY_CORES:
        return check
    return replace(check, detail=f"{check.detail}: other programs used {busy:.1f} cores meanwhile")


def _lost(problem: str, peer: str, before: Ratio) -> Check:
    return Check(
        name=f"{problem}: {peer} / ours",
        passed=False,
        figure=NOT_MEASURED,
        limit="as in the baseline",
        detail=f"the fresh record lacks this peer, baseline {before}",
    )
