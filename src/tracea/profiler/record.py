"""Record: one dated measurement as it is kept in ``benchmarks/results``, readable years later."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from tracea.errors import InvalidOption
from tracea.profiler.environment import Environment
from tracea.profiler.measurement import Measurement, Ratio

__all__ = ["SCHEMA_VERSION", "Record", "Row", "read", "write", "write_json"]

SCHEMA_VERSION: Final = 1


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One problem of a benchmark: the times of all that ran it, and how they compare with the first, which is ours.

    Units: ``flops`` and ``nbytes`` are what the op means, not what an implementation does.
    """

    problem: str
    measurements: tuple[Measurement, ...]
    ratios: dict[str, Ratio]
    flops: int = 0
    nbytes: int = 0
    notes: dict[str, str] = {}


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A benchmark's rows with the command that made them and where and when it ran."""

    schema_version: int = SCHEMA_VERSION
    suite: str
    command: str
    environment: Environment
    ceilings: dict[str, float] = {}
    rows: tuple[Row, ...]


def write(path: Path, record: Record) -> None:
    """Write the record as indented JSON; a reader sees the old file or the new one, never a part."""
    write_json(path, record)


def write_json(path: Path, value: object) -> None:
    """Write any value as indented JSON, all of it or nothing."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text + b"\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read(path: Path) -> Record:
    """Read a record.

    Raises:
        InvalidOption: not JSON, of another schema version, or with a field that is missing, unknown or of another type.
    """
    data = path.read_bytes()
    try:
        version = msgspec.json.decode(data, type=_Versioned).schema_version
        if version != SCHEMA_VERSION:
            raise msgspec.ValidationError(f"schema version {version}")
        return msgspec.json.decode(data, type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidOption) as error:
        raise InvalidOption(
            field=f"record {path}",
            got=str(error),
            expected=f"schema version {SCHEMA_VERSION}",
            remedy="measure again, or read it with the version of Tracea that wrote it",
        ) from error


class _Versioned(msgspec.Struct):
    schema_version: int
