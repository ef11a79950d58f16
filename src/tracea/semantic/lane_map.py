"""Lane maps: which lane holds which element of a matrix instruction's operands, in which of its registers.

Worked example (``mma.m16n8k16``, operand A, 16 rows of 16): lane 5 has registers ``a0 … a7``, two to a 32-bit word.
They hold row 1, columns 2 and 3; row 9, columns 2 and 3; row 1, columns 10 and 11; row 9, columns 10 and 11. As a
linear layout: register bits go to column 1, row 8, column 8, lane bits to columns 2 and 4 and rows 1, 2 and 4, which
``matrix_instructions`` writes as ``c1 r8 c8`` and ``c2 c4 r1 r2 r4``.

A *register* here is an element as the vendor numbers it (``a0``, ``a1``, …), not a 32-bit word. A *lane* of wgmma is a
thread of its four warps, 0 … 127. Operand B has row k, column n. The maps are checked in tests against tables
transcribed from the vendors' documents (``lane_tables/``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tracea.errors import InvalidSchedule
from tracea.semantic.linear_layout import LinearLayout
from tracea.semantic.matrix_instructions import Instruction, Operand, instruction

__all__ = ["LaneMap", "Operand", "matrix_rows"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class LaneMap:
    """Where an operand's elements lie: (lane, register) to (row, column), as a linear layout and as arrays.

    It is bijective, but where the hardware wants an operand twice (RDNA 3's A and B); ``copies`` says so.

    Raises:
        InvalidSchedule: the instruction is unknown, or has no such operand in registers.
    """

    instruction: Instruction
    operand: Operand

    def __init__(self, name: str | Instruction, operand: Operand | str) -> None:
        known = instruction(name) if isinstance(name, str) else name
        chosen = Operand(operand) if isinstance(operand, str) else operand
        object.__setattr__(self, "instruction", known)
        object.__setattr__(self, "operand", chosen)
        if chosen not in {which for which, _, _ in known.operands}:
            raise InvalidSchedule(
                field=f"operand of {known.name}",
                got=chosen.value,
                expected=[which.value for which, _, _ in known.operands],
                remedy="this operand is read from shared memory",
            )

    @property
    def rows(self) -> int:
        """Rows of the operand."""
        return self.instruction.shape(self.operand)[0]

    @property
    def columns(self) -> int:
        """Columns of the operand."""
        return self.instruction.shape(self.operand)[1]

    @property
    def lanes(self) -> int:
        """Lanes that hold it."""
        return self.instruction.lanes

    @property
    def registers(self) -> int:
        """Elements of each lane."""
        return self.rows * self.columns * self.copies // self.lanes

    @property
    def words(self) -> int:
        """32-bit registers of each lane."""
        return -(-self.registers * self.instruction.element_bytes(self.operand) // 4)

    @property
    def copies(self) -> int:
        """How often each element is held."""
        return 1 << (self.layout.input_bits - self.layout.rank)

    @property
    def layout(self) -> LinearLayout:
        """The linear layout (register, lane) -> (row, column); of the next power of two where n is none (wgmma)."""
        return _layout(self.instruction, self.operand)

    def at(self, lane: int, register: int) -> tuple[int, int]:
        """Return row and column of a register of a lane."""
        place = self.layout.apply(lane=lane, register=register)
        return place["row"], place["column"]

    def holder(self, row: int, column: int) -> tuple[int, int]:
        """Return lane and register of an element, the lowest where there are copies."""
        place = self.layout.pseudo_inverse().apply(row=row, column=column)
        return place["lane"], place["register"]

    def places(self) -> tuple[Array, Array]:
        """Return the rows and the columns of all registers, each of shape (lanes, registers), read-only."""
        return _places(self)

    def fragment(self, matrix: Array) -> Array:
        """Return the fragment (lanes, registers) of a matrix (rows, columns)."""
        rows, columns = self.places()
        return matrix[rows, columns]

    def matrix(self, fragment: Array) -> Array:
        """Return the matrix (rows, columns) that a fragment holds."""
        rows, columns = self.places()
        result = np.empty((self.rows, self.columns), dtype=fragment.dtype)
        result[rows, columns] = fragment.reshape(rows.shape)
        return result


def matrix_rows(matrices: int, *, transposed: bool = False, element_bytes: int = 2) -> LinearLayout:
    """Return what ``ldmatrix`` and ``stmatrix`` move: (register, lane) -> (row, column) of 8 rows of 16 bytes each.

    Row ``8·i + r`` is the one whose address lane ``8·i + r`` gives: row r of matrix i. Columns count elements.

    Source: PTX ISA 9.7.14.5.15 (ldmatrix), 9.7.14.5.16 (stmatrix), ``.m8n8.b16``.

    Raises:
        InvalidSchedule: not 1, 2 or 4 matrices; a transposed load of elements that are not two bytes.
    """
    if matrices not in (1, 2, 4) or element_bytes not in (1, 2, 4):
        raise InvalidSchedule(
            field="matrices and element bytes of ldmatrix",
            got=(matrices, element_bytes),
            expected="1, 2 or 4 matrices of 1-, 2- or 4-byte elements",
            remedy="load fewer tiles at once, or more",
        )
    if transposed and element_bytes != 2:
        raise InvalidSchedule(
            field="element bytes of a transposed ldmatrix",
            got=element_bytes,
            expected=2,
            remedy="store the tile with its k axis contiguous, or load its elements one by one",
        )
    upper = {1: "", 2: " r8", 4: " r8 r16"}[matrices]
    register, lane = {
        (2, False): ("c1", "c2 c4 r1 r2 r4"),
        (2, True): ("r1", "r2 r4 c1 c2 c4"),
        (1, False): ("c1 c2", "c4 c8 r1 r2 r4"),
        (4, False): ("", "c1 c2 r1 r2 r4"),
    }[element_bytes, transposed]
    return _parsed(register + upper, lane, (8 * matrices, 16 // element_bytes))


def _parsed(register: str, lane: str, shape: tuple[int, int]) -> LinearLayout:
    def images(text: str) -> list[tuple[int, int]]:
        parts = [("c", 0) if word == "0" else (word[0], int(word[1:])) for word in text.split()]
        return [(step, 0) if axis == "r" else (0, step) for axis, step in parts]

    bits = {"row": (shape[0] - 1).bit_length(), "column": (shape[1] - 1).bit_length()}
    return LinearLayout.of({"register": images(register), "lane": images(lane)}, bits)


@cache
def _layout(of: Instruction, operand: Operand) -> LinearLayout:
    register, lane = next((register, lane) for which, register, lane in of.operands if which is operand)
    return _parsed(register, lane, of.shape(operand))


@cache
def _places(of: LaneMap) -> tuple[Array, Array]:
    lane, register = np.arange(of.lanes)[:, None], np.arange(of.registers)[None, :]
    place = of.layout.apply(lane=lane, register=register)
    for array in place.values():
        array.setflags(write=False)
    return place["row"], place["column"]
