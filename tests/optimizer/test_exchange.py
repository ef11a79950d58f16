"""Trials travel between machines as files: whole or not at all, and as advice until they are measured again."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from pathlib import Path

import pytest
from tests.optimizer.test_storage import DATA, KEY, a_record

from tracea.errors import CacheUnwritable, InvalidOption
from tracea.optimizer import TrialStore
from tracea.optimizer.exchange import Imported, export_trials, import_trials, read_trials


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    path = tmp_path / "trials.jsonl"
    with TrialStore(tmp_path / "from.db") as store:
        store.retime(store.add(a_record(0)), 1.25)
        store.add(a_record(1))
        assert export_trials(store.find(), path) == 2
    return path


def test_what_is_exported_is_imported_once_and_marked(tmp_path: Path, exported: Path) -> None:
    assert stat.S_IMODE(exported.stat().st_mode) == 0o600
    with TrialStore(tmp_path / "to.db") as store:
        store.add(a_record(1))
        assert import_trials(store, exported) == Imported(added=1, known=1)
        assert import_trials(store, exported) == Imported(added=0, known=2)
        (advice,) = store.find(imported=True)
        assert (advice.record, advice.retimed_ms, advice.is_imported) == (a_record(0), 1.25, True)
        assert [trial.record for trial in store.find(study=KEY)] == [a_record(1)]  # a study resumes from its own only


def test_a_store_of_an_older_release_is_merged_and_not_touched(tmp_path: Path) -> None:
    before = (DATA / "trials-v1.sqlite").read_bytes()
    with TrialStore(tmp_path / "to.db") as store:
        assert import_trials(store, DATA / "trials-v1.sqlite") == Imported(added=2, known=0)
        assert import_trials(store, DATA / "trials-v2.sqlite").added == 3
        assert {trial.record.schema_version for trial in store.find(imported=True)} == {1, 2}
    assert (DATA / "trials-v1.sqlite").read_bytes() == before
    assert not list(DATA.glob("*-wal"))


def test_every_flipped_byte_of_an_exported_file_is_refused(tmp_path: Path, exported: Path) -> None:
    content = exported.read_bytes()
    path = tmp_path / "flipped"
    unnoticed = []
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            found = read_trials(path)
        except InvalidOption:
            continue
        assert found == read_trials(exported)
        unnoticed.append(place)
    # The header's own version of tracea says nothing about the trials: nothing else may change unnoticed.
    assert bytes(content[place] for place in unnoticed).decode() in json.loads(content.splitlines()[0])["tracea"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[:-1], "1 lines after the header, which says 2"),
        (lambda lines: [*lines, lines[-1]], "3 lines after the header"),
        (lambda lines: lines[1:], "line 1"),
        (lambda lines: [], "line 1"),
        (lambda lines: [lines[0].replace(b'"schema_version":1', b'"schema_version":9'), *lines[1:]], "version 9"),
        (lambda lines: [lines[0], lines[1].replace(b"1.25,", b"1.20,", 1), lines[2]], "line 2: does not match"),
        (lambda lines: [lines[0], b"[" * 100_000, lines[2]], "line 2"),
        (lambda lines: [b"SQLite format 3\0" + b"x" * 4096], "not a database"),
    ],
)
def test_a_file_that_was_changed_is_refused_whole(tmp_path: Path, exported: Path, change, said) -> None:
    lines = change(exported.read_bytes().splitlines())
    exported.write_bytes(b"".join(line + b"\n" for line in lines))
    with TrialStore(tmp_path / "to.db") as store:
        with pytest.raises(InvalidOption, match=said):
            import_trials(store, exported)
        assert store.find(imported=None) == []


def test_places_that_cannot_be_read_or_written_are_named(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(InvalidOption, match=str(place)):
            read_trials(place)
    with pytest.raises(CacheUnwritable, match="export to a directory"):
        export_trials((), tmp_path / "none" / "trials.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["pipe", "link", "dangling", "directory", "socket"])
def test_an_export_replaces_nothing_but_regular_files(kind: str, tmp_path: Path, exported: Path) -> None:
    target = tmp_path / "target"
    match kind:
        case "pipe":
            os.mkfifo(target)
        case "directory":
            target.mkdir()
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(target))
        case _:
            target.symlink_to(exported if kind == "link" else tmp_path / "nowhere")
    before, content = target.lstat(), exported.read_bytes()
    with TrialStore(tmp_path / "from.db") as store, pytest.raises(InvalidOption, match="a new file, or a regular one"):
        export_trials(store.find(), target)
    assert (target.lstat().st_ino, target.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert exported.read_bytes() == content
    assert not list(tmp_path.glob(".*"))


def test_an_export_of_no_trials_replaces_no_file(tmp_path: Path, exported: Path) -> None:
    before = exported.read_bytes()
    with pytest.raises(InvalidOption, match=f"there are no trials to replace its {len(before)} bytes by"):
        export_trials((), exported)
    assert exported.read_bytes() == before
    assert export_trials((), tmp_path / "new.jsonl") == 0
    with TrialStore(tmp_path / "from.db") as store:
        assert export_trials(store.find(), exported) == 2  # a file is replaced by trials


@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_what_is_no_regular_file_is_not_read(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "device":
            place.symlink_to("/dev/null")  # an endless one is the same to what looks at the kind
        case _:
            place.mkdir()
    # Whoever waits at the pipe is let go, and fails by what it then read.
    release = threading.Timer(5.0, lambda: os.close(os.open(place, os.O_WRONLY | os.O_NONBLOCK)))
    if kind == "pipe":
        release.start()
    try:
        with pytest.raises(InvalidOption, match="no regular file"):
            read_trials(place)
    finally:
        release.cancel()


@pytest.mark.parametrize("content", [b"SQLite format 3\0" + b"x" * 100, b"notes\n", b'{"format":"other"}\n', b"\0" * 9])
def test_an_export_replaces_no_file_but_an_export(tmp_path: Path, exported: Path, content: bytes) -> None:
    target = tmp_path / "mine"
    target.write_bytes(content)
    with TrialStore(tmp_path / "from.db") as store:
        with pytest.raises(InvalidOption, match=f"{len(content)} bytes that are no export of trials"):
            export_trials(store.find(), target)
        assert target.read_bytes() == content
        # The store of another cache, and the one that is read.
        for database in (tmp_path / "from.db", DATA / "trials-v1.sqlite"):
            before = database.read_bytes()
            with pytest.raises(InvalidOption, match="no export of trials"):
                export_trials(store.find(), database)
            assert database.read_bytes() == before
        target.write_bytes(b"")
        assert export_trials(store.find(), target) == 2  # an empty file loses nothing
        assert export_trials(store.find(), target) == 2
        newer = exported.read_bytes().replace(b'"schema_version":1', b'"schema_version":9', 1)
        target.write_bytes(newer)
        assert export_trials(store.find(), target) == 2
