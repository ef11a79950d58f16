"""Sampler: the port that every search strategy implements, and the bookkeeping that all of them share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracea.errors import BudgetExceeded, InvalidOption
from tracea.optimizer.space import IndexArray, Row, SearchSpace

History: TypeAlias = Iterable[tuple[Sequence[int], float | None]]


class Sampler(ABC):
    """Proposes untried rows and learns from their latencies.

    ``ask`` never repeats a row, asked or told, and raises BudgetExceeded when every valid row was tried. ``tell``
    accepts any valid row, asked or not (a resumed study tells what it already knows); telling a row again replaces
    its latency, since a re-timing is the better measurement. ``seeds`` (hero configs) are proposed first, in order.
    ``history`` holds a relative's measurements: rows of this space's product, valid here or not, with latencies of
    another machine or problem; they are evidence, never results. The same space, seed, history and sequence of calls
    give the same rows.
    """

    name: ClassVar[str]
    # Says in plain words what the strategy does with a relative's history.
    history_use: ClassVar[str] = "ignored"

    def __init__(
        self, space: SearchSpace, *, seed: int = 0, history: History = (), seeds: Iterable[Sequence[int]] = ()
    ) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(field="seed", got=seed, expected="an integer of at least 0", remedy="seed=0")
        self.space = space
        self.seed = seed
        self._rng = np.random.default_rng(seed)
        self._taken: NDArray[np.bool_] = np.zeros(len(space), dtype=bool)
        self._pending: dict[int, None] = {}
        self._results: dict[int, float | None] = {}
        self._queue: list[int] = list(dict.fromkeys(space.index(row) for row in seeds))[::-1]
        self._history = tuple((space.checked(row), _checked_latency(latency)) for row, latency in history)

    @property
    def remaining(self) -> int:
        """Return how many valid rows were neither asked nor told."""
        return int(len(self.space) - self._taken.sum())

    @property
    def best(self) -> tuple[Row, float] | None:
        """Return the fastest told row and its latency in milliseconds, or None before the first success."""
        good = [(latency, index) for index, latency in self._results.items() if latency is not None]
        if not good:
            return None
        latency, index = min(good)
        return self.space.row(index), latency

    def ask(self) -> Row:
        """Return an untried valid row.

        Raises: BudgetExceeded when there is none left.
        """
        if not self.remaining:
            raise BudgetExceeded(
                what="search space",
                spent=len(self.space),
                limit=len(self.space),
                unit="schedules",
                remedy="every valid schedule was tried: stop here, or widen the space",
            )
        index = self._next_queued()
        if index is None:
            index = self._propose()
        self._taken[index] = True
        self._pending[index] = None
        return self.space.row(index)

    def tell(self, row: Sequence[int], latency_ms: float | None) -> None:
        """Learn a row's latency; None says that it failed.

        Units: milliseconds.
        Raises: InvalidSchedule for a row that is not valid, InvalidOption for a latency that is no positive finite
        number.
        """
        index = self.space.index(row)
        latency = _checked_latency(latency_ms)
        self._taken[index] = True
        self._pending.pop(index, None)
        self._results[index] = latency
        self._learn(index, latency)

    @abstractmethod
    def _propose(self) -> int:
        """Return the position of an untried row; at least one is left."""

    def _learn(self, index: int, latency_ms: float | None) -> None:
        """Note a result beyond the shared tables; most strategies need no more than those."""
        return

    def _next_queued(self) -> int | None:
        while self._queue:
            index = self._queue.pop()
            if not self._taken[index]:
                return index
        return None

    def _untried(self) -> IndexArray:
        return np.flatnonzero(~self._taken).astype(np.int64)

    def _any_untried(self) -> int:
        return int(self._rng.choice(self._untried()))

    def _history_in_space(self) -> list[tuple[float, int]]:
        """Return the relative's successes that are valid here, fastest first, as (latency, position)."""
        known = ((latency, self.space.position(row)) for row, latency in self._history)
        return sorted(
            {index: (latency, index) for latency, index in known if latency is not None and index is not None}.values()
        )


def _checked_latency(latency_ms: float | None) -> float | None:
    if latency_ms is None:
        return None
    try:
        latency = float(latency_ms)
    except (TypeError, ValueError):
        latency = math.nan
    if isinstance(latency_ms, bool) or not math.isfinite(latency) or latency <= 0.0:
        raise InvalidOption(
            field="latency_ms",
            got=latency_ms,
            expected="a positive finite number, or None for a failure",
            remedy="tell(row, None)",
        )
    return latency
