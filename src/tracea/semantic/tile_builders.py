"""Builders of tile tables: dense, split over the depth, causal, windowed, local-global, block-sparse, ragged.

A mask on pairs (row, column) is exact at the tiles: a tile is *skip* if and only if it holds no visible pair, and
*main* if and only if it holds no other. Both follow from the corners: row ``i`` sees column ``j`` by the difference
``j − i`` alone, and over a tile that takes every value between those of two corners.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tracea.errors import InvalidSchedule, InvalidShape
from tracea.semantic.tile_order import TileOrder, order_table
from tracea.semantic.tile_table import TileRole, TileTable, TilingKind

__all__ = [
    "TileGrid",
    "block_sparse_tiles",
    "causal_tiles",
    "dense_tiles",
    "local_global_tiles",
    "masked_factor_tiles",
    "ragged_tiles",
    "reorder",
    "windowed_tiles",
]

Array = np.ndarray[Any, Any]
_FAR: Final = 1 << 40  # farther apart than any two positions


@dataclass(frozen=True, slots=True, kw_only=True)
class TileGrid:
    """The extents of an op and the tiles they are cut into; the last of each axis may be smaller.

    ``splits`` parts of the depth, at most one step less or more than another, are tiles of their own; none is empty.
    """

    rows: int
    columns: int
    depth: int
    tile_rows: int
    tile_columns: int
    splits: int = 1

    def __post_init__(self) -> None:
        for name, least in (("rows", 0), ("columns", 0), ("depth", 0), ("tile_rows", 1), ("tile_columns", 1)):
            if getattr(self, name) < least:
                raise InvalidSchedule(
                    field=f"grid.{name}", got=getattr(self, name), expected=f"at least {least}", remedy="count from 0"
                )
        if not 1 <= self.splits <= max(1, self.depth):
            raise InvalidSchedule(
                field="grid.splits",
                got=self.splits,
                expected=f"1 .. {max(1, self.depth)}, so that no part is empty",
                remedy="split the depth into fewer parts",
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of tiles; 0 where an extent, of the depth too, has no element."""
        empty = min(self.rows, self.columns, self.depth) == 0
        return (0, 0) if empty else (-(-self.rows // self.tile_rows), -(-self.columns // self.tile_columns))

    @property
    def extents(self) -> tuple[int, int, int]:
        """Rows, columns, depth."""
        return (self.rows, self.columns, self.depth)

    def places(self) -> tuple[Array, Array, Array]:
        """Return row, column and part of each tile, row by row, the parts of a tile together."""
        rows, columns = self.shape
        tile, part = np.divmod(np.arange(rows * columns * self.splits, dtype=np.int64), self.splits)
        row, column = np.divmod(tile, max(1, columns))
        return row, column, part

    def table(self, kind: TilingKind, roles: Array | None = None, order: TileOrder = TileOrder.ROW) -> TileTable:
        """Return the table of this grid with a role for each (row, column) of tiles, MAIN where none are given."""
        row, column, part = self.places()
        k0, k1 = (part * self.depth // self.splits, (part + 1) * self.depth // self.splits)
        role = np.full(len(row), int(TileRole.MAIN)) if roles is None else np.asarray(roles)[row, column]
        fields = (
            row * self.tile_rows,
            np.minimum((row + 1) * self.tile_rows, self.rows),
            column * self.tile_columns,
            np.minimum((column + 1) * self.tile_columns, self.columns),
            k0,
            k1,
            role,
            np.zeros(len(row), dtype=np.int64),
        )
        table = TileTable(
            kind=kind,
            order=TileOrder.ROW,
            extents=self.extents,
            tiles=np.stack(fields, axis=1),
            launches=np.flatnonzero(role != TileRole.SKIP),
        )
        return reorder(table, self, order)


def reorder(table: TileTable, grid: TileGrid, order: TileOrder) -> TileTable:
    """Return a grid's table launched in another order; the parts of a tile stay together, nothing else changes."""
    rows, columns = grid.shape
    if rows * columns == 0:
        return table.reordered(order, table.launches)
    place = np.empty(rows * columns, dtype=np.int64)
    place[order_table(order, rows, columns)] = np.arange(rows * columns)
    launches = np.sort(table.launches).astype(np.int64)
    tile, part = np.divmod(launches, grid.splits)
    return table.reordered(order, launches[np.argsort(place[tile] * grid.splits + part)])


def dense_tiles(grid: TileGrid, *, order: TileOrder = TileOrder.ROW) -> TileTable:
    """Return every tile; with ``grid.splits`` above 1 this is split-K."""
    return grid.table(TilingKind.DENSE, order=order)


def causal_tiles(grid: TileGrid, *, offset: int = 0, order: TileOrder = TileOrder.ROW) -> TileTable:
    """Return the tiles of pairs with ``column <= row + offset``; ``offset`` is how many columns row 0 has before it."""
    return grid.table(TilingKind.CAUSAL, _band_roles(grid, -_FAR, offset), order)


def windowed_tiles(
    grid: TileGrid, window: int, *, causal: bool = False, offset: int = 0, order: TileOrder = TileOrder.ROW
) -> TileTable:
    """Return the tiles of pairs with ``|row + offset - column| < window``, and no later column if ``causal``."""
    _check_window(window)
    high = offset if causal else offset + window - 1
    return grid.table(TilingKind.WINDOWED, _band_roles(grid, offset - window + 1, high), order)


def local_global_tiles(
    grid: TileGrid, window: int, global_tokens: int, *, causal: bool = False, order: TileOrder = TileOrder.ROW
) -> TileTable:
    """Return the tiles of a window, and of every pair whose row or column is below ``global_tokens``."""
    _check_window(window)
    if global_tokens < 0:
        raise InvalidSchedule(
            field="global_tokens", got=global_tokens, expected="at least 0", remedy="0 is a window alone"
        )
    m0, m1, n0, n1 = _corners(grid)
    low, high = -window + 1, 0 if causal else window - 1
    latest = 0 if causal else _FAR
    g = global_tokens
    every = (
        ((np.minimum(m0, g), np.minimum(m1, g), n0, n1), -_FAR, latest),  # global rows
        ((m0, m1, np.minimum(n0, g), np.minimum(n1, g)), -_FAR, latest),  # global columns
        ((np.maximum(m0, g), np.maximum(m1, g), np.maximum(n0, g), np.maximum(n1, g)), low, high),
    )
    some = np.zeros(m0.shape, dtype=bool)
    whole = np.ones(m0.shape, dtype=bool)
    for part, least, most in every:
        meets, full = _band(part, least, most)
        some |= meets
        whole &= full
    return grid.table(TilingKind.LOCAL_GLOBAL, _roles(some, whole), order)


def block_sparse_tiles(grid: TileGrid, mask: Any, *, order: TileOrder = TileOrder.ROW) -> TileTable:
    """Return the tiles whose entry of ``mask`` is true, as a mask of scores names them.

    Shapes: mask is (rows of tiles, columns of tiles).

    Raises: InvalidShape: it is not.
    """
    wanted = _mask(mask, grid.shape if min(grid.extents) else (0, 0), "a row and a column of tiles each")
    return grid.table(TilingKind.BLOCK_SPARSE, np.where(wanted, TileRole.MAIN, TileRole.SKIP), order)


def masked_factor_tiles(*, rows: int, columns: int, depth: int, mask: Any, block: int, factor: str) -> TileTable:
    """Return the tiles of a product one factor of which has blocks of zeros: a tile for each block of that factor.

    Of ``factor`` "b" the tiles of one block of columns are together, in order of their depth; each has all rows. Of
    "a" those of one block of rows, each with all columns. So a sum runs over consecutive launches.

    Shapes: mask is (blocks of depth, blocks of columns) for b, (blocks of rows, blocks of depth) for a.

    Raises:
        InvalidShape: the mask is not. InvalidSchedule: a block below 1.
    """
    if block < 1 or factor not in ("a", "b"):
        raise InvalidSchedule(
            field="block, factor", got=(block, factor), expected="block >= 1, factor a or b", remedy="block=32"
        )
    lines = columns if factor == "b" else rows
    counts = (-(-lines // block), -(-depth // block))
    shape = counts if factor == "a" else (counts[1], counts[0])
    wanted = _mask(mask, shape, "one entry a block")
    by_line = wanted if factor == "a" else wanted.T
    line, step = (axis.reshape(-1) for axis in np.indices(counts))
    role = np.where(by_line.reshape(-1), TileRole.MAIN, TileRole.SKIP)
    if min(rows, columns, depth) == 0:
        line, step, role = line[:0], step[:0], role[:0]
    across = (line * block, np.minimum((line + 1) * block, lines))
    whole = (np.zeros_like(line), np.full_like(line, rows if factor == "b" else columns))
    m, n = (whole, across) if factor == "b" else (across, whole)
    fields = (*m, *n, step * block, np.minimum((step + 1) * block, depth), role, np.zeros_like(line))
    return TileTable(
        kind=TilingKind.BLOCK_SPARSE,
        order=TileOrder.ROW,
        extents=(rows, columns, depth),
        tiles=np.stack(fields, axis=1),
        launches=np.flatnonzero(role != TileRole.SKIP),
    )


def ragged_tiles(
    rows: Sequence[int],
    columns: int | Sequence[int],
    *,
    depth: int,
    tile_rows: int,
    tile_columns: int,
    causal: bool = False,
    order: TileOrder = TileOrder.ROW,
) -> TileTable:
    """Return the tiles of groups of rows that lie one after the other, none crossing the end of its group.

    ``columns`` is one number where all groups share them, as the experts of a mixture do, or one for each group, its
    columns lying after those of the groups before, as the keys of sequences of different lengths. ``causal``: within
    its group a row sees no later column.

    Raises:
        InvalidSchedule: a negative length, another number of columns than of rows, or a tile below 1 × 1.
    """
    lengths = [int(count) for count in rows]
    shared = isinstance(columns, int)
    widths = [int(columns)] * len(lengths) if isinstance(columns, int) else [int(count) for count in columns]
    if len(widths) != len(lengths) or min([0, *lengths, *widths]) < 0:
        raise InvalidSchedule(
            field="ragged groups",
            got=(lengths, widths),
            expected="a number of rows and of columns for each group, none below 0",
            remedy="say 0 for a group without rows",
        )
    extents = (sum(lengths), max(widths, default=0) if shared else sum(widths), depth)
    if not causal and order is TileOrder.ROW:  # as a routing asks for before every product: no loop over the groups
        tiles = _ragged_rectangles(lengths, widths, shared=shared, depth=depth, tile=(tile_rows, tile_columns))
        return TileTable(
            kind=TilingKind.RAGGED, order=order, extents=extents, tiles=tiles, launches=np.arange(len(tiles))
        )
    parts: list[Array] = [np.empty((0, 8), dtype=np.int64)]
    launches: list[Array] = [np.empty(0, dtype=np.int64)]
    row = column = count = 0
    for group, (height, width) in enumerate(zip(lengths, widths, strict=True)):
        grid = TileGrid(rows=height, columns=width, depth=depth, tile_rows=tile_rows, tile_columns=tile_columns)
        part = causal_tiles(grid, order=order) if causal else dense_tiles(grid, order=order)
        parts.append(part.tiles + np.array([row, row, column, column, 0, 0, 0, group]))
        launches.append(part.launches + np.int64(count))
        count += len(part.tiles)
        row, column = row + height, column if shared else column + width
    return TileTable(
        kind=TilingKind.RAGGED,
        order=order,
        extents=extents,
        tiles=np.concatenate(parts),
        launches=np.concatenate(launches),
    )


def _ragged_rectangles(
    lengths: Sequence[int], widths: Sequence[int], *, shared: bool, depth: int, tile: tuple[int, int]
) -> Array:
    """Return all tiles of ragged groups, group by group and row by row."""
    TileGrid(rows=0, columns=0, depth=depth, tile_rows=tile[0], tile_columns=tile[1])  # refuses a tile below 1 x 1
    height, width = np.asarray(lengths, np.int64), np.asarray(widths, np.int64)
    rows, columns = (-(-extent // size) for extent, size in zip((height, width), tile, strict=True))
    counts = rows * columns * min(depth, 1)
    group: Array = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    row, column = np.divmod(place, columns[group])
    fields: list[Array] = []
    for extent, size, at, together in ((height, tile[0], row, False), (width, tile[1], column, shared)):
        origin: Array = np.zeros_like(extent) if together else np.cumsum(extent) - extent
        begin = at * size
        fields += [origin[group] + begin, origin[group] + np.minimum(begin + size, extent[group])]
    same = np.ones_like(group)
    return np.stack([*fields, 0 * same, depth * same, int(TileRole.MAIN) * same, group], axis=1)


def _corners(grid: TileGrid) -> tuple[Array, Array, Array, Array]:
    rows, columns = grid.shape
    m0 = np.arange(rows, dtype=np.int64)[:, None] * grid.tile_rows + np.zeros((1, columns), dtype=np.int64)
    n0 = np.arange(columns, dtype=np.int64)[None, :] * grid.tile_columns + np.zeros((rows, 1), dtype=np.int64)
    return m0, np.minimum(m0 + grid.tile_rows, grid.rows), n0, np.minimum(n0 + grid.tile_columns, grid.columns)


def _band(box: tuple[Array, Array, Array, Array], low: int, high: int) -> tuple[Array, Array]:
    """Return of each box whether it holds a pair with ``low <= column - row <= high``, and whether it holds no other.

    An empty box holds none, and no other.
    """
    m0, m1, n0, n1 = box
    empty = (m1 <= m0) | (n1 <= n0)
    least, most = n0 - (m1 - 1), (n1 - 1) - m0
    meets = (np.maximum(least, low) <= np.minimum(most, high)) & ~empty
    return meets, ((least >= low) & (most <= high)) | empty


def _band_roles(grid: TileGrid, low: int, high: int) -> Array:
    return _roles(*_band(_corners(grid), low, high))


def _roles(some: Array, whole: Array) -> Array:
    return np.where(some, np.where(whole, TileRole.MAIN, TileRole.BOUNDARY), TileRole.SKIP)


def _mask(mask: Any, shape: tuple[int, int], what: str) -> Array:
    given = np.asarray(mask)
    if given.shape != shape:
        raise InvalidShape(
            field="block mask", got=given.shape, expected=shape, remedy=f"give a mask with an entry for {what}"
        )
    return given.astype(bool)


def _check_window(window: int) -> None:
    if window < 1:
        raise InvalidSchedule(field="window", got=window, expected="at least 1", remedy="1 is the diagonal alone")
