"""Groups of asynchronous matrix products: committed, waited for, and complete where their sums or operands are used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes_async import Wgmma, WgmmaCommit, WgmmaWait
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.timeline import Timeline, first_use, last_before, turn_scope
from tracea.semantic.proofs.walk import Loop, Site, turns_of
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["prove_complete", "prove_products"]


def prove_products(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that accumulators of asynchronous products are touched by other nodes only when all products are complete.

    Raises:
        ProofFailed: a product may be unfinished, or was not committed, where its accumulator is used.
    """
    for name in sorted({node.c.buffer for node in kernel.body.walk() if isinstance(node, Wgmma)}):
        touching = [
            s
            for s in sites
            if not isinstance(s.node, Wgmma) and any(a.region.buffer == name for a in s.node.accesses())
        ]
        for wait in (site for site in sites if isinstance(site.node, WgmmaWait)):
            pending = wait.canonical(_wait_node(wait).pending)
            if pending.constant is None or pending.constant < 0:
                raise refuse("slots", wait.label, f"pending {pending.to_index()} is no constant of at least 0")
        _ends_each_turn(sites, name)
        for site in touching:
            scope = turn_scope(site)
            products, commits = (Timeline(tuple(sites), kind, scope) for kind in (Wgmma, WgmmaCommit))
            if not site.facts.proves(products.before(site) - 1) and products.before(site) == Polynomial({}):
                continue
            wait = last_before(sites, WgmmaWait, site)
            if wait is None:
                raise refuse("slots", site.label, f"uses {name} and waits for no matrix operation before it")
            done = commits.before(wait) - wait.canonical(_wait_node(wait).pending)
            if not site.facts.proves(done - commits.before(site)) or products.before(site) != products.before(wait):
                raise refuse(
                    "slots", site.label, f"uses {name}, when only groups below {done.to_index()} were waited for"
                )
            uncommitted = [s for s in sites if isinstance(s.node, Wgmma) and not _committed(sites, s)]
            if uncommitted:
                raise refuse("slots", uncommitted[0].label, "is in no group")
        yield Fact("slots", name, f"{len(touching)} uses of the accumulator follow the products")


def prove_complete(sites: Sequence[Site], read: Site, release: Site, *, freed: Polynomial, loop: Loop) -> None:
    """Show that the matrix operations that read a use are complete where it is released."""
    commits = Timeline(tuple(sites), WgmmaCommit, read.loops.index(loop))
    wait = last_before(sites, WgmmaWait, release)
    if wait is None:
        raise refuse("slots", release.label, "releases operands of matrix operations that were not waited for")
    done = commits.before(wait) - wait.canonical(_wait_node(wait).pending)
    group = commits.before(read).substitute(loop.var, freed - first_use(read))
    if not release.facts.proves(done - 1 - group):
        raise refuse(
            "slots",
            release.label,
            f"releases use {freed.to_index()}, read by group {group.to_index()}, when only groups below "
            f"{done.to_index()} were waited for",
        )


def _committed(sites: Sequence[Site], product: Site) -> bool:
    return any(
        isinstance(s.node, WgmmaCommit)
        and s.place > product.place
        and s.place[:-1] == product.place[: len(s.place) - 1]
        for s in sites
    )


def _ends_each_turn(sites: Sequence[Site], name: str) -> None:
    """Show that no product of one turn is unfinished when the next one begins: counting starts anew in each."""
    for product in sites:
        if not isinstance(product.node, Wgmma) or product.node.c.buffer != name or turns_of(product) is None:
            continue
        around = product.loops[: turn_scope(product)]
        waits = (
            s
            for s in sites
            if isinstance(s.node, WgmmaWait)
            and s.loops == around
            and s.place > product.place
            and all(guard in product.guards for guard in s.guards)
            and s.canonical(s.node.pending) == Polynomial({})
        )
        if next(waits, None) is None:
            raise refuse("slots", product.label, f"{name} may be unfinished when the next turn begins")


def _wait_node(site: Site) -> WgmmaWait:
    assert isinstance(site.node, WgmmaWait)
    return site.node
