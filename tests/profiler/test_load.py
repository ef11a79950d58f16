"""What others take of the cores: counted on this process's cores only, without its own share."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tracea.profiler import load

STAT = "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 {} 0 0 {} 0 0 0 0 0 0\ncpu1 {} 0 0 {} 0 0 0 0 0 0\ncpu7 900 0 0 0 0\n"


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "cores_allowed", lambda: (0, 1))
    monkeypatch.setattr(time, "process_time", lambda: 0.0)


def stat(root: Path, *ticks: int) -> None:
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/stat").write_text(STAT.format(*ticks))


def test_busy_ticks_of_the_allowed_cores_count(tmp_path: Path) -> None:
    stat(tmp_path, 100, 100, 0, 200)

    def rest(seconds: float) -> None:
        assert seconds == 0.5
        stat(tmp_path, 140, 110, 10, 240)  # 40 of 50 ticks of one core, 10 of 50 of the other

    found = load.measure_load(seconds=0.5, root=tmp_path, sleep=rest)
    assert found is not None
    assert found.cores == 2
    assert found.busy_cores == pytest.approx(1.0)


def test_what_this_process_runs_itself_is_taken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, own = iter((0.0, 0.5)), iter((2.0, 2.25))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(time, "process_time", lambda: next(own))
    stat(tmp_path, 100, 100, 0, 200)
    found = load.measure_load(root=tmp_path, sleep=lambda _: stat(tmp_path, 140, 110, 10, 240))
    assert found is not None
    assert found.busy_cores == pytest.approx(0.5)


def test_an_idle_machine_is_idle(tmp_path: Path) -> None:
    stat(tmp_path, 100, 100, 0, 200)
    found = load.measure_load(root=tmp_path, sleep=lambda _: stat(tmp_path, 100, 150, 0, 250))
    assert found is not None
    assert found.busy_cores == 0.0


@pytest.mark.parametrize("text", [None, "", "cpu0 1 2\n", "cpu0 a b c d e\n", "cpu7 1 2 3 4 5 6 7 8\n"])
def test_a_system_that_does_not_say_is_not_guessed_at(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/stat").write_text(text)
    assert load.measure_load(root=tmp_path, sleep=lambda _: None) is None
