"""Wavefronts: how often shared memory must answer one access of a warp, by counting and by linear algebra.

Shared memory has 32 banks of 4 bytes, and answers one word of each at once. An access of 4 bytes a lane is one phase
of 32 lanes, of 8 bytes two of 16, of 16 bytes four of 8. Lanes that want the same word of a bank are answered
together; the *ways* of a phase are the most distinct words that one bank must give.

Worked example. Eight lanes read 16 bytes each, one row of 64 bytes apart: lane ``l`` wants the bytes from ``64·l``, the
words ``16·l … 16·l + 3``, hence the banks ``16·(l mod 2) …``: four lanes meet in each, each with words of its own. Four
ways. In bits, the word is ``l2 l1 l0 0 0 w1 w0`` and the bank its lower five bits, ``l0 0 0 w1 w0``. Words have rank 5,
banks rank 3, so ``2**5`` words lie in ``2**3`` banks: ``2**(5 − 3) = 4`` in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tracea.errors import InvalidSchedule

__all__ = ["ACCESS_BYTES", "BANKS", "BANK_BYTES", "Conflict", "conflict_of", "linear_columns", "linear_ways", "rank"]

BANKS = 32
BANK_BYTES = 4
ACCESS_BYTES = (1, 2, 4, 8, 16)
_LANES = 32


@dataclass(frozen=True, slots=True)
class Conflict:
    """The worst phase of one access: its ways, the bank, the words that it must give, and the lanes that want them.

    Units: ``words`` are byte addresses divided by 4.
    """

    ways: int
    phase: int = 0
    bank: int = 0
    words: tuple[int, ...] = ()
    lanes: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.ways <= 1:
            return "no conflict"
        lanes, words = (", ".join(map(str, items)) for items in (self.lanes, self.words))
        return f"lanes {lanes} want words {words} of bank {self.bank}"


def conflict_of(addresses: Sequence[int | None], nbytes: int) -> Conflict:
    """Return the worst phase of one access by counting; an address is a lane's first byte, None where it is inactive.

    Raises:
        InvalidSchedule: not a width that a lane can access, or an address that is not a multiple of it.
    """
    size = _checked(addresses, nbytes)
    worst = Conflict(1)
    for phase, first in enumerate(range(0, len(addresses), size)):
        wanted: dict[int, dict[int, int]] = {}  # by bank: each word, and the first lane that wants it
        for lane in range(first, min(first + size, len(addresses))):
            address = addresses[lane]
            if address is None:
                continue
            for word in range(address // BANK_BYTES, (address + nbytes - 1) // BANK_BYTES + 1):
                wanted.setdefault(word % BANKS, {}).setdefault(word, lane)
        bank = max(wanted, key=lambda b: (len(wanted[b]), -b), default=0)
        found = wanted.get(bank, {})
        if len(found) > worst.ways:
            worst = Conflict(len(found), phase, bank, tuple(found), tuple(found.values()))
    return worst


def linear_columns(addresses: Sequence[int]) -> tuple[int, ...] | None:
    """Return what each bit of the lane number XORs into the address; None where the addresses are not linear in it."""
    bits = (len(addresses) - 1).bit_length()
    if len(addresses) != 1 << bits:
        return None
    columns = tuple(addresses[1 << bit] ^ addresses[0] for bit in range(bits))
    for lane, address in enumerate(addresses):
        expected = addresses[0]
        for bit, column in enumerate(columns):
            if lane >> bit & 1:
                expected ^= column
        if expected != address:
            return None
    return columns


def linear_ways(columns: Sequence[int], nbytes: int) -> int:
    """Return the ways of an access whose byte address is linear over GF(2) in the lane number.

    ``columns`` are :func:`linear_columns`. All phases are alike, since a phase differs from another by a constant that
    is XORed to all its addresses, and all banks that a phase meets give equally many words.

    Raises:
        InvalidSchedule: not a width that a lane can access.
    """
    size = _checked((), nbytes)
    phase_bits = size.bit_length() - 1
    inside = [1 << bit for bit in range(max(0, (nbytes // BANK_BYTES).bit_length() - 1))]
    words = [column // BANK_BYTES for column in columns[:phase_bits]] + inside
    return 1 << (rank(words) - rank(word % BANKS for word in words))


def rank(vectors: Iterable[int]) -> int:
    """Return the rank over GF(2) of bit vectors."""
    leading: dict[int, int] = {}
    for vector in vectors:
        rest = vector
        while rest:
            known = leading.get(rest.bit_length())
            if known is None:
                leading[rest.bit_length()] = rest
                break
            rest ^= known
    return len(leading)


def _checked(addresses: Sequence[int | None], nbytes: int) -> int:
    """Return the lanes of one phase."""
    if nbytes not in ACCESS_BYTES:
        raise InvalidSchedule(
            field="bytes of a lane's access", got=nbytes, expected=ACCESS_BYTES, remedy="split it into such accesses"
        )
    crooked = next((address for address in addresses if address is not None and address % nbytes), None)
    if crooked is not None:
        raise InvalidSchedule(
            field=f"address of an access of {nbytes} bytes",
            got=crooked,
            expected=f"a multiple of {nbytes}",
            remedy="use a narrower access",
        )
    return min(_LANES, _LANES * BANK_BYTES // nbytes)
