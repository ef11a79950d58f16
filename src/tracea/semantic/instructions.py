"""GPU instructions as executable meanings: where each lane's registers lie, transcribed from the vendor's tables.

Worked example (mma.m16n8k16, operand A): lane 5 has group 1 and thread 1; its registers hold row 1, columns 2 and 3;
row 9, columns 2 and 3; row 1, columns 10 and 11; row 9, columns 10 and 11.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracea.semantic.nodes import Intrinsic

__all__ = [
    "ACCUMULATOR_TO_OPERAND",
    "LDMATRIX_A",
    "LDMATRIX_B",
    "LDMATRIX_B_TRANSPOSED",
    "MMA_M16N8K16",
    "STORE_M16N8",
    "WGMMA_M64N8K16",
    "WGMMA_STORE_M64N8",
    "fragment_of_accumulator",
    "matrix_of_accumulator",
]

Array = np.ndarray[Any, Any]

_LANE = np.arange(32)
_GROUP, _THREAD = _LANE // 4, _LANE % 4

# PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": row and column of register i of each lane.
_A_ROW = np.stack([_GROUP + 8 * (i // 2 % 2) for i in range(8)], axis=1)
_A_COLUMN = np.stack([2 * _THREAD + i % 2 + 8 * (i // 4) for i in range(8)], axis=1)
_B_ROW = np.stack([2 * _THREAD + i % 2 + 8 * (i // 2) for i in range(4)], axis=1)
_B_COLUMN = np.stack([_GROUP for _ in range(4)], axis=1)
_C_ROW = np.stack([_GROUP + 8 * (i // 2) for i in range(4)], axis=1)
_C_COLUMN = np.stack([2 * _THREAD + i % 2 for i in range(4)], axis=1)


def _matrix(fragment: Array, rows: Array, columns: Array, shape: tuple[int, int]) -> Array:
    result = np.empty(shape, dtype=fragment.dtype)
    result[rows, columns] = fragment.reshape(rows.shape)
    return result


def matrix_of_accumulator(fragment: Array) -> Array:
    """Return the 16×8 tile that an accumulator fragment of (32, 4) holds."""
    return _matrix(fragment, _C_ROW, _C_COLUMN, (16, 8))


def fragment_of_accumulator(tile: Array) -> Array:
    """Return the (32, 4) accumulator fragment of a 16×8 tile."""
    return tile[_C_ROW, _C_COLUMN]


def _ldmatrix_a(tile: Array) -> Array:
    return tile[_A_ROW, _A_COLUMN]


def _ldmatrix_b(tile_KN: Array) -> Array:
    return tile_KN[_B_ROW, _B_COLUMN]


def _ldmatrix_b_transposed(tile_NK: Array) -> Array:
    return tile_NK[_B_COLUMN, _B_ROW]


def _mma(a: Array, b: Array, c: Array) -> Array:
    a_MK = _matrix(a, _A_ROW, _A_COLUMN, (16, 16)).astype(np.float32)
    b_KN = _matrix(b, _B_ROW, _B_COLUMN, (16, 8)).astype(np.float32)
    return (matrix_of_accumulator(c) + a_MK @ b_KN)[_C_ROW, _C_COLUMN]


def _accumulator_to_operand(c: Array) -> Array:
    # Two accumulator tiles side by side are 16×16; their registers are already where operand A wants them.
    left, right = c.reshape(2, 32, 4)
    return np.concatenate([left, right], axis=1)


def _wgmma(a_MK: Array, b_KN: Array, c: Array) -> Array:
    product = a_MK.astype(np.float32) @ b_KN.astype(np.float32)
    tiles = product.reshape(4, 16, 8)  # one 16-row tile for each of the four warps
    return c + np.concatenate([fragment_of_accumulator(tile) for tile in tiles]).reshape(c.shape)


def _wgmma_store(fragment: Array) -> Array:
    return np.concatenate([matrix_of_accumulator(part) for part in fragment.reshape(4, 32, 4)])


_MMA = "PTX ISA 9.7.14.5.8, Matrix Fragments for mma.m16n8k16 with floating point type"
_LDMATRIX = "PTX ISA 9.7.14.5.15, ldmatrix"
_WGMMA = "PTX ISA 9.7.15.5.1.1, Register Fragments for wgmma.mma_async.m64nNk16"

LDMATRIX_A = Intrinsic(name="ldmatrix_x4", meaning=_ldmatrix_a, source=_LDMATRIX)
LDMATRIX_B = Intrinsic(name="ldmatrix_x2_trans", meaning=_ldmatrix_b, source=_LDMATRIX)
LDMATRIX_B_TRANSPOSED = Intrinsic(name="ldmatrix_x2", meaning=_ldmatrix_b_transposed, source=_LDMATRIX)
MMA_M16N8K16 = Intrinsic(name="mma_m16n8k16", meaning=_mma, source=_MMA)
STORE_M16N8 = Intrinsic(name="store_m16n8", meaning=matrix_of_accumulator, source=_MMA)
ACCUMULATOR_TO_OPERAND = Intrinsic(name="accumulator_to_operand", meaning=_accumulator_to_operand, source=_MMA)
WGMMA_M64N8K16 = Intrinsic(name="wgmma_m64n8k16", meaning=_wgmma, source=_WGMMA)
WGMMA_STORE_M64N8 = Intrinsic(name="store_m64n8", meaning=_wgmma_store, source=_WGMMA)
