"""Replay: search a space that was measured exhaustively before, so that strategies are compared without a device.

A recorded space is JSON, gzipped where the name ends in ``.gz``: the parameters in order, the valid rows as
mixed-radix numbers (the last parameter counts fastest), and one latency a row, null for a failure.
"""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
import numpy as np

from tracea.errors import InvalidOption
from tracea.optimizer.samplers import Sampler
from tracea.optimizer.space import FloatArray, IndexArray, Row, SearchSpace, Value


class _Recording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    source: str
    parameters: dict[str, list[Value]]
    rows: list[int]
    latencies_ms: list[float | None]
    seeds: list[int] = []
    schema_version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSpace:
    """A space with the latency of every valid row.

    ``seeds`` are the rows that a search would have started from where it was recorded: a variant's default schedule.

    Shapes: ``latencies_ms`` is (N,) in the order of the space, NaN for a row that failed.
    Raises: InvalidOption where the two do not fit or nothing succeeded, InvalidSchedule for a seed that is not valid.
    """

    name: str
    source: str
    space: SearchSpace
    latencies_ms: FloatArray
    seeds: tuple[Row, ...] = ()

    def __post_init__(self) -> None:
        if self.latencies_ms.shape != (len(self.space),):
            raise InvalidOption(
                field="latencies_ms",
                got=self.latencies_ms.shape,
                expected=(len(self.space),),
                remedy="give one latency for each valid row",
            )
        known = self.latencies_ms[~np.isnan(self.latencies_ms)]
        if not len(known) or not np.all(np.isfinite(known) & (known > 0.0)):
            raise InvalidOption(
                field="latencies_ms",
                got=float(known.min()) if len(known) else "failures only",
                expected="positive finite latencies, NaN for failures",
                remedy="measure the space again",
            )
        for seed in self.seeds:
            self.space.index(seed)

    @property
    def best_ms(self) -> float:
        """Return the lowest latency in the space."""
        return float(np.nanmin(self.latencies_ms))

    def latency_ms(self, row: Sequence[int]) -> float | None:
        """Return what the row took, or None where it failed."""
        latency = float(self.latencies_ms[self.space.index(row)])
        return None if math.isnan(latency) else latency

    def history(self) -> list[tuple[Row, float | None]]:
        """Return every row with its latency: what a sampler on a related space may be given."""
        return [
            (row, None if math.isnan(latency) else latency)
            for row, latency in zip(self.space, self.latencies_ms.tolist(), strict=True)
        ]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a recorded space.

        Raises: InvalidOption for a file that does not decode, OSError for one that cannot be read.
        """
        try:
            content = Path(path).read_bytes()
            recording = msgspec.json.decode(
                gzip.decompress(content) if Path(path).suffix == ".gz" else content, type=_Recording
            )
            sizes = [len(values) for values in recording.parameters.values()]
            rows, seeds = (_unravelled(numbers, sizes) for numbers in (recording.rows, recording.seeds))
        except (msgspec.MsgspecError, gzip.BadGzipFile, EOFError, ValueError) as error:
            raise InvalidOption(
                field="recorded space", got=path, expected=str(error), remedy="record it again"
            ) from error
        latencies = [math.nan if latency is None else latency for latency in recording.latencies_ms]
        return cls(
            name=recording.name,
            source=recording.source,
            space=SearchSpace.enumerated(list(recording.parameters), list(recording.parameters.values()), rows),
            latencies_ms=np.array(latencies, dtype=np.float64),
            seeds=tuple(tuple(row) for row in seeds.tolist()),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the space, latencies to five significant digits; the same space gives the same bytes."""
        sizes = [len(parameter.values) for parameter in self.space.parameters]
        recording = _Recording(
            name=self.name,
            source=self.source,
            parameters={parameter.name: list(parameter.values) for parameter in self.space.parameters},
            rows=_ravelled(self.space.rows, sizes),
            seeds=_ravelled(np.array(self.seeds, dtype=np.int64).reshape(-1, len(sizes)), sizes),
            latencies_ms=[None if math.isnan(x) else float(f"{x:.5g}") for x in self.latencies_ms.tolist()],
        )
        content = msgspec.json.encode(recording)
        Path(path).write_bytes(gzip.compress(content, mtime=0) if Path(path).suffix == ".gz" else content)


def _ravelled(rows: IndexArray, sizes: Sequence[int]) -> list[int]:
    numbers = np.ravel_multi_index(tuple(rows.T), tuple(sizes))
    return np.asarray(numbers, dtype=np.int64).tolist()


def _unravelled(numbers: Sequence[int], sizes: Sequence[int]) -> IndexArray:
    return np.stack(np.unravel_index(np.array(numbers, dtype=np.int64), sizes), axis=1)


def replay(strategy: Sampler, recorded: RecordedSpace, trials: int) -> FloatArray:
    """Search the recorded space; return the fraction of its best reached after each trial, 0 before a success."""
    best = math.inf
    reached: list[float] = []
    for _ in range(min(trials, strategy.remaining)):
        row = strategy.ask()
        latency = recorded.latency_ms(row)
        strategy.tell(row, latency)
        best = min(best, latency if latency is not None else math.inf)
        reached.append(recorded.best_ms / best)
    return np.array(reached, dtype=np.float64)
