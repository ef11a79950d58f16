"""Rings between roles: copies that mbarriers announce, reads that mbarriers release.

Every loop that uses a ring counts its uses from 0. What is shown, for use number k of a ring of N stages: the
consumer reads use k after it waited for phase ``k div N`` of ``full`` of slot ``k mod N``; that phase has the
arrivals and the bytes of the producer's iteration k, and of no other; the producer issues it after it waited for the
phase of ``empty`` that the release of use k − N completes; a release of use k comes after all its reads are complete;
every use that the producer waits for is released. That barriers are set up first is rule A (``rules``).

In a persistent block both sides walk the same turns, and use ``first + k`` is step k of the turn that begins with use
``first``: numbers run on, so the argument is the same. Every step of a turn is released, the last one after the loop.
Where consumers take turns, a baton each (``batons``) keeps their waits in the order of the uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.semantic.index import Index, Var
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import Access
from tracea.semantic.nodes_async import (
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    TmaCopy,
    Wgmma,
)
from tracea.semantic.proofs.batons import batons, prove_baton
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.matrix_groups import prove_complete
from tracea.semantic.proofs.rules import arrivals
from tracea.semantic.proofs.tiling import stride_of
from tracea.semantic.proofs.timeline import excluded, executor_loops, first_use, guard_cases, last_before, use_number
from tracea.semantic.proofs.walk import Loop, LoopKind, Site, turns_of
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["prove_mbarriers", "tma_rings"]


def tma_rings(kernel: TileKernel) -> frozenset[str]:
    """Return the names of the buffers that the copy engine fills."""
    return frozenset(node.target.buffer for node in kernel.body.walk() if isinstance(node, TmaCopy))


def prove_mbarriers(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove slot safety, arrival counts and phases of every ring that the copy engine fills.

    Raises:
        ProofFailed: a wait is missing or is for another phase, a count or a number of bytes differs, or a release is
        too early.
    """
    for name in sorted(tma_rings(kernel)):
        stages = normalize(kernel.buffer(name).shape[0])
        copies = [site for site in sites if isinstance(site.node, TmaCopy) and site.node.target.buffer == name]
        reads = [(s, a) for s in sites for a in s.node.accesses() if a.region.buffer == name and a.reads]
        if len(copies) != 1 or not reads:
            raise refuse("slots", name, f"needs one copy and at least one read, has {len(copies)} and {len(reads)}")
        copy = copies[0]
        full = _announced(kernel, sites, copy, stages)
        empties = {_read_in_turn(sites, copy, read, access=access, full=full, stages=stages) for read, access in reads}
        for empty in empties:
            _copy_in_turn(sites, copy, empty, stages)
            expect = next(s for s in sites if isinstance(s.node, MbarrierExpect) and s.node.barrier == full)
            if last_before(sites, MbarrierWait, expect, empty) is None:
                raise refuse(
                    "slots",
                    expect.label,
                    f"arrives at {full} before it waited for {empty}: the phase before may still be open",
                )
        yield Fact(
            "slots",
            name,
            f"one copy and {len(reads)} reads are in order for {stages.to_index()} stages and any trip count",
        )


def _announced(kernel: TileKernel, sites: Sequence[Site], copy: Site, stages: Polynomial) -> str:
    """Show that one arrival an iteration expects the bytes of all copies to the barrier; return the barrier."""
    node = copy.node
    assert isinstance(node, TmaCopy)
    loop = _numbering(copy, _use(copy, node.target.offset[0]))
    _same_slot(copy, node.slot, node.target.offset[0])
    together = [s for s in sites if isinstance(s.node, TmaCopy) and s.node.barrier == node.barrier]
    expects = [s for s in sites if isinstance(s.node, MbarrierExpect) and s.node.barrier == node.barrier]
    others = [s for s in sites if isinstance(s.node, MbarrierArrive) and s.node.barrier == node.barrier]
    if (
        len(expects) != 1
        or others
        or any(s.loops != copy.loops or s.guards != copy.guards for s in (*expects, *together))
    ):
        raise refuse(
            "slots",
            copy.label,
            f"{node.barrier} must have one expecting arrival in each iteration of {loop.var}, with its copies",
        )
    expect = expects[0]
    expect_node = expect.node
    assert isinstance(expect_node, MbarrierExpect)
    _same_slot(expect, expect_node.slot, node.target.offset[0])
    expected = expect.canonical(expect_node.nbytes)
    moved = Polynomial({})
    for site in together:
        assert isinstance(site.node, TmaCopy)
        size = Polynomial.of(kernel.buffer(site.node.target.buffer).dtype.nbytes)
        for extent in site.node.descriptor.box:
            size = size * extent
        moved = moved + size
    if expected != moved:
        raise refuse(
            "slots",
            expect.label,
            f"expects {expected.to_index()} bytes of {node.barrier}, the copies bring {moved.to_index()}",
        )
    if expect.place > min(site.place for site in together):
        raise refuse("slots", expect.label, f"expects the bytes of {node.barrier} after the copies were issued")
    arrivals(sites, node.barrier, [expect])
    return node.barrier


def _read_in_turn(
    sites: Sequence[Site], copy: Site, read: Site, *, access: Access, full: str, stages: Polynomial
) -> str:
    """Show that a read waits for its use and is complete when it is released; return the barrier that releases."""
    number = _use(read, access.region.offset[0])
    loop = _numbering(read, number)
    produced = _numbering(copy, _use(copy, _copy_node(copy).target.offset[0]))
    _same_turns(copy, read, produced, loop)
    if number != first_use(read) + loop.atom or not loop.outside.proves_equal(loop.count, produced.count):
        raise refuse(
            "slots", read.label, f"reads {loop.count.to_index()} uses, of {produced.count.to_index()} that are copied"
        )
    wait = last_before(sites, MbarrierWait, read, full)
    if wait is None:
        raise refuse("slots", read.label, f"reads {access.region} and does not wait for {full} before it")
    _phase(wait, number, stages, 0)
    _filled(copy, read, access)
    turns, handed = turns_of(read), batons(sites)
    if turns is not None and not turns.is_whole:
        prove_baton(sites, read, loop, handed)
    elif handed:
        raise refuse("slots", sorted(handed)[0], "is awaited by those who arrive at it, and orders no turns")
    releases = [
        s
        for s in sites
        if isinstance(s.node, MbarrierArrive)
        and s.node.barrier not in handed
        and s.loops[: executor_loops(s)] == read.loops[: executor_loops(read)]
    ]
    inside = [s for s in releases if s.loops == read.loops[: read.loops.index(loop) + 1]]
    after = [s for s in releases if s not in inside]
    if len(inside) != 1 or len(after) != (0 if turns is None else 1):
        where = f"one node in {loop.var}" + ("" if turns is None else " and one after it")
        raise refuse("slots", read.label, f"its use must be released at {where}, is at {len(releases)}")
    _released(sites, read, inside[0], number=number, produced=produced, stages=stages)
    for last in after:
        _last_released(sites, read, last, inside[0], number=number)
    names = {s.node.barrier for s in releases if isinstance(s.node, MbarrierArrive)}
    if len(names) != 1:
        raise refuse("slots", read.label, f"its use must be released at one barrier, is at {', '.join(sorted(names))}")
    empty = names.pop()
    arrivals(sites, empty, inside)  # different iterations release different uses, and the one after the loop its last
    for last in after:
        arrivals(sites, empty, [last])
    return empty


def _same_turns(copy: Site, read: Site, produced: Loop, consumed: Loop) -> None:
    """Show that the copies' side and the reads' side number their uses by the same turns, or that neither has any."""
    theirs, ours = turns_of(copy), turns_of(read)
    if theirs is None and ours is None:
        return
    if theirs is None or ours is None or not theirs.is_whole or not ours.same_tiles(theirs):
        raise refuse("slots", read.label, f"walks other tiles than {copy.label}")
    shared = ours.shared_by(read.loops)
    if not ours.is_whole and (shared is None or shared.kind is not LoopKind.ROLE):
        raise refuse("slots", read.label, "the readers' turns were not shown to be all turns")
    if produced.count != theirs.steps or consumed.count != ours.steps:
        raise refuse("slots", read.label, f"a turn has {ours.steps.to_index()} uses, its loops have others")


def _last_released(sites: Sequence[Site], read: Site, release: Site, inside: Site, *, number: Polynomial) -> None:
    """Show that the last use of each turn is released after the loop, and by nobody else."""
    node, loop = release.node, _numbering(read, number)
    assert isinstance(node, MbarrierArrive)
    around = read.loops[: read.loops.index(loop)]
    if release.loops != around or release.place < loop.place or any(g not in read.guards for g in release.guards):
        raise refuse("slots", release.label, f"is not executed once after each loop over {loop.var}")
    freed, end = _use(release, node.slot), first_use(read) + loop.count
    if freed != end - 1:
        raise refuse("slots", release.label, f"releases use {freed.to_index()}, the last one is {(end - 1).to_index()}")
    if isinstance(read.node, Wgmma):
        prove_complete(sites, read, release, freed=freed, loop=loop)
    assert isinstance(inside.node, MbarrierArrive)
    early = _use(inside, inside.node.slot)
    if not inside.facts.proves(early - first_use(read)) or not inside.facts.proves(end - 2 - early):
        detail = f"releases use {early.to_index()}, which {release.label} or another turn releases"
        raise refuse("slots", inside.label, detail)


def _released(
    sites: Sequence[Site], read: Site, release: Site, *, number: Polynomial, produced: Loop, stages: Polynomial
) -> None:
    """Show that a use is released in an iteration after its reads are complete, and soon enough for the producer."""
    node, loop = release.node, _numbering(read, number)
    assert isinstance(node, MbarrierArrive)
    freed = _use(release, node.slot)
    shift = freed - number
    if shift.constant is None or shift.constant > 0:
        raise refuse("slots", release.label, f"releases use {freed.to_index()} in iteration {number.to_index()}")
    if isinstance(read.node, Wgmma):
        prove_complete(sites, read, release, freed=freed, loop=loop)
    elif shift.constant == 0 and release.place < read.place:
        raise refuse("slots", release.label, f"releases use {freed.to_index()} before {read.label} reads it")
    # The producer waits for the release of each use k − N with N <= k < T: an iteration of the consumer must do it.
    # In turns every use but a turn's last one, which is released after the loop.
    wanted = Polynomial.atom(Var("released use"))
    most = produced.count - stages if turns_of(read) is None else produced.count - 1
    facts = read.loops[0].outside.plus([wanted, most - wanted - 1, stages - 1])
    solved = wanted - shift
    cases = guard_cases(release)
    option = [solved, loop.count - 1 - solved, *(p.substitute(loop.var, solved) for p in cases[0])]
    if len(cases) > 1 or not excluded(facts, [option]):
        raise refuse(
            "slots",
            release.label,
            f"a use that the producer waits for is not released: deadlock for some {stages.to_index()} stages",
        )
    # With none in flight beyond the ring, the release of use k must not itself wait for the copy of use k + N.
    if not facts.proves(stages - 1 + shift):
        raise refuse(
            "slots",
            release.label,
            f"use k is released in iteration k + {-shift.constant}, whose copy waits for that release where "
            f"{stages.to_index()} <= {-shift.constant}: deadlock",
        )


def _copy_in_turn(sites: Sequence[Site], copy: Site, empty: str, stages: Polynomial) -> None:
    """Show that the copy of use k waits for the phase that the release of use k − N completes."""
    number = _use(copy, _copy_node(copy).target.offset[0])
    wait = last_before(sites, MbarrierWait, copy, empty)
    if wait is None:
        raise refuse(
            "slots", copy.label, f"overwrites {_copy_node(copy).target} and does not wait for {empty} before it"
        )
    _phase(wait, number, stages, 1)
    loop = _numbering(copy, number)
    if number != first_use(copy) + loop.atom:
        raise refuse("slots", copy.label, f"uses are numbered {number.to_index()}, not from 0 by {loop.var}")


def _phase(wait: Site, number: Polynomial, stages: Polynomial, shift: int) -> None:
    """Show that a wait is for slot ``k mod N`` and parity ``(k div N + shift) mod 2``."""
    node = wait.node
    assert isinstance(node, MbarrierWait)
    k, n = number.to_index(), stages.to_index()
    slot, parity = normalize(k % n), normalize((k // n + shift) % 2)
    if wait.canonical(node.slot) != slot:
        raise refuse("slots", wait.label, f"waits for slot {node.slot}, use {k} is in slot {slot.to_index()}")
    if wait.canonical(node.parity) != parity:
        raise refuse("slots", wait.label, f"waits for parity {node.parity}, use {k} needs {parity.to_index()}")


def _filled(copy: Site, read: Site, access: Access) -> None:
    box, copied = read.box(access.region), copy.box(_copy_node(copy).target)
    if box.extent[0].constant != 1 or copied.extent[0].constant != 1:
        raise refuse("slots", read.label, f"{access.region} or {_copy_node(copy).target} spans more than one stage")
    for start, size, offset, extent in zip(
        copied.offset[1:], copied.extent[1:], box.offset[1:], box.extent[1:], strict=True
    ):
        if not read.facts.proves(offset - start) or not read.facts.proves(start + size - offset - extent):
            raise refuse("slots", read.label, f"reads more of {access.region} than {copy.label} copies")


def _numbering(site: Site, number: Polynomial) -> Loop:
    loops = [loop for loop in site.loops[executor_loops(site) :] if stride_of(number, loop) == Polynomial.of(1)]
    if len(loops) != 1:
        raise refuse("slots", site.label, f"use {number.to_index()} is not numbered by one loop")
    return loops[0]


def _use(site: Site, offset: Index) -> Polynomial:
    from tracea.semantic.nodes import Region

    inner = site.loops[executor_loops(site) :]
    return use_number(site, Region("", (offset,), (offset,)), inner)


def _same_slot(site: Site, slot: Index, offset: Index) -> None:
    if site.canonical(slot) != site.canonical(offset):
        raise refuse("slots", site.label, f"announces slot {slot}, the data is in slot {offset}")


def _copy_node(site: Site) -> TmaCopy:
    assert isinstance(site.node, TmaCopy)
    return site.node
