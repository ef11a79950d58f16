"""Divisions: every quotient, remainder and step is defined, as it is written and as it is printed.

C rounds a quotient towards zero, Python down: they agree where no dividend is negative. Text holds the simplest form
of an expression, whose dividend may be another one: ``(n + d - 1) / d`` is printed ``(n - 1) / d + 1``, which is 1
too many at ``n = 0``. So both forms are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.semantic.fields import divisions, expressions
from tracea.semantic.index import FloorDiv, Index, Mod, ceil_div
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import For, Parallel
from tracea.semantic.nodes_async import Gather
from tracea.semantic.predicate import And
from tracea.semantic.proofs.bounds import point_facts
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.prover import Facts
from tracea.semantic.proofs.walk import Site, unshown_step
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["prove_divisions"]

_Cases = tuple[Facts, ...]


def prove_divisions(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that divisors and steps are at least 1 and dividends at least 0, where C and Python agree.

    Raises:
        ProofFailed: it was not shown of one of them.
    """
    _declared(kernel, sites[0])
    seen: set[tuple[Index, tuple[int, ...]]] = set()
    for site in sites:
        node = site.node
        if isinstance(node, For | Parallel):
            step = site.canonical(node.step)
            if not site.facts.proves(step - 1):
                raise unshown_step(node, site.label, step)
        for expression, cases in _evaluated(site):
            for division in _both_forms(expression):
                if (division, site.place) not in seen:
                    seen.add((division, site.place))
                    _check(site, division, cases)
    yield Fact("division", kernel.name, f"{len(seen)} quotients and remainders are defined")


def _evaluated(site: Site) -> Iterator[tuple[Index, _Cases]]:
    """Yield what a node computes, and the cases in which it does."""
    node, always = site.node, (site.facts,)
    if isinstance(node, Gather):
        # A point's condition is evaluated part by part: none may rest on itself or on one after it.
        parts = node.predicate.parts if isinstance(node.predicate, And) else (node.predicate,)
        for number, part in enumerate(parts):
            cases = point_facts(site, node, And(parts[:number]))
            yield from ((expression, cases) for expression in expressions(part))
        cases = point_facts(site, node, node.predicate)
        yield from ((coordinate, cases) for coordinate in node.coordinates)
        yield from ((expression, always) for expression in expressions(node.target))
        return
    yield from ((expression, always) for expression in expressions(node))
    if isinstance(node, Parallel):
        yield ceil_div(node.extent, node.step), always  # the number of its tasks


def _both_forms(expression: Index) -> Iterator[FloorDiv | Mod]:
    """Yield the divisions of an expression as it is written, and those of its simplest form."""
    simple = expression.simplify()
    for division in divisions((expression,) if simple == expression else (expression, simple)):
        if isinstance(division, FloorDiv | Mod):
            yield division


def _check(site: Site, division: FloorDiv | Mod, cases: _Cases) -> None:
    _positive(site.label, division, site.canonical(division.right), cases)
    _not_negative(site.label, division, site.canonical(division.left), cases)


def _positive(where: str, division: FloorDiv | Mod, divisor: Polynomial, cases: _Cases) -> None:
    if not all(case.proves(divisor - 1) for case in cases):
        raise refuse("division", where, f"divisor {division.right} of {division} was not shown to be at least 1")


def _not_negative(where: str, division: FloorDiv | Mod, dividend: Polynomial, cases: _Cases) -> None:
    if not all(case.proves(dividend) for case in cases):
        raise refuse("division", where, f"dividend {division.left} of {division} was not shown to be at least 0")


def _declared(kernel: TileKernel, root: Site) -> None:
    """Show the same of sizes and strides; of what the host alone computes, in Python, that no divisor is 0."""
    for buffer in kernel.buffers:
        for expression in (*buffer.shape, *(buffer.strides or ())):
            for division in _both_forms(expression):
                _positive(buffer.name, division, normalize(division.right), (root.facts,))
                _not_negative(buffer.name, division, normalize(division.left), (root.facts,))
    # An assumption is what the facts begin with: its own divisors have nothing but the ranges of the arguments.
    ranges = (Facts(),)
    hosts = [(kernel.name, kernel.assumptions), *((t.name, (t.length, t.minimum, t.maximum)) for t in kernel.tables)]
    for name, computed in hosts:
        for division in divisions(computed):
            if isinstance(division, FloorDiv | Mod):
                _positive(name, division, normalize(division.right), ranges)
