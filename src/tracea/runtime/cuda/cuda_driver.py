"""The driver of a real GPU, through ``cuda.bindings``: torch's own context, memory and streams.

The primary context is the one that the CUDA runtime, and so torch, uses: addresses, streams and graphs of both are
one another's.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from tracea.core.dtype import DType
from tracea.errors import InvalidDevice, InvalidDType, RunError, ToolchainMissing
from tracea.runtime.cuda.binding import TENSOR_MAP_BYTES, BoundLaunch, BoundTensorMap
from tracea.runtime.cuda.driver import DeviceFacts, Function

__all__ = ["CudaDriver", "device_count"]

_MAP_TYPES: Final = {
    DType.F16: "FLOAT16",
    DType.BF16: "BFLOAT16",
    DType.F32: "FLOAT32",
    DType.I32: "INT32",
    DType.I8: "UINT8",
    DType.U8: "UINT8",
    DType.E4M3: "UINT8",
    DType.E5M2: "UINT8",
}
_LIBRARY: Final = "libcuda.so.1"
_REMEDY: Final = "install tracea[cuda] and an NVIDIA driver of 580 or later; nvidia-smi must list the GPU"


@cache
def _api() -> Any:
    """The driver's bindings, initialised."""
    try:
        ctypes.CDLL(_LIBRARY)  # before the bindings, whose import takes a while: most machines without one end here
    except OSError as error:
        raise ToolchainMissing(tool="the CUDA driver", searched=(_LIBRARY,), remedy=_REMEDY) from error
    try:
        driver: Any = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise ToolchainMissing(tool="cuda-bindings", searched=("this environment",), remedy=_REMEDY) from error
    try:
        (code,) = driver.cuInit(0)
    except RuntimeError as error:  # no libcuda on this machine
        raise ToolchainMissing(tool="the CUDA driver", searched=(str(error),), remedy=_REMEDY) from error
    if int(code) != 0:
        raise ToolchainMissing(tool="a CUDA device", searched=(f"cuInit: {code.name}",), remedy=_REMEDY)
    return driver


def device_count() -> int:
    """Return how many CUDA devices this process may use.

    Raises:
        ToolchainMissing: there is no driver, or none of its devices may be used.
    """
    return int(_asked("cuDeviceGetCount"))


def _asked(function: str, *arguments: Any) -> Any:
    """Call the driver; return its only result, a tuple of several, or None."""
    api = _api()
    code, *results = getattr(api, function)(*arguments)
    if int(code) != 0:
        _, text = api.cuGetErrorString(code)
        detail = f"{function} returned {code.name}: {text.decode() if isinstance(text, bytes) else text}"
        raise RunError(kernel=function, detail=detail, remedy="run the kernel under compute-sanitizer, or smaller")
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


class CudaDriver:
    """One device, its primary context current in the calling thread.

    Raises:
        ToolchainMissing: no driver or no bindings.
        InvalidDevice: no device of this number.
    """

    def __init__(self, device: int = 0) -> None:
        count = device_count()
        if not 0 <= device < count:
            raise InvalidDevice(
                field="device", got=device, expected=f"0 to {count - 1}", remedy="choose a device that nvidia-smi lists"
            )
        self._device = _asked("cuDeviceGet", device)
        self._context = _asked("cuDevicePrimaryCtxRetain", self._device)
        self._streams: list[Any] = []

    def facts(self) -> DeviceFacts:
        """Return what there is to know of the device."""
        name = _asked("cuDeviceGetName", 128, self._device)
        version = int(_asked("cuDriverGetVersion"))
        return DeviceFacts(
            name=name.split(b"\0", 1)[0].decode().strip(),  # the bindings return all 128 bytes, spaces after the zero
            compute_capability=10 * self._attribute("COMPUTE_CAPABILITY_MAJOR")
            + self._attribute("COMPUTE_CAPABILITY_MINOR"),
            driver_version=f"{version // 1000}.{version % 1000 // 10}",
            sm_count=self._attribute("MULTIPROCESSOR_COUNT"),
            clock_khz=self._attribute("CLOCK_RATE"),
            memory_bytes=int(_asked("cuDeviceTotalMem", self._device)),
            l2_bytes=self._attribute("L2_CACHE_SIZE"),
            shared_bytes_per_block=self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        )

    def create_stream(self) -> int:
        """Return a new stream, which unlike the default one can be captured; it lives as long as the process."""
        self._enter()
        flags = _api().CUstream_flags.CU_STREAM_NON_BLOCKING
        stream = _asked("cuStreamCreate", int(flags))
        self._streams.append(stream)
        return int(stream)

    def load(self, cubin: bytes, name: str, *, shared_bytes: int) -> Function:
        """Load a compiled kernel, and allow it ``shared_bytes`` of dynamic shared memory."""
        self._enter()
        module = _asked("cuModuleLoadData", cubin)
        try:
            handle = _asked("cuModuleGetFunction", module, name.encode())
            if shared_bytes > 48 * 1024:  # more is asked for by name: CUDA C Programming Guide, "Shared Memory"
                attribute = _api().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                _asked("cuFuncSetAttribute", handle, attribute, shared_bytes)
        except RunError:
            _api().cuModuleUnload(module)
            raise
        return Function(name=name, handle=handle, module=module, shared_bytes=shared_bytes)

    def unload(self, function: Function) -> None:
        """Give a loaded kernel's code back, once nothing runs it; neither it nor a graph of it is started again."""
        self._enter()
        _asked("cuModuleUnload", function.module)

    def encode(self, tensor_map: BoundTensorMap) -> bytes:
        """Return the 128 bytes that the copy engine reads of a tensor map."""
        api = _api()
        kind = _MAP_TYPES.get(tensor_map.dtype)
        if kind is None:
            raise InvalidDType(
                field=tensor_map.name,
                got=tensor_map.dtype.value,
                expected=[dtype.value for dtype in _MAP_TYPES],
                remedy="use a variant without tensor maps",
            )
        rank, swizzle = len(tensor_map.shape), tensor_map.swizzle_bytes
        # The driver counts axes fastest first.
        encoded = _asked(
            "cuTensorMapEncodeTiled",
            api.CUtensorMapDataType[f"CU_TENSOR_MAP_DATA_TYPE_{kind}"],
            rank,
            tensor_map.address,
            [api.cuuint64_t(extent) for extent in reversed(tensor_map.shape)],
            [api.cuuint64_t(stride) for stride in reversed(tensor_map.strides_bytes)],
            [api.cuuint32_t(extent) for extent in reversed(tensor_map.box)],
            [api.cuuint32_t(1)] * rank,
            api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            api.CUtensorMapSwizzle[f"CU_TENSOR_MAP_SWIZZLE_{f'{swizzle}B' if swizzle else 'NONE'}"],
            api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        return ctypes.string_at(int(encoded.getPtr()), TENSOR_MAP_BYTES)

    def launch(self, function: Function, bound: BoundLaunch, *, stream: int = 0) -> None:
        """Zero what has to be, then start the kernel; nothing where it has no blocks."""
        if bound.blocks == 0:
            return
        self._enter()
        for address, nbytes in bound.zeroed:
            self.fill(address, nbytes, stream=stream)
        # The driver reads a parameter with the alignment that the kernel declares: 64 bytes for tensor maps.
        store = ctypes.create_string_buffer(len(bound.arguments) + 64)
        start = -ctypes.addressof(store) % 64
        ctypes.memmove(ctypes.addressof(store) + start, bound.arguments, len(bound.arguments))
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(store) + start)
        grid = (bound.blocks, 1, 1, bound.threads, 1, 1, bound.shared_bytes)
        _asked("cuLaunchKernel", function.handle, *grid, stream, ctypes.addressof(parameters), 0)

    def allocate(self, nbytes: int) -> int:
        """Return the address of new device memory, aligned to 256 bytes at least."""
        self._enter()
        return int(_asked("cuMemAlloc", max(1, nbytes)))

    def release(self, address: int) -> None:
        """Give memory of ``allocate`` back."""
        self._enter()
        _asked("cuMemFree", address)

    def write(self, address: int, data: bytes, *, stream: int = 0) -> None:
        """Copy from the host, and wait for the copy."""
        if data:
            self._enter()
            _asked("cuMemcpyHtoDAsync", address, data, len(data), stream)
            self.synchronize(stream)

    def read(self, address: int, nbytes: int, *, stream: int = 0) -> bytes:
        """Copy to the host, after all work in the stream."""
        target = bytearray(nbytes)
        if nbytes:
            self._enter()
            view = (ctypes.c_char * nbytes).from_buffer(target)
            _asked("cuMemcpyDtoHAsync", ctypes.addressof(view), address, nbytes, stream)
            self.synchronize(stream)
        return bytes(target)

    def fill(self, address: int, nbytes: int, byte: int = 0, *, stream: int = 0) -> None:
        """Set memory to one byte's value, in the stream."""
        if nbytes:
            self._enter()
            _asked("cuMemsetD8Async", address, byte, nbytes, stream)

    def synchronize(self, stream: int = 0) -> None:
        """Wait for the stream; an error of an earlier launch is raised here at the latest."""
        self._enter()
        _asked("cuStreamSynchronize", stream)

    def record(self, stream: int = 0) -> Any:
        """Return an event that completes when the stream gets here."""
        self._enter()
        event = _Event()
        _asked("cuEventRecord", event.handle, stream)
        return event

    def elapsed_us(self, first: Any, last: Any) -> float:
        """Wait for ``last`` and return the microseconds between two events."""
        self._enter()
        _asked("cuEventSynchronize", last.handle)
        return 1e3 * float(_asked("cuEventElapsedTime", first.handle, last.handle))

    @contextmanager
    def capture(self, stream: int) -> Generator[list[Any]]:
        """Record the stream's work into a graph; the list holds it after the block."""
        self._enter()
        graphs: list[Any] = []
        _asked("cuStreamBeginCapture", stream, _api().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        try:
            yield graphs
        finally:
            graph = _asked("cuStreamEndCapture", stream)
        try:
            graphs.append(_Executable(graph))
        finally:
            _api().cuGraphDestroy(graph)

    def replay(self, graph: Any, *, stream: int = 0) -> None:
        """Run a captured graph."""
        self._enter()
        _asked("cuGraphLaunch", graph.handle, stream)

    def _enter(self) -> None:
        # Another library may have made its own context current in this thread; ours has to be, call by call.
        if int(_asked("cuCtxGetCurrent")) != int(self._context):
            _asked("cuCtxSetCurrent", self._context)

    def _attribute(self, name: str) -> int:
        attribute = getattr(_api().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_asked("cuDeviceGetAttribute", attribute, self._device))


class _Event:
    """An event of the driver, destroyed with the object."""

    def __init__(self) -> None:
        self.handle = _asked("cuEventCreate", 0)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            _api().cuEventDestroy(self.handle)


class _Executable:
    """A graph that can run, destroyed with the object; one that is at work then, the driver frees when it is done."""

    def __init__(self, graph: Any) -> None:
        self.handle = _asked("cuGraphInstantiate", graph, 0)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            _api().cuGraphExecDestroy(self.handle)
