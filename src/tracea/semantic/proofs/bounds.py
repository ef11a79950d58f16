"""Bounds: every region lies within its buffer, every entry in its table, every gathered coordinate exists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.semantic.fields import expressions, subexpressions
from tracea.semantic.index import Lookup
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes_async import Gather
from tracea.semantic.predicate import TRUE, Predicate
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.prover import Facts
from tracea.semantic.proofs.walk import Site
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["point_facts", "prove_bounds"]


def prove_bounds(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that regions lie in their buffers, for all unmasked accesses, and looked-up entries in their tables.

    Raises:
        ProofFailed: an offset, an end, an extent or an entry was not shown to be within its limits.
    """
    for site in sites:
        yield from _entries(kernel, site)
        for access, box in site.accesses():
            shape = [site.canonical(size) for size in kernel.buffer(box.buffer).shape]
            for axis, (offset, extent, size) in enumerate(zip(box.offset, box.extent, shape, strict=True)):
                where = f"{box.buffer} axis {axis}"
                _show(site, extent, f"{where}: extent {extent.to_index()} >= 0")
                if not access.masked:
                    _show(site, offset, f"{where}: offset {offset.to_index()} >= 0")
                    end = offset + extent
                    _show(site, size - end, f"{where}: end {end.to_index()} <= {size.to_index()}")
            yield Fact("bounds", site.label, f"{access.mode.value} {access.region} within {box.buffer}")
        if isinstance(site.node, Gather):
            yield from _gather(kernel, site, site.node)


def _gather(kernel: TileKernel, site: Site, node: Gather) -> Iterator[Fact]:
    buffer = kernel.buffer(node.source)
    cases = point_facts(site, node, node.predicate)
    for axis, (coordinate, size) in enumerate(zip(node.coordinates, buffer.shape, strict=True)):
        place, limit = site.canonical(coordinate), site.canonical(size)
        for case in cases:
            if not case.proves(place) or not case.proves(limit - place - 1):
                raise refuse(
                    "bounds",
                    site.label,
                    f"{buffer.name} axis {axis}: {coordinate} was not shown to be in [0, {size}) "
                    f"where {node.predicate}",
                )
    yield Fact("bounds", site.label, f"gathered coordinates of {buffer.name} exist where {node.predicate}")


def point_facts(site: Site, node: Gather, predicate: Predicate) -> tuple[Facts, ...]:
    """Return the cases of one point of a gather: within the target's extent, where a condition holds."""
    facts = site.facts
    for point, extent in zip(node.points, node.target.extent, strict=True):
        this = Polynomial.atom(point)
        facts = facts.plus((this, site.canonical(extent) - this - 1))
    return facts.assuming(site.condition(predicate))


def _entries(kernel: TileKernel, site: Site) -> Iterator[Fact]:
    """Show that a node looks up entries that its tables have; a gather's condition is asked at every point."""
    entries = {part for e in expressions(site.node) for part in subexpressions(e) if isinstance(part, Lookup)}
    if not entries:
        return
    cases = point_facts(site, site.node, TRUE) if isinstance(site.node, Gather) else (site.facts,)
    lengths = {table.name: table.length for table in kernel.tables}
    for entry in sorted(entries, key=str):
        if entry.table not in lengths:
            raise refuse("bounds", site.label, f"{entry} is of a table that {kernel.name} does not have")
        place, length = site.canonical(entry.index), site.canonical(lengths[entry.table])
        if not all(case.proves(place) and case.proves(length - place - 1) for case in cases):
            detail = f"{entry}: entry {place.to_index()} was not shown to be in [0, {length.to_index()})"
            raise refuse("bounds", site.label, detail)
    yield Fact("bounds", site.label, f"{', '.join(map(str, sorted(entries, key=str)))} within their tables")


def _show(site: Site, goal: Polynomial, statement: str) -> None:
    if not site.facts.proves(goal):
        loops = ", ".join(f"0 <= {loop.var} < {loop.count.to_index()}" for loop in site.loops) or "no loop"
        raise refuse("bounds", site.label, f"{statement} was not shown, for {loops}")
