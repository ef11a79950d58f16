from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import tracea
from tracea.errors import CacheCorrupt, CacheError, CacheUnwritable, InvalidOption
from tracea.optimizer import Outcome, OutcomeKind, StudyKey, TrialRecord, TrialStore
from tracea.optimizer.records import encode_record, fingerprint
from tracea.optimizer.storage import MIGRATIONS

WRITER = Path(__file__).parent / "store_writer.py"
DATA = Path(__file__).parent / "data"
KEY = StudyKey(op_key="gemm", variant="packed", hardware={"core": "zen", "cores": 8}, toolchain={"gcc": "12.2"})


def a_record(index: int = 0, key: StudyKey = KEY, outcome: Outcome | None = None) -> TrialRecord:
    return TrialRecord(
        key=key,
        schedule={"tile": 16 << index, "pack": "a", "wide": True, "skew": None},
        outcome=outcome
        or Outcome(kind=OutcomeKind.OK, latency_ms=1.5, samples_ms=(1.5, 1.25), metrics={"gflops": 80.0}),
        seconds=0.25,
        sampler="gp",
        seed=3,
        recorded_at=1.75e9,
    )


def start_writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(tracea.__file__).parents[1])}
    command = [sys.executable, str(WRITER), str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "trials.db") as store:
        trial_id = store.add(a_record())
        (stored,) = store.find(study=KEY)
    assert (stored.id, stored.record, stored.retimed_ms) == (trial_id, a_record(), None)
    assert stored.record.schema_version == 2
    with TrialStore(tmp_path / "trials.db") as store:
        assert store.find() == [stored]


def test_trials_are_found_by_what_they_measured_and_where(tmp_path: Path) -> None:
    other_machine = StudyKey(op_key="gemm", variant="packed", hardware={"core": "sky"}, toolchain=KEY.toolchain)
    other_op = StudyKey(op_key="conv", variant="direct", hardware=KEY.hardware, toolchain=KEY.toolchain)
    wrong = Outcome(kind=OutcomeKind.WRONG, detail="max error 0.5")
    with TrialStore(tmp_path / "trials.db") as store:
        ids = [
            store.add(a_record(0)),
            store.add(a_record(1, outcome=wrong)),
            store.add(a_record(2, key=other_machine)),
            store.add(a_record(3, key=other_op)),
        ]

        def found(**query: object) -> list[int]:
            return [stored.id for stored in store.find(**query)]  # type: ignore[arg-type]

        assert found() == ids
        assert found(study=KEY) == ids[:2]
        assert found(study=KEY, kinds=[OutcomeKind.OK]) == ids[:1]
        assert found(kinds=[OutcomeKind.WRONG, OutcomeKind.CRASHED]) == ids[1:2]
        assert found(op_key="gemm") == ids[:3]
        assert found(hardware=KEY.hardware_fingerprint) == [ids[0], ids[1], ids[3]]
        assert found(op_key="gemm", hardware=other_machine.hardware_fingerprint) == ids[2:3]
        assert found(kinds=[]) == []
        assert found(op_key="' OR 1=1 --") == []


def test_a_fingerprint_depends_on_the_facts_and_not_on_their_order() -> None:
    assert fingerprint({"a": 1, "b": "x"}) == fingerprint({"b": "x", "a": 1})
    assert len({fingerprint(facts) for facts in ({"a": 1}, {"a": "1"}, {"a": True}, {"b": 1}, {})}) == 5


def test_a_retiming_is_kept_beside_the_measurement(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "trials.db") as store:
        trial_id = store.add(a_record())
        store.retime(trial_id, 1.25)
        (stored,) = store.find()
        assert (stored.retimed_ms, stored.median_ms, stored.record.outcome.latency_ms) == (1.25, None, 1.5)
        store.retime(trial_id, 1.25, median_ms=1.2)  # a tie that another won: ranked behind it
        (stored,) = store.find()
        assert (stored.retimed_ms, stored.median_ms, stored.comparison) == (1.25, 1.2, {})
        store.retime(trial_id, 1.25, median_ms=1.2, comparison={"rounds": 240.0, "is_unclear": 1.0})
        (stored,) = store.find()
        assert (stored.comparison, stored.is_unclear, stored.rank_ms) == (
            {"rounds": 240.0, "is_unclear": 1.0},
            True,
            1.25,
        )
        store.retime(trial_id, None)
        (stored,) = store.find()
        assert (stored.retimed_ms, stored.median_ms, stored.comparison) == (None, None, {})
        with pytest.raises(InvalidOption):
            store.retime(trial_id + 1, 1.0)


def test_a_killed_writer_loses_no_finished_trial(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    acknowledged = 0
    for round_number in range(6):
        writer = start_writer(path, f"round {round_number}", 100_000)
        assert writer.stdout is not None
        with writer.stdout:
            for _ in range(5 + 7 * round_number):
                acknowledged = max(acknowledged, int(writer.stdout.readline()))
            writer.kill()
            rest = writer.stdout.read().split()
        writer.wait()
        acknowledged = max([acknowledged, *(int(line) for line in rest[:-1])])
        with TrialStore(path) as store:
            store.check()
            ids = [stored.id for stored in store.find()]
        assert ids == list(range(1, len(ids) + 1))
        assert len(ids) >= acknowledged
    assert acknowledged >= 5 * 6


def test_several_processes_write_and_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "trials.db"  # they also race to create it
    writers = [start_writer(path, f"writer {index}", 60) for index in range(4)]
    outputs = [writer.communicate(timeout=120)[0].split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4
    ids = sorted(int(line) for output in outputs for line in output)
    assert ids == list(range(1, 4 * 60 + 1))
    with TrialStore(path) as store:
        store.check()
        for index in range(4):
            written = store.find(op_key="gemm", variant=f"writer {index}")
            assert [stored.record.schedule["index"] for stored in written] == list(range(60))


def test_threads_share_one_store(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "trials.db") as store:
        threads = [threading.Thread(target=lambda: [store.add(a_record()) for _ in range(20)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.find()) == 80


def test_a_reader_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "trials.db") as writer, TrialStore(tmp_path / "trials.db") as reader:
        writer.add(a_record(0))
        with writer._transaction() as connection:
            connection.execute("DELETE FROM trial")
            assert len(reader.find()) == 1
        assert reader.find() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_store_is_usable_after_a_fork(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "trials.db") as store:
        store.add(a_record(0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads
            pid = os.fork()
        if pid == 0:
            try:
                store.add(a_record(1))
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        store.add(a_record(2))
        assert [stored.record.schedule["tile"] for stored in store.find()] == [16, 32, 64]
        store.check()


def test_the_directory_and_the_file_are_private(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "new" / "trials.db"):
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "new" / "trials.db").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_file_that_is_no_database_is_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trials.db"
    path.write_bytes(content)
    with pytest.raises(CacheCorrupt) as caught:
        TrialStore(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content  # it may be someone's: reported, not replaced


def test_a_damaged_record_is_skipped_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with TrialStore(path) as store:
        good = store.add(a_record(0))
        for text in ('{"truncated', '{"schema_version": 1}', ""):
            store.add(a_record(1))
            connection = sqlite3.connect(path)
            connection.execute("UPDATE trial SET record = ? WHERE id = (SELECT max(id) FROM trial)", (text,))
            connection.commit()
            connection.close()
        with pytest.warns(CacheCorrupt, match="3 of 4 records"):
            assert [stored.id for stored in store.find()] == [good]
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # said once, whatever is asked next
            assert [stored.id for stored in store.find()] == [good]
            store.find(imported=None)
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE trial SET record = '' WHERE id = ?", (good,))
        connection.close()
        with pytest.warns(CacheCorrupt, match="4 of 4 records"):  # another one is another damage
            assert store.find() == []


def test_a_file_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with TrialStore(path) as store:
        store.add(a_record())
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.raises(CacheError, match="schema version"):
        TrialStore(path)


def test_an_older_file_is_migrated_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trials.db"
    with TrialStore(path) as store:
        store.add(a_record())

    def add_note(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE trial ADD COLUMN note TEXT")

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE trial ADD COLUMN half TEXT")
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr("tracea.optimizer.storage.MIGRATIONS", (*MIGRATIONS, add_note, fail))
    with pytest.raises(CacheUnwritable):
        TrialStore(path)
    monkeypatch.setattr("tracea.optimizer.storage.MIGRATIONS", (*MIGRATIONS, add_note))
    with TrialStore(path) as store:
        assert len(store.find()) == 1
    connection = sqlite3.connect(path)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(trial)")]
    connection.close()
    assert "note" in columns
    assert "half" not in columns  # the failed migration was rolled back whole


def test_records_from_before_constants_still_load_and_count_as_of_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trials.db"
    record = msgspec.to_builtins(a_record())
    del record["key"]["constants"]
    record["schema_version"] = 1
    monkeypatch.setattr("tracea.optimizer.storage.MIGRATIONS", MIGRATIONS[:1])
    TrialStore(path).close()
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(
            "INSERT INTO trial (op_key, variant, hardware, toolchain, kind, latency_ms, schedule, record)"
            " VALUES ('gemm', 'packed', ?, ?, 'ok', 1.0, '{}', ?)",
            (KEY.hardware_fingerprint, KEY.toolchain_fingerprint, msgspec.json.encode(record).decode()),
        )
    connection.close()
    monkeypatch.undo()
    with TrialStore(path) as store:
        (old,) = store.find(study=KEY)
        assert (old.record.key, old.record.schema_version) == (KEY, 1)
        constant = replace(KEY, constants=(1,))
        store.add(replace(a_record(), key=constant))
        assert len(store.find(study=KEY)) == len(store.find(study=constant)) == len(store.find(constants=(1,))) == 1
        assert len(store.find(op_key="gemm")) == 2


def test_a_store_that_nobody_closed_leaves_no_open_file(tmp_path: Path) -> None:
    store = TrialStore(tmp_path / "trials.db")
    connection = store._connection
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del store
        gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheUnwritable):
        TrialStore(tmp_path / "file" / "trials.db")
    (tmp_path / "directory.db").mkdir()
    with pytest.raises(CacheUnwritable):
        TrialStore(tmp_path / "directory.db")


def test_a_key_needs_an_op() -> None:
    with pytest.raises(InvalidOption):
        StudyKey(op_key="")


@pytest.mark.parametrize("constants", [(2, 1), (1, 1), (-1,)])
def test_a_key_has_its_constants_in_order(constants: tuple[int, ...]) -> None:
    with pytest.raises(InvalidOption, match="rising"):
        StudyKey(op_key="gemm", constants=constants)


@pytest.mark.parametrize(("version", "count"), [(1, 2), (2, 3)])
def test_a_store_that_an_older_release_wrote_loads_whole(tmp_path: Path, version: int, count: int) -> None:
    path = tmp_path / "trials.db"
    shutil.copyfile(DATA / f"trials-v{version}.sqlite", path)
    for _ in range(2):  # migrated once, then as it is
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with TrialStore(path) as store:
                found = store.find(imported=None)
                plain = store.find(study=KEY)
        assert len(found) == count
        assert [trial.record.schema_version for trial in found] == [version] * count
        assert [(trial.record.outcome.kind, trial.retimed_ms) for trial in plain] == [("ok", 1.25), ("wrong", None)]
        assert plain[0].record.outcome.latency_ms == 1.5
        assert not any(trial.is_imported for trial in found)


def test_no_flipped_byte_of_a_store_changes_what_a_record_says(tmp_path: Path) -> None:
    """Found, or skipped with a warning, or refused; never another latency, schedule or identity."""
    original = tmp_path / "original.db"
    with TrialStore(original) as store:
        for index in range(3):
            store.add(a_record(index))
        whole = store.find()
    content = original.read_bytes()
    path = tmp_path / "trials.db"
    text = encode_record(a_record(1)).encode()
    first = content.index(text)
    of_the_record = range(first, first + len(text), 3)
    for place in (*range(100), *of_the_record, *range(200, len(content), 97)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        for side_file in ("-wal", "-shm"):
            path.with_name(path.name + side_file).unlink(missing_ok=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with TrialStore(path) as store:
                    found = store.find()
            except CacheError:
                continue
        assert all(trial in whole for trial in found), place
        assert len(found) == len(whole) or caught, place
        assert place not in of_the_record or caught, place


def test_every_cell_of_a_row_is_covered_by_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with TrialStore(path) as store:
        store.add(a_record(0))
        changes = {
            "op_key": "'conv'",
            "variant": "'direct'",
            "constants": "'[1]'",
            "hardware": "'x'",
            "toolchain": "'x'",
            "kind": "'wrong'",
            "latency_ms": "0.5",
            "retimed_ms": "0.5",
            "median_ms": "0.5",
            "comparison": "'{}'",
            "imported": "1",
            "record": "replace(record, '0.25', '0.26')",
            "digest": "''",
        }
        for column, value in changes.items():
            connection = sqlite3.connect(path)
            with connection:
                kept = connection.execute(f"SELECT {column} FROM trial").fetchone()
                connection.execute(f"UPDATE trial SET {column} = {value}")
            with pytest.warns(CacheCorrupt, match="1 of 1 records"):
                assert store.find(imported=None) == []
            with connection:
                connection.execute(f"UPDATE trial SET {column} = ?", kept)
            connection.close()
        assert len(store.find()) == 1
