"""NVIDIA's tools on a sample of kernels: what they did not get through is no failure of a kernel."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tracea.bench.gpu import compile_ahead, vendor_tools
from tracea.bench.gpu.session import Session, open_session
from tracea.bench.gpu.settings import Settings, Status
from tracea.bench.gpu.vendor_tools import (
    Counters,
    bank_items,
    bank_requests,
    parse_counters,
    sanitizer_items,
    sanitizer_requests,
)
from tracea.errors import ToolchainMissing
from tracea.runtime.cuda.null_driver import NullDriver
from tracea.targets.gpu import load_gpu


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH with NVIDIA's tools, which take longer than they have."""
    for name in ("compute-sanitizer", "ncu"):
        (tmp_path / name).write_text("#!/bin/sh\nexec sleep 30\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    none = Counters(loads=0, stores=0, load_conflicts=0, store_conflicts=0)
    monkeypatch.setattr(vendor_tools, "predicted_counters", lambda *_: none)
    return tmp_path


def on_a_device(seconds: float) -> Session:
    """A session as on a device that has so many seconds left; nothing asks the device."""
    target = load_gpu("sm_90a")
    settings = Settings(target="sm_90a")
    return Session(settings=settings, target=target, driver=NullDriver(target), deadline=time.monotonic() + seconds)


@pytest.mark.parametrize("items", [sanitizer_items, bank_items])
def test_a_tool_that_the_stages_end_interrupts_is_skipped(tools: Path, items: Any) -> None:
    outcome = next(items(on_a_device(0.5))).run()
    assert outcome.status is Status.SKIPPED
    assert outcome.detail.startswith("the stage's time was up: no end within 1 s: ")


@pytest.mark.parametrize("items", [sanitizer_items, bank_items])
def test_a_tool_that_takes_too_long_did_not_check(tools: Path, items: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor_tools, "_SECONDS", 1.0)
    outcome = next(items(on_a_device(60.0))).run()
    assert outcome.status is Status.NOT_CHECKED
    assert outcome.detail.startswith("no end within 1 s: ")


def test_the_tools_exit_code_decides(tools: Path) -> None:
    item = next(sanitizer_items(on_a_device(60.0)))
    for code, status in ((0, Status.PASSED), (9, Status.FAILED), (1, Status.FAILED)):
        (tools / "compute-sanitizer").write_text(f"#!/bin/sh\necho '========= said'\nexit {code}\n", encoding="utf-8")
        assert item.run().status is status, code


def test_without_a_compiler_conflicts_are_not_foretold(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def predicted(*_: object) -> Counters:
        raise ToolchainMissing(tool="a C++ compiler", searched=("g++",), remedy="install one")

    monkeypatch.setattr(vendor_tools, "predicted_counters", predicted)
    outcome = next(bank_items(on_a_device(60.0))).run()
    assert outcome.status is Status.NOT_CHECKED
    assert "C++ compiler" in outcome.detail


@pytest.mark.parametrize("every", [1, 2])
def test_what_the_tools_look_at_is_compiled_ahead(every: int) -> None:
    settings = Settings(target="sm_80", driver="null", every=every)
    session = open_session(settings, seconds=60)
    emulator, *compiled = compile_ahead._vendor_tools(session)
    assert emulator is compile_ahead._compile_emulator
    wanted = [*bank_requests(session), *sanitizer_requests(session)]
    requests = [job.args[0] for job in compiled]  # type: ignore[attr-defined]
    assert wanted
    assert all(request in requests for request in wanted)
    assert all(requests.count(request) == 1 for request in requests)


def test_the_emulator_is_compiled_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[compile_ahead.Job]] = []
    monkeypatch.setattr(compile_ahead, "_compiled", lambda session, jobs, **_: asked.append(jobs))
    session = open_session(Settings(target="sm_80", driver="null", every=40), seconds=60)
    next(compile_ahead.items(session)).run()
    ((emulator, *others),) = asked
    assert emulator is compile_ahead._compile_emulator
    assert len(others) >= 2


def test_a_missing_compiler_is_no_failure_of_the_compile_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    def core() -> None:
        raise ToolchainMissing(tool="a C++ compiler", searched=("g++",), remedy="install one")

    monkeypatch.setattr(compile_ahead, "core", core)
    assert compile_ahead._compile_emulator() == ""


def test_counters_are_read_from_the_profilers_csv() -> None:
    names = {
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": "1,024",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": "64",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": "0",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": "32",
    }
    rows = "\n".join(f'"0","k","{name}","","{value}"' for name, value in names.items())
    text = f'==PROF== Connected\n"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n{rows}\n'
    assert parse_counters(text) == Counters(loads=1024, stores=64, load_conflicts=0, store_conflicts=32)
    assert parse_counters(text.replace("op_st", "op_xx")) is None
    assert parse_counters("==ERROR== ERR_NVGPUCTRPERM") is None
