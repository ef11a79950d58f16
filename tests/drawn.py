"""Parameters of which each run draws some: the run's seed chooses, the nightly run takes all."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

OF = 10


def drawn(count: int, values: Iterable[Any], *, of: str) -> list[Any]:
    """Return all values, those that this run's seed does not draw marked slow.

    For kinds that differ in what a test says little about, and cost a compilation each: every push draws ``count`` of
    them anew, and ``TRACEA_SEED`` replays the draw. ``of`` names the choice, so that each test draws for itself. The
    order is that of ``values``.
    """
    every = list(values)
    assert 0 < count < len(every), f"{of}: {count} of {len(every)} is no draw"
    chosen = _chosen(count, len(every), of)
    return [value if index in chosen else _nightly(value) for index, value in enumerate(every)]


def leave_to_nightly(kinds: Sequence[pytest.Item]) -> None:
    """Mark the items slow that this run's seed does not draw: it draws one of ``OF``."""
    chosen = _chosen(-(-len(kinds) // OF), len(kinds), kinds[0].nodeid.partition("[")[0])
    for index, item in enumerate(kinds):
        if index not in chosen:
            item.add_marker(pytest.mark.slow)


def _chosen(count: int, of_all: int, name: str) -> set[int]:
    rng = np.random.default_rng([int(os.environ["TRACEA_SEED"]), zlib.crc32(name.encode())])
    return set(rng.permutation(of_all)[:count].tolist())


def _nightly(value: Any) -> Any:
    if isinstance(value, type(pytest.param())):
        return pytest.param(*value.values, id=value.id, marks=(*value.marks, pytest.mark.slow))
    return pytest.param(value, marks=pytest.mark.slow)
