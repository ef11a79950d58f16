"""One walk over a kernel: every node with its place, its loops in canonical form, and the facts that hold there.

In canonical form each loop counts iterations: ``For(v, extent=E, step=S)`` becomes ``q`` in ``[0, ceil(E / S))`` with
``v = S·q`` and ``length = min(S, E − S·q)``. A loop over ``X·Y`` whose variable occurs as ``t div Y`` and ``t mod Y``
becomes two, with ``t = i·Y + j``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from tracea.errors import ProofFailed
from tracea.semantic.fields import expressions
from tracea.semantic.index import Const, Index, Lookup, Var, ceil_div, minimum
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import Access, Block, For, If, Let, Node, Parallel, Region
from tracea.semantic.nodes_async import MOST_USES, Role, Roles, SegmentLoop, TileLoop
from tracea.semantic.predicate import And, Not, Predicate
from tracea.semantic.proofs.certificate import refuse
from tracea.semantic.proofs.conditions import alternatives, conjuncts
from tracea.semantic.proofs.digits import divisors, radix, settled
from tracea.semantic.proofs.prover import Facts
from tracea.semantic.tile_kernel import MemorySpace, TileKernel

__all__ = ["Box", "Loop", "LoopKind", "Segment", "Site", "Turns", "turns_of", "unshown_step", "walk"]

_ONE = Polynomial.of(1)


class LoopKind(Enum):
    """Who executes the iterations of a canonical loop."""

    SEQUENTIAL = "for"
    SEGMENT = "segment"
    TURN = "turn"
    TASK = "task"
    TEAM = "team"
    BLOCK = "block"
    ROLE = "role"
    SUBGROUP = "subgroup"
    LANE = "lane"

    @property
    def is_parallel(self) -> bool:
        """Whether different iterations may be executed by different executors at the same time."""
        return self not in (LoopKind.SEQUENTIAL, LoopKind.SEGMENT, LoopKind.TURN)


@dataclass(frozen=True, slots=True)
class Segment:
    """What a segment loop names besides its tile; ``worker`` is the loop over all workers, if it was recognised."""

    first: Var
    count: Var
    last: Var
    worker: Var | None
    steps: Polynomial
    workers: Polynomial


@dataclass(frozen=True, slots=True)
class Turns:
    """What a loop over a worker's tiles says; ``worker`` is the loop over all workers, if it was recognised."""

    turn: Var
    first: Var
    worker: Var | None
    workers: Polynomial
    tiles: Polynomial
    steps: Polynomial
    share: Polynomial
    shares: Polynomial
    order: str = ""  # the table through which tiles are taken

    @property
    def is_whole(self) -> bool:
        """Whether the loop takes every turn."""
        return self.share == Polynomial({}) and self.shares == _ONE

    def same_tiles(self, other: Turns) -> bool:
        """Whether both walk the tiles of one worker with equally many uses a turn, whatever their shares."""
        ours = (self.worker, self.workers, self.tiles, self.steps, self.order)
        theirs = (other.worker, other.workers, other.tiles, other.steps, other.order)
        return self.worker is not None and ours == theirs

    def shared_by(self, loops: Sequence[Loop]) -> Loop | None:
        """Return the loop over executors of which each takes its own share, all of them together every turn."""
        return next((loop for loop in loops if loop.atom == self.share and loop.count == self.shares), None)


@dataclass(frozen=True, slots=True)
class Loop:
    """A canonical loop: ``var`` counts from 0 below ``count`` = ceil(extent / step); ``place`` is the path of its node.

    ``outside`` are the facts around the loop, where it may still have no iteration, without what guards say: whether
    a loop runs at all is no question that a condition around it may answer, for where that fails it does not.
    """

    var: Var
    count: Polynomial
    kind: LoopKind
    place: tuple[int, ...]
    extent: Polynomial
    step: Polynomial
    outside: Facts = field(repr=False, compare=False)
    segment: Segment | None = None
    turns: Turns | None = None

    @property
    def atom(self) -> Polynomial:
        """The loop's variable."""
        return Polynomial.atom(self.var)

    @property
    def binds(self) -> tuple[Var, ...]:
        """What changes with the loop's iterations: its variable, and what a loop over tiles names besides the tile."""
        turn = () if self.turns is None else (self.turns.turn, self.turns.first)
        segment = () if self.segment is None else (self.segment.first, self.segment.count, self.segment.last)
        return (self.var, *turn, *segment)


@dataclass(frozen=True, slots=True)
class Box:
    """A region in canonical form."""

    buffer: str
    offset: tuple[Polynomial, ...]
    extent: tuple[Polynomial, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """A node where it stands: ``place`` is its path of positions, ``guards`` are the conditions on the way."""

    node: Node
    place: tuple[int, ...]
    loops: tuple[Loop, ...]
    guards: tuple[Predicate, ...]
    facts: Facts
    unguarded: Facts  # the facts without what the guards say
    names: Mapping[str, Index]
    digits: Mapping[str, Polynomial] = field(repr=False)

    @property
    def label(self) -> str:
        """The node's kind and place, for messages."""
        return f"{type(self.node).__name__} at {'.'.join(map(str, self.place))}"

    def canonical(self, index: Index) -> Polynomial:
        """Return an expression of the kernel over canonical loop variables."""
        return settled(normalize(index.substitute(self.names)), self.digits)

    def box(self, region: Region) -> Box:
        """Return a region over canonical loop variables."""
        return Box(region.buffer, tuple(map(self.canonical, region.offset)), tuple(map(self.canonical, region.extent)))

    def condition(self, predicate: Predicate) -> Predicate:
        """Return a condition of the kernel over canonical loop variables."""
        from tracea.semantic.fields import map_indices

        changed: Predicate = map_indices(predicate, lambda index: self.canonical(index).to_index())
        return changed

    def accesses(self) -> Iterator[tuple[Access, Box]]:
        """Yield what the node touches."""
        for access in self.node.accesses():
            yield access, self.box(access.region)


def turns_of(site: Site) -> Turns | None:
    """Return the turns of a persistent block that a node stands in, if any."""
    return next((loop.turns for loop in site.loops if loop.turns is not None), None)


def unshown_step(node: For | Parallel, label: str, step: Polynomial) -> ProofFailed:
    """Return the error of a loop whose step was not shown to be positive."""
    return refuse("division", label, f"step {step.to_index()} of {node.var} was not shown to be at least 1")


def walk(kernel: TileKernel) -> tuple[Site, ...]:
    """Return every node of the kernel in program order, structural ones before what is inside them.

    Raises:
        ProofFailed: a loop's step is a number below 1.
    """
    tables = tuple((t.name, normalize(t.minimum), normalize(t.maximum)) for t in kernel.tables)
    ascending = {t.name: normalize(t.length) for t in kernel.tables if t.ascending}
    facts = Facts(conjuncts(kernel.assumptions) or (), tables=tables, ascending=ascending)
    walker = _Walker(kernel)
    walker.block(kernel.body, _Scope((), (), facts, facts, {}, {}), ())
    return tuple(walker.sites)


@dataclass(frozen=True, slots=True)
class _Scope:
    loops: tuple[Loop, ...]
    guards: tuple[Predicate, ...]
    facts: Facts
    unguarded: Facts
    names: Mapping[str, Index]
    digits: Mapping[str, Polynomial]

    def within(self, loops: list[Loop], names: Mapping[str, Index], known: Sequence[Polynomial] = ()) -> _Scope:
        """Return this scope inside some loops, where ``known`` holds too."""
        known = [*known, *(fact for loop in loops for fact in (loop.atom, loop.count - loop.atom - 1))]
        return replace(
            self,
            loops=(*self.loops, *loops),
            facts=self.facts.plus(known),
            unguarded=self.unguarded.plus(known),
            names=names,
            digits={**self.digits, **{loop.var.name: loop.count for loop in loops}},
        )

    def guarded(self, guard: Predicate) -> _Scope:
        """Return this scope where a condition holds."""
        cases = alternatives(guard)
        if len(cases) > 1:  # such as a difference: one of its cases may be impossible here
            cases = tuple(case for case in cases if not self.facts.plus(case).contradictory())
        known = cases[0] if len(cases) == 1 else None
        parts = guard.parts if isinstance(guard, And) else (guard,)
        guards = (*self.guards, *parts)
        return replace(self, guards=guards, facts=self.facts.plus(known) if known else self.facts)


class _Walker:
    def __init__(self, kernel: TileKernel) -> None:
        self.sites: list[Site] = []
        self.orders = {table.name: table.length for table in kernel.tables if table.permutation}
        on_chip = (MemorySpace.TEAM, MemorySpace.REGISTER)
        self.divisors = divisors(kernel.body, frozenset(b.name for b in kernel.buffers if b.space in on_chip))

    def block(self, body: Block, scope: _Scope, place: tuple[int, ...]) -> None:
        names = dict(scope.names)
        for position, node in enumerate(body.nodes):
            site = Site(
                node,
                (*place, position),
                scope.loops,
                scope.guards,
                scope.facts,
                scope.unguarded,
                dict(names),
                scope.digits,
            )
            self.sites.append(site)
            inside = replace(scope, names=dict(names))
            match node:
                case Let():
                    names[node.var.name] = site.canonical(node.value).to_index()
                case For() | Parallel():
                    self._loop(node, site, inside)
                case If():
                    for number, (branch, predicate) in enumerate(
                        ((node.then, node.predicate), (node.otherwise, Not(node.predicate)))
                    ):
                        self.block(branch, inside.guarded(site.condition(predicate)), (*site.place, number))
                case Roles():
                    for number, role in enumerate(node.roles):
                        self._role(role, number, site, inside)
                case SegmentLoop():
                    self._segments(node, site, inside)
                case TileLoop():
                    self._turns(node, site, inside)
                case Block():
                    self.block(node, inside, site.place)
                case _:
                    pass

    def _loop(self, node: For | Parallel, site: Site, scope: _Scope) -> None:
        node = self._reordered(node, site)
        kind = LoopKind.SEQUENTIAL if isinstance(node, For) else LoopKind(node.level.value)
        extent, step = site.canonical(node.extent), site.canonical(node.step)
        if step.constant is not None and step.constant < 1:  # no trip count to walk with; others prove_divisions judges
            raise unshown_step(node, site.label, step)
        unit = step.constant == 1
        parts = radix(node.var, extent, self._divisors(node.var, site)) if unit else []
        names = dict(site.names)
        known: list[Polynomial] = []
        if parts:
            loops: list[Loop] = []
            outside = site.unguarded  # around a digit: an iteration of the slower ones
            for var, count, _ in parts:
                loops.append(Loop(var, count, kind, site.place, count, _ONE, outside))
                outside = outside.plus([loops[-1].atom, count - loops[-1].atom - 1])
            value = Polynomial({})
            for var, _, weight in parts:
                value = value + Polynomial.atom(var) * weight
            names[node.var.name] = value.to_index()
            known = [extent - value - 1]  # follows from the digits' ranges, by products that the prover does not form
        else:
            var = node.var if unit else Var(f"{node.var.name}/{step.to_index()}")
            count = normalize(ceil_div(extent.to_index(), step.to_index()))
            loops = [Loop(var, count, kind, site.place, extent, step, site.unguarded)]
            names[node.var.name] = (Polynomial.atom(var) * step).to_index()
        if node.length is not None:
            rest = (extent - normalize(names[node.var.name])).to_index()
            names[node.length.name] = Const(1) if unit else minimum(step.to_index(), rest)
        self.block(node.body, scope.within(loops, names, known), (*site.place, 0))

    def _reordered(self, node: For | Parallel, site: Site) -> For | Parallel:
        """Return a parallel loop that takes its number from a permutation's table as the loop over the numbers.

        Iterations of a parallel loop have no order, and a permutation of all of them leaves out none and doubles none.
        """
        if not isinstance(node, Parallel) or node.length is not None or node.step != Const(1):
            return node
        var, body, _ = self._through_table(node.var, node.extent, node.body, site)
        return node if var is node.var else replace(node, var=var, body=body)

    def _through_table(self, var: Var, extent: Index, body: Block, site: Site) -> tuple[Var, Block, str]:
        """Return the name and the body of a loop that looks its number up, the number being used for nothing else.

        The third is the table's name; the loop's own name and body, and no table, where that is not so.
        """
        first = body.nodes[0] if body.nodes else None
        if not (isinstance(first, Let) and isinstance(first.value, Lookup)):
            return var, body, ""
        length = self.orders.get(first.value.table)
        whole = length is not None and site.canonical(length) == site.canonical(extent)
        rest = Block(nodes=body.nodes[1:])
        if first.value.index != var or not whole:
            return var, body, ""
        if any(var.name in index.names() for each in rest.walk() for index in expressions(each)):
            return var, body, ""
        return first.var, rest, first.value.table

    def _role(self, role: Role, number: int, site: Site, scope: _Scope) -> None:
        place, executors = (*site.place, number), Polynomial.of(role.executors)
        parts = radix(role.index, executors, self._divisors(role.index, site)) or [(role.index, executors, _ONE)]
        loops: list[Loop] = []
        outside, value = site.unguarded, Polynomial({})
        for var, count, weight in parts:
            loops.append(Loop(var, count, LoopKind.ROLE, place, count, _ONE, outside))
            outside = outside.plus([loops[-1].atom, count - loops[-1].atom - 1])
            value = value + Polynomial.atom(var) * weight
        names = {**site.names, role.index.name: value.to_index()} if len(parts) > 1 else site.names
        self.block(role.body, scope.within(loops, names), place)

    def _segments(self, node: SegmentLoop, site: Site, scope: _Scope) -> None:
        tiles, steps, worker = site.canonical(node.tiles), site.canonical(node.steps), site.canonical(node.worker)
        workers = site.canonical(node.workers)
        over = next((loop.var for loop in site.loops if loop.atom == worker and loop.count == workers), None)
        tile, body, _ = self._through_table(node.tile, node.tiles, node.body, site)  # a permutation of whole tiles
        parts = radix(tile, tiles, self._divisors(tile, site)) or [(tile, tiles, _ONE)]
        segment = Segment(node.first, node.count, node.last, over, steps, workers)
        loops = [
            Loop(var, size, LoopKind.SEGMENT, site.place, size, _ONE, site.unguarded, segment=segment)
            for var, size, _ in parts
        ]
        value = Polynomial({})
        for var, _, weight in parts:
            value = value + Polynomial.atom(var) * weight
        known = [tiles - value - 1] if len(parts) > 1 else []
        inside = scope.within(loops, {**site.names, tile.name: value.to_index()}, known)
        first, count = Polynomial.atom(node.first), Polynomial.atom(node.count)
        last = Polynomial.atom(node.last)
        facts = (first, count - 1, steps - first - count, last - worker, workers - 1 - last)
        inside = replace(inside, facts=inside.facts.plus(facts), unguarded=inside.unguarded.plus(facts))
        self.block(body, inside, (*site.place, 0))

    def _turns(self, node: TileLoop, site: Site, scope: _Scope) -> None:
        tiles, steps, worker = site.canonical(node.tiles), site.canonical(node.steps), site.canonical(node.worker)
        workers, share, shares = (site.canonical(each) for each in (node.workers, node.share, node.shares))
        over = next((loop.var for loop in site.loops if loop.atom == worker and loop.count == workers), None)
        tile, body, order = self._through_table(node.tile, node.tiles, node.body, site)
        parts = radix(tile, tiles, self._divisors(tile, site)) or [(tile, tiles, _ONE)]
        turns = Turns(node.turn, node.first, over, workers, tiles, steps, share, shares, order)
        loops = [
            Loop(var, size, LoopKind.TURN, site.place, size, _ONE, site.unguarded, turns=turns)
            for var, size, _ in parts
        ]
        value = Polynomial({})
        for var, _, weight in parts:
            value = value + Polynomial.atom(var) * weight
        known = [tiles - value - 1] if len(parts) > 1 else []
        inside = scope.within(loops, {**site.names, tile.name: value.to_index()}, known)
        turn, first = Polynomial.atom(node.turn), Polynomial.atom(node.first)
        facts = [turn, tiles - 1 - turn, first]
        if site.facts.proves(-(tiles * steps) + MOST_USES):  # the last use of the last turn is below tiles · steps
            facts.append(-first - steps + MOST_USES)
        inside = replace(inside, facts=inside.facts.plus(facts), unguarded=inside.unguarded.plus(facts))
        self.block(body, inside, (*site.place, 0))

    def _divisors(self, var: Var, site: Site) -> list[Polynomial]:
        found = {site.canonical(divisor) for divisor in self.divisors.get(var.name, ())}
        return sorted(found, key=lambda p: (sum(map(len, p.monomials())), p.offset, str(p.to_index())))
