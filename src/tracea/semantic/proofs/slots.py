"""Slots of rings that groups of copies fill: reads follow completed copies, no slot is overwritten before it is read.

The argument is about use numbers. Copy ``w`` fills slot ``w mod N``; it destroys use ``w − N``. So it is enough that,
for every read of use ``r``: each copy of ``r`` is in a group that the executor waited for, with a barrier between
that wait and the read; and each copy of ``r + N`` or later is issued after the read, with a barrier between. Both are
linear, hence hold for every N >= 1 and trip count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import Region
from tracea.semantic.nodes_async import AsyncCopy, CommitGroup, Gather, WaitGroup
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.tiling import hull, stride_of
from tracea.semantic.proofs.timeline import (
    Timeline,
    barrier_between,
    excluded,
    executor_loops,
    guard_cases,
    meets_in_each_iteration,
    priming,
    rename,
    use_number,
)
from tracea.semantic.proofs.walk import Box, Loop, Site
from tracea.semantic.tile_kernel import Buffer, TileKernel

__all__ = ["group_rings", "prove_slots"]


@dataclass(frozen=True, slots=True)
class _Use:
    """An access of a ring: the node, the box without its stage, and the use number."""

    site: Site
    region: Region
    box: Box
    number: Polynomial


@dataclass(frozen=True, slots=True)
class _Ring:
    buffer: Buffer
    stages: Polynomial
    copies: tuple[_Use, ...]
    reads: tuple[_Use, ...]
    scope: int


def group_rings(kernel: TileKernel) -> frozenset[str]:
    """Return the names of the buffers that asynchronous copies in groups fill."""
    return frozenset(
        node.target.buffer
        for node in kernel.body.walk()
        if isinstance(node, AsyncCopy) or (isinstance(node, Gather) and node.asynchronous)
    )


def prove_slots(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove slot safety of every ring that is filled by copies in groups.

    Raises:
        ProofFailed: a read was not shown to follow its copy, or a copy not to follow the reads of what it overwrites.
    """
    for name in sorted(group_rings(kernel)):
        ring = _ring(kernel, sites, name)
        for read in ring.reads:
            _follows_its_copies(sites, ring, read)
            for copy in ring.copies:
                _not_overwritten(sites, ring, read, copy)
        for copy in ring.copies:
            for other in ring.copies:
                _in_order(ring, copy, other)
        stages = ring.stages.to_index()
        yield Fact(
            "slots",
            name,
            f"{len(ring.copies)} copies and {len(ring.reads)} reads in order for {stages} stages and any trip count",
        )


def _ring(kernel: TileKernel, sites: Sequence[Site], name: str) -> _Ring:
    touching = [(site, access) for site in sites for access in site.node.accesses() if access.region.buffer == name]
    touching = [(site, access) for site, access in touching if not site.facts.contradictory()]
    for site, access in touching:
        if access.writes and not isinstance(site.node, AsyncCopy | Gather):
            raise refuse("slots", site.label, f"writes {name}, which asynchronous copies fill")
    shared = [loop for loop in touching[0][0].loops if all(loop in site.loops for site, _ in touching)]
    reads = [site for site, access in touching if access.reads]
    if not reads:
        raise refuse("slots", name, "is copied and never read")
    scope = len(shared)
    uses = [_use(site, access.region, shared) for site, access in touching]
    if any(stride_of(use.number, loop).terms for use in uses for loop in shared[-1:]):
        # The pipeline is the innermost shared loop itself: uses are numbered by it, and counting starts outside of it.
        scope -= 1
    copies = tuple(use for use, (_, access) in zip(uses, touching, strict=True) if access.writes)
    found = tuple(use for use, (_, access) in zip(uses, touching, strict=True) if access.reads)
    stages = touching[0][0].canonical(kernel.buffer(name).shape[0])
    return _Ring(kernel.buffer(name), stages, copies, found, max(scope, executor_loops(reads[0])))


def _use(site: Site, region: Region, shared: Sequence[Loop]) -> _Use:
    box = site.box(region)
    if box.extent[0].constant != 1:
        raise refuse("slots", site.label, f"{region} spans more than one stage")
    inner = [loop for loop in shared if site.loops.index(loop) >= executor_loops(site)]
    return _Use(site, region, Box(box.buffer, box.offset[1:], box.extent[1:]), use_number(site, region, inner))


def _follows_its_copies(sites: Sequence[Site], ring: _Ring, read: _Use) -> None:
    """Show that a copy made the read's use, that all its copies were waited for, and that all executors met since."""
    wait = _last_wait(sites, read.site)
    if wait is None:
        raise refuse("slots", read.site.label, f"reads {read.region} and waits for no group before it")
    if not barrier_between(sites, wait, read.site, None):
        raise refuse(
            "slots",
            read.site.label,
            f"reads {read.region} without a barrier after {wait.label}: others' copies may be unfinished",
        )
    commits = Timeline(tuple(sites), CommitGroup, ring.scope)
    node = wait.node
    assert isinstance(node, WaitGroup)
    pending = wait.canonical(node.pending)
    if not wait.facts.proves(pending):
        raise refuse("slots", wait.label, f"pending {node.pending} was not shown to be at least 0")
    done = commits.before(wait) - pending
    options: list[tuple[Polynomial, ...]] = []
    for copy in ring.copies:
        names = priming(copy.site, read.site.loops[: ring.scope])
        group = rename(commits.before(copy.site), names)
        conditions = [rename(fact, names) for fact in copy.site.facts.known]
        known = read.site.facts.plus([*conditions, *_equal(rename(copy.number, names), read.number)])
        if not known.proves(done - 1 - group):
            raise refuse(
                "slots",
                read.site.label,
                f"reads use {read.number.to_index()} of {ring.buffer.name}, whose copy at {copy.site.label} is in "
                f"group {group.to_index()}, when only groups below {done.to_index()} were waited for",
            )
        options.append(_existence(ring, read, copy))
        _same_region(ring, read, copy)
    if not excluded(read.site.facts, options):
        raise refuse(
            "slots",
            read.site.label,
            f"use {read.number.to_index()} of {ring.buffer.name} was not shown to be copied before",
        )


def _existence(ring: _Ring, read: _Use, copy: _Use) -> tuple[Polynomial, ...]:
    """Return when this node copies the read's use: its loop variable, solved for, is in range, and its guards hold."""
    numbering = [loop for loop in copy.site.loops[ring.scope :] if stride_of(copy.number, loop).terms]
    if not numbering:
        return (*_equal(copy.number, read.number), *_guard(copy))
    loop = numbering[0]
    if stride_of(copy.number, loop) != Polynomial.of(1) or len(numbering) > 1:
        raise refuse("slots", copy.site.label, f"use {copy.number.to_index()} is not a loop variable and an offset")
    solved = read.number - (copy.number - loop.atom)
    return (solved, loop.count - 1 - solved, *(p.substitute(loop.var, solved) for p in _guard(copy)))


def _guard(copy: _Use) -> tuple[Polynomial, ...]:
    """Return the condition of a copy as polynomials that are all >= 0."""
    only, *others = guard_cases(copy.site)
    if others:
        raise refuse("slots", copy.site.label, "is guarded by a condition of several cases")
    return only


def _same_region(ring: _Ring, read: _Use, copy: _Use) -> None:
    """Show that all executors' copies of one use together fill what is read of it."""
    numbering = [loop for loop in copy.site.loops[ring.scope :] if stride_of(copy.number, loop).terms]
    around = executor_loops(copy.site)
    movers = [
        loop
        for position, loop in enumerate(copy.site.loops)
        if loop not in numbering
        and (position >= ring.scope or (position < around and loop.kind.value in ("subgroup", "role")))
    ]
    united = hull(copy.box, movers, copy.site.unguarded)
    facts = read.site.facts
    if united is not None:
        box, _ = united
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


def _not_overwritten(sites: Sequence[Site], ring: _Ring, read: _Use, copy: _Use) -> None:
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
        if not barrier_between(sites, read.site, copy.site, loop) and not facts.plus(unordered).contradictory():
            raise refuse(
                "slots", copy.site.label, f"{problem}: no barrier lies between them from one {loop.var} to the next"
            )
        equal += [later, -later]
    same = facts.plus(equal)
    ordered = read.site.place < copy.site.place and barrier_between(sites, read.site, copy.site, None)
    if not ordered and not same.contradictory():
        raise refuse("slots", copy.site.label, f"{problem} in the same iteration")
    for loop in read.site.loops[executor_loops(read.site) : ring.scope]:
        if not barrier_between(sites, read.site, copy.site, loop):
            raise refuse(
                "slots", copy.site.label, f"{problem}: no barrier lies between them from one {loop.var} to the next"
            )


def _in_order(ring: _Ring, copy: _Use, other: _Use) -> None:
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


def _last_wait(sites: Sequence[Site], read: Site) -> Site | None:
    """Return the last wait before a node that every way to it passes."""
    waits = [
        site
        for site in sites
        if isinstance(site.node, WaitGroup)
        and site.place < read.place
        and read.place[: len(site.place) - 1] == site.place[:-1]
    ]
    return waits[-1] if waits else None


def _equal(left: Polynomial, right: Polynomial) -> list[Polynomial]:
    return [left - right, right - left]
