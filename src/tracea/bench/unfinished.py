"""Unfinished: the rows of a suite's run so far, on disk after each, so that a run that was stopped can go on.

Rows are only put together that one run would have had: the same command, machine, versions and kernels. Ceilings and
surroundings stay those of the beginning; each measurement has its own date and load.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tracea.errors import InvalidOption
from tracea.flow.certificates import code_digest
from tracea.profiler.record import Record, Row, check_ratios, write, write_json

__all__ = ["Unfinished"]

_REMEDY = "measure from the beginning: run without resume"


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record that lacks rows, and a digest of the kernels that gave the others."""

    code: str
    record: Record


class Unfinished:
    """The record of a run that goes on, kept beside ``path``, where it goes when it is complete; None keeps nothing."""

    def __init__(self, path: Path | None, record: Record) -> None:
        self.path = path
        self.record = record

    @staticmethod
    def place(path: Path) -> Path:
        """Return where the rows of an unfinished run are kept."""
        return path.with_suffix(".unfinished.json")

    @classmethod
    def read(cls, path: Path, expected: Record) -> Unfinished | None:
        """Return the run that was stopped, None if there is none; ``expected`` is a run that begins now, without rows.

        Raises:
            InvalidOption: it is another command, machine or version, or what is kept is damaged or edited.
        """
        kept = cls.place(path)
        if not kept.is_file():
            return None
        try:
            part = msgspec.json.decode(kept.read_bytes(), type=_Part)
        except (msgspec.DecodeError, UnicodeDecodeError, InvalidOption) as error:
            raise InvalidOption(field=f"{kept}", got=str(error), expected="rows of this run", remedy=_REMEDY) from error
        found = part.record
        same = {
            "kernels": (part.code, code_digest()),
            "command": (found.command, expected.command),
            "surroundings": (found.environment.comparable_key, expected.environment.comparable_key),
        }
        for what, (then, now) in same.items():
            if then != now:
                raise InvalidOption(field=f"{kept}: {what}", got=now, expected=then, remedy=_REMEDY)
        check_ratios(kept, found)
        return cls(path, found)

    def add(self, row: Row) -> None:
        """Keep one more row."""
        self.record = msgspec.structs.replace(self.record, rows=(*self.record.rows, row))
        if self.path is None:
            return
        write_json(self.place(self.path), _Part(code=code_digest(), record=self.record))

    def finish(self) -> None:
        """Write the record to its own place."""
        if self.path is not None:
            write(self.path, self.record)

    def forget(self) -> None:
        """Remove the rows beside the record: nothing is left that could be resumed."""
        if self.path is not None:
            self.place(self.path).unlink(missing_ok=True)
