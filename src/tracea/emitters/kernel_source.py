"""KernelSource: the text of one kernel with the data that a runtime needs to compile, bind and call it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tracea.core.dtype import DType
    from tracea.semantic.index import Index
    from tracea.semantic.tile_kernel import BufferRole

__all__ = ["ArgumentField", "GpuLaunch", "KernelSource", "PointerParameter", "TensorMapSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerParameter:
    """One entry of ``tracea_call.pointers``: what the kernel reads or writes there."""

    name: str
    dtype: DType
    role: BufferRole
    alignment_bytes: int = 1  # what the address must be a multiple of; the driver refuses others


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMapSpec:
    """A tensor map that the driver encodes before a launch: one buffer, the box of a copy, and its swizzle.

    ``shape`` and ``strides`` are those of the buffer's axes, slowest first, in elements over ``integers``; the last
    stride is 1. ``box`` has one extent per axis. What lies outside of the buffer is filled with zeros.
    """

    name: str
    buffer: str
    dtype: DType
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    box: tuple[int, ...]
    swizzle_bytes: Literal[0, 32, 64, 128]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentField:
    """One member of the struct that a GPU kernel takes as its only parameter.

    ``kind``: a tensor map (128 bytes, aligned to 64), a pointer, an int64 integer, a float32 scalar or a pointer to an
    int32 table; ``name`` is that of the map, buffer, parameter, scalar or table.
    """

    name: str
    kind: Literal["tensor_map", "pointer", "integer", "scalar", "table"]
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLaunch:
    """How a GPU kernel is launched: a one-dimensional grid, and one struct of ``argument_bytes`` as its parameter.

    ``blocks`` is an expression over ``integers``; none are launched where it is 0. ``workspace`` are the buffers of
    role SCRATCH in global memory, with their bytes, that the driver provides; those named in ``zeroed`` hold zeros at
    each launch.
    """

    threads: int
    blocks: Index
    shared_bytes: int
    argument_bytes: int
    arguments: tuple[ArgumentField, ...]
    clusters: int = 1
    tensor_maps: tuple[TensorMapSpec, ...] = ()
    workspace: tuple[tuple[str, Index], ...] = ()
    zeroed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """The emitted text of one kernel: ``extern "C" void <name>(const tracea_call* call, int32_t rank)``.

    ``pointers``, ``integers`` and ``scalars`` name the entries of the call's arrays in order. ``headers`` are those
    of the package that the text includes. Texts of several kernels may share one translation unit: the names of each
    are its own.

    A text in CUDA (``language == "cuda"``, ``isa`` a target such as ``sm_90a``) is
    ``TRACEA_KERNEL(threads, min_blocks) void <name>(const <name>_args args)``, and ``launch`` says how it is run.

    Units: the scratch sizes are bytes over ``integers``; the runtime rounds each thread's share up to 64 bytes.
    """

    name: str
    text: str
    language: str
    isa: str
    pointers: tuple[PointerParameter, ...]
    integers: tuple[str, ...]
    scalars: tuple[str, ...]
    team_scratch_bytes: Index
    thread_scratch_bytes: Index
    headers: tuple[str, ...]
    launch: GpuLaunch | None = None
