"""Measuring in fresh processes."""

from __future__ import annotations

import mmap
import os
import platform
import sys
from pathlib import Path

import pytest

from tracea.errors import BudgetExceeded, InvalidOption, RunError
from tracea.profiler import run_in_processes
from tracea.profiler.environment import equal_terms

MODULE = """
import os, resource, sys, time

def describe(word, count=1):
    print("noise on the standard output")
    return {
        "word": word * count,
        "pid": os.getpid(),
        "cores": sorted(os.sched_getaffinity(0)),
        "variable": os.environ.get("A_VARIABLE"),
    }

def pages(count, size):
    blocks = [bytearray(size) for _ in range(2)]
    del blocks
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        bytearray(size)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def warn():
    os.write(2, b"caf\\xe9")
    return 5

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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators keep what they like")
def test_processes_of_a_measurement_keep_what_is_freed(module: str) -> None:
    def faults(variables: dict[str, str]) -> int:
        (found,) = run_in_processes(f"{module}:pages", {"count": 20, "size": 8 << 20}, processes=1, variables=variables)
        return found

    pages = (8 << 20) // mmap.PAGESIZE
    assert faults({**equal_terms(1), "MALLOC_TRIM_THRESHOLD_": "0"}) >= 20 * pages // 2
    assert faults(equal_terms(1)) < pages // 2


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


def test_a_warning_in_another_encoding_loses_no_result(module: str) -> None:
    assert run_in_processes(f"{module}:warn", {}, processes=1) == [5]
