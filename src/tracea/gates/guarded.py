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
    """A view ``array`` of ``memory``, whose bytes where ``outside`` is true belong to no element."""

    array: NDArray[Any]
    memory: NDArray[np.uint8]
    outside: NDArray[np.bool_]

    @classmethod
    def of(cls, kind: TensorType, *, misaligned: bool = False) -> GuardedArray:
        """Allocate memory for a strided type; ``misaligned`` starts one element after a 64-byte boundary.

        Raises:
            InvalidStride: the layout is blocked: a kernel's own layout is packed by the runtime, not seen by a caller.
        """
        if isinstance(kind.layout, BlockedLayout):
            raise InvalidStride(
                field="layout", got=str(kind), expected="a strided layout", remedy="judge the kernel behind its packing"
            )
        itemsize = kind.dtype.nbytes
        low, high = kind.extent
        size = GUARD_BYTES + (high - low) * itemsize + GUARD_BYTES + 2 * ALIGNMENT_BYTES
        memory = np.full(size, _CANARY, np.uint8)
        start = GUARD_BYTES + (-memory.ctypes.data - GUARD_BYTES - low * itemsize) % ALIGNMENT_BYTES
        start += itemsize if misaligned else 0
        strides = tuple(stride * itemsize for stride in kind.strides)
        dtype, shape = np.dtype(kind.dtype.numpy), kind.static_shape
        array: NDArray[Any] = np.ndarray(shape, dtype, memory, start - low * itemsize, strides)
        outside = np.ones(size, np.bool_)
        # Mark the bytes of every element: the same strides over the mask, with the element's bytes as one more axis.
        inside = np.ndarray((*shape, itemsize), np.bool_, outside, start - low * itemsize, (*strides, 1))
        inside[...] = False
        return cls(array=array, memory=memory, outside=outside)

    def fill(self, values: NDArray[Any]) -> None:
        """Write the values of all elements; of those that share an address the last one stays."""
        self.array[...] = values

    def poison(self, poison: Poison) -> None:
        """Fill every element with the poison, and every byte beside them with the canary."""
        self.memory[self.outside] = _CANARY
        self.array[...] = _poison_value(self.array.dtype, poison)

    def unwritten(self, poison: Poison) -> int:
        """Return how many elements still hold the bits of the poison."""
        wanted = np.frombuffer(_poison_value(self.array.dtype, poison).tobytes(), np.uint8)
        elements = np.ascontiguousarray(self.array).reshape(-1)
        bits = elements.view(np.uint8).reshape(-1, elements.itemsize)
        return int(np.count_nonzero((bits == wanted).all(axis=-1)))

    def damage(self) -> int:
        """Return how many bytes beside the elements no longer hold the canary."""
        return int(np.count_nonzero((self.memory != _CANARY) & self.outside))

    def content(self) -> bytes:
        """Return the bytes of all elements in logical order."""
        return self.array.tobytes()


def _poison_value(dtype: np.dtype[Any], poison: Poison) -> NDArray[Any]:
    """Return the poison as an array of one element: 0x5151…, or a NaN unlike the canary in its lowest byte."""
    pattern = b"\x51" * dtype.itemsize if poison is Poison.FINITE else b"\xfe" + b"\xff" * (dtype.itemsize - 1)
    return np.frombuffer(pattern, dtype)
