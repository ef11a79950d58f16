"""Lane maps against the vendors' tables, element by element; bijective; and the tables' notation."""

from __future__ import annotations

import numpy as np
import pytest

from tracea.errors import InvalidSchedule
from tracea.semantic.lane_map import LaneMap, matrix_rows
from tracea.semantic.lane_tables import LaneTable, parse_grid, parse_lanes, read_tables
from tracea.semantic.linear_layout import LinearLayout
from tracea.semantic.matrix_instructions import MMA_INSTRUCTIONS, Operand, instruction

TABLES = read_tables()
CASES = [(name, operand, table) for table in TABLES for name in table.instructions for operand in table.operands]
WGMMA = [
    f"wgmma.m64n{n}k{k}.{element}"
    for n in (8, 16, 24, 64, 96, 128, 192, 256)
    for element, k in (("f16", 16), ("bf16", 16), ("tf32", 8), ("s8", 32), ("e4m3", 32), ("e5m2", 32))
]


@pytest.mark.parametrize(("name", "operand", "table"), CASES, ids=[f"{name}-{operand}" for name, operand, _ in CASES])
def test_the_formula_is_the_vendors_table(name: str, operand: str, table: LaneTable) -> None:
    if operand == "rows":
        layout = matrix_rows(1, transposed=name.endswith(".trans"))
        lane, register = np.arange(32)[:, None], np.arange(2)[None, :]
        place = layout.apply(lane=lane, register=register)
        rows, columns = place["row"], place["column"]
    else:
        rows, columns = LaneMap(name, operand).places()
    assert rows.shape == table.rows.shape
    assert np.array_equal(rows, table.rows)
    assert np.array_equal(columns, table.columns)


def test_every_operand_of_every_instruction_has_a_table() -> None:
    have = {(name, operand) for name, operand, _ in CASES}
    missing = {
        (each.name, operand.value) for each in MMA_INSTRUCTIONS.values() for operand, _, _ in each.operands
    } - have
    assert not missing


@pytest.mark.parametrize("name", [*MMA_INSTRUCTIONS, *WGMMA])
def test_every_element_is_held_as_often_as_said(name: str) -> None:
    of = instruction(name)
    for operand, _, _ in of.operands:
        where = LaneMap(of, operand)
        count = np.zeros(of.shape(operand), dtype=int)
        np.add.at(count, where.places(), 1)
        assert (count == where.copies).all()
        assert where.copies == (2 if "gfx11" in name and operand is not Operand.C else 1)
        matrix = np.arange(count.size).reshape(count.shape)
        assert np.array_equal(where.matrix(where.fragment(matrix)), matrix)
        rows, columns = where.places()
        for row, column in ((0, 0), (where.rows - 1, where.columns - 1), (where.rows // 3, where.columns // 2)):
            lane, register = where.holder(row, column)
            assert where.at(lane, register) == (row, column)
            assert (rows[lane, register], columns[lane, register]) == (row, column)


def test_the_worked_example() -> None:
    where = LaneMap("mma.m16n8k16.f16", "A")
    expected = [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11), (9, 10), (9, 11)]
    assert [where.at(5, register) for register in range(8)] == expected
    assert (where.registers, where.words) == (8, 4)


def test_several_matrices_of_ldmatrix_are_one_above_the_other() -> None:
    for transposed in (False, True):
        one = matrix_rows(1, transposed=transposed)
        for matrices, bits in ((2, 1), (4, 2)):
            more = LinearLayout.of({"register": [(1 << bit,) for bit in range(bits)]}, {"row": bits})
            whole = one.product(more).ordered(inputs=("register", "lane"), outputs=("row", "column"))
            assert whole == matrix_rows(matrices, transposed=transposed)


def test_wgmma_of_n_that_is_no_power_of_two_uses_part_of_its_layout() -> None:
    where = LaneMap("wgmma.m64n96k16.f16", "C")
    assert where.registers == 48
    assert where.layout.bits_of("register") == 6
    assert where.at(127, 47) == (63, 95)


@pytest.mark.parametrize("name", ["mma.m16n8k15.f16", "wgmma.m64n12k16.f16", "wgmma.m64n40k32.s8", "wgmma.m64n8k8.f16"])
def test_an_instruction_that_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(InvalidSchedule):
        LaneMap(name, "C")


def test_an_operand_in_shared_memory_has_no_lanes() -> None:
    with pytest.raises(InvalidSchedule, match="shared memory"):
        LaneMap("wgmma.m64n8k16.f16", "B")
    with pytest.raises(InvalidSchedule):
        matrix_rows(3)
    with pytest.raises(InvalidSchedule):
        matrix_rows(4, transposed=True, element_bytes=1)


@pytest.mark.parametrize("text", ["0:0-1\n1:0", "0:0 0:0", "0:0 2:0", "x", "0:0\n\n0:0"])
def test_a_table_with_a_slip_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchedule):
        parse_grid(text)


def test_the_notation_of_the_tables() -> None:
    rows, columns = parse_grid("0-4/4:0\n1-5/4:0\n2-3:0\n6-7:0")
    assert rows[:, 0].tolist() == [0, 1, 2, 2, 0, 1, 3, 3]
    assert columns[:, 0].tolist() == [0, 0, 0, 1, 1, 1, 0, 1]
    rows, columns = parse_lanes("0.0 0.1\n1.0 1.1")
    assert rows.tolist() == [[0, 0], [1, 1]]
    assert columns.tolist() == [[0, 1], [0, 1]]
    with pytest.raises(InvalidSchedule):
        parse_lanes("0.0\n1.0 1.1")
