"""Tile tables hold each tile once and launch the active ones: roles are exact, counts closed forms, JSON returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracea.errors import InvalidOption, InvalidSchedule, InvalidShape
from tracea.semantic.tile_builders import (
    TileGrid,
    block_sparse_tiles,
    causal_tiles,
    dense_tiles,
    local_global_tiles,
    masked_factor_tiles,
    ragged_tiles,
    reorder,
    windowed_tiles,
)
from tracea.semantic.tile_order import TileOrder
from tracea.semantic.tile_table import Axis, TileRole, TileTable, TilingKind

Array = np.ndarray[Any, Any]

GRIDS = st.builds(
    lambda rows, columns, depth, tile_rows, tile_columns, splits: TileGrid(
        rows=rows,
        columns=columns,
        depth=depth,
        tile_rows=tile_rows,
        tile_columns=tile_columns,
        splits=min(splits, depth),
    ),
    st.integers(1, 37),
    st.integers(1, 37),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 4),
)
ORDERS = st.sampled_from(TileOrder)


def painted(table: TileTable, *, groups: int = 1) -> Array:
    """How often each (group, row, column, depth) lies in an active tile, tile by tile in plain loops."""
    counts = np.zeros((groups, *table.extents), dtype=np.int64)
    for tile in table.launches:
        m0, m1, n0, n1, k0, k1, _, group = table.tiles[tile]
        counts[group, m0:m1, n0:n1, k0:k1] += 1
    return counts


def check_roles(table: TileTable, grid: TileGrid, visible: Array) -> None:
    """Compare each role with the pairs of its tile: none, all, or some visible; and that no visible pair is lost."""
    for m0, m1, n0, n1, _, _, role, _ in table.tiles:
        part = visible[m0:m1, n0:n1]
        wanted = TileRole.SKIP if not part.any() else TileRole.MAIN if part.all() else TileRole.BOUNDARY
        assert role == wanted
    assert (painted(table)[0][visible] == 1).all()
    assert len(table.tiles) == grid.shape[0] * grid.shape[1] * grid.splits


@given(GRIDS, ORDERS)
def test_dense_tiles_cover_everything_once_in_every_order(grid: TileGrid, order: TileOrder) -> None:
    table = dense_tiles(grid, order=order)
    assert (painted(table) == 1).all()
    assert len(table) == -(-grid.rows // grid.tile_rows) * -(-grid.columns // grid.tile_columns) * grid.splits
    assert table.density == 1.0
    assert table.count(TileRole.MAIN) == len(table)


@given(GRIDS, ORDERS)
def test_an_order_changes_the_map_alone_and_keeps_the_parts_of_a_tile_together(
    grid: TileGrid, order: TileOrder
) -> None:
    plain, table = dense_tiles(grid), dense_tiles(grid, order=order)
    assert np.array_equal(plain.tiles, table.tiles)
    parts = table.launches.reshape(-1, grid.splits)
    assert (np.diff(parts, axis=1) == 1).all()
    assert reorder(table, grid, TileOrder.ROW) == plain


@given(GRIDS, st.integers(-20, 20), ORDERS)
def test_causal_roles_are_those_of_the_pairs(grid: TileGrid, offset: int, order: TileOrder) -> None:
    row, column = np.indices((grid.rows, grid.columns))
    check_roles(causal_tiles(grid, offset=offset, order=order), grid, column <= row + offset)


@given(GRIDS, st.integers(1, 40), st.booleans(), st.integers(-20, 20), ORDERS)
def test_windowed_roles_are_those_of_the_pairs(
    grid: TileGrid, window: int, causal: bool, offset: int, order: TileOrder
) -> None:
    row, column = np.indices((grid.rows, grid.columns))
    visible = np.abs(row + offset - column) < window
    visible &= (column <= row + offset) | (not causal)
    check_roles(windowed_tiles(grid, window, causal=causal, offset=offset, order=order), grid, visible)


@given(GRIDS, st.integers(1, 40), st.integers(0, 12), st.booleans(), ORDERS)
def test_local_global_roles_are_those_of_the_pairs(
    grid: TileGrid, window: int, tokens: int, causal: bool, order: TileOrder
) -> None:
    row, column = np.indices((grid.rows, grid.columns))
    visible = (np.abs(row - column) < window) | (row < tokens) | (column < tokens)
    visible &= (column <= row) | (not causal)
    check_roles(local_global_tiles(grid, window, tokens, causal=causal, order=order), grid, visible)


@pytest.mark.parametrize("blocks", [1, 2, 5, 16])
@pytest.mark.parametrize("tile", [1, 4, 32])
def test_counts_are_the_closed_forms(blocks: int, tile: int) -> None:
    side = blocks * tile
    grid = TileGrid(rows=side, columns=side, depth=8, tile_rows=tile, tile_columns=tile)
    causal = causal_tiles(grid)
    assert len(causal) == blocks * (blocks + 1) // 2
    assert causal.count(TileRole.BOUNDARY) == (blocks if tile > 1 else 0)
    window, away = (2, 1) if tile == 1 else (tile + 2, 2)  # how many tiles beside the diagonal it reaches
    beside = sum(blocks - distance for distance in range(1, min(away, blocks - 1) + 1))
    assert len(windowed_tiles(grid, window)) == blocks + 2 * beside


@pytest.mark.parametrize("side", [1024, 2048, 4096])
def test_work_of_a_window_grows_with_the_side_not_its_square(side: int) -> None:
    grid = TileGrid(rows=side, columns=side, depth=64, tile_rows=64, tile_columns=64)
    assert len(windowed_tiles(grid, 128)) == 5 * side // 64 - 6


@given(GRIDS, st.integers(0, 2**32 - 1), st.floats(0, 1), ORDERS)
def test_block_sparse_tiles_are_those_of_the_mask(grid: TileGrid, seed: int, density: float, order: TileOrder) -> None:
    mask = np.random.default_rng(seed).random(grid.shape) < density
    table = block_sparse_tiles(grid, mask, order=order)
    assert len(table) == mask.sum() * grid.splits
    whole = np.kron(mask, np.ones((grid.tile_rows, grid.tile_columns), dtype=bool))[: grid.rows, : grid.columns]
    assert np.array_equal(painted(table)[0], np.repeat(whole[:, :, None], grid.depth, axis=2).astype(np.int64))


@given(st.tuples(*(st.integers(1, 20),) * 3), st.integers(1, 7), st.sampled_from("ab"), st.integers(0, 2**32 - 1))
def test_tiles_of_a_masked_factor_are_its_blocks_and_the_sums_of_a_line_are_together(
    extents: tuple[int, int, int], block: int, factor: str, seed: int
) -> None:
    rows, columns, depth = extents
    counts = {"m": -(-rows // block), "n": -(-columns // block), "k": -(-depth // block)}
    shape = (counts["k"], counts["n"]) if factor == "b" else (counts["m"], counts["k"])
    mask = np.random.default_rng(seed).random(shape) < 0.4
    table = masked_factor_tiles(rows=rows, columns=columns, depth=depth, mask=mask, block=block, factor=factor)
    active = painted(table)[0]
    whole = np.kron(mask, np.ones((block, block), dtype=np.int64))
    if factor == "b":
        wanted = np.broadcast_to(whole[:depth, :columns].T[None], active.shape)
    else:
        wanted = np.broadcast_to(whole[:rows, :depth][:, None], active.shape)
    assert np.array_equal(active, wanted)
    axis = Axis.COLUMNS if factor == "b" else Axis.ROWS
    starts = np.arange(counts[axis.value]) * block
    runs = table.runs(starts, along=axis)
    assert len(runs) == len(starts)
    assert np.array_equal(runs.tiles, table.launches)  # consecutive launches: a sum never leaves its line
    for run, start in enumerate(starts):
        mine = runs.tiles[runs.first[run] : runs.first[run + 1]]
        assert (table.field(f"{axis.value}0")[mine] == start).all()
        assert (np.diff(table.field("k0")[mine]) > 0).all()


@given(st.lists(st.integers(0, 11), max_size=6), st.integers(1, 9), st.integers(1, 5), st.integers(1, 5), ORDERS)
def test_ragged_groups_that_share_columns_cover_each_row_once_in_its_own_group(
    rows: list[int], columns: int, tile_rows: int, tile_columns: int, order: TileOrder
) -> None:
    table = ragged_tiles(rows, columns, depth=2, tile_rows=tile_rows, tile_columns=tile_columns, order=order)
    counts = painted(table, groups=max(1, len(rows)))
    starts = np.concatenate([[0], np.cumsum(rows)]).astype(int)
    for group in range(len(rows)):
        inside = counts[group, starts[group] : starts[group + 1]]
        assert (inside == 1).all()
        assert counts[group].sum() == inside.sum()
    assert len(table) == sum(-(-count // tile_rows) for count in rows) * -(-columns // tile_columns)


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=5), st.booleans(), ORDERS)
def test_ragged_groups_with_columns_of_their_own_meet_no_other_group(
    lengths: list[tuple[int, int]], causal: bool, order: TileOrder
) -> None:
    rows, columns = [pair[0] for pair in lengths], [pair[1] for pair in lengths]
    table = ragged_tiles(rows, columns, depth=1, tile_rows=3, tile_columns=4, causal=causal, order=order)
    counts = painted(table, groups=max(1, len(rows))).sum(axis=0)[..., 0]
    row = column = 0
    wanted = np.zeros_like(counts)
    for height, width in lengths:
        i, j = np.indices((height, width))
        wanted[row : row + height, column : column + width] = (j <= i) | (not causal)
        row, column = row + height, column + width
    assert (counts[wanted == 1] == 1).all()
    if not causal:
        assert np.array_equal(counts, wanted)


BUILDERS: list[Callable[[], TileTable]] = [
    lambda: dense_tiles(TileGrid(rows=5, columns=7, depth=9, tile_rows=2, tile_columns=3, splits=3)),
    lambda: causal_tiles(TileGrid(rows=8, columns=8, depth=4, tile_rows=3, tile_columns=2), order=TileOrder.HILBERT),
    lambda: ragged_tiles([3, 0, 5], 4, depth=2, tile_rows=2, tile_columns=4),
    lambda: ragged_tiles([], [], depth=2, tile_rows=2, tile_columns=4),
    lambda: dense_tiles(TileGrid(rows=0, columns=7, depth=9, tile_rows=2, tile_columns=3)),
    lambda: block_sparse_tiles(TileGrid(rows=4, columns=4, depth=1, tile_rows=2, tile_columns=2), np.zeros((2, 2))),
]


@pytest.mark.parametrize("build", BUILDERS)
def test_a_table_returns_from_json(build: Callable[[], TileTable]) -> None:
    table = build()
    again = TileTable.from_json(table.to_json())
    assert again == table
    assert hash(again) == hash(table)
    assert np.array_equal(again.launched("m0"), table.field("m0")[table.launches])


def test_what_is_no_stored_table_is_refused() -> None:
    stored = BUILDERS[0]().to_dict()
    for changed in ({"schema_version": 2}, {"kind": "none"}, {"tiles": {}}, {"extents": [1, 2]}):
        with pytest.raises((InvalidOption, InvalidSchedule)):
            TileTable.from_dict({**stored, **changed})
    for text in ("", "[]", "{}"):
        with pytest.raises(InvalidOption):
            TileTable.from_json(text)


def damaged(**changes: Any) -> dict[str, Any]:
    grid = TileGrid(rows=4, columns=4, depth=2, tile_rows=2, tile_columns=2)
    table = causal_tiles(grid)
    tiles, launches = table.tiles.copy(), table.launches.copy()
    for place, value in changes.get("tiles", {}).items():
        tiles[place] = value
    return {
        "kind": TilingKind.CAUSAL,
        "order": TileOrder.ROW,
        "extents": table.extents,
        "tiles": tiles,
        "launches": changes.get("launches", launches),
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"tiles": {(0, 1): 0}},  # an empty tile
        {"tiles": {(3, 1): 5}},  # beyond the rows
        {"tiles": {(0, 0): -1}},
        {"tiles": {(0, 6): 3}},  # no such role
        {"tiles": {(0, 7): -1}},
        {"launches": np.array([0, 2])},  # an active tile left out
        {"launches": np.array([0, 2, 2])},  # one twice
        {"launches": np.array([0, 1, 2, 3])},  # an inactive one
        {"launches": np.array([0.0, 2.0, 3.0])},
        {"launches": np.array([[0, 2, 3]])},
    ],
)
def test_a_table_that_is_wrong_is_refused(changes: dict[str, Any]) -> None:
    TileTable(**damaged())
    with pytest.raises(InvalidSchedule):
        TileTable(**damaged(**changes))


def test_a_table_cannot_be_written() -> None:
    table = BUILDERS[0]()
    with pytest.raises(ValueError, match="read-only"):
        table.tiles[0, 0] = 1


def test_runs_refuse_starts_that_are_none() -> None:
    table = BUILDERS[0]()
    for starts in ([0, 2], [4, 2, 0], [0, 0, 2, 4]):
        with pytest.raises(InvalidSchedule):
            table.runs(np.array(starts), along=Axis.ROWS)
    with pytest.raises(InvalidOption):
        table.field("m2")


def test_builders_refuse_what_means_nothing() -> None:
    grid = TileGrid(rows=4, columns=4, depth=2, tile_rows=2, tile_columns=2)
    with pytest.raises(InvalidSchedule):
        windowed_tiles(grid, 0)
    with pytest.raises(InvalidSchedule):
        local_global_tiles(grid, 1, -1)
    with pytest.raises(InvalidShape):
        block_sparse_tiles(grid, np.ones((2, 3)))
    with pytest.raises(InvalidSchedule):
        TileGrid(rows=4, columns=4, depth=2, tile_rows=2, tile_columns=2, splits=3)
    with pytest.raises(InvalidSchedule):
        TileGrid(rows=4, columns=4, depth=2, tile_rows=0, tile_columns=2)
    with pytest.raises(InvalidSchedule):
        ragged_tiles([1, -1], 4, depth=2, tile_rows=2, tile_columns=2)
    with pytest.raises(InvalidSchedule):
        ragged_tiles([1, 1], [4], depth=2, tile_rows=2, tile_columns=2)
    with pytest.raises(InvalidSchedule):
        masked_factor_tiles(rows=2, columns=2, depth=2, mask=np.ones((2, 2)), block=1, factor="c")
