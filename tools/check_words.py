"""Refuse words that say nothing in names and docstrings: the vocabulary is in docs/vocabulary.md.

A file called `utils` holds whatever had no place, and `smart` claims what a measurement should show.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "tools", "examples")
REFUSED = frozenset({"universal", "peak-performance", "zero-config", "smart", "manager", "utils", "helpers"})
_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def words_of_name(name: str) -> set[str]:
    """Split an identifier at underscores and humps: ``poolManager_2`` is pool, manager and 2."""
    return {part.lower() for piece in name.split("_") for part in _HUMP.split(piece)}


def words_of_text(text: str) -> set[str]:
    """Return the words of a docstring, whole and in their hyphenated parts."""
    words = set(_WORD.findall(text.lower()))
    return words | {part for word in words for part in word.split("-")}


def findings(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the word of each refused word in the path's own names, definitions and docstrings."""
    for word in sorted(words_of_name(path.stem) & REFUSED):
        yield 1, word
    for node in ast.walk(ast.parse(source, filename=str(path))):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found = words_of_name(node.name) | words_of_text(ast.get_docstring(node) or "")
                line = node.lineno
            case ast.Module():
                found, line = words_of_text(ast.get_docstring(node) or ""), 1
            case ast.arg():
                found, line = words_of_name(node.arg), node.lineno
            case ast.Name(ctx=ast.Store()):
                found, line = words_of_name(node.id), node.lineno
            case _:
                continue
        for word in sorted(found & REFUSED):
            yield line, word


def main(root: Path = ROOT) -> int:
    """Print each refused word with its place; return 1 if there is any."""
    this_file = Path(__file__).resolve()
    count = 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            if path.resolve() == this_file:
                continue
            for line, word in findings(path, path.read_text(encoding="utf-8")):
                print(f"{path.relative_to(root)}:{line}: got {word!r}. Remedy: say what it does or holds")
                count += 1
    print(f"{count} refused words")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
