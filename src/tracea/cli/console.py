"""What verbs print: text, tables and JSON on standard output, without markup, so that no string is obeyed."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from tracea.errors import InvalidOption
from tracea.flow.progress import printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "PatientOutput",
    "called_as",
    "counted",
    "discard_output",
    "in_line",
    "prepare_streams",
    "print_error",
    "print_json",
    "print_notes",
    "print_table",
    "print_title",
    "printable",
]

# What an encoding without it gets instead; every other character is escaped.
_PLAIN: Final = {
    **{"─": "-", "–": "-", "−": "-", "│": "|", "·": "*", "×": "x", "…": "...", "²": "^2", "³": "^3"},
    **{"≤": "<=", "≥": ">=", "→": "->", "±": "+-", "µ": "u", "μ": "u", "ε": "eps", "§": "section "},
}
_DEGRADED: Final = "tracea.plain"
_WIDTH_OF_A_FILE: Final = 160  # columns; a log has no width, and a table must not be cut to 80


def called_as() -> str:
    """Return what runs this command here: ``tracea``, or its path where no other program finds it by that name."""
    path = Path(sys.argv[0])
    if path.parts[-2:] == ("tracea", "__main__.py"):
        return f"{Path(sys.executable).name} -m tracea"
    if path.name != "tracea":
        return "tracea"
    known = shutil.which("tracea")
    return "tracea" if known and path.exists() and path.samefile(known) else shlex.quote(str(path))


class PatientOutput:
    """Standard output whose reader, such as head, may leave: the rest goes nowhere, and a verb ends as it would."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write as the stream does."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            discard_output()
            return len(text)

    def flush(self) -> None:
        """Flush as the stream does."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            discard_output()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def prepare_streams() -> None:
    """Make the standard streams take any text: what their encoding lacks is spelled out, and a lost stderr is silent.

    Raises:
        InvalidOption: standard output is closed.
    """
    codecs.register_error(_DEGRADED, _spelled_out)
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]  # the caller closed it
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # until the process ends
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise InvalidOption(
            field="standard output",
            got="closed",
            expected="a terminal, a file or a pipe",
            remedy="end the command with > /dev/null where its output is not wanted",
        )
    for stream in (sys.stdout, sys.stderr):
        # Surrogates are the C locale's own way, which takes bytes that were read and no other character.
        if getattr(stream, "errors", None) in ("strict", "surrogateescape") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_DEGRADED)  # pyright: ignore


def _spelled_out(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    known = _PLAIN.get(error.object[error.start])
    if known is None:
        return codecs.backslashreplace_errors(_single(error))
    return known, error.start + 1


def _single(error: UnicodeEncodeError) -> UnicodeEncodeError:
    """Return the error of its first character alone: an encoder reports a run of characters that it lacks at once."""
    return UnicodeEncodeError(error.encoding, error.object, error.start, error.start + 1, error.reason)


def discard_output() -> None:
    """Let what standard output still holds go nowhere, so that the interpreter does not try it again when it ends."""
    with contextlib.suppress(OSError, ValueError):  # a stream that is no file has nothing to be redirected
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(text: str) -> None:
    """Print a line on standard error, where it can be printed at all."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


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


def in_line(text: str) -> str:
    """Return text as a part of one line: control characters and line ends are escaped."""
    return printable(text).replace("\n", "\\n")


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number and what is counted, as people say it: ``1 entry``, ``2 entries``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def _console() -> Console:
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(
        file=sys.stdout, markup=False, highlight=False, emoji=False, width=None if is_terminal else _WIDTH_OF_A_FILE
    )
