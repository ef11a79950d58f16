"""TrialStore: every trial that was ever run, in one SQLite file that several processes share.

Write-ahead logging lets readers and a writer go on at once; each trial is one committed transaction, so a process
that is killed loses at most the trial under way. A record is JSON, decoded strictly against its type; a record that
does not decode is skipped with one warning and never guessed at. The file's schema is versioned, and an older file is
migrated in place when it is opened.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import warnings
import weakref
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from tracea.errors import CacheCorrupt, CacheError, CacheUnwritable, InvalidOption
from tracea.optimizer.space import Value
from tracea.optimizer.trial import Outcome, OutcomeKind

_BUSY_SECONDS: Final = 60.0

Facts = Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyKey:
    """What a trial measured, and on what: trials of the same key may be compared, and resume each other.

    ``op_key`` names the op with its sizes and types, ``variant`` the algorithm family whose space was searched;
    ``constants`` are the operands that may be packed ahead, since with them other variants compete: records from before
    it existed have none. ``hardware`` and ``toolchain`` are the facts that a latency depends on.
    """

    op_key: str
    variant: str = ""
    constants: tuple[int, ...] = ()
    hardware: Facts = field(default_factory=dict[str, Value])
    toolchain: Facts = field(default_factory=dict[str, Value])

    def __post_init__(self) -> None:
        if not self.op_key:
            raise InvalidOption(
                field="op_key", got=self.op_key, expected="a non-empty string", remedy="pass the op's key"
            )
        if list(self.constants) != sorted({index for index in self.constants if index >= 0}):
            raise InvalidOption(
                field="constants",
                got=self.constants,
                expected="operand numbers from 0 on, rising",
                remedy="constants=tuple(sorted(set(constants)))",
            )

    @property
    def hardware_fingerprint(self) -> str:
        """Return a digest of the hardware facts, the same in every process."""
        return fingerprint(self.hardware)

    @property
    def toolchain_fingerprint(self) -> str:
        """Return a digest of the toolchain facts."""
        return fingerprint(self.toolchain)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """One finished trial as it is kept: whole, so that it can be exported, replayed and judged without its database.

    Units: ``seconds`` of evaluation; ``recorded_at`` seconds since 1970.
    """

    key: StudyKey
    schedule: dict[str, Value]
    outcome: Outcome
    seconds: float
    sampler: str
    seed: int
    recorded_at: float
    schema_version: int = 2  # 1 had no constants in its key


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """A record with its place in the store, and its latency in a later interleaved comparison if it took part."""

    id: int
    record: TrialRecord
    retimed_ms: float | None


def fingerprint(facts: Facts) -> str:
    """Return a digest of named facts that does not depend on their order."""
    return hashlib.blake2b(msgspec.json.encode(dict(facts), order="deterministic"), digest_size=16).hexdigest()


def _create_tables(connection: sqlite3.Connection) -> None:
    connection.execute(
        """
        CREATE TABLE trial (
            id INTEGER PRIMARY KEY,
            op_key TEXT NOT NULL,
            variant TEXT NOT NULL,
            hardware TEXT NOT NULL,
            toolchain TEXT NOT NULL,
            kind TEXT NOT NULL,
            latency_ms REAL,
            retimed_ms REAL,
            schedule TEXT NOT NULL,
            record TEXT NOT NULL
        ) STRICT
        """
    )
    connection.execute("CREATE INDEX trial_by_study ON trial (op_key, variant, hardware, toolchain)")
    connection.execute("CREATE INDEX trial_by_hardware ON trial (hardware, op_key)")


def _add_constants(connection: sqlite3.Connection) -> None:
    # What was recorded before counts as measured without constants, which holds for every variant but those that pack
    # ahead: these are never asked for without one.
    connection.execute("ALTER TABLE trial ADD COLUMN constants TEXT NOT NULL DEFAULT '[]'")


# Step i brings a file from version i to i + 1. A released step is never edited: a change of the schema is a new one
# at the end.
MIGRATIONS: Final[tuple[Callable[[sqlite3.Connection], None], ...]] = (_create_tables, _add_constants)


class TrialStore:
    """The store; safe to share among threads, and to open from several processes at once.

    Raises: CacheCorrupt for a file that is no database, CacheUnwritable where it cannot be written, CacheError for a
    file of a newer version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._inherited: list[sqlite3.Connection] = []
        self._connection = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        with self._lock:
            self._connection.close()

    def add(self, record: TrialRecord) -> int:
        """Keep a record and return its id; it survives the end of this process from here on."""
        with self._transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO trial"
                " (op_key, variant, constants, hardware, toolchain, kind, latency_ms, schedule, record)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    record.key.op_key,
                    record.key.variant,
                    _text(record.key.constants),
                    record.key.hardware_fingerprint,
                    record.key.toolchain_fingerprint,
                    record.outcome.kind.value,
                    record.outcome.latency_ms,
                    msgspec.json.encode(record.schedule, order="deterministic").decode(),
                    msgspec.json.encode(record).decode(),
                ),
            )
            return int(cursor.lastrowid or 0)

    def retime(self, trial_id: int, latency_ms: float | None) -> None:
        """Note a trial's latency in the latest interleaved comparison; None: it took no part.

        Raises: InvalidOption for an id that is not stored.
        """
        with self._transaction() as connection:
            changed = connection.execute(
                "UPDATE trial SET retimed_ms = ? WHERE id = ?", (latency_ms, trial_id)
            ).rowcount
        if changed != 1:
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
    ) -> list[StoredTrial]:
        """Return the trials that match all given, oldest first; ``hardware`` and ``toolchain`` are fingerprints."""
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
                lambda: (
                    self._current()
                    .execute(f"SELECT id, record, retimed_ms FROM trial{where} ORDER BY id", arguments)
                    .fetchall()
                )
            )
        return list(self._decoded(rows))

    def check(self) -> None:
        """Have SQLite verify the whole file.

        Raises: CacheCorrupt.
        """
        with self._lock:
            (answer,) = self._guarded(lambda: self._current().execute("PRAGMA integrity_check(1)").fetchone())
        if answer != "ok":
            raise CacheCorrupt(path=self.path, detail=str(answer), remedy="move the file away; a new one is made")

    def _decoded(self, rows: list[Any]) -> Iterator[StoredTrial]:
        bad = 0
        for trial_id, text, retimed_ms in rows:
            try:
                record = msgspec.json.decode(text, type=TrialRecord)
            except (msgspec.MsgspecError, UnicodeError, InvalidOption):
                bad += 1
                continue
            yield StoredTrial(id=int(trial_id), record=record, retimed_ms=retimed_ms)
        if bad:
            warnings.warn(
                CacheCorrupt(path=self.path, detail=f"{bad} of {len(rows)} records do not decode; they are skipped"),
                stacklevel=3,
            )

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise CacheUnwritable(path=self.path.parent, detail=str(error)) from error
        return self._guarded(self._connected)

    def _connected(self) -> sqlite3.Connection:
        self._create_private_file()
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            # Two processes may create the file at once: the schema is made under the write lock, and only if still
            # missing.
            connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._migrate(connection)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
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
            self._pid = os.getpid()
            self._inherited.append(self._connection)  # nor be closed here: it is the parent's
            self._connection = self._connected()
        return self._connection

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._lock:
            connection = self._guarded(self._current)
            self._guarded(lambda: connection.execute("BEGIN IMMEDIATE"))
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            self._guarded(lambda: connection.execute("COMMIT"))

    def _guarded(self, action: Callable[[], Any]) -> Any:
        """Run a database action and turn SQLite's errors into ours."""
        try:
            return action()
        except sqlite3.OperationalError as error:
            raise CacheUnwritable(path=self.path, detail=str(error)) from error
        except sqlite3.DatabaseError as error:
            raise CacheCorrupt(
                path=self.path, detail=str(error), remedy="move the file away; a new one is made"
            ) from error


def _close_at_home(connection: sqlite3.Connection, owner: int) -> None:
    if os.getpid() == owner:
        connection.close()


def _text(constants: tuple[int, ...]) -> str:
    return msgspec.json.encode(constants).decode()
