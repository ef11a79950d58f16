"""Write the schedules that won their final here as hero configs: shipped data, each with the record it came from.

python tools/export_heroes.py <trials.sqlite> <device>  ->  src/tracea/optimizer/priors/<device>.json
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from tracea.doctor import probe_machine
from tracea.optimizer.priors import Hero, save_heroes
from tracea.optimizer.storage import StoredTrial, StudyKey, TrialStore

PRIORS = Path(__file__).resolve().parent.parent / "src" / "tracea" / "optimizer" / "priors"


def heroes_of(store: TrialStore, machine: str) -> list[Hero]:
    """Return the best schedule of every study of which one took part in a final comparison on ``machine``."""
    studies: defaultdict[tuple[object, ...], list[StoredTrial]] = defaultdict(list)
    for trial in store.find():
        studies[_identity(trial.record.key)].append(trial)
    finals = [found for found in studies.values() if any(trial.retimed_ms is not None for trial in found)]
    return [Hero.of_study(found, machine=machine) for found in finals]


def _identity(key: StudyKey) -> tuple[object, ...]:
    return key.op_key, key.variant, key.constants, key.hardware_fingerprint, key.toolchain_fingerprint


def main() -> int:
    """Export; the exit code is 2 for another number of arguments."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    hardware = probe_machine().hardware
    name = f"a machine with {hardware.cores_present} cores of {hardware.processor.model} ({hardware.core})"
    with TrialStore(sys.argv[1]) as store:
        heroes = heroes_of(store, name)
    path = PRIORS / f"{sys.argv[2]}.json"
    save_heroes(path, heroes)
    print(f"{len(heroes)} hero configs in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
