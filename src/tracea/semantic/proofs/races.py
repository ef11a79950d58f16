"""Races: what different executors touch is disjoint, only read, or separated by a barrier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracea.semantic.index import Index, Var
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import Access, Barrier, Level
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.meetings import EXECUTORS
from tracea.semantic.proofs.prover import Facts
from tracea.semantic.proofs.walk import Box, Loop, LoopKind, Site, turns_of
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel

__all__ = ["prove_races"]


@dataclass(frozen=True, slots=True)
class _Touch:
    site: Site
    access: Access
    box: Box
    executors: tuple[Loop, ...]  # the canonical loops of the parallel node that hands this out

    @property
    def shared(self) -> tuple[Loop, ...]:
        """The loops around the parallel node: every executor runs them."""
        return self.site.loops[: self.site.loops.index(self.executors[0])]


def prove_races(kernel: TileKernel, sites: Sequence[Site], skip: frozenset[str] = frozenset()) -> Iterator[Fact]:
    """Prove that no two executors conflict, for every buffer they share but ``skip`` (rings have a proof of their own).

    Raises:
        ProofFailed: two accesses, one of them a write, were shown neither disjoint nor ordered by a barrier.
    """
    barriers = [site for site in sites if isinstance(site.node, Barrier) and site.node.level is not Level.SUBGROUP]
    grid = any(loop.kind is LoopKind.BLOCK for site in sites for loop in site.loops)
    for buffer in kernel.buffers:
        if buffer.name in skip or buffer.space not in (MemorySpace.GLOBAL, MemorySpace.TEAM):
            continue
        if buffer.role in (BufferRole.INPUT, BufferRole.CONSTANT):
            _only_read(sites, buffer.name)
            continue
        levels = _levels(grid, buffer.space)
        for level in levels:
            touches = list(_touches(sites, buffer.name, level))
            for number, first in enumerate(touches):
                for second in touches[number:]:
                    if first.access.writes or second.access.writes:
                        _check(first, second, barriers if level is not LoopKind.BLOCK else [])
            if touches:
                yield Fact("races", buffer.name, f"{len(touches)} accesses by different {level.value}s do not conflict")


def _levels(grid: bool, space: MemorySpace) -> tuple[LoopKind, ...]:
    if not grid:
        return (LoopKind.TASK,)
    return (LoopKind.SUBGROUP,) if space is MemorySpace.TEAM else (LoopKind.BLOCK, LoopKind.SUBGROUP)


def _only_read(sites: Sequence[Site], name: str) -> None:
    for site in sites:
        for access in site.node.accesses():
            if access.region.buffer == name and access.writes:
                raise refuse("races", site.label, f"writes {name}, which is the caller's to keep")


def _touches(sites: Sequence[Site], name: str, level: LoopKind) -> Iterator[_Touch]:
    kinds = {LoopKind.TASK: (LoopKind.TASK, LoopKind.TEAM), LoopKind.SUBGROUP: EXECUTORS}.get(level, (level,))
    for site in sites:
        for access, box in site.accesses():
            if box.buffer != name:
                continue
            loops = [loop for loop in site.loops if loop.kind in kinds]
            if not loops:
                if level is LoopKind.SUBGROUP:
                    continue
                if access.writes:
                    raise refuse(
                        "races", site.label, f"every executor writes {name} here: no parallel loop hands it out"
                    )
                loops = [
                    Loop(
                        Var("thread"), Polynomial.of(2), level, site.place, Polynomial.of(2), Polynomial.of(1), Facts()
                    )
                ]
                site_loops = (*site.loops, *loops)
                yield _Touch(_with_loops(site, site_loops), access, box, tuple(loops))
                continue
            same = tuple(loop for loop in loops if loop.place == loops[0].place)
            if len(same) != len(loops):
                raise refuse("races", site.label, f"a {level.value} loop inside another one")
            yield _Touch(site, access, box, same)


def _with_loops(site: Site, loops: tuple[Loop, ...]) -> Site:
    return Site(site.node, site.place, loops, site.guards, site.facts, site.unguarded, site.names, site.digits)


def _check(first: _Touch, second: _Touch, barriers: Sequence[Site]) -> None:
    """Show that two accesses cannot meet, in the same or in different iterations of shared loops, in either order."""
    common = [loop for loop in first.shared if loop in second.shared]
    inside = _spmd_loops(first, second)
    same_node = first.executors == second.executors
    sequence = [*common, *inside]
    sequential = [loop for loop in sequence if not loop.kind.is_parallel]
    if not _separated(first, second, None, barriers):
        fixed = set(sequence)
        for condition in _different(first, second, same_node, fixed):
            _disjoint(first, second, fixed, condition)
    for position, loop in enumerate(sequential):
        outer = {other for other in sequence if other.kind.is_parallel} | set(sequential[:position])
        for earlier, later in ((first, second), (second, first)):
            if _separated(earlier, later, loop, barriers):
                continue
            gap = _renamed(loop.atom, {loop}) - loop.atom
            conditions = [[gap - 1]]
            if _meets_inside(loop, earlier, barriers):
                conditions = [[gap - 1, -gap + 1]]
            if loop in inside:  # one program of several executors: the same one is in order with itself
                conditions = [[*c, *d] for c in conditions for d in _different(earlier, later, same_node, outer)]
            for condition in conditions:
                _disjoint(earlier, later, outer, condition)


def _spmd_loops(first: _Touch, second: _Touch) -> list[Loop]:
    """Return the sequential loops inside the loop of subgroups or of a role, which all of these run side by side."""
    if first.executors != second.executors or first.executors[0].kind not in EXECUTORS:
        return []
    inner = first.site.loops[first.site.loops.index(first.executors[-1]) + 1 :]
    return [loop for loop in inner if loop in second.site.loops]


def _different(first: _Touch, second: _Touch, same_node: bool, fixed: set[Loop]) -> list[list[Polynomial]]:
    """Return the ways in which two executors differ: in the first digit of their index that does, up or down.

    Executors that differ in their share of the turns are at different tiles: not where all digits of these are fixed.
    """
    if not same_node:
        return [[]]
    ways: list[list[Polynomial]] = []
    equal: list[Polynomial] = []
    owned = _owned_tile(first) if _owned_tile(first) == _owned_tile(second) else ()
    sharing = _sharing(first, second, fixed)
    for loop in owned or first.executors:
        gap = _renamed(loop.atom, {loop}) - loop.atom
        if loop != sharing:
            ways.append([*equal, gap - 1])
            if first is not second or owned:
                ways.append([*equal, -gap - 1])
        equal += [gap, -gap]
    return ways


def _sharing(first: _Touch, second: _Touch, fixed: set[Loop]) -> Loop | None:
    """Return the loop over executors of which each takes its own share of the turns, if both are in the same turn."""
    turns, others = turns_of(first.site), turns_of(second.site)
    tile = [loop for loop in first.site.loops if loop.turns is not None]
    if turns is None or turns != others or not fixed.issuperset(tile):
        return None
    return turns.shared_by(first.executors)


def _owned_tile(touch: _Touch) -> tuple[Loop, ...]:
    """Return the loops that number the tile that a segment's worker owns: different workers own different tiles."""
    turns = turns_of(touch.site)
    if turns is not None and turns.worker == touch.executors[0].var and len(touch.executors) == 1:
        return tuple(loop for loop in touch.site.loops if loop.turns is not None)
    loops = tuple(loop for loop in touch.site.loops if loop.segment is not None)
    segment = loops[0].segment if loops else None
    if segment is None or segment.worker != touch.executors[0].var or len(touch.executors) != 1:
        return ()
    return loops if touch.site.facts.proves_equal(Polynomial.atom(segment.first), Polynomial({})) else ()


def _separated(earlier: _Touch, later: _Touch, loop: Loop | None, barriers: Sequence[Site]) -> bool:
    """Return whether a barrier lies between: after the first in its iteration, or before the second in its own."""
    start, end = earlier.site.place, later.site.place
    if loop is None and start > end:
        start, end = end, start
    for barrier in barriers:
        place, parent = barrier.place, barrier.place[:-1]
        if barrier.node.level is Level.SUBGROUP:  # type: ignore[attr-defined]
            continue
        within = loop is None or place[: len(loop.place)] == loop.place
        if not within:
            continue
        after = start[: len(parent)] == parent and place > start and start[len(parent)] != place[-1]
        before = end[: len(parent)] == parent and place < end and end[len(parent)] != place[-1]
        if loop is None:
            if (after or before) and start < place < end:
                return True
        elif after or before:
            return True
    return False


def _meets_inside(loop: Loop, touch: _Touch, barriers: Sequence[Site]) -> bool:
    """Return whether each iteration of the loop passes a barrier that stands directly in its body."""
    return any(
        barrier.place[: len(loop.place)] == loop.place and len(barrier.place) == len(loop.place) + 2
        for barrier in barriers
    )


def _disjoint(first: _Touch, second: _Touch, fixed: set[Loop], condition: Sequence[Polynomial]) -> None:
    names = _other_names(second.site.loops, fixed)
    other_facts = [_rename(fact, names) for fact in second.site.facts.known]
    facts = first.site.facts.plus([*other_facts, *condition])
    goals: list[Polynomial] = []
    for a, a_size, b, b_size in zip(
        first.box.offset, first.box.extent, second.box.offset, second.box.extent, strict=True
    ):
        b_start, b_extent = _rename(b, names), _rename(b_size, names)
        goals += [b_start - a - a_size, a - b_start - b_extent]
    if any(facts.proves(goal) for goal in _likely_first(goals, condition)):
        return
    if facts.contradictory():
        return
    raise refuse(
        "races",
        f"{first.site.label} and {second.site.label}",
        f"{first.access.mode.value} {first.access.region} and {second.access.mode.value} {second.access.region} "
        "by different "
        f"executors were shown neither disjoint nor separated by a barrier"
        + (f", where {' and '.join(f'{p.to_index()} >= 0' for p in condition)}" if condition else ""),
    )


def _other_names(loops: Sequence[Loop], fixed: set[Loop]) -> dict[str, Var]:
    """Return new names for what loops bind in another iteration, all but ``fixed``.

    A tile fixes its turn and its segment as long as its worker is fixed too.
    """
    changing: list[Var] = []
    for loop in loops:
        numbers = loop.turns or loop.segment
        of_worker = numbers is None or any(other.var == numbers.worker for other in fixed)
        changing += loop.binds if loop not in fixed else () if of_worker else loop.binds[1:]
    return {bound.name: Var(f"{bound.name}'") for bound in changing}


def _likely_first(goals: Sequence[Polynomial], condition: Sequence[Polynomial]) -> list[Polynomial]:
    """Return the goals by what they share with the condition: a difference that it bounds from below comes first.

    Each goal that does not follow costs a whole elimination, and the order changes nothing else.
    """

    def shared(goal: Polynomial) -> int:
        products = (
            part.coefficient((atom,)) * goal.coefficient(monomial)
            for monomial in goal.monomials()
            for atom in monomial
            for part in condition
        )
        return sum((product > 0) - (product < 0) for product in products)

    return sorted(goals, key=shared, reverse=True)


def _renamed(polynomial: Polynomial, loops: set[Loop]) -> Polynomial:
    return _rename(polynomial, {loop.var.name: Var(f"{loop.var.name}'") for loop in loops})


def _rename(polynomial: Polynomial, names: dict[str, Var]) -> Polynomial:
    substitution: dict[str, Index] = dict(names)
    if all(atom.names().isdisjoint(names) for atom in polynomial.atoms()):
        return polynomial
    return normalize(polynomial.to_index().substitute(substitution))
