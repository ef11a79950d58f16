"""What is mended in a cache, and what must be left alone because somebody is at work on it."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

import pytest

from tracea.errors import CacheCorrupt
from tracea.runtime import garbage
from tracea.runtime.cache import CacheStore, content_key
from tracea.runtime.garbage import collect_garbage

KEY = content_key({"kind": "test"})


def build(place: Path) -> None:
    (place / "content").write_bytes(b"x" * 1000)


def test_a_damaged_entry_is_mended_though_its_warning_is_an_error(tmp_path: Path) -> None:
    (CacheStore(tmp_path / "cache").entry(KEY, build, {}) / "content").write_bytes(b"")
    store = CacheStore(tmp_path / "cache", fallback=lambda _: pytest.fail("the place is as good as before"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CacheCorrupt, match="expected 1000"):
            store.entry(KEY, build, {})
        path = store.entry(KEY, build, {})
    assert path.is_relative_to(tmp_path / "cache")
    assert (path / "content").read_bytes() == b"x" * 1000


def test_a_builder_that_was_stopped_for_hours_keeps_what_it_is_at(tmp_path: Path) -> None:
    store = CacheStore(tmp_path / "cache")

    def slow(place: Path) -> None:
        (place / "half").write_bytes(b"x")
        before = time.time() - 2 * garbage.ABANDONED_SECONDS
        os.utime(place, (before, before))
        found = collect_garbage(CacheStore(tmp_path / "cache"))
        assert (found.leftovers, found.recent) == (0, 1)
        (place / "other").write_bytes(b"y")

    path = store.entry(KEY, slow, {})
    assert sorted(each.name for each in path.iterdir()) == ["half", "manifest.json", "other"]


def test_without_locks_age_alone_tells_what_is_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CacheStore(tmp_path / "cache")
    store.prepare()
    (store.building / "held-0123456789abcdef").mkdir()
    os.utime(store.building / "held-0123456789abcdef", (0, 0))

    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("tracea.runtime.private_directory.fcntl.flock", unsupported)
    assert collect_garbage(store).leftovers == 1
