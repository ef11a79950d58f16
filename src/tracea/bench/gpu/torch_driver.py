"""The CUDA driver with torch's memory, stream and graphs, so that torch's kernels and ours run as one program."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracea.runtime.cuda.cuda_driver import CudaDriver

if TYPE_CHECKING:
    from tracea.core.tensor_type import TensorType

__all__ = ["TorchDriver"]


class TorchDriver(CudaDriver):
    """One device; ``stream`` is torch's current stream in this process from now on, and not the default one.

    Raises:
        ToolchainMissing, InvalidDevice: as :class:`CudaDriver`.
    """

    def __init__(self, torch: Any, device: int = 0) -> None:
        super().__init__(device)
        self._torch = torch
        self._place = torch.device("cuda", device)
        torch.cuda.set_device(self._place)
        self._stream = torch.cuda.Stream(self._place)  # the default stream cannot be captured
        torch.cuda.set_stream(self._stream)
        self.stream = int(self._stream.cuda_stream)
        self._memory: dict[int, Any] = {}

    def allocate(self, nbytes: int) -> int:
        """Return the address of memory of torch's allocator."""
        tensor = self._torch.empty(max(1, nbytes), dtype=self._torch.uint8, device=self._place)
        address = int(tensor.data_ptr())
        self._memory[address] = tensor
        return address

    def release(self, address: int) -> None:
        """Give memory of ``allocate`` back to torch's allocator."""
        del self._memory[address]

    def tensor(self, address: int, kind: TensorType) -> Any:
        """Return torch's view of an operand at the begin of memory of ``allocate``; element (0, …) comes first."""
        dtype = getattr(self._torch, {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}[kind.dtype.value])
        flat = self._memory[address]
        usable = flat.numel() // kind.dtype.nbytes * kind.dtype.nbytes
        return flat[:usable].view(dtype).as_strided(kind.static_shape, kind.strides)

    @contextmanager
    def capture(self, stream: int) -> Generator[list[Any]]:
        """Record the stream's work into a graph of torch's, whose allocations it keeps alive."""
        del stream  # torch's current one
        graph = self._torch.cuda.CUDAGraph()
        graphs: list[Any] = []
        with self._torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            yield graphs
        graphs.append(graph)

    def replay(self, graph: Any, *, stream: int = 0) -> None:
        """Run a captured graph in torch's current stream."""
        del stream
        graph.replay()
