"""The library port of GPUs: cuBLAS through torch's exported C shim, so that it competes as a variant like any other.

Worked example::

    port = LibraryPort()  # ToolchainMissing where torch is not loaded, or has no CUDA
    port.call(LibraryCall(function=LibraryFunction.MM, operands=(c, a, b)), (c_address, a_address, b_address))

A call runs on torch's current stream of the device, and may be captured into a graph there. torch chooses the
algorithm: with its defaults float32 is multiplied as float32 (no TF32).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from tracea.core.dtype import DType
from tracea.core.tensor_type import BlockedLayout, TensorType
from tracea.errors import InvalidShape, RunError, ToolchainMissing
from tracea.runtime.library import LibraryCall, LibraryFunction

__all__ = ["LibraryPort", "loaded_library"]

_REMEDY: Final = "install a CUDA build of torch, and import torch before the library is asked for"
# Where a backend's functions are exported, and torch's names of the element types.
_LIBRARIES: Final = {"cuda": "libtorch_cuda.so", "cpu": "libtorch_cpu.so"}
_DTYPES: Final = {
    DType.F64: "float64",
    DType.F32: "float32",
    DType.F16: "float16",
    DType.BF16: "bfloat16",
}
_Handle = ctypes.c_void_p


def loaded_library(name: str) -> Path | None:
    """Return the path of a library that this process has loaded, or None; nothing is loaded."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    for line in maps.read_text(encoding="utf-8", errors="replace").splitlines():
        path = line.split(maxsplit=5)[-1]
        if path.rsplit("/", 1)[-1] == name:
            return Path(path)
    return None


class LibraryPort:
    """torch's products on one backend.

    ``backend="cpu"`` calls the same functions of the host, which is how the port is tested without a GPU.

    Raises:
        ToolchainMissing: torch is not loaded, has no such backend, or exports no shim.
    """

    def __init__(self, backend: Literal["cuda", "cpu"] = "cuda") -> None:
        self.backend = backend
        path = loaded_library(_LIBRARIES[backend])
        if path is None:
            raise ToolchainMissing(
                tool=f"the {backend} library of torch", searched=(_LIBRARIES[backend],), remedy=_REMEDY
            )
        library = ctypes.CDLL(str(path), mode=os.RTLD_LAZY | os.RTLD_NOLOAD)
        try:
            self._make = library.aoti_torch_create_tensor_from_blob
            self._drop = library.aoti_torch_delete_tensor_object
            self._device = int(getattr(library, f"aoti_torch_device_type_{backend}")())
            self._dtypes = {
                dtype: int(getattr(library, f"aoti_torch_dtype_{name}")()) for dtype, name in _DTYPES.items()
            }
            self._functions: dict[LibraryFunction, Any] = {
                function: getattr(library, f"aoti_torch_{backend}_{function.name.lower()}_out")
                for function in LibraryFunction
            }
        except AttributeError as error:
            raise ToolchainMissing(tool="torch's C shim", searched=(str(error),), remedy=_REMEDY) from error
        self._drop.argtypes = [_Handle]
        self._make.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.POINTER(ctypes.c_int64),
            ctypes.POINTER(ctypes.c_int64),
            ctypes.c_int64,
            ctypes.c_int32,
            ctypes.c_int32,
            ctypes.c_int32,
            ctypes.POINTER(_Handle),
        ]
        for function, entry in self._functions.items():
            scalars = [ctypes.c_double] * 2 if function.operands == 4 else []
            entry.argtypes = [_Handle] * function.operands + scalars

    def call(
        self,
        call: LibraryCall,
        addresses: Sequence[int],
        *,
        scalars: tuple[float, float] = (1.0, 1.0),
        device: int = 0,
    ) -> None:
        """Start the product of the operands at these addresses; ``scalars`` are beta and alpha of addmm and baddbmm.

        Raises:
            InvalidShape: not one address per operand, or an operand that torch has no type or strides for.
            RunError: torch refused the call.
        """
        if len(addresses) != len(call.operands):
            raise InvalidShape(
                field="addresses",
                got=len(addresses),
                expected=len(call.operands),
                remedy="give the output's and then the inputs'",
            )
        made: list[_Handle] = []
        try:
            for address, type_ in zip(addresses, call.operands, strict=True):
                made.append(self._tensor(address, type_, device))
            extra = scalars if call.function.operands == 4 else ()
            code = int(self._functions[call.function](*made, *extra))
        finally:
            for handle in made:
                self._drop(handle)
        if code != 0:
            raise RunError(
                kernel=f"{self.backend} {call.function.name}",
                detail=f"torch returned {code} for {', '.join(map(str, call.operands))}",
                remedy="check the shapes; a device that failed before refuses everything",
            )

    def _tensor(self, address: int, type_: TensorType, device: int) -> _Handle:
        dtype = self._dtypes.get(type_.dtype)
        if dtype is None or not type_.is_static or isinstance(type_.layout, BlockedLayout):
            raise InvalidShape(
                field="operand",
                got=str(type_),
                expected="known extents, strides, and f64, f32, f16 or bf16",
                remedy="bind the extents first, or run a kernel of ours",
            )
        rank = type_.rank
        sizes, strides = (ctypes.c_int64 * rank)(*type_.static_shape), (ctypes.c_int64 * rank)(*type_.strides)
        handle = _Handle()
        where = (dtype, self._device, device)
        code = int(self._make(address, rank, sizes, strides, 0, *where, ctypes.byref(handle)))
        if code != 0:
            raise RunError(kernel="aoti_torch_create_tensor_from_blob", detail=f"torch returned {code}")
        return handle
