"""Slots of rings that groups of copies fill: reads follow completed copies, no slot is overwritten before it is read.

The argument is about use numbers. Copy ``w`` fills slot ``w mod N``; it destroys use ``w − N``. So it is enough that,
for every read of use ``r``: each copy of ``r`` is in a group that the executor waited for, with a barrier between
that wait and the read; and each copy of ``r + N`` or later is issued after the read, with a barrier between. Both are
linear, hence hold for every N >= 1 and trip count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes_async import AsyncCopy, CommitGroup, Gather, WaitGroup
from tracea.semantic.proofs.certificate import Fact, refuse
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
from tracea.semantic.proofs.timeline import Timeline, barrier_between, excluded, priming, rename
from tracea.semantic.proofs.walk import Site
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["group_rings", "prove_slots"]


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
        ring = ring_of(kernel, sites, name, (AsyncCopy, Gather))
        for read in ring.reads:
            _follows_its_copies(sites, ring, read)
            for copy in ring.copies:
                not_overwritten(sites, ring, read, copy)
        for copy in ring.copies:
            for other in ring.copies:
                in_order(ring, copy, other)
        stages = ring.stages.to_index()
        yield Fact(
            "slots",
            name,
            f"{len(ring.copies)} copies and {len(ring.reads)} reads in order for {stages} stages and any trip count",
        )


def _follows_its_copies(sites: Sequence[Site], ring: Ring, read: Use) -> None:
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
        known = read.site.facts.plus([*conditions, *equal_to(rename(copy.number, names), read.number)])
        if not known.proves(done - 1 - group):
            raise refuse(
                "slots",
                read.site.label,
                f"reads use {read.number.to_index()} of {ring.buffer.name}, whose copy at {copy.site.label} is in "
                f"group {group.to_index()}, when only groups below {done.to_index()} were waited for",
            )
        options.append(existence(ring, read, copy))
        same_region(ring, read, copy)
    if not excluded(read.site.facts, options):
        raise refuse(
            "slots",
            read.site.label,
            f"use {read.number.to_index()} of {ring.buffer.name} was not shown to be copied before",
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
