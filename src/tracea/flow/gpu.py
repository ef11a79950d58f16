"""From an op to a kernel on a device: build, prove, print, compile, judge its resources, load, and run it on arrays.

Everything but the last two steps needs no GPU: ``compile_for_gpu`` is what continuous integration runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.errors import RunError, VerdictFailed
from tracea.flow.kernel import Built, build
from tracea.gates.resources import NotChecked, ResourceBudget, judge_binary
from tracea.kernels.arguments import arguments, operand_buffers, result_buffer, tables
from tracea.runtime.cuda.kernel import GpuKernel
from tracea.runtime.nvrtc import CudaBinary, compile_cuda

if TYPE_CHECKING:
    from tracea.core.op import Op
    from tracea.core.tensor_type import TensorType
    from tracea.gates.verdict import Verdict
    from tracea.runtime.cuda.binding import BoundLaunch
    from tracea.runtime.cuda.driver import Driver
    from tracea.semantic.schedule import Schedule
    from tracea.targets.gpu import GpuTarget

__all__ = ["DeviceRun", "DeviceTensor", "GpuCompiled", "compile_for_gpu", "upload_tables"]

_MARGIN: Final = 4096  # bytes on either side of a device tensor that no kernel may touch
_CANARY: Final = 0xA5

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCompiled:
    """A kernel that passed its proofs and its resource budget, in machine code of one architecture."""

    op: Op
    built: Built
    binary: CudaBinary
    resources: Verdict

    def load(self, driver: Driver) -> GpuKernel:
        """Load the kernel; its launches are refused where the guard of its proofs does not hold."""
        return GpuKernel(driver, self.built.source, self.binary.cubin, assumptions=self.built.kernel.assumptions)


def compile_for_gpu(
    op: Op, variant: str, schedule: Schedule, target: GpuTarget, *, budget: ResourceBudget | None = None
) -> GpuCompiled:
    """Return the compiled kernel.

    Raises:
        ProofFailed, InvalidSchedule: the kernel is refused before it is printed.
        CompileError: the text does not compile. ToolchainMissing: there is no NVRTC.
        VerdictFailed: it spills, uses a stack, or exceeds its budget.
    """
    built = build(op, variant, schedule, target)
    binary = compile_cuda(built.source)
    verdict = judge_binary(built.source, target=target, budget=budget)
    if isinstance(verdict, NotChecked):
        raise verdict.reason
    if not verdict.passed:
        failed = next(check for check in verdict.checks if not check.passed)
        raise VerdictFailed(gate=failed.name, kernel=built.source.name, got=failed.figure, limit=failed.limit)
    return GpuCompiled(op=op, built=built, binary=binary, resources=verdict)


def upload_tables(driver: Driver, compiled: GpuCompiled, op: Op | None, *, stream: int = 0) -> dict[str, int]:
    """Return the addresses of a kernel's tables for an op, in device memory that the caller gives back."""
    contents = tables(compiled.built.kernel, op)
    addresses = {name: driver.allocate(values.nbytes) for name, values in contents.items()}
    for name, values in contents.items():
        driver.write(addresses[name], np.ascontiguousarray(values, np.int32).tobytes(), stream=stream)
    return addresses


class DeviceTensor:
    """Device memory of one operand, laid out as its type says, between margins that are watched."""

    def __init__(self, driver: Driver, kind: TensorType) -> None:
        self._driver, self._kind = driver, kind
        low, high = kind.extent
        self._first = -low * kind.dtype.nbytes
        self._nbytes = (high - low) * kind.dtype.nbytes
        self._memory = driver.allocate(self._nbytes + 2 * _MARGIN)
        self.address = self._memory + _MARGIN + self._first

    def upload(self, values: Array, *, stream: int = 0) -> None:
        """Copy an array of the type's shape to its place; bytes of no element, and the margins, hold the canary."""
        host = np.full(self._nbytes + 2 * _MARGIN, _CANARY, np.uint8)
        self._view(host)[...] = values
        self._driver.write(self._memory, host.tobytes(), stream=stream)

    def download(self, values: Array, *, stream: int = 0) -> None:
        """Copy back into an array of the type's shape.

        Raises:
            RunError: bytes beside the tensor were written.
        """
        data = self._driver.read(self._memory, self._nbytes + 2 * _MARGIN, stream=stream)
        host = np.frombuffer(data, np.uint8)
        outside = np.concatenate([host[:_MARGIN], host[_MARGIN + self._nbytes :]])
        damaged = int(np.count_nonzero(outside != _CANARY))
        if damaged:
            raise RunError(
                kernel=str(self._kind), detail=f"{damaged} bytes beside the tensor were written", remedy="report this"
            )
        values[...] = self._view(host)

    def close(self) -> None:
        """Give the memory back."""
        self._driver.release(self._memory)

    def _view(self, host: Array) -> Array:
        strides = tuple(stride * self._kind.dtype.nbytes for stride in self._kind.strides)
        dtype = np.dtype(self._kind.dtype.numpy)
        return np.ndarray(self._kind.static_shape, dtype, host, _MARGIN + self._first, strides)


class DeviceRun:
    """A compiled kernel as the gates run one: ``run(inputs, out)`` on arrays of the host.

    ``op`` is another one of the structure that the kernel was built for, with other extents. All work is done in
    ``stream``.
    """

    def __init__(
        self,
        driver: Driver,
        compiled: GpuCompiled,
        *,
        op: Op | None = None,
        stream: int = 0,
    ) -> None:
        self._driver = driver
        self._stream = stream
        self._kernel = compiled.load(driver)
        self._integers = arguments(compiled.built.kernel, op)
        described = compiled.op if op is None else op
        tile = compiled.built.kernel
        self._inputs = [DeviceTensor(driver, operand) for operand in described.operands]
        self._output = DeviceTensor(driver, described.infer())
        self._tables = upload_tables(driver, compiled, op, stream=stream)
        names = [buffer.name for buffer in operand_buffers(tile)]
        self._pointers = {name: tensor.address for name, tensor in zip(names, self._inputs, strict=True)}
        self._pointers[result_buffer(tile).name] = self._output.address

    def __call__(self, inputs: Sequence[Array], out: Array) -> None:
        """Copy the inputs and the output's poison over, run, wait, copy the output back.

        Raises:
            RunError: the device failed, or bytes beside the output or beside an input were written.
        """
        for tensor, values in zip(self._inputs, inputs, strict=True):
            tensor.upload(values, stream=self._stream)
        self._output.upload(out, stream=self._stream)
        self._kernel.start(self.bind(), stream=self._stream)
        self._driver.synchronize(self._stream)
        self._output.download(out, stream=self._stream)
        for tensor, values in zip(self._inputs, inputs, strict=True):
            tensor.download(np.empty_like(values), stream=self._stream)

    def bind(self) -> BoundLaunch:
        """Return the launch on this object's own memory."""
        return self._kernel.bind(
            pointers=self._pointers, integers=self._integers, tables=self._tables, stream=self._stream
        )

    def close(self) -> None:
        """Give all device memory back."""
        self._kernel.close()
        for tensor in (*self._inputs, self._output):
            tensor.close()
        for address in self._tables.values():
            self._driver.release(address)
