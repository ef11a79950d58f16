"""``tracea cache ls``, ``rm`` and ``gc``: what is stored, and how to be rid of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter, validators

from tracea.cli.cache.entry_text import as_dict, by_kind, print_strays, row, size
from tracea.cli.cache.place import count_trials, directory, ops_tried
from tracea.cli.console import counted, in_line, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracea.runtime.cache import CacheEntry

__all__ = ["collect", "list_entries", "remove_entries"]

_SHOWN: Final = 20  # entries, and ops, that a screen holds; --all shows the others


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
            got="both" if all else "nothing",
            expected="a key, or --all",
            remedy="tracea cache rm --all, or a key of tracea cache ls",
        )
    store = CacheStore(directory())
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
        print_strays(chosen)
        print(f"{counted(len(chosen), 'entry', 'entries')} removed, {size(total)}")
    return 0


def list_entries(
    *,
    all: Annotated[bool, Parameter(negative=())] = False,
    check: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Sum the cache up by kind, and list its newest entries, the newest last, and the ops searched last.

    A directory that others could write is refused, which is said: nothing in it is used, and the exit code is 1.

    Example: tracea cache ls --check --json

    Parameters
    ----------
    all
        List every entry, and every op that earlier searches have trials of.
    check
        Read every byte and compare it with its checksum; what differs is listed in any case, and the exit code is 1.
    json
        Print the list as JSON, which has every entry.
    """
    from tracea.runtime.cache import CacheStore

    root = directory()
    store = CacheStore(root)
    refusal = store.refusal()
    entries = list(store.entries(check=check))
    trials, imported = count_trials(root)
    total = sum(entry.bytes for entry in entries)
    if json:
        print_json(
            {
                "root": str(root),
                "refused": None if refusal is None else refusal.detail,
                "bytes": total,
                "trials": trials,
                "imported": imported,
                "entries": [as_dict(entry) for entry in entries],
            }
        )
    else:
        also = f", {imported} imported" if imported else ""
        print(
            f"{in_line(str(root))}: {counted(len(entries), 'entry', 'entries')}, {size(total)}; "
            f"{counted(trials, 'trial')} of earlier searches{also}"
        )
        if refusal is not None:
            print(in_line(f"Refused: {refusal.path} {refusal.detail}. Nothing here is used. Remedy: {refusal.remedy}"))
        if entries:
            print(in_line(by_kind(entries)))
            _print_entries(entries, len(entries) if all else _SHOWN, with_state=check)
        if tried := ops_tried(root):
            shown = tried if all else tried[-_SHOWN:]
            print_table(
                ("op that was searched", "where", "trials", "verified", "fastest", "by"),
                [
                    (each.op_key, each.where, str(each.trials), str(each.verified), each.fastest, each.variant)
                    for each in shown
                ],
                numbers=(2, 3, 4),
            )
            if len(shown) < len(tried):
                print(f"the last {len(shown)} of {len(tried)} ops that were searched; --all lists all")
            print("a library that a final timed beside the searched schedules counts as one trial more")
    return 1 if refusal is not None or (check and any(entry.problem for entry in entries)) else 0


def _print_entries(entries: Sequence[CacheEntry], most: int, *, with_state: bool) -> None:
    """Print the newest entries, and those with a problem whatever their age."""
    newest = entries[-most:]
    shown = [entry for entry in entries[:-most] if entry.problem] + list(newest)
    print_table(
        ("date", "size", "what", "of", "key", *(("state",) if with_state else ())),
        [row(entry, with_state=with_state) for entry in shown],
        numbers=(1,),
    )
    if len(shown) < len(entries):
        damaged = len(shown) - len(newest)
        also = f", and {damaged} older with a problem" if damaged else ""
        print(f"the newest {len(newest)} of {len(entries)} entries{also}; --all lists all")


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
        CacheStore(directory()),
        unused_seconds=None if unused_days is None else 86_400.0 * unused_days,
        limit_bytes=None if limit_mib is None else int(limit_mib * 2**20),
    )
    if json:
        removed = [entry.key for entry in found.entries]
        print_json({"removed": removed, "leftovers": found.leftovers, "recent": found.recent, "bytes": found.bytes})
    else:
        print_strays(found.entries)
        print(
            f"{counted(len(found.entries), 'entry', 'entries')} and {counted(found.leftovers, 'leftover')} removed, "
            f"{size(found.bytes)}{f'; {found.recent} of the last hour kept, which may be at work' * bool(found.recent)}"
        )
    return 0
