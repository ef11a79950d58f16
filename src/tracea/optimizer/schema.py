"""Schema: the columns of the trial store's table, how each version came from the one before, and a row's digest."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

__all__ = ["COLUMNS", "LATER", "MIGRATIONS", "Row", "digest_of"]

Row: TypeAlias = tuple[
    int, str, str, str, str, str, str, float | None, float | None, int, str, str, float | None, str | None
]
COLUMNS: Final = (
    "id, op_key, variant, constants, hardware, toolchain, kind, latency_ms, retimed_ms, imported, record, digest,"
    " median_ms, comparison"
)
LATER: Final = 2  # columns at the end that the digests of older rows do not cover


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


def _add_digests(connection: sqlite3.Connection) -> None:
    # The database notices a damaged page, not a changed cell: from here on each row carries a digest of its cells.
    connection.execute("ALTER TABLE trial ADD COLUMN imported INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE trial ADD COLUMN digest TEXT NOT NULL DEFAULT ''")
    rows = connection.execute(f"SELECT {COLUMNS.removesuffix(', median_ms, comparison')} FROM trial").fetchall()
    connection.executemany("UPDATE trial SET digest = ? WHERE id = ?", [(digest_of(row[1:-1]), row[0]) for row in rows])


def _add_medians(connection: sqlite3.Connection) -> None:
    # Of comparisons before, only the latency that ranks is known; a row without a median keeps its digest.
    connection.execute("ALTER TABLE trial ADD COLUMN median_ms REAL")


def _add_comparisons(connection: sqlite3.Connection) -> None:
    # What a comparison rests on was kept of libraries only; a row without it keeps its digest.
    connection.execute("ALTER TABLE trial ADD COLUMN comparison TEXT")


# Step i brings a file from version i to i + 1. A released step is never edited: a change of the schema is a new one
# at the end.
MIGRATIONS: Final[tuple[Callable[[sqlite3.Connection], None], ...]] = (
    _create_tables,
    _add_constants,
    _add_digests,
    _add_medians,
    _add_comparisons,
)


def digest_of(cells: tuple[Any, ...], median_ms: float | None = None, comparison: str | None = None) -> str:
    """Return the digest of a row's cells; what older versions did not have does not change it where it is missing."""
    covered = cells if median_ms is None else (*cells, median_ms)
    covered = covered if comparison is None else (*covered, comparison)
    return hashlib.blake2b(msgspec.json.encode(covered), digest_size=16).hexdigest()
