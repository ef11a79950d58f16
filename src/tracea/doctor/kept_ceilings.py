"""The ceilings that are kept: measured once per fingerprint, and of each figure the best that was ever reached.

Interference only takes away, so that what was reached once can be reached: a later measurement under load is no news of
the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tracea.doctor.ceilings import Ceilings, ingredients_of, measure
from tracea.doctor.doubt import OTHERS, why_under_load
from tracea.profiler.load import measure_load
from tracea.runtime.cache import content_key, default_store

if TYPE_CHECKING:
    from tracea.doctor.probe import Machine

__all__ = ["better_of", "measure_ceilings", "measured_ceilings"]

_Row = TypeVar("_Row", bound=msgspec.Struct)
_SETTLE_S: Final = 60.0  # what was measured under load is measured again after this long, then 4, 16, ... times as long


def measured_ceilings(machine: Machine, *, again: bool = False) -> Ceilings:
    """Return this machine's ceilings: from the cache, or measured now (seconds) where there are none or ``again`` asks.

    Those that were measured under load are measured again where the machine is quiet now, but not within a minute, and
    each time that a load spoils it after four times as long a wait. Of each figure the better one is kept.

    Raises:
        ToolchainMissing: there is no compiler. CompileError: it failed.
    """
    kept = _Kept(machine)
    if again:
        kept.measure()
        return kept.read()
    found = kept.read()
    if _may_be_better_now(found) and kept.is_writable():  # else: what is there says that it is doubtful
        kept.measure(attempts=found.attempts + 1)
        return kept.read()
    return found


def measure_ceilings(machine: Machine) -> Ceilings:
    """Measure now (seconds) and return what was reached now; what is kept becomes no worse by it.

    Raises:
        ToolchainMissing: there is no compiler. CompileError: it failed.
    """
    return _Kept(machine).measure()


def better_of(kept: Ceilings, now: Ceilings) -> Ceilings:
    """Return the better one of each figure; the rest is of the measurement that others disturbed less."""
    quieter = kept if why_under_load(now) and not why_under_load(kept) else now
    joins = [each.fork_join_us for each in (kept, now) if each.fork_join_us is not None]
    busy = [each.busy_cores for each in (kept, now) if each.busy_cores is not None]
    return msgspec.structs.replace(
        quieter,
        peaks=_larger(kept.peaks, now.peaks, lambda row: row.gflops),
        tiles=_larger(kept.tiles, now.tiles, lambda row: row.gflops),
        bandwidths=_larger(kept.bandwidths, now.bandwidths, lambda row: row.gbytes),
        caches=_larger(kept.caches, now.caches, lambda row: row.gbytes),
        fork_join_us=min(joins, default=None),
        busy_cores=min(busy) if len(busy) == 2 else quieter.busy_cores,
    )


def _larger(kept: tuple[_Row, ...], now: tuple[_Row, ...], rate: Callable[[_Row], float]) -> tuple[_Row, ...]:
    """Return the rows of now, each as the faster one of it and of the row that was kept for the very same work."""
    before = {_work(row): row for row in kept}
    return tuple(max(row, before.get(_work(row), row), key=rate) for row in now)


def _work(row: msgspec.Struct) -> tuple[Any, ...]:
    figures = ("gflops", "gbytes")
    return tuple(getattr(row, name) for name in row.__struct_fields__ if name not in figures)


class _Kept:
    """What the cache holds for this machine, toolchain and set of cores."""

    def __init__(self, machine: Machine) -> None:
        from tracea.doctor.fingerprint import identify
        from tracea.runtime.toolchain import find_compiler

        self._machine, self._compiler, self._identity = machine, find_compiler(), identify(machine).key
        self._ingredients = ingredients_of(machine, self._identity)
        self._key, self._store = content_key(self._ingredients), default_store()

    def read(self) -> Ceilings:
        """Return what is kept, measured now where nothing is."""
        place = self._store.entry(self._key, lambda place: _write(place, self._measured(1)), self._ingredients)
        return msgspec.json.decode((place / "ceilings.json").read_bytes(), type=Ceilings)

    def measure(self, *, attempts: int = 1) -> Ceilings:
        """Measure now, keep the better of each figure, and return what was reached now."""
        reached: list[Ceilings] = []

        def build(place: Path) -> None:
            now = self._measured(attempts)
            reached.append(now)
            _write(place, better_of(self.read(), now) if self._store.contains(self._key) else now)

        self._store.entry(self._key, build, self._ingredients, anew=True)
        return reached[-1]

    def is_writable(self) -> bool:
        """Tell whether what is measured can be kept where it was."""
        try:
            self._store.prepare()
        except OSError:
            return False
        return True

    def _measured(self, attempts: int) -> Ceilings:
        return msgspec.structs.replace(measure(self._machine, self._compiler, self._identity), attempts=attempts)


def _write(place: Path, ceilings: Ceilings) -> None:
    (place / "ceilings.json").write_bytes(msgspec.json.encode(ceilings))


def _may_be_better_now(found: Ceilings) -> bool:
    """Tell whether what was measured under load has waited long enough, and nobody uses the cores now."""
    if not why_under_load(found):
        return False
    age_s = (datetime.now(UTC) - datetime.fromisoformat(found.date)).total_seconds()
    if 0.0 <= age_s < _SETTLE_S * 4.0 ** (min(found.attempts, 10) - 1):
        return False
    now = measure_load()
    return now is not None and now.busy_cores < OTHERS
