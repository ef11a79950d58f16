"""A driver without a GPU: everything up to the device is real, the device is not.

Memory is the host's, under addresses of its own; copies copy, fills fill, launches are checked and written down. What
a kernel would have computed is not there, and no time is: ``elapsed_us`` refuses. An ``execute`` function, such as
one that runs the emulator, may stand in for the device where results are wanted.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tracea.errors import InvalidDevice, InvalidInput, ResourceExceeded, RunError
from tracea.runtime.cuda.binding import TENSOR_MAP_BYTES, BoundLaunch, BoundTensorMap
from tracea.runtime.cuda.driver import DeviceFacts, Function
from tracea.targets.gpu import GpuTarget

__all__ = ["Execute", "LaunchRecord", "NullDriver"]

_FIRST_ADDRESS: Final = 0x7F00_0000_0000
_ALIGNMENT: Final = 256
_MAP_HEAD: Final = "<8sQBBHI"  # mark, address, rank, element bytes, swizzle, padding


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """A launch that would have been."""

    kernel: str
    bound: BoundLaunch
    stream: int


Execute: TypeAlias = Callable[[Function, BoundLaunch, "NullDriver"], None]


@dataclass(slots=True)
class NullDriver:
    """The device that ``target`` describes, absent; ``launches`` are those asked for, in order."""

    target: GpuTarget
    execute: Execute | None = None
    launches: list[LaunchRecord] = field(default_factory=list[LaunchRecord])
    _memory: dict[int, bytearray] = field(default_factory=dict[int, bytearray])
    _next: int = _FIRST_ADDRESS
    _loads: int = 0
    _loaded: set[int] = field(default_factory=set[int])
    _capturing: list[LaunchRecord] | None = None

    def facts(self) -> DeviceFacts:
        """Return what the catalogue says of the target."""
        target = self.target
        return DeviceFacts(
            name=f"no device (stands for {target.product})",
            compute_capability=target.compute_capability,
            driver_version="none",
            sm_count=target.sm_count,
            clock_khz=1000 * target.clock_mhz,
            memory_bytes=0,
            l2_bytes=target.l2_bytes,
            shared_bytes_per_block=target.shared_bytes_per_block,
        )

    def load(self, cubin: bytes, name: str, *, shared_bytes: int) -> Function:
        """Check what a device would: an ELF file that names the kernel, and shared memory within the target's.

        Raises:
            RunError: not a cubin, or one without this kernel.
            ResourceExceeded: more shared memory than a block may have.
        """
        if not cubin.startswith(b"\x7fELF") or name.encode() not in cubin:
            raise RunError(kernel=name, detail=f"{len(cubin)} bytes that are no cubin with this kernel")
        if shared_bytes > self.target.shared_bytes_per_block:
            raise ResourceExceeded(
                what=f"shared memory of {name} on {self.target.name}",
                needed_bytes=shared_bytes,
                limit_bytes=self.target.shared_bytes_per_block,
                remedy="choose fewer stages or smaller tiles",
            )
        self._loads += 1
        self._loaded.add(self._loads)
        return Function(name=name, handle=self._loads, module=cubin, shared_bytes=shared_bytes)

    def unload(self, function: Function) -> None:
        """Forget a loaded kernel.

        Raises:
            RunError: it is not loaded.
        """
        self._require_loaded(function)
        self._loaded.remove(function.handle)

    def encode(self, tensor_map: BoundTensorMap) -> bytes:
        """Return the map's numbers in a layout of this driver's own, 128 bytes as the real one's."""
        head = struct.pack(
            _MAP_HEAD,
            b"nullmap\0",
            tensor_map.address,
            len(tensor_map.shape),
            tensor_map.dtype.nbytes,
            tensor_map.swizzle_bytes,
            0,
        )
        extents = struct.pack(f"<{len(tensor_map.shape)}Q", *tensor_map.shape)
        strides = struct.pack(f"<{len(tensor_map.strides_bytes)}Q", *tensor_map.strides_bytes)
        box = struct.pack(f"<{len(tensor_map.box)}H", *tensor_map.box)
        return (head + extents + strides + box).ljust(TENSOR_MAP_BYTES, b"\0")

    def launch(self, function: Function, bound: BoundLaunch, *, stream: int = 0) -> None:
        """Check the launch, write it down, and let ``execute`` do it where there is one.

        Raises:
            InvalidDevice: more threads, or other shared memory, than the kernel was loaded with.
            RunError: the kernel is not loaded.
        """
        self._require_loaded(function)
        if bound.threads > self.target.threads_per_block or bound.shared_bytes > function.shared_bytes:
            raise InvalidDevice(
                field=f"launch of {function.name}",
                got=f"{bound.threads} threads, {bound.shared_bytes} bytes shared",
                expected=f"at most {self.target.threads_per_block} threads, {function.shared_bytes} bytes",
                remedy="launch with the numbers that the kernel was loaded with",
            )
        if bound.blocks == 0:
            return
        record = LaunchRecord(kernel=function.name, bound=bound, stream=stream)
        if self._capturing is not None:
            self._capturing.append(record)
            return
        for address, nbytes in bound.zeroed:
            self.fill(address, nbytes)
        self.launches.append(record)
        if self.execute is not None:
            self.execute(function, bound, self)

    def allocate(self, nbytes: int) -> int:
        """Return an address of this driver's, with ``nbytes`` behind it that are 0xFF."""
        address = self._next
        self._memory[address] = bytearray(b"\xff") * max(1, nbytes)
        self._next += -(-max(1, nbytes) // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT
        return address

    def release(self, address: int) -> None:
        """Forget memory of ``allocate``.

        Raises:
            InvalidInput: there is none at this address.
        """
        self.block(address, 0)
        if self._memory.pop(address, None) is None:
            raise InvalidInput(
                field="address", got=f"{address:#x}", expected="one that allocate returned", remedy="release it once"
            )

    def block(self, address: int, nbytes: int) -> tuple[bytearray, int]:
        """Return the allocation that holds these bytes, and where in it they begin.

        Raises:
            InvalidInput: no allocation does.
        """
        starts = list(self._memory)  # in ascending order: addresses only grow
        position = bisect_right(starts, address) - 1
        if position >= 0:
            data = self._memory[starts[position]]
            offset = address - starts[position]
            if offset + nbytes <= len(data):
                return data, offset
        raise InvalidInput(
            field="address",
            got=f"{address:#x} + {nbytes} bytes",
            expected="memory that is allocated",
            remedy="allocate before use, and stay within",
        )

    def write(self, address: int, data: bytes, *, stream: int = 0) -> None:
        """Copy into the host memory that stands for the device's."""
        del stream
        target, offset = self.block(address, len(data))
        target[offset : offset + len(data)] = data

    def read(self, address: int, nbytes: int, *, stream: int = 0) -> bytes:
        """Copy out of it."""
        del stream
        source, offset = self.block(address, nbytes)
        return bytes(source[offset : offset + nbytes])

    def fill(self, address: int, nbytes: int, byte: int = 0, *, stream: int = 0) -> None:
        """Set memory to one byte's value."""
        self.write(address, bytes([byte]) * nbytes, stream=stream)

    def synchronize(self, stream: int = 0) -> None:
        """Return: nothing is ever under way."""
        del stream

    def record(self, stream: int = 0) -> Any:
        """Return how many launches there were: an event's place in the order of work."""
        del stream
        return len(self.launches)

    def elapsed_us(self, first: Any, last: Any) -> float:
        """Refuse.

        Raises:
            RunError: always; without a device there is no time.
        """
        detail = f"no device ran the {last - first} launches between these events"
        raise RunError(kernel="null driver", detail=detail, remedy="time on a machine with a GPU: make gpu")

    @contextmanager
    def capture(self, stream: int) -> Generator[list[Any]]:
        """Collect launches instead of doing them; the list holds them after the block."""
        del stream
        graphs: list[Any] = []
        self._capturing = []
        try:
            yield graphs
            graphs.append(tuple(self._capturing))
        finally:
            self._capturing = None

    def replay(self, graph: Any, *, stream: int = 0) -> None:
        """Write the captured launches down, in order."""
        self.launches.extend(LaunchRecord(kernel=record.kernel, bound=record.bound, stream=stream) for record in graph)

    def _require_loaded(self, function: Function) -> None:
        if function.handle not in self._loaded:
            raise RunError(kernel=function.name, detail="the kernel is not loaded", remedy="load it first")
