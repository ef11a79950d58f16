"""Exact tilings: which loops make an interval sweep an axis, each element once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracea.semantic.index import Index, Lookup, ceil_div, minimum
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.predicate import Not, Predicate
from tracea.semantic.proofs.conditions import alternatives, conjuncts
from tracea.semantic.proofs.prover import Facts
from tracea.semantic.proofs.walk import Box, Loop

__all__ = ["Sweep", "chain", "hull", "stride_of"]


@dataclass(frozen=True, slots=True)
class Sweep:
    """The loops that sweep an axis, and the guards that cut their iterations to those inside."""

    loops: tuple[Loop, ...]
    guards: tuple[Predicate, ...] = ()


def stride_of(offset: Polynomial, loop: Loop) -> Polynomial:
    """Return the factor of the loop's variable in an offset that is linear in it; 0 where it does not occur."""
    result = Polynomial({})
    for monomial, value in offset.terms.items():
        if loop.var in monomial:
            left = list(monomial)
            left.remove(loop.var)
            result = result + Polynomial({tuple(left): value})
    return result


def chain(
    offset: Polynomial,
    extent: Polynomial,
    full: Polynomial,
    loops: Sequence[Loop],
    facts: Facts,
    *,
    guards: Sequence[Predicate] = (),
    padded: bool = False,
) -> Sweep | None:
    """Return how ``[offset, offset + extent)`` sweeps ``[0, full)`` once over the loops; None where it was not shown.

    A loop with stride S must have ceil(E / S) iterations for the E elements that are left to it, and leaves min(S, E
    − S·q) to the next; or more iterations, of which a guard lets exactly those with S·q < E through. ``padded``: the
    interval may reach beyond what is left, where the access is masked; so may whole iterations that stay within the
    stride of the loop around them, as those beyond what is left of the axis do. A loop over the intervals that an
    ascending table cuts the axis into leaves one of them to the next.
    """
    used = [loop for loop in loops if stride_of(offset, loop).terms]
    rest, left, cut = _interval(offset, full, loops)
    if cut in used:
        return None
    around: Polynomial | None = None
    through: list[Predicate] = []
    for loop in _slowest_first(used, offset):
        stride = stride_of(offset, loop)
        if any(other.var in stride.atoms() for other in loops) or not facts.proves(stride - 1):
            return None
        needed = normalize(ceil_div(left.to_index(), stride.to_index()))
        swept = stride * loop.atom
        # Facts inside the loop would not do: where it has no iteration they prove anything.
        if not loop.outside.proves_equal(loop.count, needed):
            enough = loop.outside.proves(loop.count - needed)
            within = padded and (around is None or loop.outside.proves(around - loop.count * stride))
            if not (enough and within):
                guard = _guard_of(left - swept - 1, guards, facts) if enough else None
                if guard is None:
                    return None
                through.append(guard)
        around = stride
        rest = rest - swept
        left = normalize(minimum(stride.to_index(), (left - swept).to_index()))
    if not facts.proves_equal(rest, Polynomial({})):
        return None
    inside = facts.plus([p for guard in guards for p in conjuncts(guard) or ()])
    if not inside.proves_equal(left, extent) and not (padded and inside.proves(extent - left) and used):
        return None
    return Sweep((*used, *([cut] if cut else ())), tuple(through))


def _interval(
    offset: Polynomial, full: Polynomial, loops: Sequence[Loop]
) -> tuple[Polynomial, Polynomial, Loop | None]:
    """Return what of an offset lies within one interval of an ascending table, its length, and the loop over all.

    The whole offset, the axis and no loop, where no table's intervals are the axis.
    """
    for loop in loops:
        for atom in offset.atoms():
            if not isinstance(atom, Lookup) or normalize(atom.index) != loop.atom or offset.coefficient((atom,)) != 1:
                continue
            cut = loop.outside.intervals(atom.table)
            if cut is None or cut[1] != full or not loop.outside.proves_equal(loop.count, cut[0]):
                continue
            begin, end = Polynomial.atom(atom), normalize(Lookup(atom.table, atom.index + 1))
            return offset - begin, end - begin, loop
    return offset, full, None


def _guard_of(inside: Polynomial, guards: Sequence[Predicate], facts: Facts) -> Predicate | None:
    """Return the guard that holds exactly where ``inside >= 0``."""
    for guard in guards:  # most are written in the very words that are sought
        if conjuncts(guard) == (inside,):
            return guard
    where, elsewhere = facts.plus([inside]), facts.plus([-inside - 1])
    for guard in sorted(guards, key=lambda guard: -_shared(guard, inside)):  # the likeliest first
        if where.proves_predicate(guard) and elsewhere.proves_predicate(Not(guard)):
            return guard
    return None


def _shared(guard: Predicate, polynomial: Polynomial) -> int:
    """Return how many unknowns a guard shares with a polynomial."""
    named = frozenset[Index]().union(*(part.atoms() for case in alternatives(guard) for part in case))
    return len(named & polynomial.atoms())


def hull(box: Box, loops: Sequence[Loop], facts: Facts) -> tuple[Box, tuple[Loop, ...]] | None:
    """Return the union of a box over some loops, and those that move it; None where it was not shown exactly."""
    offsets: list[Polynomial] = []
    extents: list[Polynomial] = []
    moving: list[Loop] = []
    for offset, extent in zip(box.offset, box.extent, strict=True):
        used = _slowest_first([loop for loop in loops if stride_of(offset, loop).terms], offset)
        base = offset
        for loop in used:
            base = base - stride_of(offset, loop) * loop.atom
        swept = _swept(offset - base, extent, used, facts)
        if swept is None or any(loop.var in part.atoms() for part in (base, swept) for loop in loops):
            return None
        moving += used
        offsets.append(base)
        extents.append(swept)
    if len(set(moving)) != len(moving):
        return None
    return Box(box.buffer, tuple(offsets), tuple(extents)), tuple(moving)


def _swept(offset: Polynomial, extent: Polynomial, used: Sequence[Loop], facts: Facts) -> Polynomial | None:
    if not used:
        return extent
    first = used[0]
    stride = stride_of(offset, first)
    candidates = [first.count * stride]
    ratio, rest = first.step.split(stride)
    if not rest.terms:
        candidates.insert(0, normalize(ceil_div(first.extent.to_index(), ratio.to_index())))
    for candidate in candidates:
        if chain(offset, extent, candidate, used, facts) is not None:
            return candidate
    return None


def _slowest_first(loops: Sequence[Loop], offset: Polynomial) -> list[Loop]:
    strides = [stride_of(offset, loop).constant for loop in loops]
    if any(stride is None for stride in strides):
        return list(loops)
    return [
        loop
        for _, _, loop in sorted(  # of equal strides, a loop of one iteration moves nothing: it comes last
            zip(strides, range(len(loops)), loops, strict=True),
            key=lambda t: (-(t[0] or 0), t[2].count.constant == 1, t[1]),
        )
    ]
