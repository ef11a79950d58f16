"""Driver: what a kernel needs of a GPU, and nothing more; one implementation asks CUDA, one has no GPU at all.

Handles (modules, functions, events, graphs) are opaque integers or objects of the implementation; addresses are plain
integers; a stream is the integer handle that torch gives as ``torch.cuda.current_stream().cuda_stream``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tracea.runtime.cuda.binding import BoundLaunch, BoundTensorMap

__all__ = ["DeviceFacts", "Driver", "Function"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What a driver says of its device.

    Units: bytes; the clock is kHz; ``compute_capability`` is 10 · major + minor.
    """

    name: str
    compute_capability: int
    driver_version: str
    sm_count: int
    clock_khz: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A loaded kernel; ``handle`` belongs to the driver that loaded it, ``module`` is its code until it is unloaded."""

    name: str
    handle: Any
    module: Any
    shared_bytes: int


class Driver(Protocol):
    """Load, launch, copy and time on one device.

    Raises, every method: RunError with the driver's own code and text, where the device refuses.
    """

    def facts(self) -> DeviceFacts:
        """Return what there is to know of the device."""
        ...

    def load(self, cubin: bytes, name: str, *, shared_bytes: int) -> Function:
        """Load a compiled kernel, and allow it ``shared_bytes`` of dynamic shared memory."""
        ...

    def unload(self, function: Function) -> None:
        """Give a loaded kernel's code back, once nothing runs it; neither it nor a graph of it is started again."""
        ...

    def encode(self, tensor_map: BoundTensorMap) -> bytes:
        """Return the 128 bytes that the copy engine reads of a tensor map."""
        ...

    def launch(self, function: Function, bound: BoundLaunch, *, stream: int = 0) -> None:
        """Zero what has to be, then start the kernel; nothing where it has no blocks."""
        ...

    def allocate(self, nbytes: int) -> int:
        """Return the address of new device memory, aligned to 256 bytes at least."""
        ...

    def release(self, address: int) -> None:
        """Give memory of ``allocate`` back."""
        ...

    def write(self, address: int, data: bytes, *, stream: int = 0) -> None:
        """Copy from the host."""
        ...

    def read(self, address: int, nbytes: int, *, stream: int = 0) -> bytes:
        """Copy to the host, after all work in the stream."""
        ...

    def fill(self, address: int, nbytes: int, byte: int = 0, *, stream: int = 0) -> None:
        """Set memory to one byte's value, in the stream."""
        ...

    def synchronize(self, stream: int = 0) -> None:
        """Wait for the stream; an error of an earlier launch is raised here at the latest."""
        ...

    def record(self, stream: int = 0) -> Any:
        """Return an event that completes when the stream gets here."""
        ...

    def elapsed_us(self, first: Any, last: Any) -> float:
        """Wait for ``last`` and return the microseconds between two events."""
        ...

    def capture(self, stream: int) -> AbstractContextManager[list[Any]]:
        """Record the stream's work into a graph; the list holds it after the block."""
        ...

    def replay(self, graph: Any, *, stream: int = 0) -> None:
        """Run a captured graph."""
        ...
