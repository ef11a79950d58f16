"""Timelines: what one executor has committed when it stands at a node, and in which order two of its nodes happen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracea.semantic.index import Index, Mod, Var
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import Barrier, Level, Node, Region
from tracea.semantic.predicate import And
from tracea.semantic.proofs.certificate import refuse
from tracea.semantic.proofs.conditions import alternatives
from tracea.semantic.proofs.prover import Facts
from tracea.semantic.proofs.walk import Loop, LoopKind, Site, turns_of

__all__ = [
    "Timeline",
    "barrier_between",
    "executor_loops",
    "first_use",
    "last_before",
    "priming",
    "rename",
    "turn_scope",
    "use_number",
]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Counts the nodes of a ``kind`` that one program executes before a place, as a polynomial."""

    sites: tuple[Site, ...]
    kind: type[Node]
    scope: int  # loops around the whole pipeline: counting starts anew in each of their iterations

    def before(self, site: Site) -> Polynomial:
        """Return how many marked nodes were executed before the node, since the pipeline's scope was entered.

        Raises:
            ProofFailed: a marked node is executed conditionally, so that its number is not known.
        """
        result = Polynomial({})
        for marked in self.sites:
            if not isinstance(marked.node, self.kind) or marked.loops[: self.scope] != site.loops[: self.scope]:
                continue
            if any(guard not in site.guards for guard in marked.guards):
                raise refuse("slots", marked.label, "is executed conditionally, so that groups cannot be counted")
            result = result + self._executions(marked, site)
        return result

    def _executions(self, marked: Site, site: Site) -> Polynomial:
        common = 0
        for mine, theirs in zip(marked.loops[self.scope :], site.loops[self.scope :], strict=False):
            if mine != theirs:
                break
            common += 1
        inner = marked.loops[self.scope + common :]
        once = Polynomial.of(1)
        for loop in inner:
            once = once * loop.count
        result = once if marked.place < site.place else Polynomial({})
        for loop in reversed(marked.loops[self.scope : self.scope + common]):
            result = result + once * loop.atom
            once = once * loop.count
        return result


def first_use(site: Site) -> Polynomial:
    """Return the number of the first use of the turn that a node stands in."""
    turns = turns_of(site)
    return Polynomial({}) if turns is None else Polynomial.atom(turns.first)


def last_before(sites: Sequence[Site], kind: type[Node], site: Site, barrier: str | None = None) -> Site | None:
    """Return the last node of a kind before another that every way to it passes, in the same iteration."""
    found = [
        s
        for s in sites
        if isinstance(s.node, kind)
        and (barrier is None or getattr(s.node, "barrier", None) == barrier)
        and s.place < site.place
        and site.place[: len(s.place) - 1] == s.place[:-1]
    ]
    return found[-1] if found else None


def executor_loops(site: Site) -> int:
    """Return how many loops lie around one executor's program: up to and with the innermost subgroup or role loop."""
    kinds = (LoopKind.SUBGROUP, LoopKind.ROLE, LoopKind.TASK, LoopKind.TEAM)
    found = [number + 1 for number, loop in enumerate(site.loops) if loop.kind in kinds]
    return found[-1] if found else 0


def turn_scope(site: Site) -> int:
    """Return how many loops lie around one turn of an executor's program; its whole program where it has no turns."""
    found = [number + 1 for number, loop in enumerate(site.loops) if loop.turns is not None]
    return max(executor_loops(site), *found) if found else executor_loops(site)


def use_number(site: Site, region: Region, shared: Sequence[Loop]) -> Polynomial:
    """Return the use number of an access of a ring: what its first offset is the remainder of.

    A ring of one stage has no remainder: there the use is the iteration of the innermost sequential loop around all
    its accesses.
    """
    first: Index = region.offset[0]
    while isinstance(first, Var) and first.name in site.names:
        first = site.names[first.name]
    if isinstance(first, Mod):
        return site.canonical(first.left)
    position = site.canonical(first)
    if position.terms:
        return position
    sequential = [loop for loop in shared if not loop.kind.is_parallel]
    return sequential[-1].atom if sequential else Polynomial({})


def barrier_between(sites: Sequence[Site], earlier: Site, later: Site, loop: Loop | None) -> bool:
    """Return whether a barrier lies between two nodes in the same iteration, or in different ones of ``loop``."""
    for barrier in sites:
        if not isinstance(barrier.node, Barrier) or barrier.node.level is Level.SUBGROUP:
            continue
        parent = barrier.place[:-1]
        if loop is not None and barrier.place[: len(loop.place)] != loop.place:
            continue
        after = earlier.place[: len(parent)] == parent and barrier.place > earlier.place
        before = later.place[: len(parent)] == parent and barrier.place < later.place
        if loop is None:
            if (after or before) and earlier.place < barrier.place < later.place:
                return True
        elif after or before:
            return True
    return False


def meets_in_each_iteration(sites: Sequence[Site], loop: Loop) -> bool:
    """Return whether all executors meet in every iteration of a loop, whatever its guards and inner loops do."""
    body = (*loop.place, 0)
    return any(
        isinstance(site.node, Barrier) and site.node.level is not Level.SUBGROUP and site.place[:-1] == body
        for site in sites
    )


def priming(site: Site, keep: Sequence[Loop]) -> dict[str, Var]:
    """Return new names for what the loops around a node bind, but those of ``keep``."""
    return {bound.name: Var(f"{bound.name}'") for loop in site.loops if loop not in keep for bound in loop.binds}


def rename(polynomial: Polynomial, names: dict[str, Var]) -> Polynomial:
    """Return a polynomial over renamed variables."""
    if not any(name in atom.names() for atom in polynomial.atoms() for name in names):
        return polynomial
    return normalize(polynomial.to_index().substitute(dict[str, Index](names)))


def guard_cases(site: Site) -> tuple[tuple[Polynomial, ...], ...]:
    """Return the guards of a node as cases of polynomials that are all >= 0."""
    return alternatives(And(site.guards))


def excluded(facts: Facts, options: Sequence[Sequence[Polynomial]]) -> bool:
    """Return whether one option at least, a conjunction of polynomials >= 0, holds in every case."""
    if facts.contradictory():
        return True
    if not options:
        return False
    return all(excluded(facts.plus([-part - 1]), options[1:]) for part in options[0])
