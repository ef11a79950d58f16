"""GuardedArray: an array that lies between canaries, so that what is written or read beside it is noticed.

Bytes that belong to no element (before, after, and between rows of a strided layout) hold a canary. As a float the
canary is NaN, so an element read from there and used poisons the result; a byte of it that changes was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.core.tensor_type import BlockedLayout
from tracea.errors import InvalidStride

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.core.tensor_type import TensorType

__all__ = ["GuardedArray", "Poison"]

# Bytes on either side: more than the widest tile row that a kernel writes (64 columns of f64 and a vector).
GUARD_BYTES: Final = 4096
ALIGNMENT_BYTES: Final = 64
_CANARY: Final = 0xFF  # 0xFFFF… is a NaN in every float format


class Poison(Enum):
    """What fills an output before a run: a NaN of its own, or a number that no sensible result equals."""

    NAN = "nan"
    FINITE = "finite"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedArray:
    """A view ``array`` of the bytes ``between`` the two parts ``outside``, all of them one memory.

    ``gaps`` marks the bytes between that belong to no element of a strided layout; None: there are none.
    """

    array: NDArray[Any]
    outside: tuple[NDArray[np.uint8], NDArray[np.uint8]]
    between: NDArray[np.uint8]
    gaps: NDArray[np.bool_] | None

    @classmethod
    def of(cls, kind: TensorType, *, misaligned: int = 0) -> GuardedArray:
        """Allocate memory for a strided type, ``misaligned`` elements after a 64-byte boundary.

        Raises:
            InvalidStride: the layout is blocked: a kernel's own layout is packed by the runtime, not seen by a caller.
        """
        if isinstance(kind.layout, BlockedLayout):
            raise InvalidStride(
                field="layout", got=str(kind), expected="a strided layout", remedy="judge the kernel behind its packing"
            )
        itemsize = kind.dtype.nbytes
        low, high = kind.extent
        size = (high - low) * itemsize
        memory = np.full(2 * GUARD_BYTES + size + 2 * ALIGNMENT_BYTES, _CANARY, np.uint8)
        start = GUARD_BYTES + -(memory.ctypes.data + GUARD_BYTES - low * itemsize) % ALIGNMENT_BYTES
        start += misaligned * itemsize % ALIGNMENT_BYTES
        strides = tuple(stride * itemsize for stride in kind.strides)
        dtype, shape = np.dtype(kind.dtype.numpy), kind.static_shape
        between = memory[start : start + size]
        return cls(
            array=np.ndarray(shape, dtype, memory, start - low * itemsize, strides),
            outside=(memory[:start], memory[start + size :]),
            between=between,
            gaps=None if kind.nbytes == size else _gaps(size, shape, -low * itemsize, strides, itemsize),
        )

    def fill(self, values: NDArray[Any]) -> None:
        """Write the values of all elements; of those that share an address the last one stays."""
        self.array[...] = values

    def differing(self, values: NDArray[Any]) -> int:
        """Return how many elements do not have the bits of ``values``."""
        return int(np.count_nonzero(_bits(self.array) != _bits(values)))

    def poison(self, poison: Poison) -> None:
        """Fill every element with the poison, and every byte beside them with the canary."""
        for part in self.outside:
            part[...] = _CANARY
        if self.gaps is not None:
            self.between[...] = _CANARY
        self.array[...] = _poison_value(self.array.dtype, poison)

    def unwritten(self, poison: Poison, possible: NDArray[np.float64] | None = None) -> int:
        """Return how many elements still hold the bits of the poison.

        Every pattern of an integer is a number that may be right: with ``possible``, the right results, an integer that
        equals the poison there counts as written. Left unwritten, it is wrong under the other poison.
        """
        poison_value = _poison_value(self.array.dtype, poison)
        held = _bits(self.array) == _bits(poison_value)
        if possible is not None and self.array.dtype.kind in "iub":
            held &= possible != poison_value.astype(np.float64)
        return int(np.count_nonzero(held))

    def damage(self) -> int:
        """Return how many bytes beside the elements no longer hold the canary."""
        changed = sum(int(np.count_nonzero(part != _CANARY)) for part in self.outside)
        if self.gaps is not None:
            changed += int(np.count_nonzero((self.between != _CANARY) & self.gaps))
        return changed

    def content(self) -> bytes:
        """Return the bytes of all elements in logical order."""
        return self.array.tobytes()


def _gaps(size: int, shape: tuple[int, ...], first: int, strides: tuple[int, ...], itemsize: int) -> NDArray[np.bool_]:
    """Return which bytes belong to no element: mark those of every element through the same strides."""
    gaps = np.ones(size, np.bool_)
    inside = np.ndarray((*shape, itemsize), np.bool_, gaps, first, (*strides, 1))
    inside[...] = False
    return gaps


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    """Return the elements' bits as unsigned integers: NaN and negative zero compare as what they are."""
    return values.view(f"u{values.dtype.itemsize}")


def _poison_value(dtype: np.dtype[Any], poison: Poison) -> NDArray[Any]:
    """Return the poison as an array of one element: 0x5151…, or a NaN unlike the canary in its lowest byte."""
    pattern = b"\x51" * dtype.itemsize if poison is Poison.FINITE else b"\xfe" + b"\xff" * (dtype.itemsize - 1)
    return np.frombuffer(pattern, dtype)
