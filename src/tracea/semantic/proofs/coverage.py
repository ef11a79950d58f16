"""Coverage: every element of an output is written exactly once; sums start from zero, in sequence, and finish once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import AccessMode, MicroKernel, ReduceTile
from tracea.semantic.nodes_async import Mma, Wgmma
from tracea.semantic.nodes_sparse import RunProduct
from tracea.semantic.predicate import FALSE, TRUE, And, Not, Predicate
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.prover import Facts
from tracea.semantic.proofs.tiling import chain, hull
from tracea.semantic.proofs.walk import Box, Loop, LoopKind, Segment, Site, turns_of
from tracea.semantic.tile_kernel import BufferRole, TileKernel

__all__ = ["Write", "exactly_at", "first_and_last", "output_writes", "prove_coverage"]


@dataclass(frozen=True, slots=True)
class Write:
    """A write of an output: where, under which condition it happens, and whether it adds to what is there."""

    site: Site
    box: Box
    happens: Predicate
    accumulate: Predicate
    finish: Predicate


def output_writes(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Write]:
    """Yield the writes of the kernel's outputs in program order."""
    outputs = {buffer.name for buffer in kernel.buffers if buffer.role is BufferRole.OUTPUT}
    for site in sites:
        for access, box in site.accesses():
            if not access.writes or box.buffer not in outputs:
                continue
            node = site.node
            guard = And(site.guards) if site.guards else TRUE
            if isinstance(node, MicroKernel | RunProduct | ReduceTile):
                finish = site.condition(node.finish)
                own = node.target if isinstance(node, ReduceTile) else node.c
                target = node.epilogue.target if node.epilogue else None
                if access.region is target:
                    yield Write(site, box, finish & guard if finish != TRUE else guard, FALSE, TRUE)
                elif access.region is own and target is not None and finish == TRUE:
                    continue  # a sum that is finished at once goes to the target only
                else:
                    done = finish if node.epilogue else TRUE
                    yield Write(site, box, guard, site.condition(node.accumulate), done)
            elif isinstance(node, Mma | Wgmma):
                yield Write(site, box, guard, site.condition(node.accumulate), TRUE)
            elif access.mode is AccessMode.UPDATE:
                raise refuse("coverage", site.label, f"updates the output {box.buffer} without saying when it starts")
            else:
                yield Write(site, box, guard, FALSE, TRUE)


def prove_coverage(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that the writes of every output tile it.

    Raises:
        ProofFailed: an output has no write, more than one, or one whose iterations were not shown to tile it.
    """
    writes = list(output_writes(kernel, sites))
    for buffer in kernel.buffers:
        if buffer.role is not BufferRole.OUTPUT:
            continue
        ours = [write for write in writes if write.box.buffer == buffer.name]
        if not ours:
            raise refuse("coverage", buffer.name, "is never written")
        shape = [ours[0].site.canonical(size) for size in buffer.shape]
        for write in ours:
            site = write.site
            loops, facts = site.loops, site.unguarded
            happens = _alternatives(ours, write)
            chained, through = _tiles(write, shape, loops, facts)
            happens = _without(happens, through)
            others = [loop for loop in loops if loop not in chained]
            _once(write, others, happens)
            tiled = ", ".join(str(loop.var) for loop in loops if loop in chained) or "no loop"
            summed = ", ".join(str(loop.var) for loop in others)
            statement = f"{buffer.name} is tiled once by {tiled}" + (
                f", summed over {summed} in sequence" if summed else ""
            )
            yield Fact("coverage", site.label, statement)


def first_and_last(loops: Sequence[Loop]) -> tuple[tuple[Polynomial, ...], tuple[Polynomial, ...]]:
    """Return the polynomials that vanish at the first and at the last iteration of each loop."""
    return tuple(loop.atom for loop in loops), tuple(loop.count - 1 - loop.atom for loop in loops)


def exactly_at(facts: Facts, predicate: Predicate, distances: Sequence[Polynomial], *, holds: bool) -> bool:
    """Return whether a condition is ``holds`` where all distances are 0, and the opposite everywhere else."""
    there = predicate if holds else Not(predicate)
    at = facts.plus([-distance for distance in distances])
    elsewhere = [facts.plus([distance - 1]) for distance in distances]
    return at.proves_predicate(there) and all(case.proves_predicate(Not(there)) for case in elsewhere)


def _alternatives(writes: Sequence[Write], write: Write) -> Predicate:
    """Return when the write or its alternative happens: two branches of one condition stand for each other."""
    if len(writes) == 1:
        return write.happens
    for other in writes:
        if other is write:
            continue
        (*outer, mine), (*others, theirs) = write.site.guards or (TRUE,), other.site.guards or (TRUE,)
        same = outer == others and _same_share(write, other)
        if not same or len(writes) > 2 or not _opposite(mine, theirs):
            raise refuse(
                "coverage",
                other.site.label,
                f"writes {write.box.buffer}, which {write.site.label} writes too: not shown to exclude each other",
            )
    return _without(write.happens, set(write.site.guards[-1:]))


def _same_share(write: Write, other: Write) -> bool:
    """Return whether two writes are of the same elements in each iteration of the loops that both stand in."""
    boxes: list[Box] = []
    for one, another in ((write, other), (other, write)):
        inner = [loop for loop in one.site.loops if loop not in another.site.loops]
        united = hull(one.box, inner, one.site.unguarded)
        if united is None:
            return False
        boxes.append(united[0])
    return boxes[0] == boxes[1]


def _opposite(a: Predicate, b: Predicate) -> bool:
    both = Facts().assuming(a & b)
    neither = Facts().assuming(Not(a) & Not(b))
    return all(case.contradictory() for case in (*both, *neither))


def _tiles(
    write: Write, shape: Sequence[Polynomial], loops: Sequence[Loop], facts: Facts
) -> tuple[set[Loop], set[Predicate]]:
    chained: set[Loop] = set()
    through: set[Predicate] = set()
    for axis, (offset, extent, full) in enumerate(zip(write.box.offset, write.box.extent, shape, strict=True)):
        sweep = chain(offset, extent, full, loops, facts, guards=write.site.guards)
        if sweep is None or chained & set(sweep.loops):
            raise refuse(
                "coverage",
                write.site.label,
                f"{write.box.buffer} axis {axis}: [{offset.to_index()} : +{extent.to_index()}] was not shown to tile "
                f"[0, {full.to_index()}) once over {', '.join(str(loop.var) for loop in loops) or 'no loop'}",
            )
        chained |= set(sweep.loops)
        through |= set(sweep.guards)
    return chained, through


def _without(predicate: Predicate, parts: set[Predicate]) -> Predicate:
    """Drop parts of a conjunction."""
    if isinstance(predicate, And):
        return And(tuple(_without(part, parts) for part in predicate.parts if part not in parts))
    return TRUE if predicate in parts else predicate


def _once(write: Write, others: Sequence[Loop], happens: Predicate) -> None:
    """Show that the loops that do not move the tile write it once, or sum in sequence from zero to the finish."""
    site, facts = write.site, write.site.unguarded
    label, buffer = site.label, write.box.buffer
    segment = next((loop.segment for loop in site.loops if loop.segment is not None), None)
    if segment is not None:
        others, happens = _owned(write, others, segment, happens), TRUE
    others = _in_its_turn(site, others)
    for loop in others:
        if loop.kind.is_parallel:
            raise refuse(
                "coverage",
                label,
                f"every iteration of the {loop.kind.value} loop {loop.var} writes the same tile of {buffer}",
            )
        if not loop.outside.proves(loop.count - 1):
            raise refuse(
                "coverage",
                label,
                f"loop {loop.var} of {loop.count.to_index()} may have no iteration, and {buffer} is then not written",
            )
    first, last = first_and_last(others)
    if write.accumulate == FALSE:
        if (
            facts.proves_predicate(happens)
            if not others
            else (exactly_at(facts, happens, last, holds=True) or exactly_at(facts, happens, first, holds=True))
        ):
            return
        raise refuse(
            "coverage",
            label,
            f"{buffer} is written where {happens}, which was not shown to be exactly one iteration of "
            f"{', '.join(str(loop.var) for loop in others) or 'no loop'}",
        )
    if not facts.proves_predicate(happens):
        raise refuse("coverage", label, f"the sum in {buffer} is skipped where not {happens}")
    if not exactly_at(facts, write.accumulate, first, holds=False):
        raise refuse(
            "coverage",
            label,
            f"{buffer} must start from zero exactly at the first iteration of "
            f"{[str(loop.var) for loop in others]}; it accumulates where {write.accumulate}",
        )
    if write.finish != TRUE and not exactly_at(facts, write.finish, last, holds=True):
        raise refuse(
            "coverage",
            label,
            f"{buffer} must finish exactly at the last iteration of {[str(loop.var) for loop in others]}; "
            f"it finishes where {write.finish}",
        )


def _in_its_turn(site: Site, others: Sequence[Loop]) -> list[Loop]:
    """Drop the loops over workers and over shares: every tile is one worker's in one turn of one share."""
    turns = turns_of(site)
    if turns is None:
        return list(others)
    shared = turns.shared_by(site.loops)
    if turns.worker is None or not (turns.is_whole or shared is not None):
        raise refuse("coverage", site.label, "the workers' turns were not shown to be all turns of all workers")
    return [loop for loop in others if loop.var != turns.worker and (turns.is_whole or loop != shared)]


def _owned(write: Write, others: Sequence[Loop], segment: Segment, happens: Predicate) -> list[Loop]:
    """Drop the workers' loop of a stream-K kernel: of a tile's segments only the one that begins at step 0 writes."""
    site = write.site
    if segment.worker is None:
        raise refuse("coverage", site.label, "the segments' worker is not the index of one loop over all workers")
    if not exactly_at(site.unguarded, happens, (Polynomial.atom(segment.first),), holds=True):
        raise refuse(
            "coverage",
            site.label,
            f"{write.box.buffer} is written where {happens}, which was not shown to be where the "
            f"segment owns its tile: {segment.first} == 0",
        )
    return [loop for loop in others if loop.kind is not LoopKind.SEGMENT and loop.var != segment.worker]
