"""Weights packed once, as the kernels that read them want them: several of them beside the work that is left.

A network has dozens of weights. They are packed by a thread of their own, in one native run that holds no lock of the
interpreter, while the kernels that will read them are still being printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from tracea.core.tensor_type import TensorType
from tracea.emitters.kernel_source import KernelSource
from tracea.flow.kernel import Built
from tracea.kernels.arguments import buffer_types, operand_buffers
from tracea.kernels.operands import bind
from tracea.runtime.buffers import aligned_empty
from tracea.runtime.compiler import LoadedKernel, compile
from tracea.runtime.program import Call, InputSlot, OutputSlot, Program

__all__ = ["Packing", "Weight"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One constant to be packed: where it lies, as what the program reads it, and by which kernel it becomes what."""

    array: np.ndarray[Any, Any]
    stored: TensorType
    packed: TensorType
    pack: Built


class Packing:
    """The packing of a program's weights; a context, whose end waits for the thread.

    Where several kernels pack, the thread compiles and runs them; one alone shares its reader's translation unit.
    """

    def __init__(self, weights: Sequence[Weight]) -> None:
        self._weights = tuple(weights)
        sources = {weight.pack.source.name: weight.pack.source for weight in self._weights}
        self._sources = tuple(sources.values())
        self._thread: ThreadPoolExecutor | None = None
        self._packed: Future[tuple[np.ndarray[Any, Any], ...]] | None = None

    def __enter__(self) -> Self:
        """Begin, where a thread is worth it."""
        if len(self._sources) > 1:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tracea packing")
            self._packed = self._thread.submit(self._compiled_and_run)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the thread, whatever became of the rest."""
        if self._thread is not None:
            self._thread.shutdown()

    @property
    def left(self) -> tuple[KernelSource, ...]:
        """The kernels that are to be compiled with the others: those that no thread compiles."""
        return () if self._thread is not None else self._sources

    def finish(self, loaded: Mapping[str, LoadedKernel]) -> tuple[np.ndarray[Any, Any], ...]:
        """Return the packed weights in order; ``loaded`` has the kernels that were :attr:`left`, by name.

        Raises:
            CompileError, ToolchainMissing, RunError: as the thread found.
        """
        return self._run(loaded, None) if self._packed is None else self._packed.result()

    def _compiled_and_run(self) -> tuple[np.ndarray[Any, Any], ...]:
        return self._run({kernel.name: kernel for kernel in compile(self._sources)}, 1)

    def _run(self, loaded: Mapping[str, LoadedKernel], threads: int | None) -> tuple[np.ndarray[Any, Any], ...]:
        if not self._weights:
            return ()
        calls = tuple(_call(weight, index, loaded) for index, weight in enumerate(self._weights))
        types = tuple(weight.packed for weight in self._weights)
        program = Program(
            calls=calls, inputs=tuple(weight.stored for weight in self._weights), outputs=types, name="packing"
        )
        packed = tuple(aligned_empty(each.static_shape, each.dtype) for each in types)  # in huge pages: read whole
        program.run(*(weight.array for weight in self._weights), out=packed, threads=threads)
        return packed


def _call(weight: Weight, index: int, loaded: Mapping[str, LoadedKernel]) -> Call:
    kernel = weight.pack.kernel
    (source,) = operand_buffers(kernel)
    types = {source.name: buffer_types(kernel)[source.name], "panels": weight.packed}
    return Call.binding(
        loaded[weight.pack.source.name],
        pointers={source.name: InputSlot(index), "panels": OutputSlot(index)},
        integers=bind(kernel, types),
    )
