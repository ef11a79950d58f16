"""The two rules of mbarriers: who sets a barrier up before whom (A), and who arrives at it how often (B).

Rule A: one thread sets up every slot, and all executors meet before any of them uses one. Rule B: which warps produce
and which consume is fixed when the kernel is compiled, and the arrivals of one phase are those of the roles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import Barrier, Level
from tracea.semantic.nodes_async import MbarrierArrive, MbarrierExpect, MbarrierInit, MbarrierWait, TmaCopy
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.tiling import hull
from tracea.semantic.proofs.timeline import barrier_between, executor_loops
from tracea.semantic.proofs.walk import Box, LoopKind, Site, turns_of
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["arrivals", "barrier_buffers", "prove_rules"]

_BarrierNode = MbarrierInit | MbarrierExpect | MbarrierArrive | MbarrierWait | TmaCopy


def barrier_buffers(kernel: TileKernel) -> frozenset[str]:
    """Return the names of the mbarrier arrays."""
    return frozenset(node.barrier for node in kernel.body.walk() if isinstance(node, _BarrierNode))


def prove_rules(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove rules A and B of every mbarrier array.

    Raises:
        ProofFailed: a slot is not set up once by one thread before its use, or the executors that use a barrier are
        not fixed when the kernel is compiled.
    """
    for barrier in sorted(barrier_buffers(kernel)):
        init = _set_up(kernel, sites, barrier)
        first = _published(sites, barrier, init)
        yield Fact(
            "rule A", barrier, f"set up once, at {init.label}, by one thread; published by {first}, before any use"
        )
        users = [_executors(site) for site in sites if _uses(site, barrier)]
        waiting = sorted({who for who, node in users if isinstance(node, MbarrierWait)})
        arriving = sorted({who for who, node in users if isinstance(node, MbarrierArrive | MbarrierExpect)})
        if not waiting or not arriving:
            missing = "waits for" if not waiting else "arrives at"
            raise refuse("rule B", barrier, f"nobody {missing} it")
        node = init.node
        assert isinstance(node, MbarrierInit)
        yield Fact(
            "rule B",
            barrier,
            f"{node.count} arrivals a phase, by {', '.join(arriving)}; awaited by {', '.join(waiting)}: all fixed",
            (("arrivals", str(node.count)),),
        )


def arrivals(sites: Sequence[Site], barrier: str, arriving: Sequence[Site]) -> None:
    """Show that a phase expects as many arrivals as there are executors of the arriving nodes (rule B).

    Raises:
        ProofFailed: the count that the barrier was set up with differs.
    """
    init = next(s for s in sites if isinstance(s.node, MbarrierInit) and s.node.barrier == barrier)
    node = init.node
    assert isinstance(node, MbarrierInit)
    total = Polynomial({})
    for site in arriving:
        executors = Polynomial.of(1)
        turns = turns_of(site)
        in_turn = None if turns is None or turns.is_whole else turns.shared_by(site.loops)  # of these one has the turn
        for loop in site.loops[: executor_loops(site)]:
            if loop.kind in (LoopKind.ROLE, LoopKind.SUBGROUP) and loop != in_turn:
                executors = executors * loop.count
        total = total + executors
    if init.canonical(node.count) != total:
        raise refuse("rule B", init.label, f"{barrier} counts {node.count} arrivals a phase, {total.to_index()} arrive")


def _set_up(kernel: TileKernel, sites: Sequence[Site], barrier: str) -> Site:
    """Show that every slot of a barrier array is set up once, by one thread of the block; return the node."""
    inits = [site for site in sites if isinstance(site.node, MbarrierInit) and site.node.barrier == barrier]
    if len(inits) != 1:
        raise refuse("rule A", barrier, f"is set up at {len(inits)} nodes, must be at one")
    init = inits[0]
    node = init.node
    assert isinstance(node, MbarrierInit)
    many = [loop for loop in init.loops if loop.kind.is_parallel and loop.kind is not LoopKind.BLOCK]
    if many:
        raise refuse("rule A", init.label, f"every iteration of {many[0].var} sets {barrier} up, must be one thread")
    one = Polynomial.of(1)
    inner = [loop for loop in init.loops if not loop.kind.is_parallel]
    united = hull(Box(barrier, (init.canonical(node.slot),), (one,)), inner, init.facts)
    size = normalize(kernel.buffer(barrier).shape[0])
    if united is None or united[0].offset[0].terms or not init.facts.proves_equal(united[0].extent[0], size):
        raise refuse("rule A", init.label, f"was not shown to set up slots 0 .. {size.to_index()} of {barrier}")
    return init


def _published(sites: Sequence[Site], barrier: str, init: Site) -> str:
    """Show that all executors of the block met between the set-up and every use; return the meeting's label."""
    for site in sites:
        if _uses(site, barrier) and not barrier_between(sites, init, site, None):
            detail = f"uses {barrier}, and no block barrier lies between that and {init.label}"
            raise refuse("rule A", site.label, detail)
    meeting = next(
        (
            site
            for site in sites
            if isinstance(site.node, Barrier) and site.node.level is Level.BLOCK and site.place > init.place
        ),
        None,
    )
    return "the block" if meeting is None else meeting.label


def _uses(site: Site, barrier: str) -> bool:
    node = site.node
    return isinstance(node, MbarrierExpect | MbarrierArrive | MbarrierWait | TmaCopy) and node.barrier == barrier


def _executors(site: Site) -> tuple[str, _BarrierNode]:
    """Return who executes a node, by the name and number of its role or warps; show that both are constants."""
    node = site.node
    assert isinstance(node, _BarrierNode)
    around = [loop for loop in site.loops if loop.kind in (LoopKind.ROLE, LoopKind.SUBGROUP)]
    if not around:
        return "the block", node
    loop = around[-1]
    number = loop.count.constant
    if number is None:
        raise refuse(
            "rule B",
            site.label,
            f"{loop.count.to_index()} executors of {loop.var}: not fixed when the kernel is compiled",
        )
    names = {other.var.name for other in around}
    chosen = [guard for guard in site.guards if names & _names(guard)]
    if chosen and isinstance(node, MbarrierArrive | MbarrierExpect):
        raise refuse("rule B", site.label, f"only executors with {chosen[0]} arrive: give them a role of their own")
    return f"{number} of {loop.var}", node


def _names(guard: object) -> frozenset[str]:
    from tracea.semantic.fields import expressions

    return frozenset[str]().union(*(index.names() for index in expressions(guard)))
