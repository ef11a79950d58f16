"""Record: one dated measurement as it is kept in ``benchmarks/results``, readable years later."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tracea.errors import InvalidOption
from tracea.profiler.environment import Environment
from tracea.profiler.measurement import Measurement, Ratio

__all__ = ["SCHEMA_VERSION", "Record", "Row", "check_ratios", "read", "write", "write_json"]

SCHEMA_VERSION: Final = 1
_DIGITS: Final = 1e-9  # what two ways of adding up the same numbers may differ by


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
        InvalidOption: not JSON, of another schema version, with a field that is missing, unknown or of another type, or
            with a ratio that its samples contradict.
    """
    data = path.read_bytes()
    try:
        version = msgspec.json.decode(data, type=_Versioned).schema_version
        if version != SCHEMA_VERSION:
            raise msgspec.ValidationError(f"schema version {version}")
        record = msgspec.json.decode(data, type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidOption) as error:
        raise InvalidOption(
            field=f"record {path}",
            got=str(error),
            expected=f"schema version {SCHEMA_VERSION}",
            remedy="measure again, or read it with the version of Tracea that wrote it",
        ) from error
    check_ratios(path, record)
    return record


def check_ratios(path: Path, record: Record) -> None:
    """Refuse a record of ``path`` that was edited.

    Raises:
        InvalidOption: a ratio is not what the samples beside it give.
    """
    for number, row in enumerate(record.rows):
        for peer, said, found in _contradictions(row):
            raise InvalidOption(
                field=f"record {path}: rows[{number}] ({row.problem}): {peer} / ours",
                got=f"{said} from {said.pairs} pairs in {said.processes} processes, where the samples give {found}",
                expected="the ratio that its samples give",
                remedy="the file was edited: measure the problem again by tracea bench",
            )


def _contradictions(row: Row) -> Iterator[tuple[str, Ratio, str]]:
    """Yield each ratio that the samples kept beside it cannot have given, by its peer, and what they do give.

    The samples are of the last process only. The ratio's interval covers the median of each process; of a single one
    the ratio is the median of its pairs. A ratio to a peer without samples is one that nothing here gives.
    """
    by_name = {each.name: each for each in row.measurements[1:]}
    for peer, said in row.ratios.items():
        theirs = by_name.get(peer)
        if theirs is None:
            yield peer, said, f"no pairs: there are none of {peer}"
            continue
        ours = row.measurements[0]
        if len(theirs.samples_us) != len(ours.samples_us):
            yield peer, said, f"no pairs: {len(ours.samples_us)} of ours, {len(theirs.samples_us)} of {peer}"
            continue
        found = Ratio.of(theirs, ours)
        inside = said.low - _DIGITS <= found.median <= said.high + _DIGITS
        counted = said.pairs >= max(said.processes, found.pairs)
        alone = said.processes > 1 or (said.pairs == found.pairs and abs(said.median - found.median) <= _DIGITS)
        if not (inside and counted and alone):
            yield peer, said, f"{found} from {found.pairs} pairs"


class _Versioned(msgspec.Struct):
    schema_version: int
