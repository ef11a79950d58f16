"""Meetings: every executor that a barrier waits for comes to it, equally often, so that nobody waits for ever.

A team meets where all its threads run: beside its tasks, not inside one. A block meets where its subgroups run one
program, under no condition and in no loop that is another one for another subgroup. Only such barriers order what
executors touch; a block's threads begin at one node, and memory is touched by those that began.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tracea.semantic.fields import expressions
from tracea.semantic.index import Index, Var
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import Barrier, Level, Parallel
from tracea.semantic.nodes_async import Roles
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.walk import Loop, LoopKind, Site
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["EXECUTORS", "prove_meetings"]

EXECUTORS = (LoopKind.SUBGROUP, LoopKind.ROLE)


def prove_meetings(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that every barrier is met by all executors of its level, and that a block's executors begin at one node.

    Raises:
        ProofFailed: some of the executors may not come, or something is touched before they begin.
    """
    grid = any(loop.kind is LoopKind.BLOCK for site in sites for loop in site.loops)
    if grid:
        _begins_once(sites)
    barriers = [site for site in sites if isinstance(site.node, Barrier)]
    for site in barriers:
        assert isinstance(site.node, Barrier)
        level = site.node.level
        if not grid and level in (Level.TEAM, Level.TASK):
            _of_a_team(site)
        elif grid and level is Level.BLOCK:
            _of_a_block(site)
        elif not (grid and level is Level.SUBGROUP):
            raise refuse("barriers", site.label, f"no {level.value} meets in a kernel for a {_machine(grid)}")
    if barriers:
        yield Fact("barriers", kernel.name, f"{len(barriers)} barriers are met by all of whom they wait for")


def _machine(grid: bool) -> str:
    return "GPU" if grid else "CPU"


def _begins_once(sites: Sequence[Site]) -> None:
    """Show that one node begins all executors of a block, and that outside of it no memory is touched."""
    begins = [
        site
        for site in sites
        if isinstance(site.node, Roles) or (isinstance(site.node, Parallel) and site.node.level is Level.SUBGROUP)
    ]
    for other in begins[1:]:
        raise refuse("barriers", other.label, f"begins executors beside those of {begins[0].label}")
    for site in sites:
        if any(loop.kind in EXECUTORS for loop in site.loops):
            continue
        for access in site.node.accesses():
            detail = (
                f"{access.mode.value} {access.region} outside of subgroups and roles: in no order with what they do"
            )
            raise refuse("barriers", site.label, detail)


def _of_a_team(site: Site) -> None:
    for loop in site.loops:
        if loop.kind in (LoopKind.TASK, LoopKind.TEAM):
            detail = f"stands in the {loop.kind.value} loop {loop.var}, whose iterations not every thread runs"
            raise refuse("barriers", site.label, detail)


def _of_a_block(site: Site) -> None:
    own: set[str] = set()  # what numbers the executors
    for loop in site.loops:
        if loop.kind in (LoopKind.ROLE, LoopKind.LANE):
            detail = f"stands in the {loop.kind.value} loop {loop.var}, which only a part of the block runs"
            raise refuse("barriers", site.label, detail)
        if loop.kind is LoopKind.SUBGROUP:
            own.add(loop.var.name)
        elif own and _differs(loop, own):
            detail = f"stands in the loop {loop.var}, which may be another one for each {' and '.join(sorted(own))}"
            raise refuse("barriers", site.label, detail)
    for guard in site.guards:
        if own & _names(expressions(guard)):
            raise refuse("barriers", site.label, f"only subgroups with {guard} meet here")


def _differs(loop: Loop, own: set[str]) -> bool:
    """Return whether how often a loop runs may depend on names: on its count, its worker's or on its share."""
    parts: list[Polynomial] = [loop.count]
    workers: list[Var | None] = []
    if loop.turns is not None:
        turns = loop.turns
        parts += [turns.workers, turns.tiles, turns.steps, turns.share, turns.shares]
        workers.append(turns.worker)
    if loop.segment is not None:
        parts += [loop.segment.workers, loop.segment.steps]
        workers.append(loop.segment.worker)
    named = _names(atom for part in parts for atom in part.atoms())
    return bool(own & named) or any(worker is None or worker.name in own for worker in workers)


def _names(indices: Iterable[Index]) -> frozenset[str]:
    return frozenset[str]().union(*(index.names() for index in indices))
