"""``tracea cache``: what is stored, where, whether it is sound, and how to be rid of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from tracea.cli.console import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracea.runtime.cache import CacheEntry

__all__ = ["app"]

app = App(
    name="cache",
    help="List or remove what is stored: compiled kernels and the trials of earlier searches.\n\n"
    "Example: tracea cache ls --check",
    help_format="plaintext",
    version_flags=(),
)


@app.command(name="rm")
def remove_entries(
    key: str | None = None,
    /,
    *,
    all: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Remove one entry by its key, or every entry; trials are kept, and what is needed again is built again.

    Example: tracea cache rm 3f6c2b9a

    Parameters
    ----------
    key
        The key that `tracea cache ls` shows, or the beginning of it that no other entry has.
    all
        Remove every entry.
    json
        Print what was removed as JSON.
    """
    from tracea.errors import InvalidOption
    from tracea.runtime.cache import CacheStore, cache_root

    if (key is None) != all:
        raise InvalidOption(
            field="key",
            got=key,
            expected="a key, or --all",
            remedy="tracea cache rm --all, or a key of tracea cache ls",
        )
    store = CacheStore(cache_root())
    found = list(store.entries())
    chosen = found if key is None else [entry for entry in found if entry.key.startswith(key)]
    if key is not None and len(chosen) != 1:
        raise InvalidOption(
            field="key",
            got=key,
            expected=f"the beginning of one of {len(found)} keys; {len(chosen)} begin so",
            remedy="tracea cache ls shows the keys",
        )
    for entry in chosen:
        store.remove(entry.key)
    total = sum(entry.bytes for entry in chosen)
    if json:
        print_json({"removed": [entry.key for entry in chosen], "bytes": total})
    else:
        print(f"{len(chosen)} entries removed, {_size(total)}")
    return 0


@app.command(name="ls")
def list_entries(
    *,
    check: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """List the entries of the cache, oldest first, and the trials that are kept.

    Example: tracea cache ls --check --json

    Parameters
    ----------
    check
        Read every byte and compare it with its checksum; the exit code is 1 where one differs.
    json
        Print the list as JSON.
    """
    from tracea.runtime.cache import CacheStore, cache_root

    root = cache_root()
    entries = list(CacheStore(root).entries(check=check))
    trials = _trials(root)
    total = sum(entry.bytes for entry in entries)
    if json:
        print_json(
            {"root": str(root), "bytes": total, "trials": trials, "entries": [_as_dict(entry) for entry in entries]}
        )
    else:
        print(f"{root}: {len(entries)} entries, {_size(total)}; {trials} trials of earlier searches")
        if entries:
            print_table(
                ("date", "size", "what", "key", *(("state",) if check else ())),
                [_row(entry, with_state=check) for entry in entries],
                numbers=(1,),
            )
    return 1 if check and any(entry.problem for entry in entries) else 0


def _trials(root: Any) -> int:
    path = root / "trials.sqlite"
    if not path.is_file():
        return 0
    from tracea.optimizer.storage import TrialStore

    with TrialStore(path) as store:
        return len(store.find())


def _as_dict(entry: CacheEntry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "path": str(entry.path),
        "bytes": entry.bytes,
        "date": _date(entry.created),
        "what": _what(entry.ingredients),
        "problem": entry.problem,
    }


def _row(entry: CacheEntry, *, with_state: bool) -> tuple[str, ...]:
    cells = (_date(entry.created), _size(entry.bytes), _what(entry.ingredients), entry.key[:16])
    return (*cells, entry.problem or "sound") if with_state else cells


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().isoformat(" ", "seconds")


def _what(ingredients: Mapping[str, Any]) -> str:
    for name in ("what", "kind", "name"):
        if name in ingredients:
            return str(ingredients[name])
    return ", ".join(sorted(ingredients)) or "unreadable"


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    return f"{count / 1024:.1f} KiB" if count < 1024**2 else f"{count / 1024**2:.1f} MiB"
