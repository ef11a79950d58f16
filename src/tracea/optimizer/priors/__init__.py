"""Hero configs: schedules that were the best of a recorded study, tried first where the same op is tuned again.

They are data, one JSON file a device beside this module, and each entry carries the record that it came from: the
machine, the toolchain, the measured latency, the runner-up's and when. An entry without a measurement cannot be
written. A file::

    {"schema_version": 2, "heroes": [
    {"op_key": "...", "variant": "...", "constants": [1], "schedule": {...}, "record": {...}}]}

``constants`` are those of the study's key; a file of version 1 has none, and what it says counts for no constants.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

import msgspec

from tracea.errors import InvalidOption
from tracea.optimizer.records import fastest
from tracea.optimizer.space import Row, SearchSpace, Value
from tracea.optimizer.storage import StoredTrial, StudyKey

SCHEMA_VERSION: Final = 2
_READABLE_VERSIONS: Final = (1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The measurement behind a hero config.

    Units: milliseconds; ``recorded_at`` seconds since 1970. ``trials`` is how many schedules it was the best of, and
    ``machine`` what a reader calls the hardware whose fingerprint is kept.
    """

    hardware: dict[str, Value]
    toolchain: dict[str, Value]
    latency_ms: float
    trials: int
    recorded_at: float
    machine: str = ""

    @property
    def where_and_when(self) -> str:
        """The machine and the day of the measurement, as a reader is told of it."""
        day = datetime.fromtimestamp(self.recorded_at, UTC).date().isoformat()
        return f"measured on {self.machine or 'a machine like this one'} on {day}, not here"

    def __post_init__(self) -> None:
        if not self.hardware or not self.toolchain or not self.latency_ms > 0.0 or self.trials < 1:
            raise InvalidOption(
                field="hero record",
                got={"hardware": self.hardware, "latency_ms": self.latency_ms, "trials": self.trials},
                expected="hardware and toolchain facts, a positive latency and at least 1 trial",
                remedy="make hero configs from stored studies: Hero.of_study",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hero:
    """One known-good schedule, with what proves it."""

    op_key: str
    variant: str
    schedule: dict[str, Value]
    record: Provenance
    constants: tuple[int, ...] = ()

    @classmethod
    def of_study(cls, trials: Sequence[StoredTrial], *, machine: str = "") -> Hero:
        """Take the best of a study's stored trials, of those in its final where there was one.

        ``machine`` names the one that they were measured on.

        Raises: InvalidOption where none succeeded or they are of several studies.
        """
        keys = {(trial.record.key.op_key, trial.record.key.variant, trial.record.key.constants) for trial in trials}
        found = fastest(trials)
        if found is None or len(keys) != 1:
            raise InvalidOption(
                field="study",
                got={"studies": len(keys), "successes": sum(trial.record.outcome.is_ok for trial in trials)},
                expected="1 study with a success",
                remedy="pass store.find(study=key)",
            )
        latency, best = found
        key: StudyKey = best.record.key
        return cls(
            op_key=key.op_key,
            variant=key.variant,
            constants=key.constants,
            schedule=best.record.schedule,
            record=Provenance(
                hardware=dict(key.hardware),
                toolchain=dict(key.toolchain),
                latency_ms=latency,
                trials=len(trials),
                recorded_at=best.record.recorded_at,
                machine=machine,
            ),
        )


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema_version: int
    heroes: list[Hero]


def load_heroes(directory: str | os.PathLike[str] | None = None) -> tuple[Hero, ...]:
    """Read all hero configs of a directory, the shipped ones by default, in the order of the files' names.

    Raises: InvalidOption for a file that does not decode or is of another schema version.
    """
    root: Traversable = Path(directory) if directory is not None else resources.files(__name__)
    heroes: list[Hero] = []
    for file in sorted(root.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".json"):
            heroes += read_heroes(file)
    return tuple(heroes)


def read_heroes(file: Traversable) -> list[Hero]:
    """Read the hero configs of one file.

    Raises: InvalidOption for a file that does not decode or is of another schema version.
    """
    try:
        version: Any = msgspec.json.decode(file.read_bytes(), type=dict[str, Any]).get("schema_version")
        if version not in _READABLE_VERSIONS:
            raise InvalidOption(
                field=f"schema_version of {file.name}",
                got=version,
                expected=_READABLE_VERSIONS,
                remedy="use the hero configs of this release",
            )
        return msgspec.json.decode(file.read_bytes(), type=_File).heroes
    except msgspec.MsgspecError as error:
        raise InvalidOption(
            field=f"hero configs {file.name}",
            got=str(error),
            expected=f"schema version {SCHEMA_VERSION}",
            remedy="write it with save_heroes",
        ) from error


def save_heroes(path: str | os.PathLike[str], heroes: Iterable[Hero]) -> None:
    """Write hero configs, one entry a line, sorted, so that a new one is a small diff."""
    ordered = sorted(
        heroes, key=lambda hero: (hero.op_key, hero.constants, hero.variant, str(sorted(hero.schedule.items())))
    )
    lines = ",\n".join(msgspec.json.encode(hero, order="deterministic").decode() for hero in ordered)
    Path(path).write_text(f'{{"schema_version": {SCHEMA_VERSION}, "heroes": [\n{lines}\n]}}\n', encoding="utf-8")


def seeds_for(
    space: SearchSpace,
    *,
    op_key: str,
    variant: str,
    heroes: Iterable[Hero],
    constants: tuple[int, ...] = (),
    limit: int = 3,
) -> tuple[Row, ...]:
    """Return the rows of this space to try first: the same study's heroes, the best of the most trials first."""
    fitting = sorted(
        (hero for hero in heroes if (hero.op_key, hero.variant, hero.constants) == (op_key, variant, constants)),
        key=lambda hero: (-hero.record.trials, hero.record.latency_ms),
    )
    rows = (space.encode(hero.schedule) for hero in fitting)
    return tuple(dict.fromkeys(row for row in rows if row is not None))[:limit]
