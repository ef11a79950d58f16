"""The tile table: which tiles of an op there are, which of them are active, and in which order they are launched.

Worked example: scores of 4 queries and 4 keys in tiles of 2 × 2, causal. The logical tiles are numbered row by row:

    tile   m0:m1  n0:n1  role           launch   tile
    0      0:2    0:2    boundary       0        0
    1      0:2    2:4    skip           1        2
    2      2:4    0:2    main           2        3
    3      2:4    2:4    boundary

The right list is the L1 map: a launch for each active tile, in the order in which they are launched. The left one is
the L2 table: where a tile lies in the rows ``m``, the columns ``n`` and the depth ``k`` of its op, and its role. A
kernel that reads both is the same kernel for a dense, a causal, a windowed or a sparse problem, and a reordering
changes the map alone. Builders are in :mod:`tracea.semantic.tile_builders`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final, Self, cast

import numpy as np

from tracea.errors import InvalidOption, InvalidSchedule
from tracea.semantic.tile_order import TileOrder

__all__ = ["SCHEMA_VERSION", "Axis", "TileRole", "TileRuns", "TileTable", "TilingKind"]

SCHEMA_VERSION: Final = 1
_FIELDS: Final = ("m0", "m1", "n0", "n1", "k0", "k1", "role", "group")
_INT32_MAX: Final = 2**31 - 1

Array = np.ndarray[Any, Any]


class TilingKind(Enum):
    """Which part of the tiles is active."""

    DENSE = "dense"
    CAUSAL = "causal"
    WINDOWED = "windowed"
    BLOCK_SPARSE = "block-sparse"
    LOCAL_GLOBAL = "local-global"
    RAGGED = "ragged"
    LOW_RANK = "low-rank"


class TileRole(IntEnum):
    """What a tile needs: nothing, all of it without a mask, or the mask at each element."""

    SKIP = 0
    MAIN = 1
    BOUNDARY = 2


class Axis(Enum):
    """An axis of an op, by the name of its extent."""

    ROWS = "m"
    COLUMNS = "n"
    DEPTH = "k"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TileRuns:
    """Active tiles by what they share: run ``r`` is ``tiles[first[r] : first[r + 1]]``, in the order of launches.

    Shapes: first is (runs + 1,), ascending from 0; tiles is (active tiles,). All int32.
    """

    first: Array
    tiles: Array

    def __len__(self) -> int:
        return len(self.first) - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TileTable:
    """The L1 map ``launches`` and the L2 table ``tiles`` of an op over (rows, columns, depth); int32, read-only.

    Shapes:
        extents: (rows, columns, depth). tiles: (tiles, 8): m0, m1, n0, n1, k0, k1, role, group, where 0 <= m0 < m1 <=
        rows, and so for n and k; ``group`` counts the parts of a ragged problem. launches: (active tiles,).

    Raises:
        InvalidSchedule: a tile is empty or out of its extents, or the launches are not the active tiles, each once.
    """

    kind: TilingKind
    order: TileOrder
    extents: tuple[int, int, int]
    tiles: Array
    launches: Array

    def __post_init__(self) -> None:
        if len(self.extents) != 3 or min(self.extents) < 0 or max(self.extents) > _INT32_MAX:
            raise _invalid("extents", self.extents, "rows, columns and depth from 0 to 2^31 - 1")
        for name, shape in (("tiles", (-1, len(_FIELDS))), ("launches", (-1,))):
            given = np.asarray(getattr(self, name))
            whole = given.size == 0 or (given.dtype.kind in "iu" and abs(int(given.max())) <= _INT32_MAX)
            if not whole or given.ndim != len(shape) or (len(shape) == 2 and given.shape[1] != shape[1]):
                raise _invalid(name, f"{given.dtype}{list(given.shape)}", f"int32 of shape {shape}")
            array = np.ascontiguousarray(given, dtype=np.int32).copy()
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        self._check_tiles()
        self._check_launches()

    def _check_tiles(self) -> None:
        for axis, extent in zip(Axis, self.extents, strict=True):
            first, end = self.field(f"{axis.value}0"), self.field(f"{axis.value}1")
            wrong = np.flatnonzero((first < 0) | (end <= first) | (end > extent))
            if len(wrong):
                tile = int(wrong[0])
                got = f"{axis.value} of tile {tile} is {first[tile]}:{end[tile]}"
                raise _invalid("tiles", got, f"a part of 0:{extent} that is not empty")
        if np.any(~np.isin(self.field("role"), [int(role) for role in TileRole])) or np.any(self.field("group") < 0):
            raise _invalid(
                "tiles", "a role or a group that is none", f"roles {[int(r) for r in TileRole]}, groups >= 0"
            )

    def _check_launches(self) -> None:
        active = np.flatnonzero(self.field("role") != TileRole.SKIP)
        if not np.array_equal(np.sort(self.launches), active):
            got = f"{len(self.launches)} launches of {len(np.unique(self.launches))} tiles"
            raise _invalid("launches", got, f"the {len(active)} active tiles, each once")

    def __len__(self) -> int:
        """Return the number of launches."""
        return len(self.launches)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TileTable) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        head = (self.kind, self.order, self.extents)
        return hash((*head, self.tiles.tobytes(), self.launches.tobytes()))

    def __str__(self) -> str:
        extents = "x".join(map(str, self.extents))
        return (
            f"{self.kind.value} tiles of {extents}: {len(self)} of {len(self.tiles)} active, "
            f"{self.count(TileRole.BOUNDARY)} of them at a boundary, in {self.order.value} order"
        )

    def field(self, name: str) -> Array:
        """Return one column of the L2 table: ``m0``, ``m1``, ``n0``, ``n1``, ``k0``, ``k1``, ``role`` or ``group``."""
        if name not in _FIELDS:
            raise InvalidOption(field="tile", got=name, expected=_FIELDS, remedy="name one of these")
        return cast("Array", self.tiles[:, _FIELDS.index(name)])

    def launched(self, name: str) -> Array:
        """Return one column of the tiles as they are launched, contiguous: what a kernel reads as an index buffer."""
        return np.ascontiguousarray(self.field(name)[self.launches])

    def count(self, role: TileRole) -> int:
        """Return how many tiles have a role."""
        return int(np.count_nonzero(self.field("role") == role))

    @property
    def density(self) -> float:
        """The active tiles' share of all elements of all tiles: of the work, that part is done; 0 without tiles."""
        sizes = np.ones(len(self.tiles), dtype=np.int64)
        for axis in Axis:
            sizes *= self.field(f"{axis.value}1") - self.field(f"{axis.value}0")
        whole = int(sizes.sum())
        return int(sizes[self.launches].sum()) / whole if whole else 0.0

    def reordered(self, order: TileOrder, launches: Array) -> Self:
        """Return the same tiles launched in another order: the L1 map changes, the L2 table does not."""
        return type(self)(kind=self.kind, order=order, extents=self.extents, tiles=self.tiles, launches=launches)

    def runs(self, starts: Array, *, along: Axis) -> TileRuns:
        """Return the active tiles that begin at each of ``starts`` along an axis, a run for each start.

        A start without active tiles has an empty run: of a query block that sees no key, of a column of zero blocks.

        Raises:
            InvalidSchedule: the starts do not ascend, or an active tile begins at none of them.
        """
        begins = np.asarray(starts, dtype=np.int64)
        mine = self.launched(f"{along.value}0")
        if np.any(np.diff(begins) <= 0) or not np.isin(mine, begins).all():
            raise _invalid("starts", f"{len(begins)} along {along.value}", "ascending, the first of each active tile")
        which = np.searchsorted(begins, mine)
        counts = np.bincount(which, minlength=len(begins))
        first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return TileRuns(first=first, tiles=self.launches[np.argsort(which, kind="stable")])

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain JSON values, a list for each column of the L2 table."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": self.kind.value,
            "order": self.order.value,
            "extents": list(self.extents),
            "tiles": {name: self.field(name).tolist() for name in _FIELDS},
            "launches": self.launches.tolist(),
        }

    def to_json(self) -> str:
        """Return the table as JSON text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Return the table that :meth:`to_dict` described.

        Raises:
            InvalidOption: another version, or fields that are missing or none. InvalidSchedule: as for a new table.
        """
        version = stored.get("schema_version")
        if version != SCHEMA_VERSION:
            raise InvalidOption(
                field="schema_version", got=version, expected=SCHEMA_VERSION, remedy="build the table again"
            )
        try:
            columns = [np.asarray(stored["tiles"][name], dtype=np.int64) for name in _FIELDS]
            return cls(
                kind=TilingKind(stored["kind"]),
                order=TileOrder(stored["order"]),
                extents=cast("tuple[int, int, int]", tuple(int(extent) for extent in stored["extents"])),
                tiles=np.stack(columns, axis=1),
                launches=np.asarray(stored["launches"], dtype=np.int64),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidSchedule):
                raise
            raise InvalidOption(
                field="tile table",
                got=f"{type(error).__name__}: {error}",
                expected="what to_dict made",
                remedy="build the table again",
            ) from error

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the table that :meth:`to_json` wrote.

        Raises: InvalidOption, InvalidSchedule: as :meth:`from_dict`.
        """
        try:
            stored = json.loads(text)
        except ValueError as error:
            raise InvalidOption(
                field="tile table", got=str(error), expected="JSON text", remedy="build the table again"
            ) from error
        if not isinstance(stored, dict):
            raise InvalidOption(
                field="tile table", got=type(stored).__name__, expected="an object", remedy="build the table again"
            )
        return cls.from_dict(cast("dict[str, Any]", stored))


def _invalid(field: str, got: object, expected: object) -> InvalidSchedule:
    return InvalidSchedule(
        field=f"tile table: {field}", got=got, expected=expected, remedy="use a builder of tile_builders"
    )
