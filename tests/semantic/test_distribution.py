"""Copies cover their tile once in contiguous pieces; ldmatrix's addresses bring each operand into its lane map."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracea.errors import InvalidSchedule
from tracea.semantic.distribution import copy_lanes, ldmatrix_addresses
from tracea.semantic.instructions import load_matrix
from tracea.semantic.lane_map import LaneMap, matrix_rows
from tracea.semantic.matrix_instructions import instruction
from tracea.semantic.swizzle import choose

Array = np.ndarray[Any, Any]

LOADS = [
    (name, operand, transposed, tiles, along)
    for name, operand, transposed, tiles, along in (
        ("mma.m16n8k16.f16", "A", False, 1, "outer"),
        ("mma.m16n8k16.f16", "A", True, 1, "outer"),
        ("mma.m16n8k16.bf16", "B", False, 1, "outer"),
        ("mma.m16n8k16.f16", "B", False, 2, "outer"),
        ("mma.m16n8k16.f16", "B", True, 2, "outer"),
        ("mma.m16n8k16.f16", "B", True, 2, "depth"),
        ("mma.m16n8k8.f16", "A", False, 1, "outer"),
        ("mma.m16n8k8.f16", "A", True, 2, "outer"),
        ("mma.m16n8k8.f16", "B", False, 4, "outer"),
        ("mma.m16n8k8.f16", "B", True, 4, "depth"),
        ("mma.m16n8k8.tf32", "A", False, 1, "outer"),
        ("mma.m16n8k8.tf32", "B", True, 2, "outer"),
        ("mma.m16n8k4.tf32", "A", False, 2, "depth"),
        ("mma.m16n8k4.tf32", "B", True, 4, "outer"),
        ("mma.m16n8k32.s8", "A", False, 1, "outer"),
        ("mma.m16n8k32.e4m3", "B", True, 2, "outer"),
        ("mma.m8n8k16.s8", "A", False, 4, "outer"),
        ("mma.m8n8k16.s8", "B", True, 2, "depth"),
    )
]


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 100))
def test_a_copy_touches_every_element_once(rows: int, chunks: int, per_chunk: int, threads: int) -> None:
    lanes = copy_lanes(rows, chunks * per_chunk, 1, per_chunk, threads)
    count = np.zeros((rows, chunks * per_chunk), dtype=int)
    at_rows, at_columns = lanes.places()
    for step in range(lanes.steps):
        for thread in range(threads):
            place = lanes.at(step, thread)
            assert (at_rows[step, thread], at_columns[step, thread]) == ((-1, -1) if place is None else place)
            if place is not None:
                count[place[0], place[1] : place[1] + per_chunk] += 1
    assert (count == 1).all()
    assert lanes.at(lanes.steps - 1, 0) is not None  # no step without work


@given(st.integers(0, 6), st.integers(0, 4), st.integers(0, 3), st.integers(0, 7))
def test_a_copy_of_powers_of_two_is_linear(rows: int, chunks: int, per_chunk: int, threads: int) -> None:
    lanes = copy_lanes(1 << rows, 1 << (chunks + per_chunk), 1, 1 << per_chunk, 1 << threads)
    layout = lanes.layout()
    if threads > rows + chunks:
        assert layout is None
        return
    assert layout is not None
    step, thread = np.arange(lanes.steps)[:, None], np.arange(lanes.threads)[None, :]
    place = layout.apply(step=step, thread=thread)
    assert np.array_equal(place["row"], lanes.places()[0])
    assert np.array_equal(place["column"], lanes.places()[1])
    assert layout.is_injective


def test_an_odd_tile_has_no_linear_layout() -> None:
    assert copy_lanes(24, 32, 2, 16, 32).layout() is None


@pytest.mark.parametrize("arguments", [(0, 8, 2, 16, 32), (8, 12, 2, 16, 32), (8, 8, 4, 2, 32), (8, 8, 2, 16, 0)])
def test_a_copy_that_does_not_fit_is_refused(arguments: tuple[int, int, int, int, int]) -> None:
    with pytest.raises(InvalidSchedule):
        copy_lanes(*arguments)


def test_the_refusal_names_the_widest_access() -> None:
    with pytest.raises(InvalidSchedule, match="widest is 8 bytes"):
        copy_lanes(8, 12, 2, 16, 32)


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_ldmatrix_at_these_addresses_fills_the_lane_map(load: tuple[str, str, bool, int, str]) -> None:
    # What the instruction does, by hand: row r of matrix i starts where lane 8i + r says; the lane map of its rows
    # hands the elements out. That must be the operand's own lane map.
    name, operand, transposed, tiles, along = load
    where = LaneMap(name, operand)
    intrinsic = load_matrix(name, operand, transposed=transposed, tiles=tiles, along=along)
    nbytes = where.instruction.element_bytes(where.operand)
    matrices = int(intrinsic.name.removeprefix("ldmatrix_x").removesuffix("_trans"))
    assert matrices == where.words * tiles

    shape = [where.rows, where.columns]
    shape[("A", "B").index(operand) if along == "outer" else 1 - ("A", "B").index(operand)] *= tiles
    stored = np.arange(shape[0] * shape[1]).reshape(shape[::-1] if transposed else shape)
    starts = ldmatrix_addresses(name, operand, transposed=transposed, tiles=tiles, along=along)
    per_row = 16 // nbytes
    read = np.stack([stored[row, column : column + per_row] for row, column in starts[: 8 * matrices]])
    lane, register = np.arange(32)[:, None], np.arange(where.registers * tiles)[None, :]
    moved = matrix_rows(matrices, transposed=intrinsic.name.endswith("_trans"), element_bytes=nbytes)
    at = moved.apply(lane=lane, register=register)
    loaded = read[at["row"], at["column"]].reshape(32, tiles, where.registers).swapaxes(0, 1)
    assert np.array_equal(loaded, np.asarray(intrinsic.meaning(stored)).reshape(tiles, 32, where.registers))
    assert all(column % per_row == 0 for _, column in starts)  # so a 16-byte aligned tile gives aligned addresses


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_every_ldmatrix_is_free_of_conflicts_with_the_chosen_swizzle(load: tuple[str, str, bool, int, str]) -> None:
    name, operand, transposed, tiles, along = load
    of = instruction(name)
    nbytes = of.element_bytes(LaneMap(name, operand).operand)
    starts = np.array(ldmatrix_addresses(name, operand, transposed=transposed, tiles=tiles, along=along))
    for row_bytes in (16, 32, 64, 128, 256):
        if (starts[:, 1] * nbytes + 16 > row_bytes).any():
            continue
        swizzle = choose(row_bytes)
        offsets = starts[:, 0] * row_bytes + starts[:, 1] * nbytes
        placed = offsets if swizzle is None else swizzle.apply(offsets)
        for first in range(0, 32, 8):  # one matrix is one wavefront
            assert len(set(placed[first : first + 8] // 16 % 8)) == 8


def test_eight_byte_wide_storage_that_ldmatrix_cannot_turn_is_refused() -> None:
    for name, operand, transposed in (
        ("mma.m16n8k32.s8", "B", False),
        ("mma.m16n8k8.tf32", "A", True),
        ("mma.m16n8k16.f16", "C", False),
    ):
        with pytest.raises(InvalidSchedule):
            ldmatrix_addresses(name, operand, transposed=transposed)
    with pytest.raises(InvalidSchedule):
        ldmatrix_addresses("mma.m16n8k16.f16", "A", tiles=2)
    with pytest.raises(InvalidSchedule):
        ldmatrix_addresses("mfma.16x16x16.f16", "A")
