"""A search from Python says that the machine is loaded, with the numbers, once for many ops."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

import tracea
from tracea.core.op import Op
from tracea.flow import load_note, tuning
from tracea.flow.compile import decision_for
from tracea.flow.phases import telling
from tracea.flow.tuning import Tuned
from tracea.profiler.load import Load


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Load]:
    """What was seen: the first look finds others on the cores."""
    seen: list[Load] = []

    def look() -> Load:
        seen.append(Load(busy_cores=1.3, cores=2))
        return seen[-1]

    monkeypatch.setattr(load_note, "measure_load", look)
    monkeypatch.setattr(load_note, "_looked", [])
    return seen


def test_a_loaded_machine_is_noted_once_with_its_numbers(looks: list[Load], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="tracea"):
        load_note.note_load()
        load_note.note_load()
    assert len(looks) == 1
    (record,) = caplog.records
    assert "1.3 of the 2 cores" in record.getMessage()
    assert "Remedy: " in record.getMessage()


def test_nothing_is_noted_where_the_machine_is_quiet(
    looks: list[Load], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_note, "measure_load", lambda: Load(busy_cores=0.05, cores=2))
    load_note.note_load()
    assert caplog.records == []


def test_who_hears_of_the_steps_is_told_of_the_load_all_the_same(
    looks: list[Load], caplog: pytest.LogCaptureFixture
) -> None:
    with telling(lambda _: None):
        load_note.note_load()
    assert len(caplog.records) == 1


def test_a_call_of_many_searches_says_it_once_however_long_they_take(
    looks: list[Load], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_note, "_SECONDS_BETWEEN", 0.0)
    with load_note.load_noted_once(), load_note.load_noted_once():
        for _ in range(3):
            load_note.note_load()
    assert len(caplog.records) == 1


def test_a_load_is_said_as_the_caller_says_things(
    looks: list[Load], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_note, "_SECONDS_BETWEEN", 0.0)
    said: list[str] = []
    with load_note.load_noted_once(said.append):
        load_note.note_load()
        load_note.note_load()
    assert len(said) == 1
    assert "1.3 of the 2 cores" in said[0]
    assert caplog.records == []


def test_optimize_in_python_says_it_once_for_all_its_ops(
    looks: list[Load],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[Op] = []

    def found(search: Any, variants: object, *, library: bool) -> Tuned:  # in the place of a search, which takes long
        searched.append(search.op)
        search.note_load()  # as before the first trial
        decision = decision_for(
            search.op, search.target, threads=search.threads, constants=search.constants, library=library
        )
        return Tuned(op=search.op, trials={}, decision=decision, fresh=0, seconds=0.0)

    monkeypatch.setattr(load_note, "_SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(tuning, "_searched", found)
    module = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4)).eval()
    tracea.optimize(module, (torch.ones(2, 8),), budget=tracea.Budget(trials=1), threads=1, library=False)
    assert len(searched) == 2
    (record,) = (each for each in caplog.records if each.name == "tracea")
    assert "times will be too long, and a search may choose wrongly" in record.getMessage()
