"""GPU matrix instructions as executable meanings, all made from the lane maps and one product.

Worked example: ``mma("mma.m16n8k16.f16")`` scatters its operands from (32, 8), (32, 4) and (32, 4) registers to
matrices of 16×16, 16×8 and 16×8 by their lane maps, multiplies, and gathers the sum back.

**Numbers.** A product of two elements is exact. Floats are summed in float64, ``((c + a₀·b₀) + a₁·b₁) + …`` with k
ascending, and rounded to float32 once, to nearest even. Hardware keeps fewer bits and another order (PTX leaves both
open), so a device is compared with a tolerance; an emulator that sums in this way is compared bitwise. Integers are
exact modulo 2³². tf32 operands are float32 numbers of which the low 13 bits are not read: ``ROUND_TF32`` first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracea.errors import InvalidSchedule
from tracea.semantic.lane_map import LaneMap, matrix_rows
from tracea.semantic.linear_layout import LinearLayout
from tracea.semantic.matrix_instructions import Instruction, Operand, instruction
from tracea.semantic.nodes import Intrinsic

__all__ = [
    "ACCUMULATOR_TO_OPERAND",
    "LDMATRIX_A",
    "LDMATRIX_B",
    "LDMATRIX_B_TRANSPOSED",
    "MMA_M16N8K16",
    "ROUND_TF32",
    "STORE_M16N8",
    "WGMMA_M64N8K16",
    "WGMMA_STORE_M64N8",
    "accumulator_to_operand",
    "fragment_of_accumulator",
    "load_fragment",
    "load_matrix",
    "matrix_addresses",
    "matrix_of_accumulator",
    "mma",
    "multiply_accumulate",
    "round_tf32",
    "store_fragment",
    "store_matrix",
    "wgmma",
]

Array = np.ndarray[Any, Any]

_WORD = 4  # bytes of a register
_HALF = 2  # bytes of what stmatrix stores
_TF32_DROPPED = 13  # bits of a float32 that tf32 does not have
_NOT_FINITE = 0x7F80_0000


def multiply_accumulate(of: Instruction, a_MK: Array, b_KN: Array, c_MN: Array) -> Array:
    """Return c + a·b in the order and with the rounding that the module documents."""
    if of.accumulator == "s32":
        total = c_MN.astype(np.int64) + a_MK.astype(np.int64) @ b_KN.astype(np.int64)
        return total.astype(np.int32)
    a, b = (_read_tf32(x) if of.element == "tf32" else x.astype(np.float64) for x in (a_MK, b_KN))
    with np.errstate(all="ignore"):  # infinities and NaN are values here
        total = c_MN.astype(np.float64)
        for k in range(a.shape[1]):
            total = total + a[:, k : k + 1] * b[k]
        return total.astype(np.float32)


def mma(name: str) -> Intrinsic:
    """Return ``mma.sync`` of one shape and type: ``meaning(a, b, c) -> c`` on fragments of (lanes, registers).

    Raises:
        InvalidSchedule: no such instruction, or one whose operand B is not in registers.
    """
    of = instruction(name)
    maps = [LaneMap(of, operand) for operand in Operand]

    def meaning(a: Array, b: Array, c: Array) -> Array:
        a_MK, b_KN, c_MN = (where.matrix(fragment) for where, fragment in zip(maps, (a, b, c), strict=True))
        return maps[2].fragment(multiply_accumulate(of, a_MK, b_KN, c_MN)).reshape(c.shape)

    return Intrinsic(name=_primitive(of), meaning=meaning, source=of.source, attributes=_attributes(of))


def wgmma(
    n: int, element: str, *, a_in_registers: bool = False, a_transposed: bool = False, b_transposed: bool = False
) -> Intrinsic:
    """Return ``wgmma`` of four warps: ``meaning(a, b, c) -> c``, c a fragment of (128, n / 2).

    a is a tile of 64×k in shared memory (k×64 if ``a_transposed``), or a fragment; b a tile of k×n (n×k if
    ``b_transposed``: the K-major form). Only 16-bit elements can be transposed against their K-major storage.

    Raises:
        InvalidSchedule: no such shape, or a layout in shared memory that the instruction does not read.
    """
    k = {"f16": 16, "bf16": 16, "tf32": 8}.get(element, 32)
    of = instruction(f"wgmma.m64n{n}k{k}.{element}")
    if of.element_bytes(Operand.A) != _HALF and (a_transposed or not b_transposed):
        raise InvalidSchedule(
            field=f"storage of the operands of {of.name}",
            got=f"a_transposed={a_transposed}, b_transposed={b_transposed}",
            expected="both with k contiguous",
            remedy="store a as 64×k and b as n×k; only 16-bit elements are transposed by the instruction",
        )
    if a_in_registers and a_transposed:
        raise InvalidSchedule(
            field=f"operand a of {of.name}",
            got="transposed, in registers",
            expected="its lane map",
            remedy="transpose when loading",
        )
    a_map, c_map = LaneMap(of, Operand.A), LaneMap(of, Operand.C)

    def meaning(a: Array, b: Array, c: Array) -> Array:
        a_MK = a_map.matrix(a) if a_in_registers else a.T if a_transposed else a
        b_KN = b.T if b_transposed else b
        return c_map.fragment(multiply_accumulate(of, a_MK, b_KN, c_map.matrix(c))).reshape(c.shape)

    attributes = (
        *_attributes(of),
        ("a", "registers" if a_in_registers else "shared"),
        ("a_transposed", a_transposed),
        ("b_transposed", b_transposed),
    )
    return Intrinsic(name=f"wgmma_m64n{n}k{k}", meaning=meaning, source=of.source, attributes=attributes)


def matrix_addresses(
    name: str, operand: Operand | str, *, transposed: bool = False, tiles: int = 1, along: str = "outer"
) -> LinearLayout:
    """Return the row starts that make ``ldmatrix`` load an operand: (row, column) of it -> (row, column) of the tile.

    The input ``row`` is the address number, given by the lane of that number (lanes above it repeat); its ``column``
    counts elements within the 16 bytes at that address. The outputs are a place in the tile as it is *stored*:
    rows k for B, or the other way round if ``transposed``. ``tiles`` operands that lie side by side, ``along`` k
    ("depth") or along m or n ("outer"), are loaded at once.

    Raises:
        InvalidSchedule: the instruction cannot bring this storage into the operand's lane map.
    """
    return _load(LaneMap(name, operand), transposed, tiles, along)[1]


def load_matrix(
    name: str, operand: Operand | str, *, transposed: bool = False, tiles: int = 1, along: str = "outer"
) -> Intrinsic:
    """Return ``ldmatrix`` of operand A or B: ``meaning(tile) -> fragment`` of (lanes, registers).

    The tile is the operand as in :class:`LaneMap` (B: rows k), or its transpose where it is stored so. With several
    ``tiles`` the source is that many operands side by side (``along`` "outer": m or n; "depth": k) and the fragment
    is (tiles, lanes, registers).

    Raises:
        InvalidSchedule: the instruction cannot bring this storage into the operand's lane map.
    """
    where = LaneMap(name, operand)
    trans, _ = _load(where, transposed, tiles, along)
    matrices = where.words * tiles
    return Intrinsic(
        name=f"ldmatrix_x{matrices}{'_trans' if trans else ''}",
        meaning=_loader(where, transposed, tiles, along),
        source=_LDMATRIX,
        attributes=_load_attributes(where, transposed, tiles, along),
    )


def load_fragment(
    name: str, operand: Operand | str, *, transposed: bool = False, tiles: int = 1, along: str = "outer"
) -> Intrinsic:
    """Return the load of an operand by each lane for itself, register by register: any storage, no alignment needed."""
    where = LaneMap(name, operand)
    return Intrinsic(
        name="load_fragment",
        meaning=_loader(where, transposed, tiles, along),
        source=where.instruction.source,
        attributes=_load_attributes(where, transposed, tiles, along),
    )


def store_fragment(name: str, *, tiles: int = 1) -> Intrinsic:
    """Return the store of an accumulator by each lane for itself: ``meaning(fragment) -> tile`` of m rows.

    With several ``tiles`` the fragment is (tiles, lanes, registers) and the tiles lie side by side along n.
    """
    where = LaneMap(name, Operand.C)
    of = where.instruction
    return Intrinsic(
        name=f"store_m{of.m}n{of.n}",
        meaning=_storer(where, tiles),
        source=of.source,
        attributes=(("instruction", of.name), ("tiles", tiles)),
    )


def store_matrix(name: str, *, tiles: int = 1) -> Intrinsic:
    """Return ``stmatrix`` of an accumulator converted to 16 bits: ``meaning(fragment) -> tile``, as store_fragment.

    Raises:
        InvalidSchedule: the accumulators of so many tiles are not 1, 2 or 4 matrices of 8×8.
    """
    where = LaneMap(name, Operand.C)
    of = where.instruction
    matrices = tiles * of.m * of.n // 64
    if matrices not in (1, 2, 4) or of.lanes != 32:
        raise InvalidSchedule(
            field=f"matrices of stmatrix for {tiles} tiles of {of.name}",
            got=matrices,
            expected="1, 2 or 4 of one warp",
            remedy="store fewer or more tiles at once",
        )
    return Intrinsic(
        name=f"stmatrix_x{matrices}",
        meaning=_storer(where, tiles),
        source="PTX ISA 9.7.14.5.16, stmatrix",
        attributes=(("instruction", of.name), ("tiles", tiles)),
    )


def accumulator_to_operand(name: str) -> Intrinsic:
    """Return the reading of accumulators side by side as operand A, register for register (flash attention's P·V).

    ``meaning(c) -> a`` from (tiles, lanes, registers) of accumulators to (lanes, registers).

    Raises:
        InvalidSchedule: the registers are not where operand A wants them.
    """
    of = instruction(name)
    a_map, c_map = LaneMap(of, Operand.A), LaneMap(of, Operand.C)
    tiles = max(1, of.k // of.n)
    side = LinearLayout.identity("register", "column", tiles.bit_length() - 1)
    if c_map.layout.product(side).ordered(inputs=("register", "lane")) != a_map.layout:
        raise InvalidSchedule(
            field=f"accumulator as operand A of {of.name}",
            got=str(c_map.layout.inputs),
            expected=str(a_map.layout.inputs),
            remedy="go through shared memory, or shuffle",
        )

    def meaning(c: Array) -> Array:
        return np.concatenate(list(c.reshape(tiles, c_map.lanes, c_map.registers)), axis=1)

    return Intrinsic(name="accumulator_to_operand", meaning=meaning, source=of.source)


def round_tf32(values: Array) -> Array:
    """Return float32 values rounded to tf32's 10 bits of mantissa, to nearest, ties away from zero (cvt.rna.tf32)."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    half, kept = np.uint32(1 << (_TF32_DROPPED - 1)), np.uint32(0xFFFF_FFFF << _TF32_DROPPED & 0xFFFF_FFFF)
    finite = (bits & np.uint32(_NOT_FINITE)) != np.uint32(_NOT_FINITE)
    return np.where(finite, (bits + half) & kept, bits).astype(np.uint32).view(np.float32).reshape(values.shape)


def _read_tf32(values: Array) -> Array:
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return (bits >> _TF32_DROPPED << _TF32_DROPPED).view(np.float32).astype(np.float64)


def _load(where: LaneMap, transposed: bool, tiles: int, along: str) -> tuple[bool, LinearLayout]:
    """Return whether ldmatrix transposes, and the map from its rows to the tile as stored."""
    of, nbytes = where.instruction, where.instruction.element_bytes(where.operand)
    if where.operand is Operand.C or of.lanes != 32 or nbytes * where.registers % _WORD:
        raise InvalidSchedule(
            field=f"ldmatrix of operand {where.operand.value} of {of.name}",
            got=f"{of.lanes} lanes, {where.registers} registers of {nbytes} bytes",
            expected="operand A or B of mma.sync, in whole words",
            remedy="use load_fragment",
        )
    wanted = _tiled(where, transposed, tiles, along)
    for trans in (False, True) if nbytes == _HALF else (False,):
        moved = matrix_rows(where.words * tiles, transposed=trans, element_bytes=nbytes)
        rows = moved.inverse().then(wanted.renamed({"row": "at_row", "column": "at_column"}))
        rows = rows.renamed({"at_row": "row", "at_column": "column"})
        # An address is the start of 16 contiguous bytes: elements run along the stored columns, and alone do.
        within = dict(rows.inputs)["column"]
        unit = LinearLayout.identity("column", "column", len(within))
        if rows.divide(unit) is not None:
            return trans, rows
    raise InvalidSchedule(
        field=f"ldmatrix of operand {where.operand.value} of {of.name}",
        got=f"stored {'transposed' if transposed else 'as it is'}, {nbytes}-byte elements",
        expected="its k axis contiguous, or 2-byte elements",
        remedy="store the tile the other way round, or use load_fragment",
    )


def _tiled(where: LaneMap, transposed: bool, tiles: int, along: str) -> LinearLayout:
    # (register, lane) of all tiles -> (row, column) as stored
    axis = _axis(where, tiles, along)
    extra = LinearLayout.identity("register", axis, tiles.bit_length() - 1)
    whole = where.layout.product(extra).ordered(inputs=("register", "lane"), outputs=("row", "column"))
    if not transposed:
        return whole
    return whole.renamed({"row": "column", "column": "row"}).ordered(outputs=("row", "column"))


def _axis(where: LaneMap, tiles: int, along: str) -> str:
    if tiles not in (1, 2, 4) or along not in ("outer", "depth"):
        raise InvalidSchedule(
            field=f"tiles of {where.instruction.name} at once",
            got=(tiles, along),
            expected='1, 2 or 4, along "outer" or "depth"',
            remedy="load them in several steps",
        )
    depth = "column" if where.operand is Operand.A else "row"
    outer = "row" if where.operand is Operand.A else "column"
    return outer if along == "outer" else depth


def _loader(where: LaneMap, transposed: bool, tiles: int, along: str) -> Any:
    axis = 0 if _axis(where, tiles, along) == "row" else 1

    def meaning(tile: Array) -> Array:
        plain = tile.T if transposed else tile
        parts = [where.fragment(part) for part in np.split(plain, tiles, axis=axis)]
        return np.stack(parts) if tiles > 1 else parts[0]

    return meaning


def _storer(where: LaneMap, tiles: int) -> Any:
    def meaning(fragment: Array) -> Array:
        parts = fragment.reshape(tiles, where.lanes, where.registers)
        return np.concatenate([where.matrix(part) for part in parts], axis=1)

    return meaning


def _primitive(of: Instruction) -> str:
    suffix = f"_{of.element}" if of.element in ("tf32", "s8") else ""
    return f"mma_m{of.m}n{of.n}k{of.k}{suffix}" if of.name.startswith("mma.") else of.name.replace(".", "_")


def _attributes(of: Instruction) -> tuple[tuple[str, str], ...]:
    return (("instruction", of.name), ("element", of.element))


def _load_attributes(where: LaneMap, transposed: bool, tiles: int, along: str) -> tuple[tuple[str, Any], ...]:
    return (
        ("instruction", where.instruction.name),
        ("operand", where.operand.value),
        ("transposed", transposed),
        ("tiles", tiles),
        ("along", along),
    )


_LDMATRIX = "PTX ISA 9.7.14.5.15, ldmatrix"
_F16 = "mma.m16n8k16.f16"
_ACCUMULATOR = LaneMap(_F16, Operand.C)


def matrix_of_accumulator(fragment: Array) -> Array:
    """Return the 16×8 tile that an accumulator fragment of (32, 4) holds."""
    return _ACCUMULATOR.matrix(fragment)


def fragment_of_accumulator(tile: Array) -> Array:
    """Return the (32, 4) accumulator fragment of a 16×8 tile."""
    return _ACCUMULATOR.fragment(tile)


LDMATRIX_A = load_matrix(_F16, Operand.A)
LDMATRIX_B = load_matrix(_F16, Operand.B)
LDMATRIX_B_TRANSPOSED = load_matrix(_F16, Operand.B, transposed=True)
MMA_M16N8K16 = mma(_F16)
STORE_M16N8 = store_fragment(_F16)
ACCUMULATOR_TO_OPERAND = accumulator_to_operand(_F16)
WGMMA_M64N8K16 = wgmma(8, "f16")
WGMMA_STORE_M64N8 = store_fragment("wgmma.m64n8k16.f16")
ROUND_TF32 = Intrinsic(name="round_tf32", meaning=round_tf32, source="PTX ISA 9.7.9.21, cvt.rna.tf32.f32")
