"""The watch over a stage's processes: hangs, deaths and the end of the time are outcomes of the items under way."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tracea.bench.gpu import child
from tracea.bench.gpu import watch as watching
from tracea.bench.gpu.settings import ItemOutcome, Settings, StageRequest, Status

CHILD = """
import json, os, sys, time
asked = json.loads(sys.stdin.read())
def tell(**message):
    print(json.dumps(message), flush=True)
for name in NAMES:
    if name in asked["skip"]:
        continue
    tell(begin=name)
    if name == "hangs":
        time.sleep(60)
    if name == "dies":
        os._exit(7)
    if name == "goes on":
        for number in range(600):
            tell(note=f"schedule {number}")
            time.sleep(0.1)
    if name in ("recovers", "is late") and "bad" not in asked["avoid"]:
        tell(note="bad")
        tell(lost="it wrote beside its output")
        os._exit(8)
    if name == "is late":
        time.sleep(60)
    said = asked["until"] if name == "tells when" else asked["avoid"]
    tell(end=name, outcome={"status": "passed", "detail": str(said)})
tell(done="x")
"""


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Watch a planted process that does items of these names; return why the stage ended, and what was told."""

    def watched(*names: str, seconds: float = 30.0, item_seconds: float = 40.0) -> tuple[str, dict[str, ItemOutcome]]:
        (tmp_path / "planted_child.py").write_text(CHILD.replace("NAMES", repr(names)), encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(watching, "_GRACE", 0.2)
        settings = Settings(target="sm_80", driver="null", item_seconds=item_seconds)
        request = StageRequest(stage="conformance", settings=settings, seconds=seconds)
        found: dict[str, ItemOutcome] = {}
        return watching.watch_stage(request, found.__setitem__, module="planted_child"), found

    return watched


def test_hangs_and_deaths_cost_their_own_item(watch: Any) -> None:
    reason, found = watch("good", "hangs", "dies", "recovers", "last", item_seconds=0.7)
    assert reason == ""
    assert {name: outcome.status for name, outcome in found.items()} == {
        "good": Status.PASSED,
        "hangs": Status.HUNG,
        "dies": Status.CRASHED,
        "recovers": Status.PASSED,
        "last": Status.PASSED,
    }
    assert found["hangs"].detail == "no sign of life for 1 s"
    assert "7" in found["dies"].detail


def test_the_next_process_is_told_what_came_of_what_it_avoids(watch: Any) -> None:
    reason, found = watch("recovers")
    assert reason == ""
    assert found["recovers"].detail == "{'bad': 'it wrote beside its output'}"


def test_what_a_process_takes_to_start_is_time_of_its_stage(watch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = time.monotonic()
    _, found = watch("tells when", seconds=30.0)
    until = float(found["tells when"].detail)
    assert begin + 30.0 <= until <= time.monotonic() + 30.0
    given: list[float] = []

    class Enough(Exception):
        pass

    def open_session(*_: object, seconds: float, **__: object) -> None:
        given.append(seconds)
        raise Enough

    monkeypatch.setattr(child, "open_session", open_session)
    request = StageRequest(
        stage="conformance", settings=Settings(target="sm_80"), seconds=30.0, until=time.monotonic() + 10.0
    )
    for asked in (request, msgspec.structs.replace(request, until=None)):
        with pytest.raises(Enough):
            child.run_stage(asked, lambda _: None)
    assert 0.0 < given[0] <= 10.0
    assert given[1] == 30.0


@pytest.mark.parametrize("name", ["hangs", "goes on"])
def test_an_item_that_the_stages_end_interrupts_did_not_fail(watch: Any, name: str) -> None:
    reason, found = watch("good", name, "never begun", seconds=3.0)
    assert reason == "its seconds are spent"
    assert {name: outcome.status for name, outcome in found.items()} == {"good": Status.PASSED, name: Status.SKIPPED}
    detail, _, schedule = found[name].detail.partition(" while trying schedule ")
    assert detail == "the stage's time was up"
    assert schedule.isdigit() == (name == "goes on")


def test_what_failed_before_the_stages_end_is_not_skipped(watch: Any) -> None:
    reason, found = watch("is late", seconds=5.0)
    assert reason == "its seconds are spent"
    assert found["is late"].status is Status.CRASHED
    assert found["is late"].detail == "it wrote beside its output; the stage's time was up"


def test_an_item_whose_next_try_finds_no_time_has_its_outcome(watch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_MOST_PROCESSES", 1)
    reason, found = watch("recovers")
    assert reason == "1 of its processes died"
    assert (found["recovers"].status, found["recovers"].detail) == (Status.CRASHED, "it wrote beside its output")
