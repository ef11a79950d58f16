"""What verbs print: text, tables and JSON on standard output, without markup, so that no string is obeyed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tracea.flow.progress import printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["counted", "print_json", "print_notes", "print_table", "print_title", "printable"]

_WIDTH_OF_A_FILE: Final = 160  # columns; a log has no width, and a table must not be cut to 80


def print_json(value: Any) -> None:
    """Print a value as JSON text; a string is JSON text already."""
    print(value if isinstance(value, str) else json.dumps(value, indent=1, allow_nan=False, default=str))


def print_title(text: str) -> None:
    """Print a heading over what follows."""
    print(f"\n{text}\n{'─' * len(text)}")


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", numbers: Sequence[int] = ()
) -> None:
    """Print a table; ``numbers`` are the columns that align to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title) if title else None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(header):
        table.add_column(Text(name), justify="right" if index in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    _console().print(table)


def print_notes(notes: Iterable[str]) -> None:
    """Print what a reader wants to know beside the result on standard error, a line each."""
    for note in notes:
        print(f"note: {printable(note)}", file=sys.stderr)


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number and what is counted, as people say it: ``1 entry``, ``2 entries``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def _console() -> Console:
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(
        file=sys.stdout, markup=False, highlight=False, emoji=False, width=None if is_terminal else _WIDTH_OF_A_FILE
    )
