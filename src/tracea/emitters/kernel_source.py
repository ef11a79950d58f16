"""KernelSource: the text of one kernel with the data that a runtime needs to compile, bind and call it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracea.core.dtype import DType
    from tracea.semantic.index import Index
    from tracea.semantic.tile_kernel import BufferRole

__all__ = ["KernelSource", "PointerParameter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerParameter:
    """One entry of ``tracea_call.pointers``: what the kernel reads or writes there."""

    name: str
    dtype: DType
    role: BufferRole


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """The emitted text of one kernel: ``extern "C" void <name>(const tracea_call* call, int32_t rank)``.

    ``pointers``, ``integers`` and ``scalars`` name the entries of the call's arrays in order. ``headers`` are those
    of the package that the text includes. Texts of several kernels may share one translation unit: the names of each
    are its own.

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
