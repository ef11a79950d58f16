"""Tile orders are bijections of every rectangular grid; the good ones touch fewer panels a wave; K splits tile K."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracea.errors import InvalidSchedule
from tracea.semantic.index import Var, as_index
from tracea.semantic.tile_order import (
    Segment,
    TileOrder,
    order_index,
    order_table,
    panels_touched,
    segments,
    split_interval,
    split_place,
)

GRIDS = st.integers(1, 40), st.integers(1, 40), st.integers(1, 12)


@given(st.sampled_from(TileOrder), *GRIDS)
def test_every_order_visits_every_tile_once(order: TileOrder, rows: int, columns: int, group: int) -> None:
    table = order_table(order, rows, columns, group=group)
    assert np.array_equal(np.sort(table), np.arange(rows * columns))
    assert table.dtype == np.int32


@given(st.sampled_from([TileOrder.ROW, TileOrder.WAVEFRONT]), *GRIDS)
def test_what_the_device_computes_is_the_table(order: TileOrder, rows: int, columns: int, group: int) -> None:
    block, r, c, g = (Var(name) for name in ("block", "R", "C", "G"))
    row, column = order_index(order, block, r, c, group=g)
    table = order_table(order, rows, columns, group=group)
    env = {"R": rows, "C": columns, "G": group}
    for number in range(rows * columns):
        env["block"] = number
        assert row.evaluate(env) * columns + column.evaluate(env) == table[number]


def test_a_table_order_has_no_expression() -> None:
    assert not TileOrder.HILBERT.on_device
    with pytest.raises(InvalidSchedule):
        order_index(TileOrder.HILBERT, as_index(0), 4, 4)


@pytest.mark.parametrize("bits", range(1, 6))
def test_hilbert_steps_to_a_neighbour_and_stays_in_its_quadrant(bits: int) -> None:
    side = 1 << bits
    table = order_table(TileOrder.HILBERT, side, side)
    row, column = table // side, table % side
    assert (np.abs(np.diff(row)) + np.abs(np.diff(column)) == 1).all()
    for level in range(1, bits + 1):  # aligned runs of 4^level tiles fill aligned squares
        size = 1 << level
        squares = (row // size * side + column // size).reshape(-1, size * size)
        assert (squares == squares[:, :1]).all()


@pytest.mark.parametrize("bits", range(1, 5))
def test_morton_interleaves_the_bits(bits: int) -> None:
    side = 1 << bits
    for number, tile in enumerate(order_table(TileOrder.MORTON, side, side)):
        row, column = divmod(int(tile), side)
        woven = "".join(f"{row >> bit & 1}{column >> bit & 1}" for bit in reversed(range(bits)))
        assert int(woven, 2) == number


def test_the_worked_example_is_what_is_computed() -> None:
    first = {order: [divmod(int(t), 4) for t in order_table(order, 4, 4, group=2)[:8]] for order in TileOrder}
    assert first[TileOrder.WAVEFRONT] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)]
    assert first[TileOrder.MORTON] == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
    assert first[TileOrder.HILBERT] == [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 3), (1, 3), (1, 2)]
    panels = {order: panels_touched(order_table(order, 4, 4, group=2)[:4], 4, 4) for order in TileOrder}
    assert panels == {TileOrder.ROW: 5, TileOrder.WAVEFRONT: 4, TileOrder.MORTON: 4, TileOrder.HILBERT: 4}


@pytest.mark.parametrize("shape", [(32, 32), (40, 52), (48, 64)])
@pytest.mark.parametrize("wave", [64, 108, 132])
def test_other_orders_touch_fewer_panels_than_rows(shape: tuple[int, int], wave: int) -> None:
    rows, columns = shape
    touched = {order: panels_touched(order_table(order, rows, columns), columns, wave) for order in TileOrder}
    least = 2 * np.sqrt(wave)
    assert all(panels >= least for panels in touched.values())
    for order in (TileOrder.WAVEFRONT, TileOrder.MORTON, TileOrder.HILBERT):
        assert touched[order] < touched[TileOrder.ROW]
        assert touched[order] < 1.5 * least
    if columns == 52:
        assert touched[TileOrder.ROW] > 1.7 * touched[TileOrder.HILBERT]


@pytest.mark.parametrize("grid", [(0, 4), (4, 0), (1 << 16, 1 << 15)])
def test_a_grid_that_cannot_be_numbered_is_refused(grid: tuple[int, int]) -> None:
    with pytest.raises(InvalidSchedule):
        order_table(TileOrder.ROW, *grid)


def test_a_wave_that_is_larger_than_the_grid_is_refused() -> None:
    with pytest.raises(InvalidSchedule):
        panels_touched(order_table(TileOrder.ROW, 2, 2), 2, 5)
    with pytest.raises(InvalidSchedule):
        panels_touched(order_table(TileOrder.ROW, 2, 2), 2, 0)


@given(st.integers(1, 20), st.integers(1, 9), st.integers(0, 60))
def test_split_k_computes_every_step_of_every_tile_once(tiles: int, splits: int, steps: int) -> None:
    seen: list[tuple[int, int]] = []
    for block in range(tiles * splits):
        tile, part = split_place(block, splits)
        first, end = split_interval(part, splits, steps)
        assert end - first in (steps // splits, -(-steps // splits))
        seen += [(tile, step) for step in range(first, end)]
    assert seen == [(tile, step) for tile in range(tiles) for step in range(steps)]


def test_split_k_in_expressions_is_the_same() -> None:
    part, splits, steps = (Var(name) for name in ("part", "splits", "steps"))
    first, end = split_interval(part, splits, steps)
    env = {"part": 2, "splits": 3, "steps": 10}
    assert (first.evaluate(env), end.evaluate(env)) == split_interval(2, 3, 10) == (6, 10)


@given(st.integers(1, 12), st.integers(0, 9), st.integers(0, 11))
def test_stream_k_keeps_the_theorems_of_its_loop(workers: int, tiles: int, steps: int) -> None:
    of_worker = [list(segments(w, workers=workers, tiles=tiles, steps=steps)) for w in range(workers)]
    flat = [(s.tile, s.first + i) for own in of_worker for s in own for i in range(s.count)]
    assert flat == [(tile, step) for tile in range(tiles) for step in range(steps)]
    everything = [(w, s) for w, own in enumerate(of_worker) for s in own]
    for _, segment in everything:
        assert segment.count >= 1
        final = max(w for w, other in everything if other.tile == segment.tile)
        assert segment.last == final
    if tiles * steps >= workers:
        for tile in range(tiles if steps else 0):
            sharing = [w for w, s in everything if s.tile == tile]
            owner = next(w for w, s in everything if s.tile == tile and s.first == 0)
            assert sharing == list(range(owner, sharing[-1] + 1))
            for other in sharing[1:]:
                assert of_worker[other][0].tile == tile  # each one's first segment


def test_the_segments_of_three_workers_over_two_tiles_of_five_steps() -> None:
    assert list(segments(1, workers=3, tiles=2, steps=5)) == [
        Segment(tile=0, first=3, count=2, last=1),
        Segment(tile=1, first=0, count=1, last=2),
    ]
    with pytest.raises(InvalidSchedule):
        list(segments(3, workers=3, tiles=2, steps=5))
