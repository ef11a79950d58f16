"""Bounds: every region lies within its buffer, every division is defined, every gathered coordinate exists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.semantic.fields import divisions
from tracea.semantic.index import FloorDiv, Index, Mod
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import For, Parallel
from tracea.semantic.nodes_async import Gather
from tracea.semantic.predicate import Predicate
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.prover import Facts
from tracea.semantic.proofs.walk import Site, unshown_step
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["prove_bounds", "prove_divisions"]


def prove_bounds(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that regions lie in their buffers, for all unmasked accesses.

    Raises:
        ProofFailed: an offset, an end or an extent was not shown to be within its limits.
    """
    for site in sites:
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


def prove_divisions(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that divisors and steps are at least 1 and dividends at least 0, where C and Python agree.

    Raises:
        ProofFailed: it was not shown of one of them.
    """
    seen: set[tuple[Index, tuple[int, ...]]] = set()
    for site in sites:
        facts, node = site.facts, site.node
        if isinstance(node, For | Parallel):
            step = site.canonical(node.step)
            if not facts.proves(step - 1):
                raise unshown_step(node, site.label, step)
        cases = _point_facts(site, node) if isinstance(node, Gather) else (facts,)
        for division in divisions(node):
            if not isinstance(division, FloorDiv | Mod) or (division, site.place) in seen:
                continue
            seen.add((division, site.place))
            dividend, divisor = site.canonical(division.left), site.canonical(division.right)
            if not all(case.proves(divisor - 1) for case in cases):
                raise refuse(
                    "division", site.label, f"divisor {division.right} of {division} was not shown to be at least 1"
                )
            if not all(case.proves(dividend) for case in cases):
                raise refuse(
                    "division", site.label, f"dividend {division.left} of {division} was not shown to be at least 0"
                )
    for buffer in kernel.buffers:
        for division in divisions(buffer.shape):
            if isinstance(division, FloorDiv | Mod) and not sites[0].facts.proves(normalize(division.right) - 1):
                raise refuse("division", buffer.name, f"divisor of {division} was not shown to be at least 1")
    yield Fact("division", kernel.name, f"{len(seen)} quotients and remainders are defined")


def _gather(kernel: TileKernel, site: Site, node: Gather) -> Iterator[Fact]:
    buffer = kernel.buffer(node.source)
    cases = _point_facts(site, node)
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


def _point_facts(site: Site, node: Gather) -> tuple[Facts, ...]:
    """Return the cases in which one point of a gather reads: within the target's extent, where the predicate holds."""
    facts = site.facts
    for point, extent in zip(node.points, node.target.extent, strict=True):
        this = Polynomial.atom(point)
        facts = facts.plus((this, site.canonical(extent) - this - 1))
    condition: Predicate = site.condition(node.predicate)
    return facts.assuming(condition)


def _show(site: Site, goal: Polynomial, statement: str) -> None:
    if not site.facts.proves(goal):
        loops = ", ".join(f"0 <= {loop.var} < {loop.count.to_index()}" for loop in site.loops) or "no loop"
        raise refuse("bounds", site.label, f"{statement} was not shown, for {loops}")
