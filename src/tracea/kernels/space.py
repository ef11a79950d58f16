"""ScheduleSpace: the valid schedules of one variant for one op on one target, as names, values and rows of indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from tracea.errors import InvalidSchedule
from tracea.semantic.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ScheduleSpace", "Value"]

Value = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpace:
    """Rows of indices into ``values``: what ``SearchSpace.enumerated(names, values, rows)`` takes."""

    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]
    rows: tuple[tuple[int, ...], ...]

    @classmethod
    def enumerated(
        cls, axes: Mapping[str, Sequence[Value]], valid: Callable[[Mapping[str, Value]], bool] | None = None
    ) -> ScheduleSpace:
        """Enumerate the product of ``axes`` and keep the rows that ``valid`` accepts."""
        names = tuple(axes)
        values = tuple(tuple(axis) for axis in axes.values())
        rows: list[tuple[int, ...]] = []
        for row in product(*(range(len(axis)) for axis in values)):
            chosen = {name: axis[index] for name, axis, index in zip(names, values, row, strict=True)}
            if valid is None or valid(chosen):
                rows.append(row)
        return cls(names=names, values=values, rows=tuple(rows))

    @classmethod
    def listed(cls, chosen: Iterable[Mapping[str, Value]]) -> ScheduleSpace:
        """Return the space of the schedules that are listed, each once: for axes that depend on each other."""
        kept = list(dict.fromkeys(Schedule(values) for values in chosen))
        names = tuple(kept[0])
        values = tuple(tuple(dict.fromkeys(schedule[name] for schedule in kept)) for name in names)
        index = [{value: i for i, value in enumerate(axis)} for axis in values]
        rows = tuple(tuple(index[axis][schedule[name]] for axis, name in enumerate(names)) for schedule in kept)
        return cls(names=names, values=values, rows=rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Schedule]:
        return (self.schedule(row) for row in self.rows)

    def __contains__(self, schedule: object) -> bool:
        return isinstance(schedule, Schedule) and any(candidate == schedule for candidate in self)

    def schedule(self, row: Iterable[int]) -> Schedule:
        """Return the schedule that a row of indices names."""
        indices = tuple(row)
        if len(indices) != len(self.names):
            raise InvalidSchedule(
                field="row", got=indices, expected=f"{len(self.names)} indices", remedy="pass one index per name"
            )
        return Schedule({name: axis[i] for name, axis, i in zip(self.names, self.values, indices, strict=True)})
