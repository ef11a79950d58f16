"""Baselines, JUnit and ``tracea gate``: what is a regression and what is noise."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from tracea.cli import main as cli
from tracea.cli.gate import INCONCLUSIVE
from tracea.cli.report_file import require_writable
from tracea.errors import InvalidOption
from tracea.gates import Check, Verdict
from tracea.gates.baseline import against_baseline, read_evidence
from tracea.gates.junit import to_junit
from tracea.profiler import Measurement, Ratio, Record, Row, capture, write
from tracea.profiler.load import Load

ENVIRONMENT = capture(threads=1)


def record(
    problems: dict[str, tuple[float, float]], *, us: float = 10.0, peer: str = "torch", suite: str = "s"
) -> Record:
    """A record whose ratios have the intervals that are given."""
    rows = tuple(
        Row(
            problem=name,
            measurements=(
                Measurement(name="ours", samples_us=(us,) * 30, calls_per_sample=1, environment=ENVIRONMENT),
                Measurement(
                    name=peer,
                    samples_us=(us * (low + high) / 2,) * 30,
                    calls_per_sample=1,
                    environment=ENVIRONMENT,
                ),
            ),
            ratios={peer: Ratio(median=(low + high) / 2, low=low, high=high, pairs=30)},
        )
        for name, (low, high) in problems.items()
    )
    return Record(suite=suite, command="c", environment=ENVIRONMENT, rows=rows)


BASELINE = record({"a": (1.08, 1.12), "b": (0.9, 1.0)})


@pytest.mark.parametrize(
    ("a", "passed"),
    [
        ((1.08, 1.12), True),
        ((1.05, 1.09), True),  # the intervals overlap
        ((1.04, 1.065), True),  # apart, by less than the margin
        ((1.00, 1.05), False),
        ((1.30, 1.40), True),  # faster
    ],
)
def test_a_regression_is_what_lies_below_the_baseline_beyond_noise_and_margin(
    a: tuple[float, float], passed: bool
) -> None:
    verdict = against_baseline(record({"a": a, "b": (0.9, 1.0)}), BASELINE, margin=0.02)
    assert verdict.passed is passed
    assert [check.name for check in verdict.failures] == ([] if passed else ["a: torch / ours"])


def test_a_slower_machine_is_no_regression_and_a_missing_problem_is_one() -> None:
    assert against_baseline(record({"a": (1.08, 1.12), "b": (0.9, 1.0)}, us=99.0), BASELINE).passed
    missing = against_baseline(record({"a": (1.08, 1.12)}), BASELINE)
    assert [(check.name, check.figure) for check in missing.failures] == [("b", "not measured")]


def test_without_a_common_peer_times_count_on_one_machine_only() -> None:
    other = record({"a": (1, 1), "b": (1, 1)}, us=10.1, peer="onnxruntime")
    assert against_baseline(other, BASELINE).passed
    slower = record({"a": (1, 1), "b": (1, 1)}, us=10.3, peer="onnxruntime")
    assert len(against_baseline(slower, BASELINE, margin=0.02).failures) == 2
    assert against_baseline(slower, BASELINE).passed  # 3 % may lie between two runs
    elsewhere = msgspec.structs.replace(slower, environment=replace(ENVIRONMENT, hardware="another"))
    assert {check.figure for check in against_baseline(elsewhere, BASELINE).failures} == {"not comparable"}


def test_what_cannot_be_compared_is_refused() -> None:
    verdict = Verdict(subject="v", checks=(Check(name="c", passed=True, figure=0, limit=0),), seed=1)
    with pytest.raises(InvalidOption, match="two of a kind"):
        against_baseline(verdict, BASELINE)
    with pytest.raises(InvalidOption, match="suite and threads: got suite other, 1 thread, expected suite s, 1 thread"):
        against_baseline(record({"a": (1, 1)}, suite="other"), BASELINE)


def test_the_heading_says_how_many_threads_and_no_seed_where_nothing_was_drawn() -> None:
    verdict = against_baseline(BASELINE, BASELINE)
    assert verdict.lines[0] == "suite s, 1 thread, against its baseline: passed, 2 checks"
    assert verdict.to_dict()["seed"] is None
    slower = against_baseline(record({"a": (0.1, 0.2), "b": (0.9, 1.0)}), BASELINE)
    assert "seed" not in to_junit([slower])
    assert verdict_of(a=True).lines[0].endswith("seed 7")


def verdict_of(**checks: bool) -> Verdict:
    return Verdict(
        subject="kernel",
        checks=tuple(Check(name=name, passed=good, figure=0.5, limit=1.0) for name, good in checks.items()),
        seed=7,
    )


def test_a_verdict_regresses_where_a_check_fails_that_passed_or_is_missing() -> None:
    before = verdict_of(a=True, b=False, c=True)
    assert against_baseline(verdict_of(a=True, b=False, c=True), before).passed
    found = against_baseline(verdict_of(a=False, b=True, d=False), before)
    assert [check.name for check in found.failures] == ["a", "c", "d"]


def kept(
    path: Path, *, subject: str = "gemm_8x8x8_f32 | gemm.direct mr=6", target: str = "host", **edited: object
) -> Path:
    """A verdict's file as tracea verify writes it, but for what is ``edited``."""
    whole = {**verdict_of(a=True).to_dict(), "subject": subject, "target": target, **edited}
    path.write_text(json.dumps(whole), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("subject", "target"),
    [
        ("softmax_8x33_f32 | rows.normalize rows=2", "host"),
        ("gemm_16x8x8_f32 | gemm.direct mr=6", "host"),
        ("gemm_8x8x8_f32 | gemm.direct mr=6", "sm_90a"),
        ("gemm_8x8x8_f32 | gemm.wgmma | sm_90a | bm=64", "host"),
    ],
)
def test_a_verdict_of_another_op_size_or_target_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], subject: str, target: str
) -> None:
    stored = kept(tmp_path / "stored.json")
    fresh = kept(tmp_path / "fresh.json", subject=subject, target=target)
    assert cli.main(["gate", str(fresh), "--baseline", str(stored)]) == cli.BAD_USAGE
    assert "op and target of the verdict: got " in capsys.readouterr().err


def test_a_verdict_on_the_same_op_with_another_schedule_is_compared(tmp_path: Path) -> None:
    stored = kept(tmp_path / "stored.json")
    fresh = kept(tmp_path / "fresh.json", subject="gemm_8x8x8_f32 | gemm.packed mr=8")
    assert cli.main(["gate", str(fresh), "--baseline", str(stored)]) == cli.GOOD


def test_a_verdict_that_contradicts_its_checks_is_refused(tmp_path: Path) -> None:
    above = {"name": "correct on normal", "passed": True, "figure": 99.0, "limit": 1.0}
    damage = {"name": "inputs untouched", "passed": True, "figure": 3, "limit": 0}
    for edited, said in (
        ({"passed": False}, "passed: got false, with 0 of 1 checks failed"),
        ({"checks": [above]}, r"correct on normal: got passed, with a figure of 99\.0"),
        ({"checks": [{**above, "name": "emulated: correct on edges"}]}, "correct on edges: got passed"),
        ({"checks": [{**above, "name": "emulated over 7 steps: correct on edges"}]}, "correct on edges: got passed"),
        ({"checks": [damage]}, "inputs untouched: got passed, with a figure of 3"),
    ):
        with pytest.raises(InvalidOption, match=said):
            read_evidence(kept(tmp_path / "edited.json", **edited))
    proofs = {"name": "proofs", "passed": True, "figure": 9, "limit": 1, "detail": "facts in the certificate, at least"}
    fewest = {"name": "HGMMA", "passed": True, "figure": 9, "limit": 0, "detail": "at least"}
    before = {**above, "detail": "failed in the baseline too"}
    assert isinstance(read_evidence(kept(tmp_path / "good.json", checks=[proofs, fewest, before])), Verdict)


def test_a_report_in_the_place_of_what_it_compares_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored, fresh, link = (tmp_path / name for name in ("stored.json", "fresh.json", "link.xml"))
    write(stored, BASELINE)
    write(fresh, BASELINE)
    link.hardlink_to(stored)
    before = stored.read_bytes()
    for path, side in ((stored, "--baseline"), (link, "--baseline"), (fresh, "the fresh record")):
        assert cli.main(["gate", str(fresh), "--baseline", str(stored), "--junit", str(path)]) == cli.BAD_USAGE
        assert f"{path}, which is {side}" in capsys.readouterr().err
    assert stored.read_bytes() == fresh.read_bytes() == before


def test_a_peer_of_the_baseline_that_is_missing_fails_and_is_named() -> None:
    row = BASELINE.rows[0]
    both = {**row.ratios, "onnxruntime": Ratio(median=1.0, low=0.9, high=1.1, pairs=30)}
    stored = msgspec.structs.replace(BASELINE, rows=(msgspec.structs.replace(row, ratios=both),))
    found = against_baseline(BASELINE, stored)
    assert [(check.name, check.figure) for check in found.failures] == [("a: onnxruntime / ours", "not measured")]
    assert against_baseline(stored, msgspec.structs.replace(BASELINE, rows=(row,))).passed  # one more is no loss


@pytest.mark.parametrize("side", ["fresh record", "baseline"])
@pytest.mark.parametrize(
    ("low", "median", "high"),
    [(9, 0.01, 9), (1, 2, 1.5), (-5, 1, 2), (0, 1, 2), (1, 1, float("inf")), (float("nan"), 1, 1)],
)
def test_a_ratio_that_no_measurement_gives_is_refused_by_row_and_numbers(
    side: str, low: float, median: float, high: float
) -> None:
    ratios = {"torch": Ratio(median=median, low=low, high=high, pairs=30)}
    rows = (BASELINE.rows[0], msgspec.structs.replace(BASELINE.rows[1], ratios=ratios))
    bad = msgspec.structs.replace(BASELINE, rows=rows)
    pair = (bad, BASELINE) if side == "fresh record" else (BASELINE, bad)
    with pytest.raises(
        InvalidOption, match=rf"{side}: rows\[1\] \(b\): torch / ours: got low {low:g}, median {median:g}"
    ):
        against_baseline(*pair)


@pytest.mark.parametrize("side", ["fresh record", "baseline"])
def test_a_problem_twice_or_without_a_measurement_is_refused_by_its_row(side: str) -> None:
    rows = (*BASELINE.rows, record({"a": (9.0, 9.9)}).rows[0])
    twice = msgspec.structs.replace(BASELINE, rows=rows)
    empty = msgspec.structs.replace(BASELINE, rows=(msgspec.structs.replace(rows[0], measurements=(), ratios={}),))
    for bad, said in ((twice, r"rows\[2\]: got a, which an earlier row has"), (empty, r"rows\[0\]: got a with 0 meas")):
        pair = (bad, BASELINE) if side == "fresh record" else (BASELINE, bad)
        with pytest.raises(InvalidOption, match=f"{side}: {said}"):
            against_baseline(*pair)


def test_checks_of_one_name_are_compared_in_turn_and_none_is_lost() -> None:
    def of(*passed: bool) -> Verdict:
        checks = tuple(Check(name="registers", passed=each, figure=0, limit=0) for each in passed)
        return Verdict(subject="v", checks=checks, seed=1)

    assert against_baseline(of(True, True), of(True, True)).passed
    assert not against_baseline(of(False, True), of(True, True)).passed
    assert not against_baseline(of(True, True, False), of(True, True)).passed
    assert against_baseline(of(False, True), of(False, True)).passed


def test_junit_has_a_case_a_check_and_survives_hostile_names() -> None:
    hostile = Verdict(
        subject='<a & "b">\x00',
        checks=(
            Check(name="good", passed=True, figure=0, limit=0),
            Check(name="bad\x1b[31m", passed=False, figure=1.5, limit=1.0, detail="]]>"),
        ),
        seed=7,
    )
    root = ElementTree.fromstring(to_junit([hostile, verdict_of(a=True)]).split("\n", 1)[1])
    assert (root.get("tests"), root.get("failures")) == ("3", "1")
    (failure,) = root.iter("failure")
    assert "limit 1" in str(failure.get("message"))
    assert "seed 7" in str(failure.text)
    assert [case.get("name") for case in root.iter("testcase")] == ["good", "bad\\u001b[31m", "a"]


def test_the_verb_has_an_exit_code_json_and_junit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored, good, bad = (tmp_path / name for name in ("stored.json", "good.json", "bad.json"))
    write(stored, BASELINE)
    write(good, BASELINE)
    write(bad, record({"a": (0.5, 0.6), "b": (0.9, 1.0)}))
    assert cli.main(["gate", str(good), "--baseline", str(stored)]) == 0
    assert "passed, 2 checks" in capsys.readouterr().out
    out = tmp_path / "gate.xml"
    assert cli.main(["gate", str(bad), "--baseline", str(stored), "--junit", str(out), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False
    assert ElementTree.parse(out).getroot().get("failures") == "1"
    assert cli.main(["gate", str(bad), "--baseline", str(stored), "--only", "b"]) == 0
    assert cli.main(["gate", str(bad), "--baseline", str(tmp_path / "none.json")]) == 2
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    assert cli.main(["gate", str(bad), "--baseline", str(tmp_path / "broken.json")]) == 2
    assert cli.main(["gate", str(bad), "--baseline", str(stored), "--only", "no such"]) == 2


def test_a_hostile_problem_name_takes_one_line_of_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = tmp_path / "stored.json"
    write(stored, record({"evil\n  ok   forged\x1b[31m": (1.0, 1.1)}))
    assert cli.main(["gate", str(stored), "--baseline", str(stored)]) == 0
    _, line = capsys.readouterr().out.splitlines()
    assert line.startswith("  ok   evil\\n  ok   forged\\x1b[31m: torch / ours")


def test_a_report_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, new = tmp_path / "stored.json", tmp_path / "new.xml"
    write(stored, BASELINE)
    read: list[Path] = []
    monkeypatch.setattr("tracea.gates.baseline.read_evidence", read.append)
    monkeypatch.setattr("tracea.flow.verify.verify_op", read.append)
    for verb in (
        ("gate", str(stored), "--baseline", str(stored)),
        ("verify", "softmax", "--rows", "4", "--columns", "4"),
    ):
        for path, reason in ((tmp_path / "gone" / "x.xml", "No such file"), (tmp_path, "Is a directory")):
            assert cli.main([*verb, "--junit", str(path)]) == cli.BAD_USAGE
            assert f"--junit: got {path}: {reason}" in capsys.readouterr().err
    assert not read
    require_writable(new, option="--junit")
    assert not new.exists()
    require_writable(stored, option="--junit")
    assert read_evidence(stored) == BASELINE


def test_a_disk_that_fills_meanwhile_costs_the_report_and_not_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = tmp_path / "stored.json"
    write(stored, BASELINE)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    command = ["gate", str(stored), "--baseline", str(stored), "--junit", str(tmp_path / "x.xml"), "--json"]
    assert cli.main(command) == cli.FAILED
    shown = capsys.readouterr()
    assert json.loads(shown.out)["passed"] is True
    assert "x.xml could not be written: No space left on device" in shown.err


def test_a_verdict_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    path.write_text(verdict_of(a=True, b=False).to_json(), encoding="utf-8")
    assert read_evidence(path) == verdict_of(a=True, b=False)


QUIET, BUSY = Load(busy_cores=0.0, cores=2), Load(busy_cores=0.9, cores=2)


@pytest.mark.parametrize(
    ("found", "load", "code", "measured"),
    [
        ([(1.08, 1.12)], BUSY, 0, 1),  # as fast under load: nothing to doubt
        ([(0.5, 0.6), (1.08, 1.12)], BUSY, 0, 2),  # slower once
        ([(0.5, 0.6), (0.5, 0.6)], QUIET, 1, 2),
        ([(0.5, 0.6), (0.5, 0.6)], BUSY, INCONCLUSIVE, 2),
    ],
)
def test_what_is_slower_is_measured_again_and_proves_nothing_under_load(
    *,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    found: list[tuple[float, float]],
    load: Load,
    code: int,
    measured: int,
) -> None:
    stored, out = tmp_path / "stored.json", tmp_path / "gate.xml"
    write(stored, BASELINE)
    asked: list[str | None] = []

    def run_suite(suite: str, *, only: str | None, **_: object) -> list[Record]:
        asked.append(only)
        now = record({"a": found[len(asked) - 1], "b": (0.9, 1.0)}, suite=suite)
        return [msgspec.structs.replace(now, rows=tuple(row for row in now.rows if only in (None, row.problem)))]

    monkeypatch.setattr("tracea.bench.run.run_suite", run_suite)
    monkeypatch.setattr("tracea.profiler.load.measure_load", lambda: load)
    assert cli.main(["gate", "--baseline", str(stored), "--junit", str(out), "--json"]) == code
    assert asked == [None, "a"][:measured]
    result = json.loads(capsys.readouterr().out)
    assert result["passed"] is (code == 0)
    assert ("inconclusive" in result) is (code == INCONCLUSIVE)
    report = ElementTree.parse(out).getroot()
    assert report.get("failures") == ("1" if code == 1 else "0")
    assert len(list(report.iter("skipped"))) == (code == INCONCLUSIVE)


def test_the_record_of_a_model_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "mlp-1t.json"
    path.write_text('{"schema_version": 1, "command": "c", "processes": [{}, {}]}', encoding="utf-8")
    with pytest.raises(InvalidOption, match="times of a whole model in 2 processes"):
        read_evidence(path)


def test_a_failed_verdict_says_how_many_of_its_checks_failed() -> None:
    assert verdict_of(a=True, b=False).lines[0] == "kernel: FAILED, 1 of 2 checks failed, seed 7"
    assert verdict_of(a=True).lines[0] == "kernel: passed, 1 check, seed 7"


def test_a_baseline_is_a_file_of_some_size_with_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty, pipe = tmp_path / "empty.json", tmp_path / "pipe"
    write(empty, record({}))
    os.mkfifo(pipe)
    monkeypatch.setattr("tracea.gates.baseline._MOST_BYTES", 100)
    for path, said in ((pipe, "no regular file"), (tmp_path, "no regular file"), (empty, "bytes, of at most 100")):
        with pytest.raises(InvalidOption, match=f"{path}: .*{said}"):
            read_evidence(path)
    monkeypatch.undo()
    with pytest.raises(InvalidOption, match=f"{empty}.*got no rows"):
        read_evidence(empty)
