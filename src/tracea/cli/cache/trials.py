"""``tracea cache export`` and ``import``: trials on their way between machines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from tracea.cli.cache.place import TRIALS, directory, trials_file
from tracea.cli.console import counted, in_line, print_json

__all__ = ["export_records", "import_records"]

_SHOWN: Final = 10  # reasons of an import


def export_records(file: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Write the trials that were measured here to a file, for `tracea cache import` on another machine.

    Example: tracea cache export trials.jsonl

    Parameters
    ----------
    file
        The file to write, outside the cache; an earlier export that is there is replaced, nothing else.
    json
        Print the count as JSON.
    """
    from tracea.optimizer.exchange import export_trials
    from tracea.optimizer.storage import TrialStore

    root = directory()
    _require_outside(file, root)
    path = trials_file(root)
    count = 0
    if path is not None:
        with TrialStore(path) as store:
            count = export_trials(store.find(), file)
    else:
        count = export_trials((), file)
    if json:
        print_json({"file": str(file), "trials": count})
    else:
        print(f"{counted(count, 'trial')} written to {in_line(str(file))}")
    return 0


def import_records(file: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Merge the trials of an exported file, or of another trial store, into this cache.

    They are advice: a search tries the best of them first, and nothing is decided by them until they are judged and
    timed here. A trial that no search could use is refused with its reason, and the exit code is 1; the others are
    kept.

    Example: tracea cache import trials.jsonl

    Parameters
    ----------
    file
        What `tracea cache export` wrote, or the trials.sqlite of another cache.
    json
        Print the counts as JSON.
    """
    from tracea.flow.advice import why_refused
    from tracea.optimizer.exchange import import_trials
    from tracea.optimizer.storage import TrialStore
    from tracea.runtime.cache import CacheStore

    store_ = CacheStore(directory())
    store_.prepare()
    with TrialStore(store_.root / TRIALS) as store:
        found = import_trials(store, file, why_refused=why_refused)
    if json:
        print_json({"file": str(file), "added": found.added, "known": found.known, "refused": list(found.refused)})
    else:
        print(
            f"{counted(found.added, 'trial')} imported, {found.known} known before; "
            "a search measures the best of them again"
        )
        for reason, count in Counter(found.refused).most_common(_SHOWN):
            print(in_line(f"{counted(count, 'trial')} refused: {reason}"))
        if (left := len(set(found.refused)) - _SHOWN) > 0:
            print(f"and {counted(left, 'other reason')}: --json has them all")
    return 1 if found.refused else 0


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
