"""A search from Python says that the machine is loaded, with the numbers, once for many ops."""

from __future__ import annotations

import logging

import pytest

from tracea.flow import load_note
from tracea.flow.phases import telling
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


def test_nothing_is_noted_where_the_machine_is_quiet_or_an_outer_call_tells(
    looks: list[Load], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with telling(lambda _: None):
        load_note.note_load()
    assert looks == []
    monkeypatch.setattr(load_note, "measure_load", lambda: Load(busy_cores=0.05, cores=2))
    load_note.note_load()
    assert caplog.records == []
