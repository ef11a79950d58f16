"""Minimal synchronisation: which waits and barriers a kernel could do without, or have weaker, and still be proved.

A finding, not an error: a superfluous wait is slow, not wrong. What is tried of each node: without it; a wait for one
group less; a barrier of the subgroup instead of the block. What still passes every proof about order is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tracea.errors import InvalidSchedule, ProofFailed
from tracea.semantic.nodes import Barrier, Level, Node
from tracea.semantic.nodes_async import AwaitFlag, MbarrierWait, WaitGroup, WgmmaWait
from tracea.semantic.proofs.flags import flag_buffers, prove_flags, workspaces
from tracea.semantic.proofs.initialized import prove_initialized
from tracea.semantic.proofs.matrix_groups import prove_products
from tracea.semantic.proofs.mbarriers import prove_mbarriers, tma_rings
from tracea.semantic.proofs.placed_rings import placed_rings, prove_placed_rings
from tracea.semantic.proofs.races import prove_races
from tracea.semantic.proofs.rules import barrier_buffers, prove_rules
from tracea.semantic.proofs.slots import group_rings, prove_slots
from tracea.semantic.proofs.walk import walk
from tracea.semantic.rewrite import edited, places
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["Superfluous", "prove_order", "superfluous_waits"]


@dataclass(frozen=True, slots=True)
class Superfluous:
    """A wait that is stronger than the proofs need: the node, and the weaker one that they accept as well."""

    node: str
    statement: str


def superfluous_waits(kernel: TileKernel) -> tuple[Superfluous, ...]:
    """Return every wait and barrier of a proved kernel that could be weaker, with the weakest that was accepted."""
    found: list[Superfluous] = []
    for place, node in places(kernel.body, ()):
        label = f"{type(node).__name__} at {'.'.join(map(str, place))}"
        for statement, weaker in _weaker(node):
            if _holds(edited(kernel, place, weaker)):
                found.append(Superfluous(label, statement))
                break
    return tuple(found)


def prove_order(kernel: TileKernel) -> None:
    """Prove all that depends on waits and barriers: races, initialisation, slots, mbarriers, products, flags.

    Raises:
        ProofFailed: one of them was not shown.
    """
    sites = walk(kernel)
    rings = group_rings(kernel) | tma_rings(kernel) | barrier_buffers(kernel)
    rings |= flag_buffers(kernel) | workspaces(kernel) | placed_rings(kernel)
    proofs: Sequence[Iterator[object]] = (
        prove_slots(kernel, sites),
        prove_placed_rings(kernel, sites),
        prove_rules(kernel, sites),
        prove_mbarriers(kernel, sites),
        prove_products(kernel, sites),
        prove_flags(kernel, sites),
        prove_races(kernel, sites, rings),
        prove_initialized(kernel, sites, rings),
    )
    for proof in proofs:
        for _ in proof:
            pass


def _weaker(node: Node) -> Iterator[tuple[str, Node | None]]:
    """Yield weaker forms of a wait, the weakest first."""
    match node:
        case WaitGroup() | WgmmaWait():
            yield "is not needed", None
            yield (
                f"may leave {node.pending + 1} groups pending, leaves {node.pending}",
                replace(node, pending=node.pending + 1),
            )
        case Barrier(level=Level.BLOCK):
            yield "is not needed", None
            yield "need be met by the subgroup only", replace(node, level=Level.SUBGROUP)
        case MbarrierWait() | AwaitFlag():
            yield "is not needed", None
        case _:
            pass


def _holds(kernel: TileKernel) -> bool:
    try:
        prove_order(kernel)
    except (ProofFailed, InvalidSchedule):
        return False
    return True
