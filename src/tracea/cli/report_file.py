"""Reports that a verb writes beside what it prints: a path is tried before the work, and never costs the verdict."""

from __future__ import annotations

import os
from pathlib import Path

from tracea.cli.console import in_line, print_error
from tracea.errors import InvalidOption

__all__ = ["require_folder", "require_writable", "write_report"]


def require_writable(path: Path | None, *, option: str) -> None:
    """Try to open a file for writing, and leave everything as it was: what takes minutes is not begun for nothing.

    Raises:
        InvalidOption: it cannot be written, or is a directory.
    """
    if path is None:
        return
    try:
        existed = path.exists()
        if existed and not path.is_file() and not path.is_dir():  # a pipe's reader would see it opened and closed
            return
        path.open("ab").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise InvalidOption(
            field=option,
            got=f"{path}: {error.strerror}",
            expected="a file that can be written",
            remedy="name one in a directory that exists and is yours",
        ) from error


def require_folder(path: Path | None, *, option: str) -> None:
    """Refuse what is no folder and cannot become one, before the work; nothing is made.

    Raises:
        InvalidOption: it, or the nearest one above it that exists, is no folder that can be written to.
    """
    if path is None:
        return
    there = next((each for each in (path, *path.absolute().parents) if os.path.lexists(each)), Path("/"))
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        raise InvalidOption(
            field=option,
            got=f"{path}: {there} {'cannot be written to' if os.path.isdir(there) else 'is no folder'}",
            expected="a folder, or where one can be made",
            remedy="name a folder that is yours",
        )


def write_report(path: Path | None, text: str, *, option: str) -> bool:
    """Write a report after its verdict was printed; return False, and say why, where that fails all the same."""
    if path is None:
        return True
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        print_error(in_line(f"{option} {path} could not be written: {error.strerror}. Remedy: name a file elsewhere"))
        return False
    return True
