"""Measuring in fresh processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tracea.errors import BudgetExceeded, InvalidOption, RunError
from tracea.profiler import run_in_processes

MODULE = """
import os, sys, time

def describe(word, count=1):
    print("noise on the standard output")
    return {
        "word": word * count,
        "pid": os.getpid(),
        "cores": sorted(os.sched_getaffinity(0)),
        "variable": os.environ.get("A_VARIABLE"),
    }

def fail():
    raise ValueError("the reason")

def die():
    os._exit(3)

def sleep():
    time.sleep(60)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "timing_of_a_test.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return "timing_of_a_test"


def test_each_process_is_fresh_pinned_and_answers_by_json(module: str) -> None:
    core = min(os.sched_getaffinity(0))
    found = run_in_processes(
        f"{module}:describe",
        {"word": "é", "count": 2},
        processes=2,
        cores=[core],
        variables={"A_VARIABLE": "set"},
    )
    assert [answer["word"] for answer in found] == ["éé", "éé"]
    assert len({answer["pid"] for answer in found} | {os.getpid()}) == 3
    assert all(answer["cores"] == [core] and answer["variable"] == "set" for answer in found)


def test_a_process_that_fails_reports_its_error(module: str) -> None:
    with pytest.raises(RunError, match="ValueError: the reason"):
        run_in_processes(f"{module}:fail", {}, processes=1)
    with pytest.raises(RunError, match="exit code 3"):
        run_in_processes(f"{module}:die", {}, processes=1)


def test_a_process_that_hangs_is_ended(module: str) -> None:
    with pytest.raises(BudgetExceeded, match="limit 1 seconds"):
        run_in_processes(f"{module}:sleep", {}, processes=1, limit_s=1.0)


@pytest.mark.parametrize("name", ["", "module", ":function", "module:"])
def test_a_name_that_is_no_function_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="module:function"):
        run_in_processes(name, {})
