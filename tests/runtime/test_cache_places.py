"""Places that are not what a cache makes: one warning that says what happens, and the work goes on elsewhere."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from tracea.errors import CacheUnwritable
from tracea.runtime import cache
from tracea.runtime.cache import CacheStore, default_store

KEY = "key"


def build(place: Path) -> None:
    (place / "kernel.so").write_bytes(b"code")


@pytest.fixture
def root(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache, "_process", cache._Process())
    default_store().prepare()
    return empty_cache


def is_directory(lock: Path) -> None:
    lock.mkdir()


def is_loop(lock: Path) -> None:
    lock.symlink_to(lock)


def is_below_a_file(lock: Path) -> None:
    lock.parent.rmdir()
    lock.parent.write_text("")


@pytest.mark.parametrize("spoil", [is_directory, is_loop, is_below_a_file])
def test_a_lock_that_cannot_be_one_degrades_with_one_warning(root: Path, spoil) -> None:
    spoil(root / "v1" / "locks" / f"{KEY}.lock")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path = default_store().entry(KEY, build, {})
        assert default_store().entry("other", build, {}).parent == path.parent
    assert root not in path.parents
    assert [type(each.message) for each in caught] == [CacheUnwritable]
    assert "goes on in a temporary directory" in str(caught[0].message)


@pytest.mark.parametrize("part", ["", "v1", "v1/objects"])
def test_a_refusal_says_which_directory_others_could_write(root: Path, part: str) -> None:
    store = CacheStore(root)
    store.entry(KEY, build, {})
    assert store.refusal() is None
    (root / part).chmod(0o770)
    refusal = CacheStore(root).refusal()
    assert refusal is not None
    assert os.fspath(refusal.path) == str(root / part)
    assert "can be written by others (mode 0770)" in refusal.detail


def test_what_is_not_there_yet_is_not_refused(tmp_path: Path) -> None:
    assert CacheStore(tmp_path / "none").refusal() is None
