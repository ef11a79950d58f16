"""TRACEA_DUMP: a folder that keeps the text of every kernel that is compiled, to be read by people."""

from __future__ import annotations

import os
from pathlib import Path

from tracea.errors import InvalidOption

__all__ = ["dump"]


def dump(name: str, text: str) -> None:
    """Keep a text under a name where TRACEA_DUMP asks for it.

    Raises: InvalidOption: the folder cannot be made, or not be written.
    """
    folder = os.environ.get("TRACEA_DUMP")
    if not folder:
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidOption(
            field="TRACEA_DUMP",
            got=folder,
            expected="a folder that can be written",
            remedy=f"name another one, or unset TRACEA_DUMP ({error.strerror})",
        ) from error
