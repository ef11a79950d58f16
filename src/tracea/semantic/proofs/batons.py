"""Batons: mbarriers by which two executors that share the turns of a persistent block keep the order of their waits.

One parity bit tells a phase from its neighbours only. A reader of use u may stand at its wait only when the phase of
use u − N, in the same slot, was seen to be complete; else it could take that one's completion, or an older one's, for
its own. One reader's own waits come in the order of its uses. Readers that take turns need more: turn t + 1 may not
begin to wait before turn t has waited for all its uses. Batons say so, one for each of two executors: turn t arrives,
after its last wait, at slot ``(t + 1) mod 2``, the one of the executor that has turn t + 1; and turn t waits at slot
``t mod 2`` before its first wait for the arrival of turn t − 1, number ``(t − 1) div 2`` there, by the parity of that
number, ``((t + 1) div 2 + 1) mod 2``: turn 0 passes a fresh barrier.

An executor may be four warps that nothing keeps in step: the wait for a warpgroup's matrix operations holds the warp
that executes it. So an arrival counts once for each warp, and the argument is one of warps. Each bit is enough. A warp
that stands at turn t has passed its wait of turn t − 2, for phase p − 1 of its baton, so that this one is complete. And
phase p + 1 is not: its last arrivals are those of turn t + 1, of warps that waited for an arrival of turn t of every
warp, this one among them. By the same chain, turn t + 1 begins when every warp of turn t has passed all its waits.

One baton for both would be too few: its phase is made by the two executors in turn, so that a warp that has arrived in
turn t comes to turn t + 2 while a slower one of its executor has yet to arrive in turn t, sees that phase t − 1 is
complete, of the parity that it waits for, and passes.

Nobody waits in a circle: turn t waits for arrivals of turns before t and for copies of uses up to its own; a copy waits
for releases of uses before it, each of which follows waits of that use's turn or of the next use in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracea.semantic.linear import normalize
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
    if turns.shares.constant != _TWO:
        raise refuse("slots", baton, f"orders two executors by one bit each, not {turns.shares.to_index()}")
    assert isinstance(taken.node, MbarrierWait)
    assert isinstance(handed.node, MbarrierArrive)
    turn = turns.turn
    for site, slot, right in ((taken, taken.node.slot, turn % _TWO), (handed, handed.node.slot, (turn + 1) % _TWO)):
        if site.canonical(slot) != normalize(right):
            detail = f"names slot {slot} of {baton}, must be {right}: an executor's warps are not in step, so that each"
            raise refuse("slots", site.label, f"{detail} executor waits where only the other arrives")
    wanted = normalize(((turn + 1) // _TWO + 1) % 2)
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
