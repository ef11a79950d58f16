"""Device memory of an emulation: copies of the caller's arrays at addresses that nothing is mapped at."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracea.emulator.native import BufferDescription
from tracea.errors import InvalidShape

__all__ = ["DeviceArray"]

Array = np.ndarray[Any, Any]


@dataclass(slots=True, eq=False)
class DeviceArray:
    """A copy of all bytes that an array spans, with where the array's elements lie among them.

    ``offset`` is that of element (0, …), which the kernel's pointer names; bytes between rows are outside.
    """

    name: str
    array: Array
    writable: bool
    initialised: bool
    data: Array = field(init=False)
    outside: Array | None = field(init=False, default=None)
    written: Array | None = field(init=False, default=None)
    offset: int = field(init=False)
    lead: int = field(init=False, default=0)  # bytes beyond a multiple of 256 at which the copy begins
    address: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        array = self.array
        if array.dtype.hasobject or array.dtype.itemsize not in {1, 2, 4, 8}:
            raise InvalidShape(
                field=self.name,
                got=str(array.dtype),
                expected="elements of 1, 2, 4 or 8 bytes",
                remedy="convert it first",
            )
        start = array.ctypes.data
        reach = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
        low, high = start, start  # the bytes that the elements span
        if array.size:
            low += sum(r for r in reach if r < 0)
            high += sum(r for r in reach if r > 0) + array.itemsize
        self.offset = start - low if array.size else 0
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        self.lead = (low - root.ctypes.data) % 256 if array.size else 0
        self.data = np.full(max(high - low, 1), 0xFF, dtype=np.uint8)
        if self.initialised and array.size:
            ctypes.memmove(self.data.ctypes.data, low, high - low)
        if array.size * array.itemsize != high - low:
            self.outside = np.ones(max(high - low, 1), dtype=np.uint8)
            self._elements(self.outside)[...] = 0
        if self.writable:
            self.written = np.zeros(-(-self.data.size // self.granule), dtype=np.uint8)

    @property
    def granule(self) -> int:
        """Bytes for which races and initialisation are told apart."""
        return self.array.itemsize

    @property
    def pointer(self) -> int:
        """The address of element (0, …) on the device."""
        return self.address + self.offset

    def holds(self, address: int) -> bool:
        """Whether a device address lies in this array's bytes."""
        return self.address <= address < self.address + self.data.size

    def elements(self) -> Array:
        """Return a view of the copy with the array's type, shape and strides."""
        if self.array.size == 0:
            return np.empty(self.array.shape, self.array.dtype)
        return np.ndarray(self.array.shape, self.array.dtype, self.data.data, self.offset, self.array.strides)

    def unwritten(self) -> tuple[int, tuple[int, ...]]:
        """Return how many elements the run did not write, and the first of them."""
        if self.written is None or self.array.size == 0:
            return 0, ()
        bytes_written = np.repeat(self.written, self.granule)[: self.data.size]
        missing = ~self._elements(bytes_written)[..., 0].astype(bool)
        count = int(missing.sum())
        return count, tuple(int(i) for i in np.argwhere(missing)[0]) if count else ()

    def describe(self) -> BufferDescription:
        """Return what the core is told."""
        return BufferDescription(
            address=self.address,
            bytes=self.data.size if self.array.size else 0,
            host=self.data.ctypes.data,
            outside=None if self.outside is None else self.outside.ctypes.data,
            written=None if self.written is None else self.written.ctypes.data,
            granule=self.granule,
            writable=self.writable,
            initialised=self.initialised,
            name=self.name.encode()[:63],
        )

    def _elements(self, by_byte: Array) -> Array:
        """Return a view of an array of one byte for each byte: the elements, with their bytes as the last axis."""
        shape, strides = (*self.array.shape, self.array.itemsize), (*self.array.strides, 1)
        return np.ndarray(shape, np.uint8, by_byte.data, self.offset, strides)
