"""``tracea cache``: what is stored, where, whether it is sound, and how to be rid of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter, validators

from tracea.cli.console import counted, in_line, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracea.runtime.cache import CacheEntry

__all__ = ["app"]

_TRIALS: Final = "trials.sqlite"

app = App(
    name="cache",
    help="List, check, remove, export and import what is stored: compiled kernels and trials of earlier searches.\n\n"
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
    from tracea.runtime.cache import CacheStore

    if (key is None) != all:
        raise InvalidOption(
            field="key",
            got=key,
            expected="a key, or --all",
            remedy="tracea cache rm --all, or a key of tracea cache ls",
        )
    store = CacheStore(_root())
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
        store.discard(entry)
    total = sum(entry.bytes for entry in chosen)
    if json:
        print_json({"removed": [entry.key for entry in chosen], "bytes": total})
    else:
        _print_strays(chosen)
        print(f"{counted(len(chosen), 'entry', 'entries')} removed, {_size(total)}")
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
    from tracea.runtime.cache import CacheStore

    root = _root()
    entries = list(CacheStore(root).entries(check=check))
    trials, imported = _trials(root)
    total = sum(entry.bytes for entry in entries)
    if json:
        print_json(
            {
                "root": str(root),
                "bytes": total,
                "trials": trials,
                "imported": imported,
                "entries": [_as_dict(entry) for entry in entries],
            }
        )
    else:
        also = f", {imported} imported" if imported else ""
        print(
            f"{in_line(str(root))}: {counted(len(entries), 'entry', 'entries')}, {_size(total)}; "
            f"{counted(trials, 'trial')} of earlier searches{also}"
        )
        if entries:
            print_table(
                ("date", "size", "what", "key", *(("state",) if check else ())),
                [_row(entry, with_state=check) for entry in entries],
                numbers=(1,),
            )
    return 1 if check and any(entry.problem for entry in entries) else 0


@app.command(name="verify")
def verify_entries(*, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Check every byte of every entry, and every trial; the exit code is 1 where something is damaged.

    Example: tracea cache verify

    Parameters
    ----------
    json
        Print what is damaged as JSON.
    """
    from tracea.runtime.cache import CacheStore

    root = _root()
    entries = list(CacheStore(root).entries(check=True))
    damaged = [entry for entry in entries if entry.problem]
    trials, trouble = _checked_trials(root)
    if json:
        print_json(
            {
                "root": str(root),
                "entries": len(entries),
                "damaged": [_as_dict(entry) for entry in damaged],
                "trials": trials,
                "trials_problem": trouble,
            }
        )
    else:
        for entry in damaged:
            print(in_line(f"damaged: {entry.key}: {entry.problem}"))
        if trouble:
            print(in_line(f"damaged: {_TRIALS}: {trouble}"))
        sound = f"{len(entries) - len(damaged)} of {counted(len(entries), 'entry', 'entries')} sound"
        print(f"{in_line(str(root))}: {sound}; {counted(trials, 'trial')} can be read")
        if damaged:
            print("a damaged entry is built again when it is needed; tracea cache gc removes it now")
    return 1 if damaged or trouble else 0


@app.command(name="gc")
def collect(
    *,
    unused_days: Annotated[float | None, Parameter(validator=validators.Number(gte=0))] = None,
    limit_mib: Annotated[float | None, Parameter(validator=validators.Number(gte=0))] = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Remove damaged entries and what killed builders left; on request also what was long unused. Trials are kept.

    Example: tracea cache gc --unused-days 90 --limit-mib 500

    Parameters
    ----------
    unused_days
        Remove entries that no process has used for so many days.
    limit_mib
        Remove the longest unused entries until the rest has at most so many MiB.
    json
        Print what was removed as JSON.
    """
    import math

    from tracea.errors import InvalidOption
    from tracea.runtime.cache import CacheStore
    from tracea.runtime.garbage import collect_garbage

    for option, given, unit in (("--unused-days", unused_days, 86_400.0), ("--limit-mib", limit_mib, 2.0**20)):
        if given is not None and not math.isfinite(given * unit):
            raise InvalidOption(
                field=option, got=given, expected="a finite number", remedy=f"leave {option} out for no such limit"
            )
    found = collect_garbage(
        CacheStore(_root()),
        unused_seconds=None if unused_days is None else 86_400.0 * unused_days,
        limit_bytes=None if limit_mib is None else int(limit_mib * 2**20),
    )
    if json:
        removed = [entry.key for entry in found.entries]
        print_json({"removed": removed, "leftovers": found.leftovers, "bytes": found.bytes})
    else:
        _print_strays(found.entries)
        print(
            f"{counted(len(found.entries), 'entry', 'entries')} and {counted(found.leftovers, 'leftover')} removed, "
            f"{_size(found.bytes)}"
        )
    return 0


@app.command(name="export")
def export_records(file: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Write the trials that were measured here to a file, for `tracea cache import` on another machine.

    Example: tracea cache export trials.jsonl

    Parameters
    ----------
    file
        The file to write, outside the cache; a regular file that is there is replaced.
    json
        Print the count as JSON.
    """
    from tracea.optimizer.exchange import export_trials
    from tracea.optimizer.storage import TrialStore

    root = _root()
    _require_outside(file, root)
    path = root / _TRIALS
    count = 0
    if path.is_file():
        with TrialStore(path) as store:
            count = export_trials(store.find(), file)
    else:
        count = export_trials((), file)
    if json:
        print_json({"file": str(file), "trials": count})
    else:
        print(f"{counted(count, 'trial')} written to {in_line(str(file))}")
    return 0


@app.command(name="import")
def import_records(file: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Merge the trials of an exported file, or of another trial store, into this cache.

    They are advice: a search tries the best of them first, and nothing is decided by them until they are judged and
    timed here.

    Example: tracea cache import trials.jsonl

    Parameters
    ----------
    file
        What `tracea cache export` wrote, or the trials.sqlite of another cache.
    json
        Print the counts as JSON.
    """
    from tracea.optimizer.exchange import import_trials
    from tracea.optimizer.storage import TrialStore
    from tracea.runtime.cache import CacheStore

    store_ = CacheStore(_root())
    store_.prepare()
    with TrialStore(store_.root / _TRIALS) as store:
        found = import_trials(store, file)
    if json:
        print_json({"file": str(file), "added": found.added, "known": found.known})
    else:
        print(
            f"{counted(found.added, 'trial')} imported, {found.known} known before; "
            "a search measures the best of them again"
        )
    return 0


def _root() -> Path:
    """Return the cache's directory, which need not be there yet.

    Raises:
        InvalidOption: something else is there.
    """
    from tracea.errors import InvalidOption
    from tracea.runtime.cache import cache_root

    root = cache_root()
    if root.exists() and not root.is_dir():
        raise InvalidOption(
            field="TRACEA_CACHE_DIR",
            got=str(root),
            expected="a directory, or a path where nothing is yet",
            remedy="unset TRACEA_CACHE_DIR",
        )
    return root


def _require_outside(file: Path, root: Path) -> None:
    """Refuse to write into the cache, whose own files an export would replace.

    Raises:
        InvalidOption: the file is the cache's directory, or in it.
    """
    import os

    from tracea.errors import InvalidOption

    # realpath, and not Path.resolve, which raises on a loop of links; only the folder, since a link is not followed.
    folder = Path(os.path.realpath(file.parent))
    inside = Path(os.path.realpath(root))
    if inside == folder / file.name or folder.is_relative_to(inside):
        raise InvalidOption(
            field="file",
            got=str(file),
            expected=f"a file outside the cache directory {root}",
            remedy="export to another directory, for example ./trials.jsonl",
        )


def _trials(root: Path) -> tuple[int, int]:
    """Return how many trials were measured here, and how many were imported."""
    path = root / _TRIALS
    if not path.is_file():
        return 0, 0
    from tracea.optimizer.storage import TrialStore

    with TrialStore(path) as store:
        found = store.find(imported=None)
    imported = sum(trial.is_imported for trial in found)
    return len(found) - imported, imported


def _checked_trials(root: Path) -> tuple[int, str | None]:
    """Return how many trials can be read, and what is wrong with the others."""
    import os
    import warnings

    from tracea.errors import CacheCorrupt, CacheError
    from tracea.optimizer.storage import TrialStore

    path = root / _TRIALS
    if not path.is_file():
        return 0, "is no regular file; move it away" if os.path.lexists(path) else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CacheCorrupt)
        try:
            with TrialStore(path) as store:
                store.check()
                found = store.find(imported=None)
        except CacheError as error:
            return 0, error.detail
    problems = [each.message.detail for each in caught if isinstance(each.message, CacheCorrupt)]
    return len(found), "; ".join(problems) or None


def _print_strays(removed: Iterable[CacheEntry]) -> None:
    for entry in removed:
        if entry.is_stray:
            print(in_line(f"removed, though it was no entry: {entry.key}"))


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
