"""A kernel that faults takes the device along: what it did wrong is told all the same."""

from __future__ import annotations

import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tracea.bench.gpu import child, contest, correctness
from tracea.bench.gpu.session import DeviceLost, Item, Session, closing
from tracea.bench.gpu.settings import ItemOutcome, Settings, StageRequest, Status
from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.errors import RunError
from tracea.runtime.cuda.null_driver import NullDriver
from tracea.targets.gpu import load_gpu

SETTINGS = Settings(target="sm_90a")
WRONG = "uniform: 4096 elements wrong, the first (0, 3)"


class FaultedDriver(NullDriver):
    """A device after a fault: it gives nothing, and takes nothing back."""

    def allocate(self, nbytes: int) -> int:
        raise RunError(kernel="cuMemAlloc", detail="cuMemAlloc returned CUDA_ERROR_ILLEGAL_ADDRESS")

    def release(self, address: int) -> None:
        raise RunError(kernel="cuMemFree", detail="cuMemFree returned CUDA_ERROR_ILLEGAL_ADDRESS")


def faulted() -> Session:
    target = load_gpu("sm_90a")
    return Session(settings=SETTINGS, target=target, driver=FaultedDriver(target), deadline=time.monotonic() + 60)


def test_the_lost_device_does_not_hide_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    session = faulted()
    planted = ModuleType("tracea.bench.gpu.planted")
    planted.items = lambda session: iter([Item(name="wgmma", run=lambda: session.outcome([WRONG]))])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, planted.__name__, planted)
    monkeypatch.setitem(child._STAGES, "correctness", ("planted", "items", False))  # type: ignore[arg-type]
    monkeypatch.setattr(child, "open_session", lambda *_, **__: session)
    told: list[Any] = []
    with pytest.raises(DeviceLost, match=r"4096 elements wrong.*; then the device was lost: .*ILLEGAL_ADDRESS"):
        child.run_stage(StageRequest(stage="correctness", settings=SETTINGS, seconds=60.0), told.append)
    assert told == [{"begin": "wgmma"}]  # the process that watches ends the item, with this text


def test_a_candidate_that_faults_says_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "first_schedules", lambda *_: [("gemm.wgmma", SimpleNamespace(key="bm=64"))])
    monkeypatch.setattr(contest, "compile_for_gpu", lambda *_: None)
    timed: Any = SimpleNamespace(op=None, ours=lambda compiled: None, check=lambda call: WRONG)
    with pytest.raises(DeviceLost, match=r"tracea gemm\.wgmma bm=64: uniform: 4096 .*; then the device was lost"):
        contest._ours(faulted(), timed)
    session = faulted()
    session.avoid = {"tracea gemm.wgmma bm=64": WRONG}
    assert contest._ours(session, timed) == ({}, [f"tracea gemm.wgmma bm=64: {WRONG}"])


def test_an_error_of_giving_memory_back_comes_after_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    session = faulted()
    failure = SimpleNamespace(name="uniform", figure="4096 elements wrong", limit="0", detail="the first (0, 3)")

    def close() -> None:
        session.driver.release(0)

    def judged(*failures: Any) -> list[str]:
        monkeypatch.setattr(correctness, "DeviceRun", lambda *_, **__: SimpleNamespace(close=close))
        monkeypatch.setattr(correctness, "judge", lambda *_, **__: SimpleNamespace(failures=failures))
        op = GemmOp.of(m=8, n=8, k=8, dtype=DType.F16)
        return correctness.judge_on_device(session, None, op)  # type: ignore[arg-type]

    first, second = judged(failure)
    assert first.startswith("uniform: 4096 elements wrong")
    assert second.startswith("giving memory back: cuMemFree")
    (alone,) = judged()  # a fault that nothing else noticed
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in alone


def test_an_error_of_the_work_outlives_that_of_closing() -> None:
    with pytest.raises(RunError, match="cuStreamSynchronize"), closing(lambda: faulted().driver.release(0)):
        raise RunError(kernel="cuStreamSynchronize", detail="cuStreamSynchronize returned CUDA_ERROR_ILLEGAL_ADDRESS")


def test_failures_that_come_after_an_outcome_are_added_to_it() -> None:
    session = faulted()
    measured = ItemOutcome(status=Status.PASSED, data={"row": 1})
    assert session.failed_after(measured, []) is measured
    late = session.failed_after(measured, ["giving memory back: no"])
    assert (late.status, late.detail, late.data) == (Status.FAILED, "giving memory back: no", {"row": 1})
    assert session.failed_after(session.outcome([WRONG]), ["late"]).detail == f"{WRONG}; late"
