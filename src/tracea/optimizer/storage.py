"""TrialStore: every trial that was ever run, in one SQLite file that several processes share.

Write-ahead logging lets readers and a writer go on at once; each trial is one transaction, so a process that is killed
loses at most the trial under way. A record is JSON, decoded strictly against its type; one that does not decode is
skipped with one warning. The file's schema is versioned, and an older file is migrated when it is opened.
"""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import tempfile
import warnings
import weakref
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from tracea.errors import CacheCorrupt, CacheError, CacheUnwritable, InvalidOption
from tracea.optimizer.records import StoredTrial, StudyKey, TrialRecord, decode_record, encode_record, require_credible
from tracea.optimizer.schema import COLUMNS, LATER, MIGRATIONS, Row, digest_of
from tracea.optimizer.trial import OutcomeKind
from tracea.runtime.process_lock import ProcessLock

__all__ = ["MIGRATIONS", "StoredTrial", "StudyKey", "TrialRecord", "TrialStore"]

_BUSY_SECONDS: Final = 60.0
_FORK_SECONDS: Final = 1.0  # for a thread in SQLite, whose locks would stay taken in the child; a question takes 1 ms


class TrialStore:
    """The store; safe to share among threads, and to open from several processes at once.

    A file that can be read and not written is read as it is now: ``unwritable`` says why, and what would write raises.

    Raises: CacheCorrupt for a file that is no database, CacheUnwritable where there is none and none can be made,
    CacheError for a file of a newer version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = ProcessLock(fork_waits_s=_FORK_SECONDS)
        self._pid = os.getpid()
        self._inherited: list[sqlite3.Connection] = []
        self.unwritable: CacheUnwritable | None = None
        self._told: set[int] = set()  # hashes of rows that do not decode, of which was warned
        self._connection = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        with self._lock:
            self._connection.close()

    def add(self, record: TrialRecord) -> int:
        """Keep a record and return its id; it survives the end of this process from here on."""
        with self._transaction() as connection:
            return _insert(connection, record, None, imported=False)

    def merge(self, trials: Iterable[tuple[TrialRecord, float | None]]) -> int:
        """Keep trials from elsewhere, with their latency of a comparison, all or none; return how many were new.

        They count as imported: no search resumes from them and nothing is decided by them until they are measured here.
        """
        with self._transaction() as connection:
            known = {text for (text,) in connection.execute("SELECT record FROM trial")}
            added = 0
            for record, retimed_ms in trials:
                require_credible(record, retimed_ms)
                text = encode_record(record)
                if text not in known:
                    known.add(text)
                    _insert(connection, record, retimed_ms, imported=True)
                    added += 1
        return added

    def retime(
        self,
        trial_id: int,
        latency_ms: float | None,
        *,
        median_ms: float | None = None,
        comparison: Mapping[str, float] | None = None,
    ) -> None:
        """Note the latency by which a trial ranks in the latest interleaved comparison; None: it took no part.

        ``median_ms`` is what was measured, which may be below the rank's where the comparison could not tell it from
        one that is ahead; ``comparison`` is what it rests on.

        Raises: InvalidOption for an id that is not stored, and for times that are none or that its record contradicts.
        """
        if comparison is not None and not all(map(math.isfinite, comparison.values())):
            raise InvalidOption(field="comparison", got=comparison, expected="finite numbers", remedy="leave them out")
        with self._transaction() as connection:
            found: Row | None = connection.execute(f"SELECT {COLUMNS} FROM trial WHERE id = ?", (trial_id,)).fetchone()
            if found is not None:
                require_credible(decode_record(found[10]), latency_ms, median_ms)
                text = None if comparison is None else msgspec.json.encode(comparison, order="deterministic").decode()
                digest = digest_of((*found[1:8], latency_ms, *found[9:11]), median_ms, text)
                connection.execute(
                    "UPDATE trial SET retimed_ms = ?, median_ms = ?, comparison = ?, digest = ? WHERE id = ?",
                    (latency_ms, median_ms, text, digest, trial_id),
                )
        if found is None:
            raise InvalidOption(
                field="trial id", got=trial_id, expected="an id that add() returned", remedy="find() lists the ids"
            )

    def find(
        self,
        *,
        study: StudyKey | None = None,
        op_key: str | None = None,
        variant: str | None = None,
        constants: tuple[int, ...] | None = None,
        hardware: str | None = None,
        toolchain: str | None = None,
        kinds: Collection[OutcomeKind] | None = None,
        imported: bool | None = False,
    ) -> list[StoredTrial]:
        """Return the trials that match all given, oldest first; ``hardware`` and ``toolchain`` are fingerprints.

        ``imported``: those that were measured here (False), those that came from elsewhere (True), or both (None).
        Left out: what was ended from outside, as earlier releases kept it; it says nothing of its schedule.
        """
        wanted: dict[str, str | None] = {
            "op_key": op_key,
            "variant": variant,
            "constants": None if constants is None else _text(constants),
            "hardware": hardware,
            "toolchain": toolchain,
        }
        if study is not None:
            wanted = {
                "op_key": study.op_key,
                "variant": study.variant,
                "constants": _text(study.constants),
                "hardware": study.hardware_fingerprint,
                "toolchain": study.toolchain_fingerprint,
            }
        terms = {column: value for column, value in wanted.items() if value is not None}
        conditions = [f"{column} = ?" for column in terms]
        arguments: list[str] = list(terms.values())
        if kinds is not None:
            conditions.append(f"kind IN ({', '.join('?' * len(kinds))})")
            arguments += [kind.value for kind in kinds]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        with self._lock:
            rows = self._guarded(
                lambda: self._current().execute(f"SELECT {COLUMNS} FROM trial{where} ORDER BY id", arguments).fetchall()
            )
        # Not by SQL: a changed flag would pass over its row in silence, and its digest would never be looked at.
        found = (trial for trial in self._decoded(rows) if imported is None or trial.is_imported == imported)
        return [trial for trial in found if not trial.record.outcome.was_killed]

    def copy_to(self, path: Path) -> None:
        """Write all that is here to a new file, which a store can be opened on."""
        with self._lock, closing(sqlite3.connect(path)) as target:
            self._guarded(lambda: self._current().backup(target))

    def check(self) -> None:
        """Have SQLite verify the whole file, and that the table has its columns.

        Raises: CacheCorrupt.
        """
        with self._lock:
            (answer,) = self._guarded(lambda: self._current().execute("PRAGMA integrity_check(1)").fetchone())
        if answer != "ok":
            raise CacheCorrupt(path=self.path, detail=str(answer), remedy="move the file away; a new one is made")
        with self._lock:
            self._guarded(lambda: self._current().execute(f"SELECT {COLUMNS}, schedule FROM trial LIMIT 0"))

    def _decoded(self, rows: list[Row]) -> Iterator[StoredTrial]:
        bad: set[int] = set()
        for row in rows:
            trial_id, retimed_ms, imported, text, digest, median_ms, compared = row[0], *row[8:]
            try:
                if digest != digest_of(row[1 : -1 - LATER], median_ms, compared):
                    raise InvalidOption(field="trial", got=digest, expected="the digest of its row", remedy="")
                record = decode_record(text)
                require_credible(record, retimed_ms, median_ms)
                comparison = {} if compared is None else msgspec.json.decode(compared, type=dict[str, float])
            except (InvalidOption, msgspec.MsgspecError):
                bad.add(hash(row))
                continue
            yield StoredTrial(
                id=trial_id,
                record=record,
                retimed_ms=retimed_ms,
                median_ms=median_ms,
                is_imported=bool(imported),
                comparison=comparison,
            )
        if bad - self._told:
            self._told |= bad
            warnings.warn(
                CacheCorrupt(
                    path=self.path,
                    detail=f"{len(bad)} of {len(rows)} records do not decode; they are skipped",
                    remedy="nothing: what they said is measured again when it is needed",
                ),
                stacklevel=3,
            )

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise CacheUnwritable(path=self.path.parent, detail=str(error)) from error
        try:
            return self._guarded(self._connected)
        except CacheUnwritable as error:
            if not os.path.isfile(self.path):  # and not Path.is_file, which raises where the folder is another's
                raise
            try:
                connection = self._guarded(self._snapshot)
            except (CacheUnwritable, OSError):
                raise error from error.__cause__
            self.unwritable = error
            return connection

    def _snapshot(self) -> sqlite3.Connection:
        """Return a copy in memory of a file that cannot be written; there an older one is migrated."""
        memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, _close_at_home, memory, os.getpid())
        with tempfile.TemporaryDirectory(prefix="tracea-trials-") as folder, closing(self._reader(folder)) as source:
            source.backup(memory)
        memory.text_factory = _decoded_text
        memory.execute("PRAGMA trusted_schema = OFF")
        self._migrate(memory)
        return memory

    def _reader(self, folder: str) -> sqlite3.Connection:
        """Return a connection that reads the file, or a copy in ``folder`` where its log must be played back first."""
        place, log = self.path.absolute().as_uri(), self.path.with_name(f"{self.path.name}-wal")
        connection = sqlite3.connect(f"{place}?mode=ro", uri=True)
        try:
            connection.execute("PRAGMA schema_version").fetchone()  # only the first question opens the log
            return connection
        except sqlite3.OperationalError:
            connection.close()
        if not (log.is_file() and log.stat().st_size):  # nothing to play back: the file is all there is
            return sqlite3.connect(f"{place}?mode=ro&immutable=1", uri=True)
        copy = Path(folder, self.path.name)
        for path in (self.path, log):
            shutil.copyfile(path, copy.with_name(path.name))
        return sqlite3.connect(copy)

    def _connected(self) -> sqlite3.Connection:
        self._create_private_file()
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            # Two processes may create the file at once: the schema is made under the write lock, and only if still
            # missing.
            connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")
            connection.execute("PRAGMA synchronous = FULL")
            # A changed byte must not fail the whole query: it fails its own row's digest.
            connection.text_factory = _decoded_text
            connection.execute("PRAGMA trusted_schema = OFF")  # a file may come from elsewhere
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._migrate(connection)
                connection.execute("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise
            # Only after the schema exists: switching the journal of an empty file races with its creation.
            connection.execute("PRAGMA journal_mode = WAL")
        except BaseException:
            connection.close()
            raise
        weakref.finalize(self, _close_at_home, connection, os.getpid())  # a store that nobody closed; see close()
        return connection

    def _create_private_file(self) -> None:
        # SQLite would create it under the umask; its side files then take over the mode. An existing file is not even
        # opened here: closing any descriptor of it would drop the locks that this process holds on it through SQLite.
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            return
        except OSError as error:
            raise CacheUnwritable(path=self.path, detail=str(error)) from error

    def _migrate(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise CacheError(
                path=self.path,
                detail=f"schema version {version}, this release reads up to {len(MIGRATIONS)}",
                remedy="upgrade tracea, or set TRACEA_CACHE_DIR to another directory",
            )
        for step in MIGRATIONS[version:]:
            step(connection)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    def _current(self) -> sqlite3.Connection:
        # A connection must not cross a fork: SQLite's locks belong to the process that took them.
        if self._pid != os.getpid():
            connection = self._connected() if self.unwritable is None else self._snapshot()
            self._inherited.append(self._connection)  # nor be closed here: it is the parent's
            self._connection, self._pid = connection, os.getpid()
        return self._connection

    @contextmanager
    def at_once(self) -> Generator[None]:
        """Keep all that is added and retimed in the block, or nothing of it; no other process writes meanwhile."""
        with self._transaction():
            yield

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        if self.unwritable is not None:
            raise CacheUnwritable(path=self.path, detail=self.unwritable.detail)
        with self._lock:
            connection = self._guarded(self._current)
            if connection.in_transaction:  # of this thread, which has the lock: the outer one ends it
                yield connection
                return
            with self._typed():
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    _roll_back(connection)
                    raise

    def _guarded(self, action: Callable[[], Any]) -> Any:
        """Run a database action and turn SQLite's errors into ours."""
        with self._typed():
            return action()

    @contextmanager
    def _typed(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeError) as error:
            # Our statements are right: a table or column that is missing was there. SQLite's own message may hold what
            # it read, and fail to decode.
            is_damage = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
            if isinstance(error, sqlite3.OperationalError) and not is_damage:
                raise CacheUnwritable(path=self.path, detail=str(error)) from error
            raise CacheCorrupt(
                path=self.path, detail=str(error), remedy="move the file away; a new one is made"
            ) from error


def _roll_back(connection: sqlite3.Connection) -> None:
    # Where the disk is full or fails, SQLite has rolled back already, or cannot: what is not committed never counts.
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _close_at_home(connection: sqlite3.Connection, owner: int) -> None:
    if os.getpid() == owner:
        connection.close()


def _insert(connection: sqlite3.Connection, record: TrialRecord, retimed_ms: float | None, *, imported: bool) -> int:
    cells = (
        record.key.op_key,
        record.key.variant,
        _text(record.key.constants),
        record.key.hardware_fingerprint,
        record.key.toolchain_fingerprint,
        record.outcome.kind.value,
        record.outcome.latency_ms,
        retimed_ms,
        int(imported),
        encode_record(record),
    )
    schedule = msgspec.json.encode(record.schedule, order="deterministic").decode()
    cursor = connection.execute(
        "INSERT INTO trial (op_key, variant, constants, hardware, toolchain, kind, latency_ms, retimed_ms, imported,"
        f" record, digest, schedule) VALUES ({', '.join('?' * (len(cells) + 2))})",
        (*cells, digest_of(cells), schedule),
    )
    return int(cursor.lastrowid or 0)


def _decoded_text(text: bytes) -> str:
    return text.decode(errors="replace")


def _text(constants: tuple[int, ...]) -> str:
    return msgspec.json.encode(constants).decode()
