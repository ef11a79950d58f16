"""Initialization: scratch and outputs are written before they are read, all of what is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.semantic.fields import expressions
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import AccessMode, MicroKernel, ReduceTile, RowTile
from tracea.semantic.nodes_async import Mma, Wgmma
from tracea.semantic.nodes_sparse import RunProduct
from tracea.semantic.predicate import Predicate
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.tiling import hull
from tracea.semantic.proofs.timeline import barrier_between
from tracea.semantic.proofs.walk import Box, Loop, LoopKind, Site
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel

__all__ = ["prove_initialized"]


def prove_initialized(kernel: TileKernel, sites: Sequence[Site], skip: frozenset[str] = frozenset()) -> Iterator[Fact]:
    """Prove for every read of scratch that an earlier node, on every way to it, wrote all of what is read.

    So of every read of an output; of its sums, which are read and written, the coverage proof has the beginning.

    Raises:
        ProofFailed: no such node was found.
    """
    for buffer in kernel.buffers:
        if buffer.role not in (BufferRole.SCRATCH, BufferRole.OUTPUT) or buffer.name in skip:
            continue
        writers = [(s, box) for s in sites for a, box in s.accesses() if box.buffer == buffer.name and a.writes]
        reads = 0
        for site in sites:
            for access, box in site.accesses():
                if box.buffer != buffer.name or not access.reads:
                    continue
                if buffer.role is BufferRole.OUTPUT and access.mode is AccessMode.UPDATE:
                    continue
                reads += 1
                if access.mode is AccessMode.UPDATE and _starts_itself(buffer.space, site, box):
                    continue
                if not any(
                    _covers(buffer.space, writer, written, site, box, others=_others(sites, buffer.space, writer, site))
                    for writer, written in writers
                    if writer is not site
                ):
                    raise refuse(
                        "initialized",
                        site.label,
                        f"reads {access.region}, and no node before it was shown to have written all of that",
                    )
        if reads:
            yield Fact("initialized", buffer.name, f"{reads} reads follow the writes of what they read")


def _starts_itself(space: MemorySpace, site: Site, box: Box) -> bool:
    """Return whether an accumulator is read only where an earlier iteration of the same node wrote the same box.

    Some loops, all sequential, do not move the box, and the node does not read at their first iteration.
    """
    accumulate = _accumulate(site)
    if accumulate is None:
        return False
    still = [loop for loop in site.loops if not any(loop.var in p.atoms() for p in (*box.offset, *box.extent))]
    still = [loop for loop in still if not loop.kind.is_parallel]
    # Of the loops that do not move the box, at the first iteration of those it speaks of, it must be false.
    named = [loop for loop in still if any(loop.var.name in index.names() for index in expressions(accumulate))]
    if not named:
        return False
    first = site.unguarded.plus([-loop.atom for loop in named])
    if any(not case.contradictory() for case in first.assuming(accumulate)):
        return False
    outermost = min(site.loops.index(loop) for loop in named)
    moved = [loop for loop in site.loops[outermost:] if loop not in named and loop.kind is not LoopKind.LANE]
    private = space in (MemorySpace.THREAD, MemorySpace.REGISTER)
    for loop in moved:
        if not any(loop.var in p.atoms() for p in box.offset):
            return False  # another sum in the same place in between
        if any(other.var in loop.count.atoms() for other in named):
            return False  # an iteration that the earlier one did not have
        if private and loop.kind.is_parallel:
            return False  # the earlier iteration may have been another executor's, in its own memory
    return True


def _accumulate(site: Site) -> Predicate | None:
    node = site.node
    sums = isinstance(node, MicroKernel | RunProduct | ReduceTile | Mma | Wgmma)
    return site.condition(node.accumulate) if sums else None


def _others(sites: Sequence[Site], space: MemorySpace, writer: Site, reader: Site) -> tuple[Loop, ...]:
    """Return the loops over a block's executors that all ran the writer: a barrier stands between it and the reader."""
    if space is not MemorySpace.TEAM or not barrier_between(sites, writer, reader, None):
        return ()
    loops = [loop for loop in writer.loops if loop in reader.loops and loop.kind is LoopKind.SUBGROUP]
    named = frozenset[str]().union(*(index.names() for guard in writer.guards for index in expressions(guard)))
    return () if any(loop.var.name in named for loop in loops) else tuple(loops)


def _covers(
    space: MemorySpace, writer: Site, written: Box, reader: Site, read: Box, *, others: tuple[Loop, ...] = ()
) -> bool:
    """Return whether the writer, on every way to the reader, has written a box that holds what is read.

    ``others`` are loops around both whose iterations, other executors, have all run the writer.
    """
    if writer.place >= reader.place or isinstance(writer.node, RowTile):
        return False
    inner = [loop for loop in writer.loops if loop not in reader.loops or loop in others]
    private = space in (MemorySpace.THREAD, MemorySpace.REGISTER)
    if private and any(loop.kind.is_parallel and loop.kind is not LoopKind.LANE for loop in inner):
        return False
    if any(guard not in reader.guards for guard in writer.guards):
        return False
    facts = reader.facts
    united = hull(written, inner, writer.facts)
    if united is None:
        return False
    box, moving = united
    for loop in inner:
        if loop in moving:
            continue
        if not facts.proves(loop.count - 1) or loop.var in {
            atom for p in (*box.offset, *box.extent) for atom in p.atoms()
        }:
            return False
    zero = Polynomial({})
    for start, size, wanted, length in zip(box.offset, box.extent, read.offset, read.extent, strict=True):
        if not facts.proves(wanted - start) or not facts.proves(start + size - wanted - length):
            return bool(any(facts.proves_equal(extent, zero) for extent in read.extent))
    return True
