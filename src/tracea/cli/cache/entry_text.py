"""An entry of the cache as people read it: when, how large, what it is and of which op."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from tracea.cli.console import in_line

if TYPE_CHECKING:
    from tracea.runtime.cache import CacheEntry

__all__ = ["as_dict", "by_kind", "print_strays", "row", "size"]


_TEXT: Final = "source.cpp"
_HEAD_BYTES: Final = 16_384  # of a text; the line that names a kernel's op is among its first
# The line that the emitter writes before a kernel: // op | variant | target | schedule.
_NAMED: Final = re.compile(r"^// (?P<op>\w+) \| (?P<variant>[\w.]+) \| ", re.MULTILINE)
_BY: Final = " by "  # between an op and the variant that runs it
_KINDS: Final = {
    "certificate": "kernel's proofs",
    "ceilings": "measured ceilings",
    "compiler": "compiler's identity",
    "extension": "bridge to NumPy and PyTorch",
    "launcher": "launcher of threads",
    "prelude": "precompiled headers",
    "search": "finished search",
}


def print_strays(removed: Iterable[CacheEntry]) -> None:
    """Name what was removed though the cache did not write it."""
    for entry in removed:
        if entry.is_stray:
            print(in_line(f"removed, though it was no entry: {entry.key}"))


def as_dict(entry: CacheEntry) -> dict[str, Any]:
    """Return an entry as plain JSON values."""
    return {
        "key": entry.key,
        "path": str(entry.path),
        "bytes": entry.bytes,
        "date": _date(entry.created),
        "what": _what(entry.ingredients),
        "of": _of(entry),
        "problem": entry.problem,
    }


def row(entry: CacheEntry, *, with_state: bool) -> tuple[str, ...]:
    """Return an entry as the cells of a table."""
    of = _of(entry)
    cells = (_date(entry.created), size(entry.bytes), _kind(entry, of), of, entry.key[:16])
    return (*cells, entry.problem or "sound") if with_state else cells


def by_kind(entries: Iterable[CacheEntry]) -> str:
    """Return how many entries of each kind there are, and their bytes, the kind with most bytes first."""
    found: dict[str, list[int]] = {}
    for entry in entries:
        found.setdefault(_kind(entry, _of(entry)), []).append(entry.bytes)
    largest = sorted(found.items(), key=lambda item: (-sum(item[1]), item[0]))
    return ", ".join(f"{kind}: {len(bytes_)} of {size(sum(bytes_))}" for kind, bytes_ in largest)


def _kind(entry: CacheEntry, of: str) -> str:
    kind = _what(entry.ingredients)
    return "compiled kernel" if kind == "library" and _BY in of else _KINDS.get(kind, kind)


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().isoformat(" ", "seconds")


def _what(ingredients: Mapping[str, Any]) -> str:
    for name in ("what", "kind", "name"):
        if name in ingredients:
            return str(ingredients[name])
    return ", ".join(sorted(ingredients)) or "unreadable"


def _of(entry: CacheEntry) -> str:
    """Return the op and the variant that an entry belongs to, or else its name; empty where it has none."""
    ingredients = entry.ingredients
    if "op" in ingredients:
        variant = ingredients.get("variant")
        return str(ingredients["op"]) if variant is None else f"{ingredients['op']}{_BY}{variant}"
    kernels = [f"{found['op']}{_BY}{found['variant']}" for found in _NAMED.finditer(_head(entry.path / _TEXT))]
    if kernels:
        return kernels[0] if len(kernels) == 1 else f"{kernels[0]} and {len(kernels) - 1} more"
    command: Any = ingredients.get("command")
    if isinstance(command, list):
        return " ".join(map(str, cast("list[Any]", command)))
    name = str(ingredients.get("name", ""))
    return "" if name == _what(ingredients) else name


def _head(path: Path) -> str:
    try:
        if not path.is_file():  # a pipe would be waited for
            return ""
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES).decode("utf-8", errors="replace")
    except OSError:  # not every entry has a text
        return ""


def size(count: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    if count < 1024:
        return f"{count} B"
    return f"{count / 1024:.1f} KiB" if count < 1024**2 else f"{count / 1024**2:.1f} MiB"
