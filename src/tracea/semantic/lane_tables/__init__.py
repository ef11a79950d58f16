"""The vendors' tables of lane maps, as data: what the formulas of ``matrix_instructions`` are checked against.

Worked example: the first line of the table of ``mma.m16n8k16``'s operand A is ``0:0-1 1:0-1 … 3:4-5``: row 0 has
elements 0 and 1 of lane 0 in columns 0 and 1, then those of lane 1, and in columns 14 and 15 elements 4 and 5 of
lane 3. ``nvidia.toml`` and ``others.toml`` are written in this way, as the figures are; ``amd.toml`` lists for each
lane the places of its elements, as AMD's own tool prints them. Nothing here is computed from the formulas.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from tracea.errors import InvalidSchedule

__all__ = ["LaneTable", "parse_grid", "parse_lanes", "read_tables"]

Array = np.ndarray[Any, Any]

_FILES = ("nvidia.toml", "amd.toml", "others.toml")
_LANES_OF_WARP = 32
_CELL = re.compile(r"(\d+)(?:-(\d+)(?:/(\d+))?)?:(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTable:
    """One transcribed table: rows and columns of every element, each of shape (lanes, registers).

    ``operands`` names the operands that it holds for, or is ``rows`` for what ldmatrix moves; ``source`` says where.
    """

    instructions: tuple[str, ...]
    operands: tuple[str, ...]
    source: str
    rows: Array
    columns: Array


def read_tables() -> tuple[LaneTable, ...]:
    """Return all tables of the package.

    Raises:
        InvalidSchedule: a table does not say each of its elements once.
    """
    return tuple(table for name in _FILES for table in _read(name))


def _read(name: str) -> Iterator[LaneTable]:
    text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
    for entry in tomllib.loads(text)["table"]:
        rows, columns = parse_lanes(entry["lanes"]) if "lanes" in entry else parse_grid(entry["grid"])
        if "warp_rows" in entry:
            starts = np.repeat(np.array(entry["warp_rows"]), _LANES_OF_WARP)[:, None]
            warps = len(entry["warp_rows"])
            rows, columns = np.tile(rows, (warps, 1)) + starts, np.tile(columns, (warps, 1))
        operand = str(entry["operand"])
        yield LaneTable(
            instructions=tuple(entry["instructions"]),
            operands=(operand,) if operand == "rows" else tuple(operand),
            source=f"{name}: {entry['source']}",
            rows=rows,
            columns=columns,
        )


def parse_grid(text: str) -> tuple[Array, Array]:
    """Return rows and columns by (lane, register) of a table written as the matrix is: ``0:0-1 1:0-1`` a line.

    Raises:
        InvalidSchedule: a cell that cannot be read, rows of different lengths, or an element said twice or never.
    """
    holders = [[holder for cell in line.split() for holder in _cells(cell)] for line in text.split("\n") if line]
    lanes = 1 + max(lane for line in holders for lane, _ in line)
    registers = 1 + max(register for line in holders for _, register in line)
    rows, columns = np.full((lanes, registers), -1), np.full((lanes, registers), -1)
    for row, line in enumerate(holders):
        for column, (lane, register) in enumerate(line):
            if rows[lane, register] >= 0:
                raise _wrong(f"element {register} of lane {lane} twice", "each element once")
            rows[lane, register], columns[lane, register] = row, column
    if len({len(line) for line in holders}) != 1 or (rows < 0).any():
        raise _wrong(f"lines of {sorted({len(line) for line in holders})} elements", "a full rectangle")
    return rows, columns


def parse_lanes(text: str) -> tuple[Array, Array]:
    """Return rows and columns by (lane, register) of a table of a line a lane: ``row.column`` for each element.

    Raises:
        InvalidSchedule: lanes with different numbers of elements.
    """
    lanes = [[tuple(map(int, place.split("."))) for place in line.split()] for line in text.split("\n") if line]
    if len({len(places) for places in lanes}) != 1:
        raise _wrong(sorted({len(places) for places in lanes}), "as many elements in every lane")
    both = np.array(lanes)
    return both[:, :, 0], both[:, :, 1]


def _cells(text: str) -> list[tuple[int, int]]:
    match = _CELL.fullmatch(text)
    if match is None:
        raise _wrong(text, "lane:element, with ranges first-last and first-last/step")
    lane, last_lane, step, register, last_register = match.groups()
    lanes = range(int(lane), int(last_lane or lane) + 1, int(step or 1))
    registers = range(int(register), int(last_register or register) + 1)
    return [(each, element) for each in lanes for element in registers]


def _wrong(got: Any, expected: str) -> InvalidSchedule:
    return InvalidSchedule(
        field="lane table", got=got, expected=expected, remedy="compare it with the vendor's document"
    )
