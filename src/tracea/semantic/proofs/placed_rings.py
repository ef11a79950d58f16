"""Slots of rings that an executor fills itself: stores to stages of shared memory, loads to registers ahead of use.

Worked example: step k places use k + 1 while others still read use k; two slots and one barrier a step are enough,
since use k + 1 takes the slot of k − 1, which everybody had read before the barrier of step k.

A fill is over when its node is. So for every read of use ``r``: each fill of ``r`` comes before the read, and each
fill of ``r + N`` or later after it; in shared memory with a barrier between. Both are linear, hence hold for every trip
count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.semantic.index import Mod, Var
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import CopyTile
from tracea.semantic.nodes_async import LoadMatrix
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.mbarriers import tma_rings
from tracea.semantic.proofs.ring_uses import (
    Ring,
    Use,
    equal_to,
    existence,
    in_order,
    not_overwritten,
    ring_of,
    same_region,
)
from tracea.semantic.proofs.slots import group_rings
from tracea.semantic.proofs.timeline import excluded, priming, rename
from tracea.semantic.proofs.walk import Site
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel

__all__ = ["placed_rings", "prove_placed_rings"]

_FILLS = (CopyTile, LoadMatrix)


def placed_rings(kernel: TileKernel) -> frozenset[str]:
    """Return the names of the buffers whose slots an executor's own stores and loads fill in turn."""
    scratch = {
        buffer.name
        for buffer in kernel.buffers
        if buffer.role is BufferRole.SCRATCH and buffer.space in (MemorySpace.TEAM, MemorySpace.REGISTER)
    }
    found = {
        node.target.buffer
        for node in kernel.body.walk()
        if isinstance(node, _FILLS) and isinstance(node.target.offset[0], Mod) and node.target.buffer in scratch
    }
    return frozenset(found) - group_rings(kernel) - tma_rings(kernel)


def prove_placed_rings(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove slot safety of every ring that executors fill themselves.

    Raises:
        ProofFailed: a read was not shown to follow its fill, or a fill not to follow the reads of what it overwrites.
    """
    for name in sorted(placed_rings(kernel)):
        ring = ring_of(kernel, sites, name, _FILLS, at_once=True)
        for read in ring.reads:
            _follows_its_fills(sites, ring, read)
            for fill in ring.copies:
                not_overwritten(sites, ring, read, fill)
        for fill in ring.copies:
            for other in ring.copies:
                in_order(ring, fill, other)
        where = "registers" if ring.is_private else "shared memory"
        yield Fact(
            "slots",
            name,
            f"{len(ring.copies)} fills and {len(ring.reads)} reads in order for {ring.stages.to_index()} slots of "
            f"{where} and any trip count",
        )


def _follows_its_fills(sites: Sequence[Site], ring: Ring, read: Use) -> None:
    """Show that somebody filled the read's use, all of what is read, and that whoever fills that use does so before."""
    for fill in ring.copies:
        names = priming(fill.site, read.site.loops[: ring.scope])
        conditions = [rename(fact, names) for fact in fill.site.facts.known]
        conditions += equal_to(rename(fill.number, names), read.number)
        _before(sites, ring, read, fill, conditions, names)
        same_region(ring, read, fill)
    if not excluded(read.site.facts, [existence(ring, read, fill) for fill in ring.copies]):
        raise refuse(
            "slots",
            read.site.label,
            f"use {read.number.to_index()} of {ring.buffer.name} was not shown to be filled before",
        )


def _before(  # noqa: PLR0917 - two accesses, and what is known of both
    sites: Sequence[Site],
    ring: Ring,
    read: Use,
    fill: Use,
    conditions: Sequence[Polynomial],
    names: dict[str, Var],
) -> None:
    facts = read.site.facts.plus(conditions)
    problem = f"reads use {read.number.to_index()} of {ring.buffer.name}, which {fill.site.label} fills"
    equal: list[Polynomial] = []
    for loop in read.site.loops[ring.scope :]:
        if loop not in fill.site.loops[ring.scope :]:
            continue
        later = rename(loop.atom, names) - loop.atom
        if not facts.plus([*equal, later - 1]).contradictory():
            raise refuse("slots", read.site.label, f"{problem} in a later iteration of {loop.var}")
        met = ring.meets(sites, fill.site, read.site, loop)
        if not met and not facts.plus([*equal, -later - 1]).contradictory():
            raise refuse(
                "slots", read.site.label, f"{problem}: no barrier lies between them from one {loop.var} to the next"
            )
        equal += [later, -later]
    if fill.site.place < read.site.place and ring.meets(sites, fill.site, read.site, None):
        return
    if not facts.plus(equal).contradictory():
        raise refuse("slots", read.site.label, f"{problem} in the same iteration, with no barrier between")
