"""The emulator as the null driver's device: a dry run checks its own checks on real results of small problems."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.emulator import emulate
from tracea.errors import RunError
from tracea.runtime.cuda.null_driver import NullDriver

if TYPE_CHECKING:
    from tracea.emitters.kernel_source import KernelSource
    from tracea.runtime.cuda.binding import BoundLaunch
    from tracea.runtime.cuda.driver import Function

__all__ = ["EmulatedDevice"]

_MAP_ADDRESS: Final = 8  # of a null driver's tensor map: after its mark
# What a device cannot find out either: it is told from outputs, which here begin with what the caller put there.
_NOT_OF_A_DEVICE: Final = ("output not written", "NaN from finite inputs")


class EmulatedDevice:
    """Runs launches of known texts; ``know`` a text under its machine code before it is launched."""

    def __init__(self) -> None:
        self._sources: dict[bytes, KernelSource] = {}

    def know(self, cubin: bytes, source: KernelSource) -> None:
        """Remember which text a loaded binary is of."""
        self._sources[bytes(cubin)] = source

    def forget(self) -> None:
        """Compute nothing from now on: launches are written down only."""
        self._sources.clear()

    def __call__(self, function: Function, bound: BoundLaunch, driver: NullDriver) -> None:
        """Run one launch on the driver's memory; a launch of an unknown binary does nothing.

        Raises:
            RunError: the emulator found what a device would have stumbled over, or hidden.
        """
        source = self._sources.get(bytes(function.module))
        if source is None:
            return
        arrays, integers, scalars = _arguments(source, bound, driver)
        report = emulate(
            source, arrays, integers, scalars=scalars, schedules=(0,), initialised=tuple(arrays), statistics=False
        )
        found = [finding for finding in report.findings if finding.kind not in _NOT_OF_A_DEVICE]
        if found:
            raise RunError(kernel=source.name, detail=str(found[0]), remedy="mend the kernel")


def _arguments(
    source: KernelSource, bound: BoundLaunch, driver: NullDriver
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, int], dict[str, float]]:
    """Return what an argument struct says; arrays reach from each address to its allocation's end."""
    assert source.launch is not None
    types = {pointer.name: np.dtype(pointer.dtype.numpy) for pointer in source.pointers}
    workspace = {name for name, _ in source.launch.workspace}
    maps = {spec.name: spec.buffer for spec in source.launch.tensor_maps}
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    integers: dict[str, int] = {}
    scalars: dict[str, float] = {}

    def add(name: str, address: int) -> None:
        if name in workspace:
            return  # the emulator makes its own
        data, offset = driver.block(address, 0)
        dtype = types.get(name, np.dtype(np.int32))
        arrays[name] = np.frombuffer(data, dtype, (len(data) - offset) // dtype.itemsize, offset)

    for field in source.launch.arguments:
        packed = bound.arguments[field.offset_bytes : field.offset_bytes + field.size_bytes]
        match field.kind:
            case "tensor_map":
                add(maps[field.name], struct.unpack_from("<Q", packed, _MAP_ADDRESS)[0])
            case "pointer" | "table":
                add(field.name, struct.unpack("<Q", packed)[0])
            case "integer":
                integers[field.name] = struct.unpack("<q", packed)[0]
            case "scalar":
                scalars[field.name] = struct.unpack("<f", packed)[0]
    return arrays, integers, scalars
