"""Uses of a ring: which node fills which slot for the how manieth time, and in which order fills and reads happen.

Fill ``w`` takes slot ``w mod N``; it destroys use ``w − N``. Rings in shared memory belong to all executors of a block,
which a barrier puts in order; a ring in registers is one executor's own, which its program puts in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import Node, Region
from tracea.semantic.proofs.certificate import refuse
from tracea.semantic.proofs.tiling import hull, stride_of
from tracea.semantic.proofs.timeline import (
    barrier_between,
    executor_loops,
    guard_cases,
    meets_in_each_iteration,
    priming,
    rename,
    use_number,
)
from tracea.semantic.proofs.walk import Box, Loop, LoopKind, Site
from tracea.semantic.tile_kernel import Buffer, MemorySpace, TileKernel

__all__ = ["Ring", "Use", "equal_to", "existence", "in_order", "not_overwritten", "ring_of", "same_region"]

_EXECUTORS = (LoopKind.SUBGROUP, LoopKind.ROLE)


@dataclass(frozen=True, slots=True)
class Use:
    """An access of a ring: the node, the box without its stage, and the use number."""

    site: Site
    region: Region
    box: Box
    number: Polynomial


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring's fills and reads; ``scope`` loops lie around all of it, and uses are counted anew in each iteration."""

    buffer: Buffer
    stages: Polynomial
    copies: tuple[Use, ...]
    reads: tuple[Use, ...]
    scope: int

    @property
    def is_private(self) -> bool:
        """Whether each executor has a ring of its own, which nobody else touches."""
        return self.buffer.space is MemorySpace.REGISTER

    def meets(self, sites: Sequence[Site], earlier: Site, later: Site, loop: Loop | None) -> bool:
        """Return whether all who touch the ring meet between two nodes, in one iteration or in different ones."""
        return self.is_private or barrier_between(sites, earlier, later, loop)


def ring_of(
    kernel: TileKernel, sites: Sequence[Site], name: str, filled_by: tuple[type[Node], ...], *, at_once: bool = False
) -> Ring:
    """Return the ring of a buffer that nodes of some kinds fill; ``at_once``: a fill is over when the node is.

    Raises:
        ProofFailed: others write it too, nobody reads it, or an access spans several stages.
    """
    touching = [(site, access) for site in sites for access in site.node.accesses() if access.region.buffer == name]
    touching = [(site, access) for site, access in touching if not site.facts.contradictory()]
    for site, access in touching:
        if access.writes and not isinstance(site.node, filled_by):
            kinds = " and ".join(kind.__name__ for kind in filled_by)
            raise refuse("slots", site.label, f"writes {name}, which {kinds} fill")
    reads = [site for site, access in touching if access.reads]
    if not reads:
        raise refuse("slots", name, "is copied and never read")
    shared = [loop for loop in touching[0][0].loops if all(loop in site.loops for site, _ in touching)]
    scope = len(shared)
    # A ring of copies may have one stage: there a use is an iteration of the loop around all of them.
    uses = [_use(site, access.region, () if at_once else shared) for site, access in touching]
    if any(stride_of(use.number, loop).terms for use in uses for loop in shared[-1:]):
        # The pipeline is the innermost shared loop itself: uses are numbered by it, and counting starts outside of it.
        scope -= 1
    copies = tuple(use for use, (_, access) in zip(uses, touching, strict=True) if access.writes)
    found = tuple(use for use, (_, access) in zip(uses, touching, strict=True) if access.reads)
    stages = touching[0][0].canonical(kernel.buffer(name).shape[0])
    return Ring(kernel.buffer(name), stages, copies, found, max(scope, executor_loops(reads[0])))


def _use(site: Site, region: Region, shared: Sequence[Loop]) -> Use:
    box = site.box(region)
    if box.extent[0].constant != 1:
        raise refuse("slots", site.label, f"{region} spans more than one stage")
    inner = [loop for loop in shared if site.loops.index(loop) >= executor_loops(site)]
    return Use(site, region, Box(box.buffer, box.offset[1:], box.extent[1:]), use_number(site, region, inner))


def existence(ring: Ring, read: Use, copy: Use) -> tuple[Polynomial, ...]:
    """Return when this node copies the read's use: its loop variable, solved for, is in range, and its guards hold."""
    numbering = [loop for loop in copy.site.loops[ring.scope :] if stride_of(copy.number, loop).terms]
    if not numbering:
        return (*equal_to(copy.number, read.number), *_guard(copy))
    loop = numbering[0]
    if stride_of(copy.number, loop) != Polynomial.of(1) or len(numbering) > 1:
        raise refuse("slots", copy.site.label, f"use {copy.number.to_index()} is not a loop variable and an offset")
    solved = read.number - (copy.number - loop.atom)
    return (solved, loop.count - 1 - solved, *(p.substitute(loop.var, solved) for p in _guard(copy)))


def _guard(copy: Use) -> tuple[Polynomial, ...]:
    """Return the condition of a copy as polynomials that are all >= 0."""
    only, *others = guard_cases(copy.site)
    if others:
        raise refuse("slots", copy.site.label, "is guarded by a condition of several cases")
    return only


def same_region(ring: Ring, read: Use, copy: Use) -> None:
    """Show that all executors' copies of one use together fill what is read of it."""
    numbering = [loop for loop in copy.site.loops[ring.scope :] if stride_of(copy.number, loop).terms]
    if any(loop.var in part.atoms() for loop in numbering for part in (*copy.box.offset, *copy.box.extent)):
        problem = (
            f"where it fills a slot of {ring.buffer.name} depends on the use: that is not compared with what is read"
        )
        raise refuse("slots", copy.site.label, problem)
    around = executor_loops(copy.site)
    movers = [
        loop
        for position, loop in enumerate(copy.site.loops)
        if loop not in numbering
        and (position >= ring.scope or (position < around and loop.kind in _EXECUTORS and not ring.is_private))
    ]
    united = hull(copy.box, movers, copy.site.unguarded)
    facts = read.site.facts
    if united is not None:
        box, moving = united
        twice = [loop for loop in movers if loop.kind in _EXECUTORS and loop not in moving and loop.count.constant != 1]
        if twice:
            problem = f"every {twice[0].kind.value} fills the same part of {ring.buffer.name}"
            raise refuse("slots", copy.site.label, problem)
        if all(
            facts.proves(offset - start) and facts.proves(start + size - offset - extent)
            for start, size, offset, extent in zip(
                box.offset, box.extent, read.box.offset, read.box.extent, strict=True
            )
        ):
            return
    raise refuse(
        "slots", read.site.label, f"what it reads of {ring.buffer.name} was not shown to be filled by {copy.site.label}"
    )


def not_overwritten(sites: Sequence[Site], ring: Ring, read: Use, copy: Use) -> None:
    """Show that a copy that destroys what is read is issued after the read, with a barrier between."""
    names = priming(copy.site, read.site.loops[: ring.scope])
    number = rename(copy.number, names)
    conditions = [rename(fact, names) for fact in copy.site.facts.known]
    conditions.append(number - ring.stages - read.number)
    facts = read.site.facts.plus(conditions)
    common = [loop for loop in read.site.loops[ring.scope :] if loop in copy.site.loops[ring.scope :]]
    equal: list[Polynomial] = []
    problem = f"may overwrite use {read.number.to_index()} of {ring.buffer.name} that {read.site.label} still reads"
    for loop in common:
        later = rename(loop.atom, names) - loop.atom
        if not facts.plus([*equal, -later - 1]).contradictory():
            raise refuse("slots", copy.site.label, f"{problem} in a later iteration of {loop.var}")
        unordered = [*equal, later - 1]
        if meets_in_each_iteration(sites, loop):
            unordered.append(-later + 1)  # the barrier of an iteration between the two orders all but the next
        if not ring.meets(sites, read.site, copy.site, loop) and not facts.plus(unordered).contradictory():
            raise refuse(
                "slots", copy.site.label, f"{problem}: no barrier lies between them from one {loop.var} to the next"
            )
        equal += [later, -later]
    same = facts.plus(equal)
    ordered = read.site.place < copy.site.place and ring.meets(sites, read.site, copy.site, None)
    if not ordered and not same.contradictory():
        raise refuse("slots", copy.site.label, f"{problem} in the same iteration")
    for loop in read.site.loops[executor_loops(read.site) : ring.scope]:
        if not ring.meets(sites, read.site, copy.site, loop):
            raise refuse(
                "slots", copy.site.label, f"{problem}: no barrier lies between them from one {loop.var} to the next"
            )


def in_order(ring: Ring, copy: Use, other: Use) -> None:
    """Show that later copies have larger use numbers, so that the last one in a slot is the one that belongs there."""
    names = priming(other.site, copy.site.loops[: ring.scope])
    number = rename(other.number, names)
    conditions = [rename(fact, names) for fact in other.site.facts.known]
    facts = copy.site.facts.plus([*conditions, copy.number - number])
    common = [loop for loop in copy.site.loops[ring.scope :] if loop in other.site.loops[ring.scope :]]
    equal: list[Polynomial] = []
    for loop in common:
        gap = rename(loop.atom, names) - loop.atom
        numbered = stride_of(copy.number, loop).terms or stride_of(other.number, loop).terms
        if numbered and not facts.plus([*equal, gap - 1]).contradictory():
            raise refuse(
                "slots",
                other.site.label,
                f"later copies were not shown to have larger use numbers than {copy.site.label}",
            )
        equal += [gap, -gap]
    if copy.site.place < other.site.place and not common and not facts.contradictory():
        raise refuse(
            "slots", other.site.label, f"later copies were not shown to have larger use numbers than {copy.site.label}"
        )


def equal_to(left: Polynomial, right: Polynomial) -> list[Polynomial]:
    """Return what says that two polynomials are equal."""
    return [left - right, right - left]
