"""Short declarations of buffers and variables for the kernels in this folder."""

from __future__ import annotations

from tracea.core.dtype import DType
from tracea.semantic.index import Index, Var, as_index
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace

__all__ = ["argument", "scratch", "variables"]


def argument(
    name: str, dtype: DType, shape: tuple[Index | int, ...], role: BufferRole, pitch: Index | None = None
) -> Buffer:
    """Return a global buffer: row-major, or a matrix whose rows are ``pitch`` elements apart."""
    strides = None if pitch is None else (pitch, as_index(1))
    return Buffer(
        name=name, dtype=dtype, space=MemorySpace.GLOBAL, shape=tuple(map(as_index, shape)), strides=strides, role=role
    )


def scratch(name: str, dtype: DType, space: MemorySpace, *shape: Index | int) -> Buffer:
    """Return a scratch buffer."""
    return Buffer(name=name, dtype=dtype, space=space, shape=tuple(map(as_index, shape)), role=BufferRole.SCRATCH)


def variables(names: str) -> tuple[Var, ...]:
    """Return variables by name."""
    return tuple(Var(name) for name in names.split())
