"""Products on fragments: sums start where they must, keep what they summed, and take each step of K once.

The operands of a fragment product are traced back: through the load of the fragment, the stage of the ring, and the
copy that filled it, to the rows and columns of the array in global memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tracea.semantic.fields import expressions
from tracea.semantic.index import Mod
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import CopyTile, Region
from tracea.semantic.nodes_async import AsyncCopy, Clear, LoadMatrix, Mma, TmaCopy, Wgmma
from tracea.semantic.predicate import FALSE, TRUE
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.coverage import exactly_at, first_and_last
from tracea.semantic.proofs.tiling import chain, hull, stride_of
from tracea.semantic.proofs.timeline import executor_loops, use_number
from tracea.semantic.proofs.walk import Box, Loop, Site, turns_of
from tracea.semantic.tile_kernel import MemorySpace, TileKernel

__all__ = ["prove_fragment_products"]


@dataclass(frozen=True, slots=True)
class _Steps:
    """The interval of K that an operand brings in one iteration, in coordinates of the array it comes from."""

    array: str
    offset: Polynomial
    extent: Polynomial
    full: Polynomial


def prove_fragment_products(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove of every product on fragments that its sum is complete.

    Raises:
        ProofFailed: a sum starts elsewhere than at its loop's first iteration, is overwritten, takes a product twice,
        or its operands do not sweep K together.
    """
    for site in sites:
        node = site.node
        if not isinstance(node, Mma | Wgmma):
            continue
        accumulate = site.condition(node.accumulate)
        _added_once(sites, site, node)
        if accumulate == FALSE:
            _used_at_once(sites, site, node)
            continue
        if accumulate == TRUE:
            summed = _since_clear(sites, site, node)
        else:
            names = frozenset[str]().union(*(index.names() for index in expressions(accumulate)))
            summed = [loop for loop in site.loops[executor_loops(site) :] if loop.var.name in names]
            first, _ = first_and_last(summed)
            if not summed or not exactly_at(site.unguarded, accumulate, first, holds=False):
                detail = f"the sum does not start exactly at the first iteration: {node.accumulate}"
                raise refuse("products", site.label, detail)
        if not summed:
            continue  # continues a sum that another product began: that there is one is a matter of initialization
        swept = [_swept(kernel, sites, site, region, summed) for region in (node.a, node.b)]
        known = [steps for steps in swept if steps is not None]
        for steps in known:
            _covers(site, steps, summed)
        if len(known) == 2 and (known[0].offset, known[0].extent) != (known[1].offset, known[1].extent):
            raise refuse("products", site.label, f"steps of {known[0].array} and {known[1].array} differ")
        arrays = " and ".join(steps.array for steps in known) or "no traced array"
        over = ", ".join(str(loop.var) for loop in summed)
        yield Fact("products", site.label, f"K of {arrays} is covered once over {over}")


def _since_clear(sites: Sequence[Site], site: Site, node: Mma | Wgmma) -> list[Loop]:
    """Return the loops over which a sum runs that a ``Clear`` began: those since then that do not move it."""
    clears = [
        s
        for s in sites
        if isinstance(s.node, Clear)
        and s.node.target.buffer == node.c.buffer
        and s.place < site.place
        and _always_before(s, site)
    ]
    if not clears:
        return []
    for clear in reversed(clears):
        since = _since(site, clear, node)
        if since is not None:
            return since
    raise refuse("products", site.label, f"{clears[-1].label} was not shown to clear all of {node.c} that is summed")


def _since(site: Site, clear: Site, node: Mma | Wgmma) -> list[Loop] | None:
    """Return the loops since a ``Clear`` that do not move a sum; None where not all of the sums are cleared."""
    assert isinstance(clear.node, Clear)
    box = site.box(node.c)
    since = [loop for loop in site.loops if loop not in clear.loops]
    moving = [loop for loop in since if any(loop.var in offset.atoms() for offset in box.offset)]
    own = [loop for loop in clear.loops if loop not in site.loops]
    summed, cleared = hull(box, moving, site.unguarded), hull(clear.box(clear.node.target), own, clear.unguarded)
    if summed is None or cleared is None or not _holds(site, cleared[0], summed[0]):
        return None
    return [loop for loop in since if loop not in moving]


def _holds(site: Site, outer: Box, inner: Box) -> bool:
    axes = zip(outer.offset, outer.extent, inner.offset, inner.extent, strict=True)
    return all(
        site.facts.proves(offset - start) and site.facts.proves(start + size - offset - extent)
        for start, size, offset, extent in axes
    )


def _added_once(sites: Sequence[Site], site: Site, node: Mma | Wgmma) -> None:
    """Show that what a product adds to is not started anew by one behind it, nor given the same product again."""
    for other in sites:
        again = other.node
        if not isinstance(again, Mma | Wgmma) or other.place <= site.place or other.loops != site.loops:
            continue
        if again.c.buffer != node.c.buffer or other.box(again.c) != site.box(node.c):
            continue
        if other.condition(again.accumulate) not in (FALSE, TRUE):
            raise refuse(
                "products", other.label, f"starts {again.c} anew, to which {site.label} added in its iteration"
            )
        adds = other.condition(again.accumulate) == TRUE
        if adds and (again.a, again.b) == (node.a, node.b) and not _written_between(sites, site, other):
            raise refuse("products", other.label, f"adds the product of {again.a} and {again.b} again ({site.label})")


def _written_between(sites: Sequence[Site], first: Site, last: Site) -> bool:
    """Return whether an operand of two products, or their sums, may be another when the later one begins."""
    assert isinstance(last.node, Mma | Wgmma)
    operands, sums = {last.node.a.buffer, last.node.b.buffer}, last.node.c.buffer
    for site in (site for site in sites if first.place < site.place < last.place):
        written = {access.region.buffer for access in site.node.accesses() if access.writes}
        if written & operands or (sums in written and not isinstance(site.node, Mma | Wgmma)):
            return True
    return False


def _used_at_once(sites: Sequence[Site], site: Site, node: Mma | Wgmma) -> None:
    """Show that a product that starts anew in each iteration of a loop is read in that iteration, not lost."""
    box = site.box(node.c)
    loops = site.loops[executor_loops(site) :]
    still = [loop for loop in loops if not any(loop.var in offset.atoms() for offset in box.offset)]
    if not still:
        return
    inside = still[-1].place
    for other in sites:
        reads = any(a.reads and a.region.buffer == box.buffer for a in other.node.accesses())
        if reads and other is not site and other.place[: len(inside)] == inside and other.place > site.place:
            return
    detail = f"{box.buffer} starts anew in each iteration of {still[-1].var}, and what it held was not read"
    raise refuse("products", site.label, detail)


def _swept(
    kernel: TileKernel, sites: Sequence[Site], site: Site, region: Region, summed: Sequence[Loop]
) -> _Steps | None:
    """Return the one interval of an operand's origin that moves with the summed loops; None where it was not traced."""
    if kernel.buffer(region.buffer).space is not MemorySpace.REGISTER:
        return _brought(kernel, sites, site, region, summed)
    loads = [s for s in sites if isinstance(s.node, LoadMatrix) and s.node.target.buffer == region.buffer]
    loads = [s for s in loads if not s.facts.contradictory()]
    if isinstance(region.offset[0], Mod):  # slots of registers, loaded ahead
        found = [_brought(kernel, sites, load, _loaded(load).source, summed) for load in loads]
        fills = [(s, _loaded(s).target, steps) for s, steps in zip(loads, found, strict=True) if steps is not None]
        return None if len(fills) != len(found) else _at_use(site, region, fills)
    loads = [s for s in loads if s.place < site.place and _always_before(s, site)]
    return _brought(kernel, sites, loads[-1], _loaded(loads[-1]).source, summed) if loads else None


def _loaded(site: Site) -> LoadMatrix:
    assert isinstance(site.node, LoadMatrix)
    return site.node


def _brought(
    kernel: TileKernel, sites: Sequence[Site], reader: Site, region: Region, summed: Sequence[Loop]
) -> _Steps | None:
    """Return the interval of K that a region of shared memory holds when it is read; None where that is not known."""
    placed = _placed(kernel, sites, reader, region, summed)
    if placed is not None:
        return placed
    found: list[_Steps] = []
    for copy in sites:
        node = copy.node
        if not isinstance(node, AsyncCopy | TmaCopy) or node.target.buffer != region.buffer:
            continue
        if not copy.facts.contradictory():
            steps = _through(kernel, reader, region, copy, summed)
            found += [] if steps is None else [steps]
    if not found:
        return None
    if any(steps != found[0] for steps in found):
        raise refuse("products", reader.label, f"the copies to {region.buffer} bring other steps of {found[0].array}")
    return found[0]


def _at_use(reader: Site, region: Region, fills: Sequence[tuple[Site, Region, _Steps]]) -> _Steps | None:
    """Return what all fills of a ring bring to the use that is read: the loop's own, and the first ones before it.

    A fill in a loop is solved for the reader's use; one before the loop must bring what the loop's would for its use.
    """
    wanted = use_number(reader, region, ())
    moving: list[_Steps] = []
    first: list[tuple[Site, Polynomial, _Steps]] = []
    for fill, target, steps in fills:
        written = use_number(fill, target, ())
        numbering = [loop for loop in fill.loops[executor_loops(fill) :] if stride_of(written, loop).terms]
        if not numbering:
            first.append((fill, written, steps))
            continue
        loop = numbering[-1]
        if len(numbering) > 1 or stride_of(written, loop) != Polynomial.of(1):
            return None
        offset = steps.offset.substitute(loop.var, wanted - (written - loop.atom))
        moving.append(replace(steps, offset=offset))
    if not moving or any(steps != moving[0] for steps in moving):
        return None
    for fill, use, steps in first:
        loops = [loop for loop in reader.loops if wanted - loop.atom == Polynomial({})]
        if not loops or replace(moving[0], offset=moving[0].offset.substitute(loops[0].var, use)) != steps:
            raise refuse("products", fill.label, f"{steps.array}: another first interval than the loop goes on with")
    return moving[0]


def _placed(
    kernel: TileKernel, sites: Sequence[Site], reader: Site, region: Region, summed: Sequence[Loop]
) -> _Steps | None:
    """Return the interval of a tile that copies brought by way of registers; None where that is not how it came."""
    fills: list[tuple[Site, Region, tuple[_Steps, _Steps]]] = []
    for store in _copies_into(sites, region.buffer):
        axes = _by_way_of_registers(kernel, sites, reader, region, store)
        if axes is None:
            return None
        fills.append((store, _copied(store).target, axes))
    found = (
        [_at_use(reader, region, [(s, t, axes[axis]) for s, t, axes in fills]) for axis in range(2)] if fills else []
    )
    known = [steps for steps in found if steps is not None]
    if len(known) != 2:
        return None
    moving = [steps for steps in known if any(loop.var in steps.offset.atoms() for loop in summed)]
    if len(moving) != 1:
        problem = f"{len(moving)} axes of {known[0].array} move with the sum, must be one"
        raise refuse("products", reader.label, problem)
    return moving[0]


def _by_way_of_registers(
    kernel: TileKernel, sites: Sequence[Site], reader: Site, region: Region, store: Site
) -> tuple[_Steps, _Steps] | None:
    """Return the rows and columns that a store of registers brings: those that were loaded in the same iteration."""
    held, target, read = store.box(_copied(store).source), store.box(_copied(store).target), reader.box(region)
    if kernel.buffer(held.buffer).space is not MemorySpace.REGISTER:
        return None
    loads = [s for s in _copies_into(sites, held.buffer) if s.place < store.place]
    if not loads or loads[-1].loops != store.loops or any(guard not in store.guards for guard in loads[-1].guards):
        raise refuse("products", store.label, f"{held.buffer} must be filled before it, in the same iteration")
    source = loads[-1].box(_copied(loads[-1]).source)
    shape = kernel.buffer(source.buffer).shape

    def axis(number: int) -> _Steps:
        offset = read.offset[number] - target.offset[number] + source.offset[number]
        return _Steps(source.buffer, offset, read.extent[number], store.canonical(shape[number]))

    return axis(-2), axis(-1)


def _copies_into(sites: Sequence[Site], name: str) -> list[Site]:
    return [s for s in sites if isinstance(s.node, CopyTile) and s.node.target.buffer == name]


def _copied(site: Site) -> CopyTile:
    assert isinstance(site.node, CopyTile)
    return site.node


def _always_before(load: Site, site: Site) -> bool:
    """Return whether every way to a node passes the load, in all iterations of loops that are the load's own."""
    own = [loop for loop in load.loops if loop not in site.loops]
    counted = all(loop.count.constant is not None and loop.count.constant >= 1 for loop in own)
    return counted and all(guard in site.guards for guard in load.guards)


def _through(kernel: TileKernel, reader: Site, region: Region, copy: Site, summed: Sequence[Loop]) -> _Steps | None:
    """Return the interval that one copy brought to what is read, its own use number solved for the reader's."""
    node = copy.node
    assert isinstance(node, AsyncCopy | TmaCopy)
    shared = [loop for loop in reader.loops[executor_loops(reader) :] if loop in copy.loops]
    # Roles share no loop: there each counts its own iterations.
    wanted = use_number(reader, region, shared or reader.loops[executor_loops(reader) :])
    written = use_number(copy, node.target, shared or copy.loops[executor_loops(copy) :])
    numbering = [loop for loop in copy.loops[executor_loops(copy) :] if stride_of(written, loop).terms]
    if len(numbering) > 1 or any(stride_of(written, loop) != Polynomial.of(1) for loop in numbering):
        return None
    source, target, read = copy.box(node.source), copy.box(node.target), reader.box(region)
    one = Polynomial.of(1)
    theirs = [axis for axis, extent in enumerate(source.extent) if extent != one]
    ours = [axis for axis, extent in enumerate(target.extent) if extent != one]
    if len(theirs) != len(ours):
        return None
    moving: list[_Steps] = []
    theirs_turns, our_turns = turns_of(copy), turns_of(reader)
    shape = kernel.buffer(source.buffer).shape
    for there, here in zip(theirs, ours, strict=True):
        shift = source.offset[there] - target.offset[here]
        for loop in numbering:
            shift = shift.substitute(loop.var, wanted - (written - loop.atom))
        offset = read.offset[here] + shift
        if theirs_turns is not None and our_turns is not None:  # of one turn: use numbers are (``mbarriers``)
            offset = offset.substitute(theirs_turns.first, Polynomial.atom(our_turns.first))
        if any(loop.var in offset.atoms() for loop in summed):
            moving.append(_Steps(source.buffer, offset, read.extent[here], copy.canonical(shape[there])))
    if len(moving) != 1:
        raise refuse("products", reader.label, f"{len(moving)} axes of {source.buffer} move with the sum, must be one")
    return moving[0]


def _covers(site: Site, steps: _Steps, summed: Sequence[Loop]) -> None:
    offset, loops = steps.offset, list(summed)
    segment = next((loop.segment for loop in site.loops if loop.segment is not None), None)
    if segment is not None:  # all segments of a tile together are one loop over its steps
        count = Polynomial.atom(segment.count)
        loops = [replace(loop, count=segment.steps) if loop.count == count else loop for loop in loops]
        moved = offset.substitute(segment.first, Polynomial({}))
        walked = [loop for loop in summed if loop.count == count]  # over the segment's steps, from its first one on
        shifts = [stride_of(offset, loop) * Polynomial.atom(segment.first) for loop in walked]
        offset = moved if offset - moved == sum(shifts, Polynomial({})) else offset
    sweep = chain(offset, steps.extent, steps.full, loops, site.unguarded, padded=True)
    if sweep is None or set(sweep.loops) != set(loops):
        raise refuse(
            "products",
            site.label,
            f"{steps.array}: [{steps.offset.to_index()} : +{steps.extent.to_index()}] was not shown to cover "
            f"[0, {steps.full.to_index()}) once over {', '.join(str(loop.var) for loop in summed)}",
        )
