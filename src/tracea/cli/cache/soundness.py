"""``tracea cache verify``: whether all that is stored is what was written."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tracea.cli.cache.entry_text import as_dict
from tracea.cli.cache.place import TRIALS, check_trials, directory
from tracea.cli.console import counted, in_line, print_json

__all__ = ["verify_entries"]


def verify_entries(*, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Check every byte of every entry, and every trial; the exit code is 1 where something is damaged or refused.

    Example: tracea cache verify

    Parameters
    ----------
    json
        Print what is damaged as JSON.
    """
    from tracea.runtime.cache import CacheStore

    root = directory()
    store = CacheStore(root)
    refusal = store.refusal()
    entries = list(store.entries(check=True))
    damaged = [entry for entry in entries if entry.problem]
    trials, trouble = check_trials(root)
    if json:
        print_json(
            {
                "root": str(root),
                "refused": None if refusal is None else refusal.detail,
                "entries": len(entries),
                "damaged": [as_dict(entry) for entry in damaged],
                "trials": trials,
                "trials_problem": trouble,
            }
        )
    else:
        if refusal is not None:
            print(in_line(f"Refused: {refusal.path} {refusal.detail}. Nothing here is used. Remedy: {refusal.remedy}"))
        for entry in damaged:
            print(in_line(f"damaged: {entry.key}: {entry.problem}"))
        if trouble:
            print(in_line(f"damaged: {TRIALS}: {trouble}"))
        sound = f"{len(entries) - len(damaged)} of {counted(len(entries), 'entry', 'entries')} sound"
        print(f"{in_line(str(root))}: {sound}; {counted(trials, 'trial')} can be read")
        if damaged:
            print("a damaged entry is built again when it is needed; tracea cache gc removes it now")
    return 1 if damaged or trouble or refusal else 0
