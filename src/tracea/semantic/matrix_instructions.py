"""The matrix instructions that Tracea knows: shapes, types, and where their operands lie, as images of bits.

``c1 r8`` says: the first bit moves the place by one column, the second by eight rows; ``0`` moves nothing, where the
hardware wants an element twice. Operand B has row k and column n. These are the formulas; the tables that they are
checked against are in ``lane_tables/``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache

from tracea.errors import InvalidSchedule

__all__ = ["ELEMENT_BYTES", "MMA_INSTRUCTIONS", "Instruction", "Operand", "instruction"]


class Operand(Enum):
    """An operand of a matrix instruction: c = a·b + c."""

    A = "A"  # m rows, k columns
    B = "B"  # k rows, n columns
    C = "C"  # m rows, n columns: the accumulator, in and out


ELEMENT_BYTES = {"f32": 4, "tf32": 4, "s32": 4, "f16": 2, "bf16": 2, "s8": 1, "e4m3": 1, "e5m2": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """A matrix instruction: c (m×n) += a (m×k) · b (k×n).

    ``element`` is the type of a and b, ``accumulator`` that of c. ``operands`` gives the images of register bits and
    of lane bits for each operand that lies in registers.
    """

    name: str
    m: int
    n: int
    k: int
    element: str
    accumulator: str
    lanes: int
    source: str
    operands: tuple[tuple[Operand, str, str], ...]

    def shape(self, operand: Operand) -> tuple[int, int]:
        """Return rows and columns of an operand."""
        return {Operand.A: (self.m, self.k), Operand.B: (self.k, self.n), Operand.C: (self.m, self.n)}[operand]

    def element_bytes(self, operand: Operand) -> int:
        """Return the bytes of one element of an operand."""
        return ELEMENT_BYTES[self.accumulator if operand is Operand.C else self.element]


def instruction(name: str) -> Instruction:
    """Return the instruction of that name: one of ``MMA_INSTRUCTIONS``, ``wgmma.m64n128k16.f16``, ….

    Raises:
        InvalidSchedule: there is none.
    """
    known = MMA_INSTRUCTIONS.get(name)
    if known is not None:
        return known
    match = re.fullmatch(r"wgmma\.m64n(\d+)k(\d+)\.(\w+)", name)
    if match is None or _WGMMA_K.get(match[3]) != int(match[2]):
        raise InvalidSchedule(
            field="matrix instruction",
            got=name,
            expected=[*MMA_INSTRUCTIONS, *(f"wgmma.m64nNk{k}.{element}" for element, k in _WGMMA_K.items())],
            remedy="name one of these",
        )
    return _wgmma(int(match[1]), match[3])


_PTX = "PTX ISA 9.7.14.5.{}, Matrix Fragments for mma"
_CDNA = "AMD Instinct MI300 ISA, 7.1.4.1, Dense Matrix Layouts"
_RDNA3 = "AMD RDNA 3 ISA, 7.9, Wave Matrix Multiply Accumulate"
_RDNA4 = "AMD RDNA 4 ISA, 7.12, Wave Matrix Multiply Accumulate"
_METAL = "US patent 11256518 B2; Metal leaves the layout open, Apple's MLX relies on it"
_DPAS = "OpenCL extension cl_intel_subgroup_matrix_multiply_accumulate 1.1, subgroup size 16"

# name, elements, (m, n, k), lanes, source, then register bits and lane bits of A, B and C
_TABLE = (
    (
        ("mma.m8n8k16", "s8", (8, 8, 16), 32, _PTX.format(3)),
        ("c1 c2", "c4 c8 r1 r2 r4"),
        ("r1 r2", "r4 r8 c1 c2 c4"),
        ("c1", "c2 c4 r1 r2 r4"),
    ),
    (
        ("mma.m16n8k4", "tf32", (16, 8, 4), 32, _PTX.format(6)),
        ("r8", "c1 c2 r1 r2 r4"),
        ("", "r1 r2 c1 c2 c4"),
        ("c1 r8", "c2 c4 r1 r2 r4"),
    ),
    (
        ("mma.m16n8k8", "f16 bf16", (16, 8, 8), 32, _PTX.format(7)),
        ("c1 r8", "c2 c4 r1 r2 r4"),
        ("r1", "r2 r4 c1 c2 c4"),
        ("c1 r8", "c2 c4 r1 r2 r4"),
    ),
    (
        ("mma.m16n8k8", "tf32", (16, 8, 8), 32, _PTX.format(7)),
        ("r8 c4", "c1 c2 r1 r2 r4"),
        ("r4", "r1 r2 c1 c2 c4"),
        ("c1 r8", "c2 c4 r1 r2 r4"),
    ),
    (
        ("mma.m16n8k16", "f16 bf16", (16, 8, 16), 32, _PTX.format(8)),
        ("c1 r8 c8", "c2 c4 r1 r2 r4"),
        ("r1 r8", "r2 r4 c1 c2 c4"),
        ("c1 r8", "c2 c4 r1 r2 r4"),
    ),
    (
        ("mma.m16n8k32", "s8 e4m3 e5m2", (16, 8, 32), 32, _PTX.format(10)),
        ("c1 c2 r8 c16", "c4 c8 r1 r2 r4"),
        ("r1 r2 r16", "r4 r8 c1 c2 c4"),
        ("c1 r8", "c2 c4 r1 r2 r4"),
    ),
    (
        ("mfma.32x32x8", "f16 bf16", (32, 32, 8), 64, _CDNA),
        ("c1 c2", "r1 r2 r4 r8 r16 c4"),
        ("r1 r2", "c1 c2 c4 c8 c16 r4"),
        ("r1 r2 r8 r16", "c1 c2 c4 c8 c16 r4"),
    ),
    (
        ("mfma.16x16x16", "f16 bf16", (16, 16, 16), 64, _CDNA),
        ("c1 c2", "r1 r2 r4 r8 c4 c8"),
        ("r1 r2", "c1 c2 c4 c8 r4 r8"),
        ("r1 r2", "c1 c2 c4 c8 r4 r8"),
    ),
    (
        ("mfma.32x32x2", "f32", (32, 32, 2), 64, _CDNA),
        ("", "r1 r2 r4 r8 r16 c1"),
        ("", "c1 c2 c4 c8 c16 r1"),
        ("r1 r2 r8 r16", "c1 c2 c4 c8 c16 r4"),
    ),
    (
        ("mfma.16x16x4", "f32", (16, 16, 4), 64, _CDNA),
        ("", "r1 r2 r4 r8 c1 c2"),
        ("", "c1 c2 c4 c8 r1 r2"),
        ("r1 r2", "c1 c2 c4 c8 r4 r8"),
    ),
    (
        ("wmma.gfx11.16x16x16", "f16 bf16", (16, 16, 16), 32, _RDNA3),
        ("c1 c2 c4 c8", "r1 r2 r4 r8 0"),
        ("r1 r2 r4 r8", "c1 c2 c4 c8 0"),
        ("r2 r4 r8", "c1 c2 c4 c8 r1"),
    ),
    (
        ("wmma.gfx12.16x16x16", "f16 bf16", (16, 16, 16), 32, _RDNA4),
        ("c1 c2 c8", "r1 r2 r4 r8 c4"),
        ("r1 r2 r8", "c1 c2 c4 c8 r4"),
        ("r1 r2 r4", "c1 c2 c4 c8 r8"),
    ),
    (
        ("simdgroup.8x8x8", "f16 bf16 f32", (8, 8, 8), 32, _METAL),
        ("c1", "c2 r1 r2 c4 r4"),
        ("c1", "c2 r1 r2 c4 r4"),
        ("c1", "c2 r1 r2 c4 r4"),
    ),
    (
        ("dpas.8x16x16", "f16 bf16", (8, 16, 16), 16, _DPAS),
        ("r1 r2 r4", "c1 c2 c4 c8"),
        ("r1 r2 r4 r8", "c1 c2 c4 c8"),
        ("r1 r2 r4", "c1 c2 c4 c8"),
    ),
)

_WGMMA_K = {"f16": 16, "bf16": 16, "tf32": 8, "s8": 32, "e4m3": 32, "e5m2": 32}
_WGMMA_N = tuple(range(8, 257, 8))
_WGMMA_N_S8 = (8, 16, 24, *range(32, 257, 16))
_WGMMA_A = {
    16: ("c1 r8 c8", "c2 c4 r1 r2 r4 r16 r32"),
    8: ("r8 c4", "c1 c2 r1 r2 r4 r16 r32"),
    32: ("c1 c2 r8 c16", "c4 c8 r1 r2 r4 r16 r32"),
}
_WGMMA_SECTION = {16: 1, 8: 2, 32: 3}


@cache
def _wgmma(n: int, element: str) -> Instruction:
    allowed = _WGMMA_N_S8 if element == "s8" else _WGMMA_N
    if n not in allowed:
        raise InvalidSchedule(
            field=f"n of wgmma with {element}",
            got=n,
            expected="8, 16, 24, 32, 48, … 256 by 16" if element == "s8" else "8, 16, … 256 by 8",
            remedy=f"the nearest is {min(allowed, key=lambda legal: abs(legal - n))}",
        )
    k = _WGMMA_K[element]
    tiles = "".join(f" c{8 << bit}" for bit in range((n // 8 - 1).bit_length()))
    return Instruction(
        name=f"wgmma.m64n{n}k{k}.{element}",
        m=64,
        n=n,
        k=k,
        element=element,
        accumulator=_accumulator(element),
        lanes=128,
        source=f"PTX ISA 9.7.15.5.1.1.{_WGMMA_SECTION[k]}, Matrix Fragments for wgmma.mma_async.m64nNk{k}",
        operands=((Operand.A, *_WGMMA_A[k]), (Operand.C, f"c1 r8{tiles}", "c2 c4 r1 r2 r4 r16 r32")),
    )


def _accumulator(element: str) -> str:
    return "s32" if element == "s8" else "f32"


MMA_INSTRUCTIONS: dict[str, Instruction] = {
    f"{name}.{element}": Instruction(
        name=f"{name}.{element}",
        m=m,
        n=n,
        k=k,
        element=element,
        accumulator=_accumulator(element),
        lanes=lanes,
        source=source,
        operands=((Operand.A, *a), (Operand.B, *b), (Operand.C, *c)),
    )
    for (name, elements, (m, n, k), lanes, source), a, b, c in _TABLE
    for element in elements.split()
}
"""Every matrix instruction of fixed shape, by name (``mma.m16n8k16.bf16``); wgmma's are made by :func:`instruction`."""
