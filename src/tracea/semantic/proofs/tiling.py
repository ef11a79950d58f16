"""Exact tilings: which loops make an interval sweep an axis, each element once."""

from __future__ import annotations

from collections.abc import Sequence

from tracea.semantic.index import ceil_div, minimum
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.proofs.prover import Facts
from tracea.semantic.proofs.walk import Box, Loop

__all__ = ["chain", "hull", "stride_of"]


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
    offset: Polynomial, extent: Polynomial, full: Polynomial, loops: Sequence[Loop], facts: Facts
) -> tuple[Loop, ...] | None:
    """Return the loops over which ``[offset, offset + extent)`` sweeps ``[0, full)``, each element once; None where it was not shown.

    A loop with stride S must have ceil(E / S) iterations for the E elements that are left to it, and leaves min(S, E − S·q) to the next.
    """
    used = [loop for loop in loops if stride_of(offset, loop).terms]
    rest = offset
    left = full
    for loop in _slowest_first(used, offset):
        stride = stride_of(offset, loop)
        if any(other.var in stride.atoms() for other in loops):
            return None
        if not facts.proves(stride - 1):
            return None
        needed = normalize(ceil_div(left.to_index(), stride.to_index()))
        if not loop.outside.proves_equal(loop.count, needed) and not facts.proves_equal(loop.count, needed):
            return None
        swept = stride * loop.atom
        rest = rest - swept
        left = normalize(minimum(stride.to_index(), (left - swept).to_index()))
    if not facts.proves_equal(rest, Polynomial({})) or not facts.proves_equal(left, extent):
        return None
    return tuple(used)


def hull(box: Box, loops: Sequence[Loop], facts: Facts) -> tuple[Box, tuple[Loop, ...]] | None:
    """Return the union of a box over all iterations of some loops, and the loops that move it; None where it was not shown exactly."""
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
    return [loop for _, _, loop in sorted(zip(strides, range(len(loops)), loops, strict=True), key=lambda t: (-(t[0] or 0), t[1]))]
