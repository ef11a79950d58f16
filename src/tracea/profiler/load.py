"""Load: how much of the cores that this process may use goes to others just now. A time taken then is no machine's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tracea.profiler.machine import cores_allowed

__all__ = ["Load", "LoadMeter", "measure_load"]

_SECONDS: Final = 0.3
_ROOT: Final = Path("/")
_IDLE: Final = (3, 4)  # idle, iowait: kernel documentation, proc.rst, "/proc/stat"
_COUNTED: Final = 8  # user nice system idle iowait irq softirq steal; guest time is part of user time


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What others took of this process's cores, its own threads not counted. Units: cores' worth of time."""

    busy_cores: float
    cores: int


class LoadMeter:
    """Counts from its making on what others take of this process's cores, at the cost of reading one file twice."""

    def __init__(self, root: Path = _ROOT) -> None:
        self._root = root
        self._cores = cores_allowed()
        self._ticks = _ticks(root, self._cores)
        self._own, self._start = time.process_time(), time.perf_counter()

    def read(self) -> Load | None:
        """Return the load since then; None where the system does not say, or too little time has passed."""
        after, own = _ticks(self._root, self._cores), time.process_time() - self._own
        elapsed = time.perf_counter() - self._start
        if self._ticks is None or after is None or after[1] <= self._ticks[1] or elapsed <= 0.0:
            return None
        share = (after[0] - self._ticks[0]) / (after[1] - self._ticks[1])
        return Load(busy_cores=max(0.0, share * len(self._cores) - own / elapsed), cores=len(self._cores))


def measure_load(
    *, seconds: float = _SECONDS, root: Path = _ROOT, sleep: Callable[[float], object] = time.sleep
) -> Load | None:
    """Watch for ``seconds`` in which this process rests; None where the system does not say."""
    meter = LoadMeter(root)
    sleep(seconds)
    return meter.read()


def _ticks(root: Path, cores: Iterable[int]) -> tuple[int, int] | None:
    """Return the ticks that these cores were busy, and all ticks, since the system began."""
    names = {f"cpu{core}" for core in cores}
    try:
        lines = [line.split() for line in (root / "proc/stat").read_text(encoding="utf-8").splitlines()]
        rows = [[int(word) for word in line[1 : 1 + _COUNTED]] for line in lines if line and line[0] in names]
    except (OSError, ValueError):
        return None
    if not rows or any(len(row) < max(_IDLE) + 1 for row in rows):
        return None
    total = sum(map(sum, rows))
    return total - sum(row[index] for row in rows for index in _IDLE), total
