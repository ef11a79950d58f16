"""Swizzles: XOR of row bits into column bits of a shared-memory address, so that reading down a column hits all banks.

Worked example. A tile has rows of 64 bytes (32 numbers of 16 bits), so four columns of 16 bytes. Shared memory answers
128 bytes at once, eight groups of 16 bytes; ``ldmatrix`` asks for the same column of eight rows. Unswizzled, row ``r``
column ``c`` lies in group ``(4·r + c) mod 8``: rows 0, 2, 4, 6 all in group ``c``: four ways. The address is

    byte = r·64 + c·16 + b        bits:  r2 r1 | r0 c1 c0 | b3 b2 b1 b0        the group is r0 c1 c0

so bit ``r0`` is in the group already, and ``r1 r2`` are what the group lacks. ``Swizzle(bits=2, base=4, shift=3)``
XORs ``r2 r1`` into ``c1 c0``: the group becomes ``(r0, c1^r2, c0^r1)``, which takes eight values over eight rows. With
128-byte rows the group is ``c2 c1 c0``, nothing of the row is in it, and all three row bits are needed: (3, 4, 3).

In general an XOR of bits ``base+shift …`` into bits ``base …`` (``bits`` of them) is linear over GF(2). Where
``shift >= bits`` its source bits stay as they are, hence it is its own inverse; bits below ``base`` stay as they are,
hence ``2**base``-byte pieces stay whole and aligned. The copy engine's 32-, 64- and 128-byte modes are the members
(1, 4, 3), (2, 4, 3) and (3, 4, 3); the notation is that of CuTe's ``Swizzle<B, M, S>`` on bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tracea.errors import InvalidSchedule
from tracea.semantic.linear_layout import LinearLayout

__all__ = ["BANK_BYTES", "COLUMN_BYTES", "TMA_MODES", "WAVEFRONT_BYTES", "Swizzle", "choose", "staged"]

BANK_BYTES = 4  # one bank's word
WAVEFRONT_BYTES = 128  # what 32 banks deliver at once
COLUMN_BYTES = 16  # the widest access of a lane, and what ldmatrix reads of a row

_MAX_ADDRESS_BITS = 31

Offset = TypeVar("Offset", int, np.ndarray)  # byte offsets: one, or an integer array of them


@dataclass(frozen=True, slots=True)
class Swizzle:
    """An involution of byte offsets: ``bits`` bits from ``base + shift`` up are XORed into those from ``base`` up.

    Offsets count from the start of a buffer that is aligned to ``period_bytes``. ``also`` is XORed in besides, from the
    same offset: a row bit may choose among columns of two widths, as where pairs of lanes write and whole lanes read.

    Raises:
        InvalidSchedule: no bit is XORed, or one of those that are XORed in is changed itself (``shift < bits``, or by
            ``also``), where it would not be its own inverse.
    """

    bits: int
    base: int
    shift: int
    also: Swizzle | None = None

    def __post_init__(self) -> None:
        if self.bits < 1 or self.base < 0 or self.shift < self.bits:
            raise InvalidSchedule(
                field="swizzle (bits, base, shift)",
                got=(self.bits, self.base, self.shift),
                expected="bits >= 1, base >= 0, shift >= bits",
                remedy="let shift be at least bits; a buffer without swizzle has None",
            )
        if self.base + self.shift + self.bits > _MAX_ADDRESS_BITS:
            raise InvalidSchedule(
                field="swizzle (bits, base, shift)",
                got=(self.bits, self.base, self.shift),
                expected=f"base + shift + bits <= {_MAX_ADDRESS_BITS}",
                remedy="use narrower rows",
            )
        if self.also is not None and (self._sources | self.also._sources) & (self._changed | self.also._changed):
            raise InvalidSchedule(
                field="swizzle (also)",
                got=str(self.also),
                expected="column bits that neither reads, row bits that neither changes",
                remedy="let both XOR bits of the row into bits of the column",
            )

    @property
    def _changed(self) -> int:
        others = 0 if self.also is None else self.also._changed
        return ((1 << self.bits) - 1) << self.base | others

    @property
    def _sources(self) -> int:
        others = 0 if self.also is None else self.also._sources
        return ((1 << self.bits) - 1) << (self.base + self.shift) | others

    @property
    def period_bits(self) -> int:
        """Bits of an offset that the pattern depends on."""
        return max(self._sources.bit_length(), self._changed.bit_length())

    @property
    def alignment_bytes(self) -> int:
        """Aligned pieces of this size stay whole and aligned."""
        return self._changed & -self._changed

    @property
    def span_bytes(self) -> int:
        """Every aligned block of this size is mapped onto itself: a buffer is a multiple of it."""
        return 1 << self._changed.bit_length()

    @property
    def period_bytes(self) -> int:
        """The pattern repeats after so many bytes, to which the buffer is aligned."""
        return 1 << self.period_bits

    @property
    def tma_bytes(self) -> int | None:
        """The copy engine's mode that swizzles in the same way: 32, 64 or 128; None where it has none."""
        return next((nbytes for nbytes, mode in TMA_MODES.items() if mode == self), None)

    def apply(self, byte_offset: Offset) -> Offset:
        """Return where the byte of a logical offset is stored; applied twice it is the identity."""
        mask = ((1 << self.bits) - 1) << self.base
        once = byte_offset ^ ((byte_offset >> self.shift) & mask)
        return once if self.also is None else self.also.apply(once)

    def as_layout(self, *, bits: int | None = None) -> LinearLayout:
        """Return the map of the low ``bits`` bits of an offset, from ``logical`` to ``stored``; by default one period.

        Raises:
            InvalidSchedule: fewer bits than a period has, which the map would leave.
        """
        period = self.period_bits
        size = period if bits is None else bits
        if size < period:
            raise InvalidSchedule(
                field="bits of a swizzle's layout", got=size, expected=f">= {period}", remedy="take one whole period"
            )
        return LinearLayout((("logical", tuple(self.apply(1 << bit) for bit in range(size))),), (("stored", size),))

    def __str__(self) -> str:
        """Render as ``swizzle(3, 4, 3)``."""
        others = "" if self.also is None else f" and {self.also}"
        return f"swizzle({self.bits}, {self.base}, {self.shift}){others}"


TMA_MODES = {32: Swizzle(1, 4, 3), 64: Swizzle(2, 4, 3), 128: Swizzle(3, 4, 3)}
"""The copy engine's swizzle modes by the width of their rows in bytes (CUtensorMapSwizzle)."""


def choose(row_bytes: int, access_bytes: int = COLUMN_BYTES) -> Swizzle | None:
    """Return the swizzle that puts equal columns of consecutive rows in different banks; None where they are anyway.

    A phase is ``128 / access_bytes`` lanes, each with ``access_bytes`` of its own row. A row of ``2^k`` columns leaves
    ``q − k`` row bits in the ``q`` bits of the phase's group; the ``min(k, q)`` row bits above them are XORed into the
    column. An odd number of columns in a row walks through all groups by itself.

    Units: bytes; ``access_bytes`` 4, 8 or 16.

    Raises:
        InvalidSchedule: the row is no whole number of accesses, or neither an odd number nor a power of two of them.
    """
    if access_bytes not in (4, 8, 16) or row_bytes < access_bytes or row_bytes % access_bytes:
        raise InvalidSchedule(
            field="row bytes and access bytes of a swizzle",
            got=(row_bytes, access_bytes),
            expected="accesses of 4, 8 or 16 bytes, a row of whole accesses",
            remedy=f"make the row a multiple of {COLUMN_BYTES} bytes",
        )
    columns = row_bytes // access_bytes
    if columns % 2:
        return None
    if columns & (columns - 1):
        below = 1 << (columns.bit_length() - 1)
        raise InvalidSchedule(
            field="row bytes of a swizzle",
            got=row_bytes,
            expected=f"{access_bytes} times a power of two, or times an odd number",
            remedy=f"use rows of {below * access_bytes} or {2 * below * access_bytes} bytes",
        )
    column_bits = columns.bit_length() - 1
    group_bits = (WAVEFRONT_BYTES // access_bytes).bit_length() - 1
    return Swizzle(min(column_bits, group_bits), access_bytes.bit_length() - 1, max(column_bits, group_bits))


def staged(row_bytes: int, lane_bytes: int) -> Swizzle | None:
    """Return the swizzle of a tile of sums that fragments write in pairs of words and lanes read in whole rows.

    Worked example: rows of 128 bytes. A fragment's phase writes 32 bytes in each of four rows, so two row bits choose
    among the four columns of 32 bytes: (2, 5, 2). A lane that makes 16 bytes of f16 reads ``lane_bytes`` = 32 of sums
    in two accesses; four such lanes in each of two rows take every other 16 bytes, so the lowest row bit chooses the
    half as well. Rows of 64 bytes have one of these bits in the bank already. None for rows of other lengths.
    """
    if row_bytes not in (WAVEFRONT_BYTES // 2, WAVEFRONT_BYTES):
        return None
    halves = Swizzle(1, 4, 3) if lane_bytes == 2 * COLUMN_BYTES else None
    return Swizzle(1 if row_bytes < WAVEFRONT_BYTES else 2, 5, 2, halves)
