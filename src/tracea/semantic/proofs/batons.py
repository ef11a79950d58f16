"""Batons: mbarriers by which executors that share the turns of a persistent block keep the order of their waits.

One parity bit tells a phase from its neighbours only. A reader of use u may stand at its wait only when the phase of
use u − N, in the same slot, was seen to be complete; else it could take that one's completion, or an older one's, for
its own. One reader's own waits come in the order of its uses. Readers that take turns need more: turn t + 1 may not
begin to wait before turn t has waited for all its uses. A baton says so: a single barrier at which turn t arrives after
its last wait, as arrival number t, and for whose phase t − 1 turn t waits before its first, by parity ``(t + 1) mod
2``: turn 0 passes a fresh barrier. The baton's own bit is enough for two executors: the one that stands at turn t has
made arrival t − 2 itself and will make arrival t, so that t − 1 or t of them have come.

Nobody waits in a circle: turn t waits for arrivals of turns before t and for copies of uses up to its own; a copy waits
for releases of uses before it, each of which follows waits of that use's turn or of the next use in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes_async import MbarrierArrive, MbarrierExpect, MbarrierWait, TmaCopy
from tracea.semantic.proofs.certificate import refuse
from tracea.semantic.proofs.rules import arrivals
from tracea.semantic.proofs.timeline import executor_loops, turn_scope
from tracea.semantic.proofs.walk import Loop, Site, turns_of

__all__ = ["batons", "prove_baton"]

_TWO = 2
_Use = MbarrierArrive | MbarrierExpect | MbarrierWait | TmaCopy


def batons(sites: Sequence[Site]) -> frozenset[str]:
    """Return the names of the barriers at which one program both arrives and waits, and no other does either."""
    users: dict[str, set[tuple[Loop, ...]]] = {}
    kinds: dict[str, set[type]] = {}
    for site in sites:
        if isinstance(site.node, _Use):
            users.setdefault(site.node.barrier, set()).add(site.loops[: executor_loops(site)])
            kinds.setdefault(site.node.barrier, set()).add(type(site.node))
    own = {MbarrierArrive, MbarrierWait}
    return frozenset(name for name, programs in users.items() if len(programs) == 1 and kinds[name] == own)


def prove_baton(sites: Sequence[Site], read: Site, loop: Loop, names: frozenset[str]) -> None:
    """Show that a turn stands at its waits only after the turn before has passed all of its own.

    Raises:
        ProofFailed: there is no baton, or it is not taken before a turn's waits and handed on after them.
    """
    turns = turns_of(read)
    assert turns is not None
    if len(names) != 1:
        raise refuse("slots", read.label, f"executors take turns, {len(names)} batons order their waits, must be one")
    (baton,) = names
    scope = turn_scope(read)
    body = (*read.loops[scope - 1].place, 0)
    taken = _only(sites, baton, MbarrierWait, body)
    handed = _only(sites, baton, MbarrierArrive, body)
    if turns.shares.constant not in (1, _TWO):
        raise refuse("slots", baton, f"orders two executors by its one bit, not {turns.shares.to_index()}")
    assert isinstance(taken.node, MbarrierWait)
    assert isinstance(handed.node, MbarrierArrive)
    for site, slot in ((taken, taken.node.slot), (handed, handed.node.slot)):
        if site.canonical(slot) != Polynomial({}):
            raise refuse("slots", site.label, f"names slot {slot} of {baton}, which has one")
    wanted = normalize((turns.turn + 1) % 2)
    if taken.canonical(taken.node.parity) != wanted:
        detail = f"waits for parity {taken.node.parity}, the turn before completes {wanted.to_index()}"
        raise refuse("slots", taken.label, detail)
    for site in sites:
        mine = isinstance(site.node, MbarrierWait) and site.loops[:scope] == read.loops[:scope]
        if mine and site is not taken and not taken.place < site.place < handed.place:
            raise refuse("slots", site.label, f"waits while another turn may: not between {baton} taken and handed on")
    if not taken.place < loop.place < handed.place:
        raise refuse("slots", read.label, f"{loop.var} does not lie between {baton} taken and handed on")
    arrivals(sites, baton, [handed])


def _only(sites: Sequence[Site], baton: str, kind: type, body: tuple[int, ...]) -> Site:
    """Return the one node of a kind at the baton; show that it stands directly in the turn."""
    found = [s for s in sites if isinstance(s.node, kind) and getattr(s.node, "barrier", None) == baton]
    if len(found) != 1 or found[0].place[:-1] != body:
        raise refuse("slots", baton, f"must have one {kind.__name__} in each turn, has {len(found)} nodes")
    return found[0]
