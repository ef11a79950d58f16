"""SearchSpace: the allowed values of a schedule, as an enumerated table of valid rows.

Worked example: a tile width out of (16, 32, 64) and an unroll out of (1, 2), where 64 may not be unrolled::

    space = SearchSpace.constrained(
        {"tile": (16, 32, 64), "unroll": (1, 2)},
        lambda schedule: not (schedule["tile"] == 64 and schedule["unroll"] == 2),
    )
    len(space)             # 5
    space.decode((2, 0))   # {"tile": 64, "unroll": 1}

A *row* is a tuple of indices into the parameters' values, so it is small, hashable and the same in every process. The
*features* of a row are what a surrogate model sees: positive numbers on a log2 scale (a tile that doubles moves as
far from 16 as from 64), an alignment column where values are not all powers of two (48 is as aligned as 16), and one
column a value where there is no order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracea.errors import InvalidSchedule

Value: TypeAlias = bool | int | float | str | None
Row: TypeAlias = tuple[int, ...]
Schedule: TypeAlias = dict[str, Value]
FloatArray: TypeAlias = NDArray[np.float64]
IndexArray: TypeAlias = NDArray[np.int64]

# A constrained product is walked in Python: beyond this the walk alone takes minutes, and the caller should split a
# parameter.
MAX_PRODUCT: Final = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One tunable name and its values, in the order that row indices mean."""

    name: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidSchedule(
                field="parameter name", got=self.name, expected="a non-empty string", remedy="name the parameter"
            )
        if not self.values:
            raise InvalidSchedule(
                field=f"values of {self.name}",
                got=0,
                expected="at least 1 value",
                remedy="give the parameter a value, or drop it",
            )
        for value in self.values:
            if value is not None and not isinstance(value, (bool, int, float, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidSchedule(
                    field=f"values of {self.name}",
                    got=value,
                    expected="bool, int, float, str or None",
                    remedy="use plain values",
                )
            if isinstance(value, float) and not math.isfinite(value):
                raise InvalidSchedule(
                    field=f"values of {self.name}", got=value, expected="a finite number", remedy="drop the value"
                )
        # 1, 1.0 and True are one value to a reader of the schedule's JSON only if their types agree.
        if len({(type(value), value) for value in self.values}) != len(self.values):
            raise InvalidSchedule(
                field=f"values of {self.name}",
                got=self.values,
                expected="no value twice",
                remedy="remove the duplicates",
            )

    @property
    def is_ordered(self) -> bool:
        """Tell whether the values are numbers, so that near values are expected to behave alike."""
        return all(isinstance(value, (bool, int, float)) for value in self.values)

    def scales(self) -> list[FloatArray]:
        """Map the values to feature columns in [0, 1], in blocks that each deserve a length scale of their own.

        Shapes: each block is ``(len(values), columns)``: a one-hot block where there is no order, else the magnitude
        and, where it says something new, the alignment.
        """
        count = len(self.values)
        if not self.is_ordered:
            # Two different categories are as far apart as the two ends of an ordered parameter: each one-hot differs
            # in two columns.
            return [np.eye(count) / math.sqrt(2.0)]
        numbers = self._numbers()
        magnitude = np.log2(numbers + (numbers.min() == 0.0)) if numbers.min() >= 0.0 else numbers
        blocks = [_to_unit_interval(magnitude)]
        if count > 4 and numbers.min() > 0.0 and bool(np.all(numbers == np.rint(numbers))):
            whole = numbers.astype(np.int64)
            if np.any(whole & (whole - 1)):
                blocks.append(_to_unit_interval(np.log2((whole & -whole).astype(np.float64))))
        return [block[:, None] for block in blocks]

    def ranks(self) -> FloatArray:
        """Return each value's place in the values' order, (len(values),)."""
        if not self.is_ordered:
            return np.arange(len(self.values), dtype=np.float64)
        return np.argsort(np.argsort(self._numbers())).astype(np.float64)

    def _numbers(self) -> FloatArray:
        return np.array([float(value) for value in self.values if value is not None and not isinstance(value, str)])


@dataclass(frozen=True, slots=False, eq=False, kw_only=True)
class SearchSpace:
    """The parameters and all valid rows, in a fixed order.

    Shapes: ``rows`` is ``(N, d)``, N valid schedules of d parameters, each an index into ``parameters[j].values``.
    Raises: InvalidSchedule where a row repeats, points outside of its values, or nothing is valid.
    """

    parameters: tuple[Parameter, ...]
    rows: IndexArray

    def __post_init__(self) -> None:
        names = [parameter.name for parameter in self.parameters]
        if not names:
            raise InvalidSchedule(field="parameters", got=0, expected="at least 1", remedy="name one parameter")
        if len(set(names)) != len(names):
            raise InvalidSchedule(
                field="parameter names", got=names, expected="no name twice", remedy="rename one of them"
            )
        if self.rows.ndim != 2 or self.rows.shape[1] != len(names):
            raise InvalidSchedule(
                field="shape of rows",
                got=self.rows.shape,
                expected=("N", len(names)),
                remedy="give one index a parameter in each row",
            )
        if not len(self.rows):
            raise InvalidSchedule(
                field="rows", got=0, expected="at least 1 valid schedule", remedy="relax the constraint"
            )
        limits = np.array([len(parameter.values) for parameter in self.parameters])
        outside = np.argwhere((self.rows < 0) | (self.rows >= limits))
        if len(outside):
            row, column = (int(position) for position in outside[0])
            raise InvalidSchedule(
                field=f"rows[{row}], parameter {names[column]}",
                got=int(self.rows[row, column]),
                expected=f"an index in [0, {limits[column]})",
                remedy="rows hold indices into values, not values",
            )
        self.rows.setflags(write=False)
        if len(self._index) != len(self.rows):
            raise InvalidSchedule(
                field="rows",
                got=f"{len(self.rows) - len(self._index)} duplicates",
                expected="no row twice",
                remedy="np.unique(rows, axis=0)",
            )

    @classmethod
    def enumerated(cls, names: Sequence[str], values: Sequence[Sequence[Value]], rows: ArrayLike) -> Self:
        """Take the valid rows as given.

        Shapes: ``names`` (d,), ``values`` d sequences, ``rows`` (N, d) of indices into values.
        Raises: InvalidSchedule.
        """
        if len(names) != len(values):
            raise InvalidSchedule(
                field="values", got=len(values), expected=len(names), remedy="give one sequence of values for each name"
            )
        table = np.asarray(rows)
        if table.dtype.kind not in "iu":
            raise InvalidSchedule(
                field="dtype of rows",
                got=str(table.dtype),
                expected="integer indices",
                remedy="rows hold indices into values",
            )
        parameters = tuple(
            Parameter(name=str(name), values=_plain_values(column)) for name, column in zip(names, values, strict=True)
        )
        return cls(parameters=parameters, rows=np.array(table, dtype=np.int64))

    @classmethod
    def constrained(
        cls,
        parameters: Mapping[str, Sequence[Value]] | Sequence[Parameter],
        constraint: Callable[[Schedule], bool] | None = None,
    ) -> Self:
        """Enumerate the product of the values and keep what the constraint allows.

        Raises: InvalidSchedule where nothing is valid or the product exceeds ``MAX_PRODUCT``.
        """
        if isinstance(parameters, Mapping):
            kept = tuple(Parameter(name=name, values=_plain_values(values)) for name, values in parameters.items())
        else:
            kept = tuple(parameters)
        product = math.prod(len(parameter.values) for parameter in kept)
        if product > MAX_PRODUCT:
            raise InvalidSchedule(
                field="product of values",
                got=product,
                expected=f"at most {MAX_PRODUCT}",
                remedy="give fewer values a parameter",
            )
        names = [parameter.name for parameter in kept]
        rows: list[tuple[int, ...]] = []
        for row in itertools.product(*(range(len(parameter.values)) for parameter in kept)):
            if constraint is None or constraint(
                {name: parameter.values[index] for name, parameter, index in zip(names, kept, row, strict=True)}
            ):
                rows.append(row)
        return cls(parameters=kept, rows=np.array(rows, dtype=np.int64).reshape(len(rows), len(kept)))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return (tuple(row) for row in self.rows.tolist())

    def __contains__(self, row: object) -> bool:
        try:
            return self.position(row) is not None  # pyright: ignore[reportArgumentType]  # any object may be asked about
        except InvalidSchedule:
            return False

    @property
    def names(self) -> tuple[str, ...]:
        """Return the parameters' names in row order."""
        return tuple(parameter.name for parameter in self.parameters)

    @cached_property
    def _index(self) -> dict[Row, int]:
        return {tuple(row): index for index, row in enumerate(self.rows.tolist())}

    def row(self, index: int) -> Row:
        """Return the row at a position of the enumeration."""
        return tuple(self.rows[index].tolist())

    def position(self, row: Sequence[int]) -> int | None:
        """Return the position of a row, or None where it is in the product but not valid.

        Raises: InvalidSchedule where it is not a row of this space's shape at all.
        """
        return self._index.get(self.checked(row))

    def index(self, row: Sequence[int]) -> int:
        """Return the position of a valid row.

        Raises: InvalidSchedule where it is not valid.
        """
        found = self.position(row)
        if found is None:
            raise InvalidSchedule(
                field="row",
                got=tuple(row),
                expected=f"one of the {len(self)} valid rows",
                remedy="ask the sampler for a row, or check the constraint",
            )
        return found

    def checked(self, row: Sequence[int]) -> Row:
        """Return a row as plain integers, each within its parameter's values.

        Raises: InvalidSchedule.
        """
        try:
            plain = tuple(int(index) for index in row)
            exact = all(index == original for index, original in zip(plain, row, strict=True))
        except (TypeError, ValueError, OverflowError):
            raise InvalidSchedule(
                field="row",
                got=row,
                expected=f"{len(self.parameters)} integer indices",
                remedy="pass what ask() returned",
            ) from None
        if not exact or len(plain) != len(self.parameters):
            raise InvalidSchedule(
                field="row",
                got=tuple(row),
                expected=f"{len(self.parameters)} integer indices",
                remedy="pass what ask() returned",
            )
        for index, parameter in zip(plain, self.parameters, strict=True):
            if not 0 <= index < len(parameter.values):
                raise InvalidSchedule(
                    field=f"row, parameter {parameter.name}",
                    got=index,
                    expected=f"an index in [0, {len(parameter.values)})",
                    remedy="rows hold indices into values, not values",
                )
        return plain

    def decode(self, row: Sequence[int]) -> Schedule:
        """Return the values that a row stands for, by name."""
        return {
            parameter.name: parameter.values[index]
            for parameter, index in zip(self.parameters, self.checked(row), strict=True)
        }

    def encode(self, schedule: Mapping[str, Value]) -> Row | None:
        """Return the valid row of a schedule, or None where this space does not hold it."""
        if set(schedule) != set(self.names):
            return None
        row: list[int] = []
        for parameter in self.parameters:
            wanted = schedule[parameter.name]
            matches = [
                i
                for i, value in enumerate(parameter.values)
                if value == wanted and isinstance(value, bool) == isinstance(wanted, bool)
            ]
            if not matches:
                return None
            row.append(matches[0])
        return tuple(row) if tuple(row) in self._index else None

    @cached_property
    def features(self) -> FloatArray:
        """Return the features of all valid rows, (N, f), each column within [0, 1]."""
        return self.features_of(self.rows)

    @cached_property
    def feature_groups(self) -> IndexArray:
        """Return, for each feature column, the number of the length scale that it has or shares, (f,)."""
        widths = [block.shape[1] for _, block in self._blocks]
        return np.repeat(np.arange(len(widths), dtype=np.int64), widths)

    def by_parameter(self, length_scales: ArrayLike) -> dict[str, float]:
        """Name length scales, in the order of ``feature_groups``: the shortest of each parameter that varies."""
        named: dict[str, float] = {}
        for (column, _), scale in zip(self._blocks, np.asarray(length_scales, dtype=np.float64).tolist(), strict=True):
            name = self.parameters[column].name
            named[name] = min(scale, named.get(name, math.inf))
        return named

    def features_of(self, rows: ArrayLike) -> FloatArray:
        """Return the features of rows of the product, valid or not: (n, d) to (n, f)."""
        table = np.asarray(rows, dtype=np.int64).reshape(-1, len(self.parameters))
        columns = [block[table[:, column]] for column, block in self._blocks]
        return np.concatenate(columns, axis=1) if columns else np.zeros((len(table), 0))

    @cached_property
    def _blocks(self) -> list[tuple[int, FloatArray]]:
        # A parameter that never varies among the valid rows has no features.
        return [
            (column, block)
            for column, parameter in enumerate(self.parameters)
            if len(np.unique(self.rows[:, column])) > 1
            for block in parameter.scales()
        ]

    @cached_property
    def _ranks(self) -> FloatArray:
        """Place of each row's value in its parameter's order, (N, d): what a mutation's step is counted in."""
        return np.stack(
            [parameter.ranks()[self.rows[:, column]] for column, parameter in enumerate(self.parameters)], axis=1
        )

    def neighbours(self, row: Sequence[int], *, changes: int = 1) -> IndexArray:
        """Return the positions of valid rows that differ in at most ``changes`` parameters, nearest first.

        Near means: fewest parameters changed, then the smallest steps in the values' order (any change of an
        unordered parameter is one step).
        """
        here = np.array(self.checked(row), dtype=np.int64)
        changed = self.rows != here
        count = changed.sum(axis=1)
        near = np.flatnonzero((count >= 1) & (count <= changes))
        position = self.position(row)
        if position is None or not len(near):
            return near.astype(np.int64)
        steps = np.abs(self._ranks[near] - self._ranks[position])
        unordered = np.array([not parameter.is_ordered for parameter in self.parameters])
        steps = np.where(unordered & (steps > 0), 1.0, steps).sum(axis=1)
        return near[np.lexsort((near, steps, count[near]))].astype(np.int64)


def _to_unit_interval(column: FloatArray) -> FloatArray:
    width = float(column.max() - column.min())
    return (column - column.min()) / width if width > 0.0 else np.zeros_like(column)


def _plain_values(values: Iterable[object]) -> tuple[Value, ...]:
    # NumPy scalars are welcome at the edge and do not travel further.
    return tuple(cast("Value", value.item() if isinstance(value, np.generic) else value) for value in values)
