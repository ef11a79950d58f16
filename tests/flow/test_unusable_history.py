"""Trials that can be read and not written, or not read at all: they are advice, and never keep an op from compiling."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
import warnings
from contextlib import closing
from pathlib import Path

import pytest
from tests.flow.test_history import OP, record

from tracea.cli import main as cli
from tracea.doctor.place import diagnose_place, probe_place
from tracea.errors import CacheCorrupt, CacheUnwritable
from tracea.flow import history
from tracea.flow.compile import compile_node
from tracea.flow.history import known_variants, recalled, store, tried, verified, winners
from tracea.optimizer.storage import MIGRATIONS, TrialStore
from tracea.runtime import cache

ASKS = {
    "verified": lambda: verified(OP, 1),
    "known": lambda: known_variants(OP, 1),
    "recalled": lambda: recalled(OP, 1),
    "tried": lambda: tried(OP, "gemm.packed", 1),
    "winners": lambda: winners(OP, "gemm.packed", 1),
}


@pytest.fixture(autouse=True)
def _fresh(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_process", cache._Process())
    monkeypatch.setattr(history, "_copies", {})
    empty_cache.mkdir(mode=0o700)


def closed() -> Path:
    path = store().path
    store().close()
    history._store_at.cache_clear()
    return path


def changed(statement: str) -> Path:
    path = closed()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statement)
    return path


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.parametrize(
    "damage", ["ALTER TABLE trial DROP COLUMN comparison", "ALTER TABLE trial RENAME TO trjal", "DROP TABLE trial"]
)
def test_a_store_whose_schema_is_damaged_is_moved_aside_with_one_warning(name: str, damage: str) -> None:
    record("gemm.packed", {"mr": 8}, 1.0)
    path = changed(damage)
    with pytest.raises(CacheCorrupt), TrialStore(path) as opened:
        opened.check()
    with pytest.warns(CacheCorrupt, match="no such") as caught:
        assert not ASKS[name]()
    assert len(caught) == 1
    assert len(list(path.parent.glob("*.damaged-*"))) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record("gemm.packed", {"mr": 6}, 2.0)
        assert set(known_variants(OP, 1)) == {"gemm.packed"}


@pytest.mark.parametrize("name", ASKS)
def test_a_store_of_a_newer_release_is_left_alone_and_ops_compile(name: str) -> None:
    record("gemm.packed", {"mr": 8}, 1.0)
    path = changed(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    before = path.read_bytes()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert not ASKS[name]()
        compile_node(OP, {}, threads=1)
        assert store().find() == []
    (said,) = caught
    assert re.search("this release reads up to .* temporary directory.*upgrade", str(said.message))
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*.damaged-*"))


@pytest.fixture(params=["closed", "log left", "older"])
def read_only(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """A cache with one trial, in a directory that this process may read and not write."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's own is closed to the user that root becomes below
    place.chmod(0o777)
    monkeypatch.setattr(cache.tempfile, "tempdir", str(place))
    root = place / "cache"
    monkeypatch.setenv("TRACEA_CACHE_DIR", str(root))
    (place / "cache").mkdir(mode=0o700)
    cache.default_store().entry("key", lambda folder: (folder / "a").write_bytes(b"a"), {})
    record("gemm.packed", {"mr": 8}, 1.0)
    for verb in ("verify", "ls"):  # modules that are loaded late may lie where only root reads them
        assert cli.main(["cache", verb]) == 0
    logs = {}
    if request.param == "log left":  # as a kill leaves it: the last trials are in the log only
        logs = {name: (root / name).read_bytes() for name in ("trials.sqlite", "trials.sqlite-wal")}
    if request.param == "older":
        changed("ALTER TABLE trial DROP COLUMN comparison; PRAGMA user_version = 4")
    closed()
    for name, content in logs.items():
        (root / name).write_bytes(content)
    cache._process.stores.clear()
    for path in (root, *root.rglob("*")):
        path.chmod(0o500 if path.is_dir() else 0o400)
        if os.geteuid() == 0:
            os.chown(path, 65534, 65534)
    privileged = os.geteuid() == 0  # permissions do not bind root
    if privileged:
        os.seteuid(65534)
    yield root
    if privileged:
        os.seteuid(0)
    history._store_at.cache_clear()
    for path in (root, *root.rglob("*")):
        path.chmod(0o700)
    shutil.rmtree(place)


def test_a_store_that_cannot_be_written_is_read_without_a_warning(
    read_only: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted((path.name, path.stat().st_size) for path in read_only.iterdir())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(known_variants(OP, 1)) == {"gemm.packed"}
        assert len(tried(OP, "gemm.packed", 1)) == 1
        assert cli.main(["cache", "verify"]) == 0
        assert cli.main(["cache", "ls"]) == 0
        assert "1 trial of earlier searches" in capsys.readouterr().out
        export = read_only.parent / "trials.jsonl"
        assert cli.main(["cache", "export", str(export)]) == 0
        assert "1 trial written" in capsys.readouterr().out
    with TrialStore(read_only / "trials.sqlite") as opened, pytest.raises(CacheUnwritable):
        opened.add(opened.find()[0].record)
    assert sorted((path.name, path.stat().st_size) for path in read_only.iterdir()) == before


def test_new_trials_beside_a_store_that_cannot_be_written_last_as_long_as_the_process(read_only: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record("gemm.packed", {"mr": 6}, 0.5)
        record("gemm.direct", {"mr": 4}, 0.7)
        assert {name: each.latency_us for name, each in known_variants(OP, 1).items()} == {
            "gemm.packed": 500.0,
            "gemm.direct": 700.0,
        }
        assert len(store().find()) == 3
    (said,) = caught
    assert said.category is CacheUnwritable
    assert "goes on in a temporary directory" in str(said.message)
    assert read_only not in store().path.parents


def test_the_doctor_says_what_is_read_and_what_is_not_kept(read_only: Path) -> None:
    (problem,) = diagnose_place(probe_place(lambda: read_only))
    assert "cannot be written" in problem.what
    assert "Sound kernels and trials that are there are used" in problem.what
    assert "compiled again in every process" not in problem.what
