"""Who touches what in shared memory: the same lists for proofs, the emitted header and the emulator.

Worked example (``copy_lanes(64, 32, 2, 16, 128)``: 64 rows of 32 half-precision numbers, 16 bytes at a time, 128
threads): a row is four chunks, so there are 256 chunks and two steps. In step 0 thread 5 copies chunk 5: row 1, column
8. In step 1 it copies chunk 5 + 128: row 33, column 8. As text: ``for (q = thread; q < 256; q += 128)`` with row
``q / 4`` and column ``q % 4 * 8``. Eight neighbouring threads cover 128 contiguous bytes of two rows, which is what
global memory wants; where shared memory wants more, the swizzle sees to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tracea.errors import InvalidSchedule
from tracea.semantic.instructions import matrix_addresses
from tracea.semantic.linear_layout import LinearLayout
from tracea.semantic.matrix_instructions import Operand

__all__ = ["CopyLanes", "copy_lanes", "ldmatrix_addresses"]

Array = np.ndarray[Any, Any]

_WARP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLanes:
    """The chunks of a tile, dealt to threads in turn, row by row.

    Units: ``rows`` and ``columns`` in elements; ``per_chunk`` elements of one access.
    """

    rows: int
    columns: int
    per_chunk: int
    threads: int

    @property
    def chunks_per_row(self) -> int:
        """Accesses of one row."""
        return self.columns // self.per_chunk

    @property
    def chunks(self) -> int:
        """Accesses of the whole tile."""
        return self.rows * self.chunks_per_row

    @property
    def steps(self) -> int:
        """Turns until all is copied; in the last one threads may be idle."""
        return -(-self.chunks // self.threads)

    def at(self, step: int, thread: int) -> tuple[int, int] | None:
        """Return row and first column of a thread's access in a step; None where it is idle."""
        chunk = step * self.threads + thread
        if chunk >= self.chunks:
            return None
        return chunk // self.chunks_per_row, chunk % self.chunks_per_row * self.per_chunk

    def places(self) -> tuple[Array, Array]:
        """Return rows and first columns of all accesses, each of shape (steps, threads); -1 where a thread is idle."""
        chunk = np.arange(self.steps * self.threads).reshape(self.steps, self.threads)
        busy = chunk < self.chunks
        rows = np.where(busy, chunk // self.chunks_per_row, -1)
        return rows, np.where(busy, chunk % self.chunks_per_row * self.per_chunk, -1)

    def layout(self) -> LinearLayout | None:
        """Return the map (thread, step) -> (row, column); None where a size is no power of two or threads idle."""
        sizes = (self.rows, self.chunks_per_row, self.per_chunk, self.threads, self.steps)
        if any(size & (size - 1) for size in sizes) or self.steps * self.threads != self.chunks:
            return None
        chunk = LinearLayout.identity("thread", "chunk", _log(self.threads)).product(
            LinearLayout.identity("step", "chunk", _log(self.steps))
        )
        column_bits = _log(self.chunks_per_row)
        places = [(0, self.per_chunk << bit) for bit in range(column_bits)]
        places += [(1 << bit, 0) for bit in range(_log(self.rows))]
        return chunk.then(LinearLayout.of({"chunk": places}, {"row": _log(self.rows), "column": _log(self.columns)}))


def copy_lanes(rows: int, columns: int, element_bytes: int, chunk_bytes: int, threads: int) -> CopyLanes:
    """Return how ``threads`` share the copy of a tile, ``chunk_bytes`` an access.

    Raises:
        InvalidSchedule: a size below 1, or a row that is no whole number of accesses.
    """
    if min(rows, columns, element_bytes, chunk_bytes, threads) < 1:
        raise InvalidSchedule(
            field="copy of a tile (rows, columns, element bytes, chunk bytes, threads)",
            got=(rows, columns, element_bytes, chunk_bytes, threads),
            expected="all at least 1",
            remedy="copy at least one element with at least one thread",
        )
    if chunk_bytes % element_bytes or columns * element_bytes % chunk_bytes:
        legal = next(width for width in (16, 8, 4, 2, 1) if columns * element_bytes % width == 0)
        raise InvalidSchedule(
            field="chunk bytes of a tile's copy",
            got=chunk_bytes,
            expected=f"a divisor of the row's {columns * element_bytes} bytes, in whole elements of {element_bytes}",
            remedy=f"the widest is {max(legal, element_bytes)} bytes",
        )
    return CopyLanes(rows=rows, columns=columns, per_chunk=chunk_bytes // element_bytes, threads=threads)


def ldmatrix_addresses(
    name: str, operand: Operand | str, *, transposed: bool = False, tiles: int = 1, along: str = "outer"
) -> tuple[tuple[int, int], ...]:
    """Return the start that each of 32 lanes gives to ``ldmatrix``: (row, column) of the tile as stored, in elements.

    Only the first ``8 · matrices`` lanes' addresses are read; the others repeat them, as the instruction asks on the
    oldest hardware. Arguments and errors as :func:`tracea.semantic.instructions.matrix_addresses`.
    """
    rows = matrix_addresses(name, operand, transposed=transposed, tiles=tiles, along=along)
    addresses = 1 << rows.bits_of("row")  # the input of that name: an address number
    places = [_apply(rows, lane % addresses) for lane in range(_WARP)]
    return tuple(places)


def _apply(rows: LinearLayout, address: int) -> tuple[int, int]:
    place = rows.apply(row=address, column=0)
    return place["row"], place["column"]


def _log(power_of_two: int) -> int:
    return power_of_two.bit_length() - 1
