"""Kernels of a few nodes over short arrays x and y: what a proof is shown that has to refuse it."""

from __future__ import annotations

import pytest

from objects.declare import argument
from tracea.core.dtype import DType
from tracea.errors import ProofFailed
from tracea.semantic.access import Region
from tracea.semantic.index import TRUE, Index, Param, Predicate, Var, as_index
from tracea.semantic.nodes import CopyTile, For, If, Level, Node, Parallel, block
from tracea.semantic.proofs import prove
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, Table, TileKernel

__all__ = ["at", "copied", "refused", "repeated", "spread", "vectors", "when", "x_and_y"]


def x_and_y(*shape: Index | int) -> tuple[Buffer, Buffer]:
    """Return an input x and an output y of one shape."""
    return argument("x", DType.F32, shape, BufferRole.INPUT), argument("y", DType.F32, shape, BufferRole.OUTPUT)


def vectors(
    *body: Node,
    buffers: tuple[Buffer, ...] | None = None,
    params: tuple[Param, ...] = (),
    tables: tuple[Table, ...] = (),
    assumptions: Predicate = TRUE,
    target: str = "cpu",
) -> TileKernel:
    """Return a kernel over x and y of four elements each, or over other buffers."""
    return TileKernel(
        name="vectors",
        op=None,
        variant="test",
        schedule=Schedule(),
        target=target,
        params=params,
        buffers=x_and_y(4) if buffers is None else buffers,
        body=block(*body),
        tables=tables,
        assumptions=assumptions,
    )


def at(buffer: str, *offset: Index | int, last: Index | int = 1) -> Region:
    """Return one element of an array, or ``last`` elements along its last axis."""
    extent = (*(1 for _ in offset[1:]), last) if offset else ()
    return Region(buffer, tuple(map(as_index, offset)), tuple(map(as_index, extent)))


def copied(source: Region, target: Region) -> CopyTile:
    """Return the copy of one region to another."""
    return CopyTile(source=source, target=target)


def spread(var: Var, extent: Index | int, *body: Node, level: Level = Level.TASK, step: Index | int = 1) -> Parallel:
    """Return a loop whose iterations are shared by executors."""
    return Parallel(level=level, var=var, extent=as_index(extent), step=as_index(step), body=block(*body))


def repeated(var: Var, extent: Index | int, *body: Node) -> For:
    """Return a loop that each executor runs by itself."""
    return For(var=var, extent=as_index(extent), body=block(*body))


def when(predicate: Predicate, *body: Node) -> If:
    """Return nodes under a condition."""
    return If(predicate=predicate, then=block(*body))


def refused(kernel: TileKernel, proof: str, match: str | None = None) -> None:
    """Check that one proof refuses the kernel, and that it says where and why."""
    with pytest.raises(ProofFailed, match=match) as caught:
        prove(kernel)
    assert caught.value.proof == proof, str(caught.value)
    assert caught.value.node
    assert caught.value.detail
