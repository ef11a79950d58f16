"""Export and import of trials: what one machine measured, as a file that another reads as advice.

The file is JSON lines: a header that says how many trials follow, then one line for each with its checksum. A file
that was cut, changed or written by a newer release is refused as a whole. A trial store is read as well, whatever
release wrote it. What is imported is judged and timed here before anything is decided by it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from tracea import __version__
from tracea.errors import CacheError, CacheUnwritable, InvalidOption
from tracea.optimizer.records import (
    StoredTrial,
    TrialRecord,
    decode_record,
    encode_record,
    require_credible,
    require_unique_names,
)
from tracea.optimizer.storage import TrialStore

__all__ = ["Imported", "export_trials", "import_trials", "read_trials"]

_VERSION: Final = 1
_DATABASE: Final = b"SQLite format 3\0"
_MAX_BYTES: Final = 1 << 30
_MAX_HEADER: Final = 4096


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["tracea-trials"]
    schema_version: int
    tracea: str
    trials: int


class _AnyHeader(msgspec.Struct, frozen=True):
    format: str


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    retimed_ms: float | None
    record: msgspec.Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import did: trials that are new here, those that were known, and why others were refused, one by one."""

    added: int
    known: int
    refused: tuple[str, ...] = ()


def export_trials(trials: Iterable[StoredTrial], path: str | os.PathLike[str]) -> int:
    """Write trials to one file, in one step, private to its owner; return how many.

    Raises: InvalidOption: what is there is no regular file, or would be replaced by no trials. CacheUnwritable.
    """
    lines = [_encoded(trial.record, trial.retimed_ms) for trial in trials]
    header = _Header(format="tracea-trials", schema_version=_VERSION, tracea=__version__, trials=len(lines))
    target = Path(path)
    _require_replaceable(target, by=len(lines))
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(b"".join(line + b"\n" for line in (msgspec.json.encode(header), *lines)))
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise CacheUnwritable(path=target, detail=str(error), remedy="export to a directory you can write") from error
    return len(lines)


def import_trials(
    store: TrialStore, path: str | os.PathLike[str], *, why_refused: Callable[[TrialRecord], str] | None = None
) -> Imported:
    """Merge the trials of an exported file, or of another trial store, into this one.

    ``why_refused`` says of a trial why it is not kept, "" of one that is. A file that is damaged is refused whole.

    Raises: InvalidOption: the file is neither, is damaged, or is of a newer release. CacheError: the store.
    """
    found = read_trials(path)
    reasons = [why_refused(record) if why_refused is not None else "" for record, _ in found]
    kept = [trial for trial, reason in zip(found, reasons, strict=True) if not reason]
    added = store.merge(kept)
    return Imported(added=added, known=len(kept) - added, refused=tuple(filter(None, reasons)))


def read_trials(path: str | os.PathLike[str]) -> list[tuple[TrialRecord, float | None]]:
    """Return the trials of a file, each with its latency of a comparison.

    Raises: InvalidOption: see :func:`import_trials`.
    """
    try:
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for, a device read without end
            raise _refused(path, "no regular file")
        if found.st_size > _MAX_BYTES:
            raise _refused(path, f"more than {_MAX_BYTES} bytes")
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from error
    return _of_store(path) if content.startswith(_DATABASE) else _of_lines(path, content)


def _require_replaceable(target: Path, *, by: int) -> None:
    """Refuse a target whose replacement would lose something: a device, a link, another's file, an export for none.

    Raises: InvalidOption. CacheUnwritable: it cannot be looked at.
    """
    try:
        found = os.lstat(target)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CacheUnwritable(path=target, detail=str(error), remedy="export to a directory you can write") from error
    if not stat.S_ISREG(found.st_mode):
        raise InvalidOption(
            field="file",
            got=str(target),
            expected="a new file, or a regular one that may be replaced; this is a directory, link, pipe or device",
            remedy="export to a name where nothing is yet",
        )
    if found.st_size and not _is_export(target):
        raise InvalidOption(
            field="file",
            got=f"{target}, {found.st_size} bytes that are no export of trials",
            expected="a name where nothing is yet, or an earlier export, which is replaced",
            remedy="export to another name; a trial store is what tracea cache import reads, and never replaced",
        )
    if not by:
        raise InvalidOption(
            field="file",
            got=str(target),
            expected=f"a name where nothing is yet: there are no trials to replace its {found.st_size} bytes by",
            remedy="export to another name; tracea cache ls shows which cache is read and how many trials it has",
        )


def _is_export(path: Path) -> bool:
    """Tell whether a file begins as an export does, of whatever release."""
    try:
        with path.open("rb") as file:
            first = file.readline(_MAX_HEADER)
        return msgspec.json.decode(first, type=_AnyHeader).format == "tracea-trials"
    except OSError as error:
        raise CacheUnwritable(path=path, detail=str(error), remedy="export to a directory you can write") from error
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def _of_lines(path: str | os.PathLike[str], content: bytes) -> list[tuple[TrialRecord, float | None]]:
    first, *rest = content.split(b"\n")
    try:
        header = msgspec.json.decode(first, type=_Header)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _refused(path, f"line 1: {error}") from error
    if header.schema_version != _VERSION:
        raise _refused(path, f"schema version {header.schema_version}, this release reads {_VERSION}")
    if len(rest) != header.trials + 1 or rest[-1]:
        raise _refused(path, f"{len(rest) - 1} lines after the header, which says {header.trials}")
    found: list[tuple[TrialRecord, float | None]] = []
    for number, text in enumerate(rest[:-1], start=2):
        try:
            line = msgspec.json.decode(text, type=_Line)
            if line.sha256 != _checksum(line.retimed_ms, bytes(line.record)):
                raise ValueError("does not match its checksum")
            require_unique_names(text)
            record = decode_record(bytes(line.record))
            require_credible(record, line.retimed_ms)
            found.append((record, line.retimed_ms))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise _refused(path, f"line {number}: {error}") from error
    return found


def _of_store(path: str | os.PathLike[str]) -> list[tuple[TrialRecord, float | None]]:
    """Read a copy, so that an older store is not migrated by having been read."""
    with tempfile.TemporaryDirectory(prefix="tracea-import-") as folder:
        copy = Path(folder, "trials.sqlite")
        for suffix in ("", "-wal"):
            if Path(f"{os.fspath(path)}{suffix}").is_file():
                shutil.copyfile(f"{os.fspath(path)}{suffix}", f"{copy}{suffix}")
        try:
            with closing(sqlite3.connect(copy)) as connection:
                (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version < 1:  # opening it would make the tables of a store in it, and find them empty
                raise _refused(path, "a database, but not of trials")
            with TrialStore(copy) as store:
                store.check()
                return [(trial.record, trial.retimed_ms) for trial in store.find(imported=None)]
        except CacheError as error:
            raise _refused(path, error.detail) from error
        except (sqlite3.DatabaseError, UnicodeError) as error:
            raise _refused(path, str(error)) from error


def _encoded(record: TrialRecord, retimed_ms: float | None) -> bytes:
    inside = encode_record(record).encode()
    return msgspec.json.encode(
        _Line(sha256=_checksum(retimed_ms, inside), retimed_ms=retimed_ms, record=msgspec.Raw(inside))
    )


def _checksum(retimed_ms: float | None, record: bytes) -> str:
    return hashlib.sha256(msgspec.json.encode(retimed_ms) + b"\n" + record).hexdigest()


def _refused(path: str | os.PathLike[str], detail: str) -> InvalidOption:
    return InvalidOption(
        field=f"trials file {os.fspath(path)}",
        got=detail,
        expected="a file of tracea cache export, or a trial store",
        remedy="export it again; nothing of it was imported",
    )
