"""The record of a run on disk: only a run of the whole suite that came to its end takes the place of an earlier one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tracea.bench.gpu import run as runs
from tracea.bench.gpu.record import GpuRecord, StageRecord
from tracea.bench.gpu.run import is_part, run_gpu_suite
from tracea.bench.gpu.settings import STAGES, ItemOutcome, Settings, StageRequest, Status
from tracea.cli.bench import GpuFlags, bench
from tracea.errors import InvalidOption
from tracea.optimizer.priors import Hero, Provenance, load_heroes, save_heroes
from tracea.profiler.environment import capture

WHOLE, PART = "dry-run-sm_80.json", "dry-run-sm_80-part.json"


@pytest.fixture
def stopped_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Stages that cost nothing; say in which one Ctrl-C comes."""
    stops: list[str] = []

    def watch_stage(request: StageRequest, told: Any) -> str:
        told("an item", ItemOutcome(status=Status.DRY))
        if request.stage in stops:
            raise KeyboardInterrupt
        return ""

    monkeypatch.setattr(runs, "watch_stage", watch_stage)
    return stops.append


def run(folder: Path, **given: Any) -> GpuRecord:
    return run_gpu_suite(driver="null", target="sm_80", output=folder, **given)


def kept(folder: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in folder.iterdir()}


@pytest.mark.parametrize("stage", ["compile", "contest"])
def test_a_run_that_is_stopped_leaves_the_earlier_record(
    tmp_path: Path, stopped_in: Callable[[str], None], stage: str
) -> None:
    assert run(tmp_path, seed=1).is_complete
    stopped_in(stage)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, seed=2)
    found = kept(tmp_path)
    assert found.keys() == {WHOLE, "dry-run-sm_80.unfinished.json"}
    whole, unfinished = found[WHOLE], found["dry-run-sm_80.unfinished.json"]
    assert (whole["is_complete"], whole["settings"]["seed"], list(whole["stages"])) == (True, 1, list(STAGES))
    assert (unfinished["is_complete"], unfinished["settings"]["seed"]) == (False, 2)
    assert list(unfinished["stages"])[-1] == stage
    assert unfinished["stages"][stage]["items"], "the record is there after every item"


def test_a_run_that_comes_to_its_end_leaves_nothing_unfinished(
    tmp_path: Path, stopped_in: Callable[[str], None]
) -> None:
    (tmp_path / "dry-run-sm_80.unfinished.json").write_text("of an earlier run", encoding="utf-8")
    run(tmp_path)
    assert kept(tmp_path).keys() == {WHOLE}


@pytest.mark.parametrize("part", [{"stages": ("tuning",)}, {"every": 2}])
def test_a_part_of_the_suite_takes_no_whole_records_place(
    tmp_path: Path, stopped_in: Callable[[str], None], part: dict[str, Any]
) -> None:
    run(tmp_path, seed=1)
    assert not run(tmp_path, seed=2, **part).is_complete
    found = kept(tmp_path)
    assert found.keys() == {WHOLE, PART}
    assert (found[WHOLE]["is_complete"], found[WHOLE]["settings"]["seed"]) == (True, 1)
    assert (found[PART]["is_complete"], found[PART]["settings"]["seed"]) == (False, 2)


def test_all_stages_by_name_are_the_whole_suite() -> None:
    assert not is_part((), 1)
    assert not is_part(tuple(reversed(STAGES)), 1)
    assert is_part(tuple(STAGES), 2)
    assert is_part(("contest",), 1)


@pytest.mark.parametrize(
    ("flags", "is_kept"),
    [
        (GpuFlags(), True),
        (GpuFlags(every=1, stages=",".join(STAGES)), True),
        (GpuFlags(stages="contest"), False),
        (GpuFlags(every=12), False),
        (GpuFlags(driver="null"), False),
    ],
)
def test_by_default_the_record_of_a_whole_measured_run_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: GpuFlags, is_kept: bool
) -> None:
    folders: list[Path | None] = []

    def run_gpu_suite(*, output: Path | None, **_: object) -> GpuRecord:
        folders.append(output)
        return record({})

    monkeypatch.setattr(runs, "run_gpu_suite", run_gpu_suite)
    monkeypatch.chdir(tmp_path)
    (tmp_path / runs.RESULTS).mkdir(parents=True)
    assert bench(suite="gpu", gpu=flags) == 0
    assert bench(suite="gpu", gpu=flags, output=tmp_path) == 0
    assert folders == [runs.RESULTS if is_kept else None, tmp_path]


def record(tuned: dict[str, Hero]) -> GpuRecord:
    items = {
        name: ItemOutcome(status=Status.PASSED, data={"hero": msgspec.to_builtins(hero)})
        for name, hero in tuned.items()
    }
    return GpuRecord(
        command="",
        measured=True,
        settings=Settings(target="sm_90a"),
        device={"name": "NVIDIA H200"},
        environment=capture(threads=1),
        stages={"tuning": StageRecord(budget_seconds=1.0, items=items)},
    )


def hero(op_key: str, latency_ms: float, target: str = "sm_90a") -> Hero:
    where = {"gpu": "NVIDIA H200", "target": target}
    found = Provenance(hardware=where, toolchain={"driver": "13"}, latency_ms=latency_ms, trials=1, recorded_at=0.0)
    return Hero(op_key=op_key, variant="gemm.wgmma", schedule={"bm": 64}, record=found)


def test_heroes_of_problems_that_were_not_tuned_stay(tmp_path: Path) -> None:
    path = tmp_path / "heroes" / "nvidia-h200.json"
    runs._write_heroes(path, record({"one": hero("one", 1.0), "two": hero("two", 2.0)}))
    runs._write_heroes(path, record({}))
    runs._write_heroes(path, record({"two": hero("two", 3.0), "of sm_90": hero("one", 4.0, "sm_90")}))
    found = {(each.op_key, each.record.hardware["target"]): each.record.latency_ms for each in load_heroes(path.parent)}
    assert found == {("one", "sm_90a"): 1.0, ("two", "sm_90a"): 3.0, ("one", "sm_90"): 4.0}


def test_heroes_that_cannot_be_read_are_told_of_before_anything_runs(
    tmp_path: Path, stopped_in: Callable[[str], None]
) -> None:
    (tmp_path / "heroes").mkdir()
    save_heroes(tmp_path / "heroes" / "nvidia-h200.json", [hero("one", 1.0)])
    run(tmp_path)
    (tmp_path / "heroes" / "nvidia-h200.json").write_text("{", encoding="utf-8")
    run(tmp_path, stages=("conformance",))
    with pytest.raises(InvalidOption, match=r"nvidia-h200\.json"):
        run(tmp_path, stages=("contest",))
