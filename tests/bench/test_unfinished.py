"""Tests for tracea.bench.unfinished: a run that was stopped goes on with its own rows, and with no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tracea.bench import run as runs
from tracea.bench.contest import Rules
from tracea.bench.problem import Problem
from tracea.bench.suites import problems
from tracea.bench.unfinished import Unfinished
from tracea.errors import InvalidOption
from tracea.profiler.environment import capture
from tracea.profiler.measurement import Measurement, Ratio
from tracea.profiler.record import Record, Row, read

_NAMES = [problem.name for problem in problems("gemm")]


class Stopped(Exception):
    """What stops a run."""


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """A suite whose rows cost nothing: the problems that were timed, with their threads, in order."""
    timed: list[tuple[int, str]] = []

    def contest(suite: str, problem: Problem, rules: Rules, screened: object) -> Row:
        timed.append((rules.threads, problem.name))
        where = capture(threads=rules.threads)
        ours, peer = (
            Measurement(name=name, samples_us=(us, us), calls_per_sample=1, environment=where)
            for name, us in (("ours", 1.0), ("peer", 2.0))
        )
        return Row(problem=problem.name, measurements=(ours, peer), ratios={"peer": Ratio.of(peer, ours)})

    monkeypatch.setattr(runs, "contest", contest)
    monkeypatch.setattr(runs, "screen", lambda suite, several, rules: {})
    monkeypatch.setattr(runs, "_limits", lambda machine, count: {"peak f32 GFLOP/s": 1.0, "copy GB/s": float(count)})
    monkeypatch.setattr("sys.argv", ["tracea", "bench", "--suite", "gemm"])
    return timed


def _run(folder: Path, **given: Any) -> list[Record]:
    return runs.run_suite("gemm", against=("torch",), **{"threads": (1,), "output": folder, **given})


def _stop_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = Unfinished.add, 0

    def add(self: Unfinished, row: Row) -> None:
        nonlocal calls
        real(self, row)
        calls += 1
        if calls == count:
            monkeypatch.setattr(Unfinished, "add", real)
            raise Stopped

    monkeypatch.setattr(Unfinished, "add", add)


def _stopped(folder: Path, rows: int, monkeypatch: pytest.MonkeyPatch, **given: Any) -> None:
    _stop_after(rows, monkeypatch)
    with pytest.raises(Stopped):
        _run(folder, **given)


def test_stopped_run_leaves_no_record_and_measures_each_row_once(
    tmp_path: Path, measured: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped(tmp_path, 3, monkeypatch)
    assert not (tmp_path / "gemm-1t.json").exists()
    monkeypatch.setattr("sys.argv", ["tracea", "bench", "--suite", "gemm", "--resume"])
    monkeypatch.setattr(runs, "_limits", lambda machine, count: pytest.fail("the ceilings are those of the beginning"))
    (record,) = _run(tmp_path, resume=True)
    assert [name for _, name in measured] == _NAMES == [row.problem for row in record.rows]
    assert read(tmp_path / "gemm-1t.json") == record
    assert record.command == "tracea bench --suite gemm"
    assert record.ceilings["copy GB/s"] == 1.0
    assert [each.name for each in tmp_path.iterdir()] == ["gemm-1t.json"]


def test_run_that_stopped_at_two_threads_keeps_the_rows_of_one(
    tmp_path: Path, measured: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped(tmp_path, len(_NAMES) + 2, monkeypatch, threads=(1, 2))
    records = _run(tmp_path, threads=(1, 2), resume=True)
    assert measured == [(count, name) for count in (1, 2) for name in _NAMES]
    assert [record.environment.threads for record in records] == [1, 2]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["gemm-1t.json", "gemm-2t.json"]


def test_without_resume_everything_is_measured_anew(
    tmp_path: Path, measured: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped(tmp_path, 2, monkeypatch)
    measured.clear()
    _run(tmp_path)
    assert [name for _, name in measured] == _NAMES


def test_resume_without_anything_to_resume_begins(tmp_path: Path, measured: list[tuple[int, str]]) -> None:
    _run(tmp_path, resume=True)
    assert [name for _, name in measured] == _NAMES


@pytest.mark.parametrize("changed", ["command", "kernels", "surroundings", "damaged"])
def test_rows_of_another_run_are_refused(
    changed: str, tmp_path: Path, measured: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped(tmp_path, 2, monkeypatch)
    kept = Unfinished.place(tmp_path / "gemm-1t.json")
    if changed == "command":
        monkeypatch.setattr("sys.argv", ["tracea", "bench", "--suite", "gemm", "--pairs", "1"])
    elif changed == "kernels":
        monkeypatch.setattr("tracea.bench.unfinished.code_digest", lambda: "of other kernels")
    elif changed == "surroundings":
        real = capture
        other = {"torch": "0.1"}
        monkeypatch.setattr(runs, "capture", lambda threads: real(threads=threads, toolchain=other))
    else:
        kept.write_bytes(kept.read_bytes()[:-40])
    before = kept.read_bytes()
    measured.clear()
    with pytest.raises(InvalidOption, match="unfinished") as caught:
        _run(tmp_path, resume=True)
    assert (changed if changed != "damaged" else "truncated") in str(caught.value)
    assert not measured
    assert kept.read_bytes() == before


def test_rows_whose_ratios_were_edited_are_refused_with_the_record(
    tmp_path: Path, measured: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped(tmp_path, 2, monkeypatch)
    kept = Unfinished.place(tmp_path / "gemm-1t.json")
    part = msgspec.json.decode(kept.read_bytes())
    part["record"]["rows"][0]["ratios"]["peer"] |= {"median": 9.0, "low": 8.0, "high": 10.0}
    kept.write_bytes(msgspec.json.encode(part))
    with pytest.raises(InvalidOption, match="samples"):
        _run(tmp_path, resume=True)
